//! OTLP profiles over HTTP: gzipped protobuf to `/v1development/profiles`.
//!
//! A profile of ours becomes one of theirs for each sample type. Addresses are those of the process, as OTLP wants them, beside the mapping
//! with its build id; where names are known, they are there too.

use super::http::Protocol;
use super::otlp_messages::*;
use super::payload::Origin;
use flate2::Compression;
use flate2::write::GzEncoder;
use profile::{Frame, LabelValue, Symbols};
use prost::Message;
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::io::Write;

pub(super) const PROTOCOL: Protocol = Protocol {
    path: "/v1development/profiles",
    media_type: "application/x-protobuf",
    encoding: Some("gzip"),
    message: |_| None,
    rejected,
};

/// The body of the request.
pub(super) fn body(profile: &profile::Profile, symbols: &Symbols, origin: &Origin) -> Vec<u8> {
    let mut gzip = GzEncoder::new(Vec::new(), Compression::fast());
    // A vector takes whatever is written to it.
    let _ = gzip.write_all(&request(profile, symbols, origin).encode_to_vec());
    gzip.finish().unwrap_or_default()
}

/// Why the engine did not take everything, if it says so in spite of its success.
fn rejected(body: &[u8]) -> Option<String> {
    let partial = ExportResponse::decode(body).ok()?.partial_success?;
    (partial.rejected_profiles > 0)
        .then(|| format!("{} profiles were rejected: {}", partial.rejected_profiles, partial.error_message))
}

fn request(profile: &profile::Profile, symbols: &Symbols, origin: &Origin) -> ExportRequest {
    let mut tables = Tables::new();
    let mappings: Vec<i32> = profile.mappings.iter().map(|mapping| tables.mapping(mapping)).collect();
    let frames: Vec<i32> =
        profile.stacks.frames().iter().map(|frame| tables.location(frame, profile, symbols, &mappings)).collect();
    // Stack and attributes of each sample; what differs between the sample types are the values alone.
    let samples: Vec<(i32, Vec<i32>)> = profile
        .samples
        .iter()
        .map(|sample| {
            let ids = profile.stacks.frame_ids_leaf_first(sample.stack);
            let locations = ids.filter_map(|id| frames.get(id.index()).copied()).collect();
            let mut attributes: Vec<i32> =
                sample.labels.iter().map(|label| tables.attribute(&label.key, &label.value)).collect();
            if let Some(thread) = sample.thread.and_then(|id| profile.thread(id)) {
                attributes.push(tables.attribute("thread.name", &LabelValue::Text(thread.name.clone())));
                let number = LabelValue::Number { value: thread.tid.into(), unit: None };
                attributes.push(tables.attribute("thread.id", &number));
            }
            (tables.stack(locations), attributes)
        })
        .collect();
    let period_type = profile.period_type.as_ref().map(|kind| tables.value_type(kind));
    let profiles = profile.sample_types.iter().enumerate().map(|(column, kind)| {
        let value = |sample: &profile::Sample| sample.values.get(column).copied().unwrap_or(0);
        let with_value = profile.samples.iter().zip(&samples).filter(|(sample, _)| value(sample) != 0);
        Profile {
            sample_type: Some(tables.value_type(kind)),
            samples: with_value
                .map(|(sample, (stack_index, attributes))| Sample {
                    stack_index: *stack_index,
                    attribute_indices: attributes.clone(),
                    values: vec![value(sample)],
                })
                .collect(),
            time_unix_nano: u64::try_from(profile.start_unix_ns).unwrap_or(0),
            duration_nano: u64::try_from(profile.duration_ns).unwrap_or(0),
            period_type,
            period: profile.period,
            profile_id: random_id(),
        }
    });
    let scope = Scope { name: "profile-recorder".to_owned(), version: env!("CARGO_PKG_VERSION").to_owned() };
    let scope_profiles = vec![ScopeProfiles { scope: Some(scope), profiles: profiles.collect() }];
    let resource = Some(Resource { attributes: resource(origin) });
    ExportRequest {
        resource_profiles: vec![ResourceProfiles { resource, scope_profiles }],
        dictionary: Some(tables.dictionary),
    }
}

/// What the semantic conventions have a name for goes by it.
fn resource(origin: &Origin) -> Vec<KeyValue> {
    let name = |key: &str| match key {
        "hostname" => "host.name".to_owned(),
        "pid" => "process.pid".to_owned(),
        "exe" => "process.executable.path".to_owned(),
        "container" => "container.name".to_owned(),
        other => other.to_owned(),
    };
    let service = ("service.name".to_owned(), origin.service.clone());
    let labels = origin.labels.iter().map(|(key, value)| (name(key), value.clone()));
    let attribute = |(key, text): (String, String)| {
        let number = text.parse().ok().filter(|_| key == "process.pid").map(Value::Number);
        KeyValue { key, value: Some(AnyValue { value: Some(number.unwrap_or(Value::Text(text))) }) }
    };
    [service].into_iter().chain(labels).map(attribute).collect()
}

fn random_id() -> Vec<u8> {
    let mut id = vec![0; 16];
    fastrand::fill(&mut id);
    id
}

/// The tables of a request, each entry once.
struct Tables {
    dictionary: Dictionary,
    strings: HashMap<String, i32>,
    functions: HashMap<Function, i32>,
    attributes: HashMap<(i32, LabelValue), i32>,
    stacks: HashMap<Stack, i32>,
}

impl Tables {
    fn new() -> Self {
        let dictionary = Dictionary {
            mapping_table: vec![Mapping::default()],
            location_table: vec![Location::default()],
            function_table: vec![Function::default()],
            link_table: vec![Link::default()],
            string_table: vec![String::new()],
            attribute_table: vec![KeyValueAndUnit::default()],
            stack_table: vec![Stack::default()],
        };
        Self {
            dictionary,
            strings: HashMap::from([(String::new(), 0)]),
            functions: HashMap::new(),
            attributes: HashMap::new(),
            stacks: HashMap::from([(Stack::default(), 0)]),
        }
    }

    fn string(&mut self, text: &str) -> i32 {
        if let Some(known) = self.strings.get(text) {
            return *known;
        }
        let index = push(&mut self.dictionary.string_table, text.to_owned());
        self.strings.insert(text.to_owned(), index);
        index
    }

    fn value_type(&mut self, kind: &profile::SampleType) -> ValueType {
        ValueType { type_strindex: self.string(&kind.kind), unit_strindex: self.string(&kind.unit) }
    }

    fn attribute(&mut self, key: &str, value: &LabelValue) -> i32 {
        let key_strindex = self.string(key);
        let unit = match value {
            LabelValue::Number { unit: Some(unit), .. } => self.string(unit),
            _ => 0,
        };
        match self.attributes.entry((key_strindex, value.clone())) {
            Entry::Occupied(known) => *known.get(),
            Entry::Vacant(new) => {
                let of = match value {
                    LabelValue::Text(text) => Value::Text(text.clone()),
                    LabelValue::Number { value, .. } => Value::Number(*value),
                };
                let value = Some(AnyValue { value: Some(of) });
                let entry = KeyValueAndUnit { key_strindex, value, unit_strindex: unit };
                *new.insert(push(&mut self.dictionary.attribute_table, entry))
            }
        }
    }

    fn mapping(&mut self, mapping: &profile::Mapping) -> i32 {
        let build_id = mapping.build_id_hex();
        let attribute_indices = if build_id.is_empty() {
            Vec::new()
        } else {
            vec![self.attribute("process.executable.build_id.gnu", &LabelValue::Text(build_id))]
        };
        let entry = Mapping {
            memory_start: mapping.start,
            memory_limit: mapping.end,
            file_offset: mapping.file_offset,
            filename_strindex: self.string(&mapping.path),
            attribute_indices,
        };
        push(&mut self.dictionary.mapping_table, entry)
    }

    fn location(&mut self, frame: &Frame, profile: &profile::Profile, symbols: &Symbols, mappings: &[i32]) -> i32 {
        let mut location = Location::default();
        match frame {
            Frame::Named(name) => {
                let name_strindex = self.string(name);
                let function_index = self.function(Function { name_strindex, ..Function::default() });
                location.lines.push(Line { function_index, line: 0 });
            }
            Frame::Address { mapping, svma, .. } => {
                location.mapping_index = mapping.and_then(|id| mappings.get(id.index()).copied()).unwrap_or(0);
                let of = mapping.and_then(|id| profile.mapping(id));
                location.address = of.map_or(svma.0, |mapping| mapping.to_avma(*svma));
                for symbol in symbols.get(frame) {
                    let function = Function {
                        name_strindex: self.string(&symbol.name),
                        system_name_strindex: symbol.system_name.as_deref().map_or(0, |name| self.string(name)),
                        filename_strindex: symbol.file.as_deref().map_or(0, |file| self.string(file)),
                    };
                    let function_index = self.function(function);
                    location.lines.push(Line { function_index, line: symbol.line.into() });
                }
            }
        }
        push(&mut self.dictionary.location_table, location)
    }

    fn function(&mut self, function: Function) -> i32 {
        let table = &mut self.dictionary.function_table;
        *self.functions.entry(function).or_insert_with(|| push(table, function))
    }

    fn stack(&mut self, location_indices: Vec<i32>) -> i32 {
        let table = &mut self.dictionary.stack_table;
        let stack = Stack { location_indices };
        *self.stacks.entry(stack.clone()).or_insert_with(|| push(table, stack))
    }
}

/// The index of a new entry. Tables of two thousand million entries do not fit into a request.
fn push<T>(table: &mut Vec<T>, entry: T) -> i32 {
    table.push(entry);
    i32::try_from(table.len() - 1).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use profile::{AddressKind, Label, MappingId, Profile as Ours, SampleType, Svma, SymbolFrame};

    #[test]
    fn every_sample_type_is_a_profile_over_shared_tables() {
        let mut profile = Ours::new(vec![SampleType::new("samples", "count"), SampleType::new("cpu", "nanoseconds")]);
        profile.mappings.push(profile::Mapping {
            start: 0x1000,
            bias: 0x1000,
            build_id: vec![0xab],
            ..Default::default()
        });
        let frame = Frame::Address { mapping: Some(MappingId(0)), svma: Svma(0x20), kind: AddressKind::Instruction };
        let stack = profile.stacks.intern([Frame::named("main"), frame.clone()]);
        for (route, values) in [("/a", profile::values![1, 10]), ("/b", profile::values![0, 5])] {
            let labels = vec![Label::text("route", route)];
            profile.samples.push(profile::Sample { stack, thread: None, labels: labels.into(), values });
        }
        let mut symbols = Symbols::new();
        symbols.insert(frame.address().unwrap(), vec![SymbolFrame::named("leaf")]);
        let labels = [("pid".to_owned(), "7".to_owned())].into();
        let request = request(&profile, &symbols, &Origin { service: "shop".to_owned(), labels, mode: None });
        let decoded = ExportRequest::decode(&*request.encode_to_vec()).unwrap();
        assert_eq!(decoded, request);
        let tables = request.dictionary.unwrap();
        let resource = &request.resource_profiles[0];
        let profiles = &resource.scope_profiles[0].profiles;
        assert_eq!(profiles.iter().map(|p| p.samples.len()).collect::<Vec<_>>(), [1, 2], "zeros are left out");
        assert_eq!(profiles[1].samples.iter().map(|s| s.values[0]).sum::<i64>(), 15);
        assert_eq!((tables.stack_table.len(), tables.location_table.len()), (2, 3));
        let leaf = &tables.location_table[tables.stack_table[1].location_indices[0] as usize];
        assert_eq!((leaf.address, leaf.mapping_index), (0x1020, 1));
        let name = tables.function_table[leaf.lines[0].function_index as usize].name_strindex;
        assert_eq!(tables.string_table[name as usize], "leaf");
        let keys: Vec<&str> = resource.resource.as_ref().unwrap().attributes.iter().map(|a| a.key.as_str()).collect();
        assert_eq!(keys, ["service.name", "process.pid"]);
    }

    #[test]
    fn a_partial_success_says_what_was_rejected() {
        let partial_success = Some(PartialSuccess { rejected_profiles: 2, error_message: "too old".to_owned() });
        let body = ExportResponse { partial_success }.encode_to_vec();
        assert_eq!(rejected(&body).as_deref(), Some("2 profiles were rejected: too old"));
        assert_eq!(rejected(&[]), None);
        assert_eq!(rejected(b"{}"), None);
    }
}
