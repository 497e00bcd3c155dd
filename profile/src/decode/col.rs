//! gProfiler's `.col`, as [`crate::encode::col`] describes it.
//!
//! Container, application and what `application_metadata` says of a line become labels (`container`, `appid`, and its own keys), comm the
//! name of the process.

use super::{DecodeError, Limits};
use crate::encode::col::APP_ID;
use crate::{Frame, Label, Labels, Profile, Sample, SampleType, Stacks, Thread, ThreadId};
use rustc_hash::FxHashMap;
use serde::Deserialize;
use serde_json::Value;
use std::borrow::Cow;
use std::time::SystemTime;

/// Reads the file.
pub fn decode(bytes: &[u8], limits: Limits) -> Result<Profile, DecodeError> {
    if bytes.len() > limits.bytes {
        return Err(DecodeError::too_large(limits));
    }
    let corrupt = |what: &str| DecodeError::corrupt(what);
    let mut lines = bytes.split(|byte| *byte == b'\n');
    let head = lines.next().and_then(|line| line.strip_prefix(b"#")).ok_or_else(|| corrupt("no line of metadata"))?;
    let head: Head =
        serde_json::from_slice(head).map_err(|error| DecodeError::corrupt(format!("line 1: metadata: {error}")))?;
    let mut profile = Profile::new(vec![head.sample_type()]);
    (profile.start_unix_ns, profile.duration_ns) = head.window();
    let texts = |value: &Value| value.as_str().map(str::to_owned);
    let comments = head.metadata.get("comments").and_then(Value::as_array);
    profile.comments = comments.into_iter().flatten().filter_map(texts).collect();
    let mut left = limits.bytes;
    let labels: Vec<Vec<Label>> = head.application_metadata.iter().map(labels).collect();
    let mut threads: FxHashMap<String, ThreadId> = FxHashMap::default();
    let mut samples = FxHashMap::default();
    for (number, line) in lines.enumerate() {
        let line = String::from_utf8_lossy(line);
        let line = line.trim_end();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let at = |what: &str| DecodeError::corrupt(format!("line {}: {what}", number + 2));
        let (fields, value) = line.rsplit_once(' ').ok_or_else(|| at("no value after the stack"))?;
        let value: i64 = value.parse().map_err(|_| at("the value is not a whole number"))?;
        let mut fields = fields.split(';');
        let mut field = |what: &str| fields.next().ok_or_else(|| at(&format!("no {what}")));
        let mut labels = if head.has_index() {
            let index = field("index of metadata")?.parse::<usize>().ok();
            index.and_then(|index| labels.get(index)).ok_or_else(|| at("no such metadata"))?.clone()
        } else {
            Vec::new()
        };
        if head.has_container() {
            let container = field("container")?;
            if !container.is_empty() {
                labels.push(Label::text("container", container));
            }
        }
        let comm = field("comm")?;
        let mut fields = fields.peekable();
        if let Some(app) = fields.next_if(|frame| frame.starts_with(APP_ID)) {
            labels.push(Label::text("appid", app.trim_start_matches(APP_ID)));
        }
        // Few bytes of a line can name much metadata.
        let taken = labels.iter().map(|label| size_of::<Label>() + label.key.len()).sum();
        left = left.checked_sub(taken).ok_or_else(|| DecodeError::too_large(limits))?;
        let all = &mut profile.threads;
        let thread = (!comm.is_empty()).then(|| match threads.get(comm) {
            Some(known) => *known,
            None => {
                let name = comm.to_owned();
                all.push(Thread { name: name.clone(), process: name, ..Thread::default() });
                let id = ThreadId(all.len() as u32 - 1);
                threads.insert(comm.to_owned(), id);
                id
            }
        });
        let mut stack = Stacks::ROOT;
        for name in fields {
            let frame = profile.stacks.frame_id(Frame::Named(Cow::Owned(name.to_owned())));
            stack = profile.stacks.push(stack, frame);
        }
        let labels = Labels::from(labels);
        let samples_so_far = profile.samples.len();
        let index = *samples.entry((stack, thread, labels.clone())).or_insert(samples_so_far);
        match profile.samples.get_mut(index) {
            Some(sample) => sample.values.iter_mut().for_each(|sum| *sum = sum.saturating_add(value)),
            None => profile.samples.push(Sample { stack, thread, labels, values: crate::values![value] }),
        }
    }
    Ok(profile)
}

/// Whether bytes begin as such a file does.
pub(super) fn is_one(bytes: &[u8]) -> bool {
    let line = bytes.split(|byte| *byte == b'\n').next().unwrap_or_default();
    line.strip_prefix(b"#").is_some_and(|line| line.trim_ascii_start().starts_with(b"{"))
}

#[derive(Deserialize)]
struct Head {
    #[serde(default)]
    metadata: serde_json::Map<String, Value>,
    #[serde(default = "no_application")]
    application_metadata: Vec<Value>,
    #[serde(default = "enabled")]
    application_metadata_enabled: bool,
}

fn enabled() -> bool {
    true
}

fn no_application() -> Vec<Value> {
    vec![Value::Null]
}

impl Head {
    /// Whether lines begin with an index into the metadata of applications.
    fn has_index(&self) -> bool {
        self.application_metadata_enabled && self.has_container()
    }

    /// Version 1 of gProfiler's service knew no containers.
    fn has_container(&self) -> bool {
        let arguments = self.metadata.get("run_arguments");
        arguments.and_then(|arguments| arguments.get("profile_api_version")).and_then(Value::as_str) != Some("v1")
    }

    /// Start, in nanoseconds since 1970, and length, as far as they are told.
    fn window(&self) -> (i64, i64) {
        let time = |key: &str| {
            let text = self.metadata.get(key)?.as_str()?;
            let time = humantime::parse_rfc3339_weak(text.trim_end_matches("+00:00")).ok()?;
            i64::try_from(time.duration_since(SystemTime::UNIX_EPOCH).ok()?.as_nanos()).ok()
        };
        let start = time("start_time").unwrap_or(0);
        (start, time("end_time").map_or(0, |end| end.saturating_sub(start).max(0)))
    }

    /// Ours say what they hold. gProfiler counts samples, or objects.
    fn sample_type(&self) -> SampleType {
        let text = |key: &str| self.metadata.get(key).and_then(Value::as_str);
        if let (Some(kind), Some(unit)) = (text("sample_type"), text("sample_unit")) {
            return SampleType { kind: Cow::Owned(kind.to_owned()), unit: Cow::Owned(unit.to_owned()) };
        }
        match text("profiling_mode") {
            Some("allocation") => SampleType::new("alloc_objects", "count"),
            _ => SampleType::new("samples", "count"),
        }
    }
}

/// The members of an application's metadata that are texts or numbers.
fn labels(of: &Value) -> Vec<Label> {
    let members = of.as_object().into_iter().flatten();
    members
        .filter_map(|(key, value)| match value {
            Value::String(text) => Some(Label::text(key.clone(), text)),
            Value::Number(number) => Some(Label::number(key.clone(), number.as_i64()?)),
            _ => None,
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::LabelValue;

    #[test]
    fn a_file_of_gprofiler_is_read() {
        let file = "# {\"containers\": [\"web\"], \"metadata\": {\"profiling_mode\": \"cpu\"}, \"application_metadata\": [null, {\"exe\": \"/bin/x\"}]}\n\
            0;;bash;main;leaf_[k] 3\n1;web;java;appid: java: app.jar;run;a|b 4\n0;;bash;main;leaf_[k] 2\n";
        let profile = decode(file.as_bytes(), Limits::default()).unwrap();
        assert_eq!(profile.samples.iter().map(|s| s.values[0]).collect::<Vec<_>>(), [5, 4]);
        assert_eq!(profile.threads.iter().map(|t| t.process.as_str()).collect::<Vec<_>>(), ["bash", "java"]);
        let labels: Vec<_> = profile.samples[1].labels.iter().map(|l| (&*l.key, l.value.clone())).collect();
        let text = |text: &str| LabelValue::Text(text.into());
        assert_eq!(labels, [("exe", text("/bin/x")), ("container", text("web")), ("appid", text("java: app.jar"))]);
        assert_eq!(profile.stacks.frames_leaf_first(profile.samples[1].stack).count(), 2);
        assert_eq!((profile.start_unix_ns, profile.duration_ns), (0, 0));
    }

    #[test]
    fn the_window_is_read() {
        for (start, end) in [
            ("2023-11-14T22:13:20", "2023-11-14T22:14:20"),
            ("2023-11-14T22:13:20.000000Z", "2023-11-14T22:14:20Z"),
            ("2023-11-14T22:13:20+00:00", "2023-11-14T22:14:20+00:00"),
        ] {
            let file = format!("# {{\"metadata\": {{\"start_time\": \"{start}\", \"end_time\": \"{end}\"}}}}\n");
            let profile = decode(file.as_bytes(), Limits::default()).unwrap();
            assert_eq!((profile.start_unix_ns, profile.duration_ns), (1_700_000_000_000_000_000, 60_000_000_000));
        }
    }

    #[test]
    fn what_a_line_begins_with_is_what_the_metadata_says() {
        for (metadata, line) in [
            (r#"{"application_metadata": [null], "application_metadata_enabled": true}"#, "0;web;app;main;f 3"),
            (r#"{"application_metadata": [null], "application_metadata_enabled": false}"#, "web;app;main;f 3"),
            (r#"{"metadata": {"run_arguments": {"profile_api_version": "v1"}}}"#, "app;main;f 3"),
        ] {
            let profile = decode(format!("# {metadata}\n{line}\n").as_bytes(), Limits::default()).unwrap();
            let [sample] = &profile.samples[..] else { panic!("{profile:?}") };
            let frames: Vec<_> = profile.stacks.frames_leaf_first(sample.stack).cloned().collect();
            assert_eq!(frames, [Frame::named("f"), Frame::named("main")], "{metadata}");
            assert_eq!(profile.threads[0].process, "app", "{metadata}");
            let container = line.contains("web").then(|| Label::text("container", "web"));
            assert_eq!(*sample.labels, Vec::from_iter(container), "{metadata}");
        }
    }

    #[test]
    fn an_error_names_its_line() {
        let head = "# {\"application_metadata\": [null]}\n";
        for (lines, expected) in [
            ("0;;a;b", "line 2: no value after the stack"),
            ("0;;a;b 1\n7;;a;b 1", "line 3: no such metadata"),
            ("0; 1", "line 2: no comm"),
            ("0;;a;b x", "line 2: the value is not a whole number"),
        ] {
            let error = decode(format!("{head}{lines}").as_bytes(), Limits::default()).unwrap_err();
            assert_eq!(error.to_string(), expected);
        }
        assert!(decode(b"a;b 1\n", Limits::default()).is_err());
        assert!(decode(b"# {\n", Limits::default()).is_err());
    }
}
