//! Grafana Pyroscope: `push.v1.PusherService/Push`, a Connect call with gzipped protobuf.
//!
//! A profile becomes a series by its labels, of which `__name__` says what it is: `process_cpu`, `wall`, `off_cpu` or `memory`. Allocations of a cycle are a
//! difference already, and `__delta__="false"` keeps the engine from taking another one.

use super::http::Protocol;
use super::payload::{Origin, id, series_labels};
use flate2::Compression;
use flate2::write::GzEncoder;
use profile::{Format, Options, Profile, Symbols};
use prost::Message;
use std::io::{self, Write};

pub(super) const PROTOCOL: Protocol = Protocol {
    path: "/push.v1.PusherService/Push",
    media_type: "application/proto",
    encoding: Some("gzip"),
    message,
    rejected: |_| None,
};
/// Most labels that the engine takes of a series unless it is told.
const MOST_LABELS: usize = 30;

/// <https://github.com/grafana/pyroscope/blob/main/api/push/v1/push.proto>
#[derive(Clone, PartialEq, Message)]
struct PushRequest {
    #[prost(message, repeated, tag = "1")]
    series: Vec<RawProfileSeries>,
}

#[derive(Clone, PartialEq, Message)]
struct RawProfileSeries {
    #[prost(message, repeated, tag = "1")]
    labels: Vec<LabelPair>,
    #[prost(message, repeated, tag = "2")]
    samples: Vec<RawSample>,
}

#[derive(Clone, PartialEq, Message)]
struct LabelPair {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(string, tag = "2")]
    value: String,
}

#[derive(Clone, PartialEq, Message)]
struct RawSample {
    #[prost(bytes = "vec", tag = "1")]
    raw_profile: Vec<u8>,
    #[prost(string, tag = "2")]
    id: String,
}

/// The body of the request.
pub(super) fn body(profile: &Profile, symbols: &Symbols, origin: &Origin) -> io::Result<Vec<u8>> {
    let mut raw_profile = Vec::new();
    Format::Pprof.encode(profile, symbols, &Options::default(), &mut raw_profile)?;
    let samples = vec![RawSample { raw_profile, id: id()? }];
    let request = PushRequest { series: vec![RawProfileSeries { labels: labels(profile, origin), samples }] };
    // What is inside is compressed already; the engine wants to see the header.
    let mut gzip = GzEncoder::new(Vec::new(), Compression::fast());
    gzip.write_all(&request.encode_to_vec())?;
    gzip.finish()
}

fn labels(profile: &Profile, origin: &Origin) -> Vec<LabelPair> {
    let labels = series_labels(profile, origin, &[("__delta__", "false")], MOST_LABELS);
    labels.into_iter().map(|(name, value)| LabelPair { name, value }).collect()
}

/// What an answer of the engine says: `{"code": "...", "message": "..."}`.
fn message(body: &[u8]) -> Option<String> {
    let answer: serde_json::Value = serde_json::from_slice(body).ok()?;
    Some(format!("{}: {}", answer.get("code")?.as_str()?, answer.get("message")?.as_str()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use profile::SampleType;

    #[test]
    fn labels_are_bounded_and_have_names_that_the_engine_takes() {
        let labels_given = (0..50).map(|n| (format!("{n}.a-b"), "x".to_owned())).collect();
        let origin = Origin { service: "shop".to_owned(), labels: labels_given, mode: None };
        let memory = Profile::new(vec![SampleType::new("inuse_space", "bytes")]);
        let labels = labels(&memory, &origin);
        assert_eq!(labels.len(), MOST_LABELS);
        let value = |name: &str| labels.iter().find(|label| label.name == name).map(|label| label.value.as_str());
        assert_eq!((value("__name__"), value("service_name")), (Some("memory"), Some("shop")));
        assert_eq!((value("__delta__"), value("_0_a_b")), (Some("false"), Some("x")));
        assert!(labels.is_sorted_by(|a, b| a.name < b.name), "as the engine sorts them");
    }

    #[test]
    fn an_answer_is_told_in_its_own_words() {
        let answer = br#"{"code":"invalid_argument","message":"invalid metric name"}"#;
        assert_eq!(message(answer).as_deref(), Some("invalid_argument: invalid metric name"));
        assert_eq!(message(b"<html>"), None);
    }
}
