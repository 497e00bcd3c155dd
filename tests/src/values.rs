//! All values of allocation profiles in JSON, by stack and by function.

use serde_json::Value;
use std::collections::BTreeMap;
use std::ops::AddAssign;

/// What a profile says of allocations. Columns that it does not have are zero.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs, reason = "the columns of a profile by their names")]
pub struct Values {
    pub alloc_objects: i64,
    pub alloc_space: i64,
    pub inuse_objects: i64,
    pub inuse_space: i64,
    pub temporary_objects: i64,
}

impl AddAssign for Values {
    fn add_assign(&mut self, other: Self) {
        self.alloc_objects += other.alloc_objects;
        self.alloc_space += other.alloc_space;
        self.inuse_objects += other.inuse_objects;
        self.inuse_space += other.inuse_space;
        self.temporary_objects += other.temporary_objects;
    }
}

/// The samples of a profile: the names of each stack, leaf first, and its values.
///
/// # Panics
/// If it is no profile in JSON.
pub fn samples(profile: &Value) -> Vec<(Vec<&str>, Values)> {
    let names: Vec<&str> =
        array(&profile["frames"]).iter().map(|frame| frame["name"].as_str().expect("a name")).collect();
    let columns: Vec<&str> =
        array(&profile["sample_types"]).iter().map(|column| column["kind"].as_str().expect("a kind")).collect();
    let column = |sample: &Value, name: &str| {
        let at = columns.iter().position(|column| *column == name);
        at.map_or(0, |at| sample["values"][at].as_i64().expect("an integer"))
    };
    let sample = |sample: &Value| {
        let frame = |at: &Value| names[usize::try_from(at.as_u64().expect("an index")).expect("an index")];
        let values = Values {
            alloc_objects: column(sample, "alloc_objects"),
            alloc_space: column(sample, "alloc_space"),
            inuse_objects: column(sample, "inuse_objects"),
            inuse_space: column(sample, "inuse_space"),
            temporary_objects: column(sample, "temporary_objects"),
        };
        (array(&sample["stack"]).iter().map(frame).collect(), values)
    };
    array(&profile["samples"]).iter().map(sample).collect()
}

/// The sum over all stacks in which a function's name, without its path, begins with `prefix`; by that name.
///
/// # Panics
/// As [`samples`].
pub fn by_function(profile: &Value, prefix: &str) -> BTreeMap<String, Values> {
    let mut sums = BTreeMap::<String, Values>::new();
    for (names, values) in samples(profile) {
        let last = |name: &'_ str| name.rsplit("::").next().unwrap_or_default().to_owned();
        if let Some(name) = names.iter().map(|name| last(name)).find(|name| name.starts_with(prefix)) {
            *sums.entry(name).or_default() += values;
        }
    }
    sums
}

fn array(value: &Value) -> &[Value] {
    value.as_array().map_or_else(|| panic!("an array: {value:.200}"), Vec::as_slice)
}
