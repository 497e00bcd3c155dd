//! Parca: `parca.profilestore.v1alpha1.ProfileStoreService/WriteRaw` as its HTTP server has it, in JSON.
//!
//! Addresses are those of the files, with their build ids (`normalized`): what has no name here gets one from the debug information that Parca knows. Allocations of a cycle are a difference already;
//! Parca takes a profile with a duration for one.

use super::http::Protocol;
use super::payload::{Origin, series_labels};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use profile::{Format, Options, Profile, Symbols};
use serde_json::json;
use std::io;

pub(super) const PROTOCOL: Protocol = Protocol {
    path: "/api/profiles/writeraw",
    media_type: "application/json",
    // The profile in it is compressed.
    encoding: None,
    message,
    rejected: |_| None,
};

/// The body of the request: <https://github.com/parca-dev/parca/blob/main/proto/parca/profilestore/v1alpha1/profilestore.proto>
pub(super) fn body(mut profile: Profile, symbols: &Symbols, origin: &Origin) -> io::Result<Vec<u8>> {
    for mapping in &mut profile.mappings {
        mapping.normalize();
    }
    let mut raw_profile = Vec::new();
    Format::Pprof.encode(&profile, symbols, &Options::default(), &mut raw_profile)?;
    let labels = series_labels(&profile, origin, &[], usize::MAX).into_iter();
    let labels: Vec<_> = labels.map(|(name, value)| json!({"name": name, "value": value})).collect();
    let samples = json!([{"rawProfile": STANDARD.encode(raw_profile)}]);
    let request = json!({"series": [{"labels": {"labels": labels}, "samples": samples}], "normalized": true});
    Ok(request.to_string().into_bytes())
}

/// What an answer of the engine says: `{"code": 3, "message": "..."}`.
fn message(body: &[u8]) -> Option<String> {
    let answer: serde_json::Value = serde_json::from_slice(body).ok()?;
    Some(answer.get("message")?.as_str()?.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_told_in_its_own_words() {
        let answer = br#"{"code":3,"message":"failed to parse profile","details":[]}"#;
        assert_eq!(message(answer).as_deref(), Some("failed to parse profile"));
        assert_eq!(message(b"<html>"), None);
    }
}
