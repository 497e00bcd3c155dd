//! A few stacks of a store, with values of the caller's.

use super::nodes::{Modules, Nodes};
use super::{StoreError, saturate, text_of};
use crate::{Labels, Profile, Sample, SampleType};
use layout::{NodeFields, RecordId, Root, View};
use rustc_hash::FxHashMap;

/// The stacks whose values in the store have these ids, each with allocations and bytes that it stands for here. Threads and labels are left out.
pub fn chosen(bytes: &[u8], values: &[(RecordId, [u64; 2])]) -> Result<Profile, StoreError> {
    let view = View::new(bytes)?;
    let header = view.header();
    let modules = Modules::new(&view, &text_of(&header.exe, header.exe_length));
    let mut nodes = Nodes::new(view, &modules);
    let wanted: FxHashMap<u32, [u64; 2]> = values.iter().map(|(id, values)| (id.0, *values)).collect();
    let mut profile =
        Profile::new(vec![SampleType::new("alloc_objects", "count"), SampleType::new("alloc_space", "bytes")]);
    profile.start_unix_ns = saturate(header.start_realtime_ns);
    for (id, _, node) in view.records::<NodeFields>() {
        let Some(values) = wanted.get(&node.values).filter(|_| node.values != 0) else { continue };
        let Some(place) = nodes.place(id).filter(|place| place.root == Root::Allocs) else { continue };
        let values = values.iter().map(|value| saturate(*value)).collect();
        profile.samples.push(Sample { stack: place.stack, thread: None, labels: Labels::new(), values });
    }
    profile.stacks = std::mem::take(&mut nodes.stacks[Root::Allocs as usize]);
    profile.mappings = modules.mappings;
    Ok(profile)
}
