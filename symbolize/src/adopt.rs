//! Profiles that were read from a file, in the form of a recording.
//!
//! pprof and perf script tell where a file was mapped and from which offset on, and not where the linker meant it to lie. The file
//! itself says that, in its program headers: with it, addresses of the process become addresses of the file.

use std::collections::{HashMap, VecDeque};

use profile::{Frame, Mapping, MappingId, Profile, Stacks, Symbols};

use crate::{Options, locate, names_file};

/// Brings a profile that was read from a file into the form of one that was just recorded: addresses in the mapped files are those of
/// the files' symbols, as far as the files (or debug files with the same build id) are here, and everything is in its order.
///
/// A profile that is in this form already stays as it is. The symbols are returned with the changed keys.
pub fn adopt(mut profile: Profile, symbols: Symbols, options: &Options) -> (Profile, Symbols) {
    let biases: Vec<u64> = profile.mappings.iter().map(|mapping| bias(mapping, &profile, options)).collect();
    let keys = rebase(&mut profile, &biases);
    let symbols = renamed(&symbols, keys);

    let (mappings, frames) = (profile.mappings.clone(), profile.stacks.frames().to_vec());
    profile.sort();
    let moved = moved(&mappings, &profile.mappings);
    let keys: Vec<(Frame, Frame)> = frames
        .into_iter()
        .map(|frame| {
            let to = moved_frame(&frame, |id| moved.get(id.index()).copied().unwrap_or(id), |_, svma| svma);
            (frame, to)
        })
        .collect();
    (profile, renamed(&symbols, keys))
}

/// Address in the process minus address in the file, by the file's own headers if it is found.
fn bias(mapping: &Mapping, profile: &Profile, options: &Options) -> u64 {
    if !names_file(mapping) || mapping.end <= mapping.start {
        return mapping.bias;
    }
    let found = locate::binary(&mapping.path, &mapping.build_id, profile.start_unix_ns, options).ok();
    // A debug file has the program headers of the file that it was taken from, with its offsets.
    let found = found.or_else(|| locate::debug_file(None, &mapping.path, &mapping.build_id, options));
    let svma = found.and_then(|binary| binary.elf.address_of_offset(mapping.file_offset));
    svma.map_or(mapping.bias, |svma| mapping.start.wrapping_sub(svma))
}

/// Gives the mappings these biases and their frames the addresses that follow. Returns each changed frame before and after.
fn rebase(profile: &mut Profile, biases: &[u64]) -> Vec<(Frame, Frame)> {
    let shift: Vec<u64> = profile.mappings.iter().zip(biases).map(|(m, bias)| m.bias.wrapping_sub(*bias)).collect();
    profile.mappings.iter_mut().zip(biases).for_each(|(mapping, bias)| mapping.bias = *bias);
    let old = profile.stacks.frames().to_vec();
    let shifted = |id: MappingId, svma: profile::Svma| {
        profile::Svma(svma.0.wrapping_add(shift.get(id.index()).copied().unwrap_or(0)))
    };
    let keys: Vec<(Frame, Frame)> =
        old.into_iter().map(|frame| (frame.clone(), moved_frame(&frame, |id| id, shifted))).collect();
    if keys.iter().any(|(before, after)| before != after) {
        // Different frames stay different, so stacks and frames keep their numbers.
        let mut stacks = Stacks::new();
        let ids: Vec<_> = keys.iter().map(|(_, after)| stacks.frame_id(after.clone())).collect();
        for stack in (1..profile.stacks.len() as u32).map(profile::StackId) {
            let leaf = profile.stacks.leaf_id(stack).and_then(|leaf| ids.get(leaf.index()));
            if let Some(leaf) = leaf {
                stacks.push(profile.stacks.parent(stack), *leaf);
            }
        }
        profile.stacks = stacks;
    }
    keys
}

fn moved_frame(
    frame: &Frame,
    mapping: impl Fn(MappingId) -> MappingId,
    address: impl Fn(MappingId, profile::Svma) -> profile::Svma,
) -> Frame {
    match frame {
        Frame::Address { mapping: Some(id), svma, kind } => {
            Frame::Address { mapping: Some(mapping(*id)), svma: address(*id, *svma), kind: *kind }
        }
        other => other.clone(),
    }
}

/// Where each of the old mappings is among the new ones, which are the same in another order.
fn moved(old: &[Mapping], new: &[Mapping]) -> Vec<MappingId> {
    let mut places: HashMap<&Mapping, VecDeque<u32>> = HashMap::new();
    for (mapping, place) in new.iter().zip(0..) {
        places.entry(mapping).or_default().push_back(place);
    }
    let mut place = |mapping| places.get_mut(mapping).and_then(VecDeque::pop_front);
    old.iter().zip(0..).map(|(mapping, at)| MappingId(place(mapping).unwrap_or(at))).collect()
}

fn renamed(symbols: &Symbols, keys: Vec<(Frame, Frame)>) -> Symbols {
    let mut renamed = Symbols::new();
    for (before, after) in keys {
        if let Some(key) = after.address() {
            renamed.insert(key, symbols.get(&before).to_vec());
        }
    }
    renamed
}

#[cfg(test)]
mod tests {
    use super::*;
    use profile::{AddressKind, Sample, Svma, SymbolFrame};

    #[test]
    fn names_follow_their_addresses_into_the_order_of_a_recording() {
        let mapping = |start| Mapping { start, path: "//anon".into(), ..Mapping::default() };
        let mut profile = Profile { mappings: vec![mapping(1), mapping(9), mapping(5)], ..Profile::default() };
        let frame = |id, svma| Frame::Address {
            mapping: Some(MappingId(id)),
            svma: Svma(svma),
            kind: AddressKind::Instruction,
        };
        let mut symbols = Symbols::new();
        for (id, name) in [(1, "nine"), (2, "five"), (0, "one")] {
            let stack = profile.stacks.intern([frame(id, 7)]);
            profile.samples.push(Sample {
                stack,
                thread: None,
                labels: profile::Labels::new(),
                values: profile::values![1],
            });
            symbols.insert(frame(id, 7).address().unwrap(), vec![SymbolFrame::named(name)]);
        }
        let (profile, symbols) = adopt(profile, symbols, &Options::default());
        let starts: Vec<u64> = profile.mappings.iter().map(|mapping| mapping.start).collect();
        assert_eq!(starts, [1, 5, 9]);
        for (id, name) in [(0, "one"), (1, "five"), (2, "nine")] {
            assert_eq!(&*symbols.get(&frame(id, 7))[0].name, name);
        }
    }
}
