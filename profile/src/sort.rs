//! One order for equal contents, and nothing kept that nothing refers to.

use crate::{Frame, MappingId, Profile, StackId, ThreadId};
use rustc_hash::FxHashMap;

impl Profile {
    /// Brings everything into an order that depends on the contents alone, so that profiles with the same contents become equal.
    ///
    /// The first mapping, that of the main executable, stays the first; stacks and threads that nothing refers to are dropped.
    /// [`crate::Symbols`] found before do not fit any more.
    pub fn sort(&mut self) {
        self.drop_unused();
        let mappings = order(&mut self.mappings, 1);
        let threads = order(&mut self.threads, 0);
        let stacks = self.sort_stacks(&mappings);
        for sample in &mut self.samples {
            sample.stack = stacks[sample.stack.index()];
            sample.thread = sample.thread.map(|id| ThreadId(threads[id.index()]));
            if !sample.labels.is_sorted() {
                sample.labels.change(|labels| labels.sort_unstable());
            }
        }
        for event in &mut self.events {
            event.stack = stacks[event.stack.index()];
            event.thread = ThreadId(threads[event.thread.index()]);
        }
        self.samples
            .sort_by(|a, b| (a.stack, a.thread, &a.labels, &a.values).cmp(&(b.stack, b.thread, &b.labels, &b.values)));
        self.events.sort_unstable();
    }

    /// Rebuilds the stacks in the order of their frames, with mappings renumbered. Returns the new ids by the old ones.
    fn sort_stacks(&mut self, mappings: &[u32]) -> Vec<StackId> {
        let old = std::mem::take(&mut self.stacks);
        let renumbered: Vec<Frame> = old
            .frames()
            .iter()
            .map(|frame| match frame {
                Frame::Address { mapping, svma, kind } => Frame::Address {
                    // One that there is not stays what it is: different frames stay different.
                    mapping: mapping.map(|id| mappings.get(id.index()).copied().map_or(id, MappingId)),
                    svma: *svma,
                    kind: *kind,
                },
                named => named.clone(),
            })
            .collect();
        let mut by_frame: Vec<usize> = (0..renumbered.len()).collect();
        // By the address that is looked up: formats that keep that one alone are read back into the same order.
        let place = |frame: &Frame| match frame {
            Frame::Address { mapping, svma, kind } => Some((*mapping, kind.for_lookup(*svma))),
            Frame::Named(_) => None,
        };
        by_frame.sort_unstable_by(|a, b| {
            let (a, b) = (&renumbered[*a], &renumbered[*b]);
            let names_last = |frame: &Frame| frame.address().is_none();
            (names_last(a), place(a), a).cmp(&(names_last(b), place(b), b))
        });
        let (stacks, new_ids) = old.in_order(&by_frame, |frame| renumbered[frame].clone());
        self.stacks = stacks;
        new_ids
    }

    /// Drops stacks, frames and threads that neither samples nor events refer to. Mappings stay.
    pub(crate) fn drop_unused(&mut self) {
        let mut used = vec![false; self.stacks.len()];
        let refer = self.samples.iter().map(|s| s.stack).chain(self.events.iter().map(|e| e.stack));
        for mut stack in refer {
            while !std::mem::replace(&mut used[stack.index()], true) {
                stack = self.stacks.parent(stack);
            }
        }
        let (kept, stacks) = std::mem::take(&mut self.stacks).chosen(&used);
        self.stacks = kept;
        let old_threads = std::mem::take(&mut self.threads);
        let mut threads: FxHashMap<ThreadId, ThreadId> = FxHashMap::default();
        let mut keep = |id: ThreadId| {
            *threads.entry(id).or_insert_with(|| {
                self.threads.push(old_threads[id.index()].clone());
                ThreadId(self.threads.len() as u32 - 1)
            })
        };
        for sample in &mut self.samples {
            sample.stack = stacks[sample.stack.index()];
            sample.thread = sample.thread.map(&mut keep);
        }
        for event in &mut self.events {
            event.stack = stacks[event.stack.index()];
            event.thread = keep(event.thread);
        }
    }
}

/// Sorts all but the first `fixed` items. Returns the new positions by the old ones.
fn order<T: Ord>(items: &mut Vec<T>, fixed: usize) -> Vec<u32> {
    let mut indexed: Vec<(usize, T)> = std::mem::take(items).into_iter().enumerate().collect();
    if indexed.len() > fixed {
        indexed[fixed..].sort_by(|a, b| a.1.cmp(&b.1));
    }
    let mut positions = vec![0; indexed.len()];
    for (new, (old, item)) in indexed.into_iter().enumerate() {
        positions[old] = new as u32;
        items.push(item);
    }
    positions
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{AddressKind, Event, Label, Mapping, Sample, SampleType, Svma, Thread};

    /// The same contents, entered in an order that depends on `turn`.
    fn turned(turn: usize) -> Profile {
        let mut profile = Profile::new(vec![SampleType::new("cpu", "nanoseconds")]);
        let main = Mapping { start: 0x9000, path: "/bin/app".into(), ..Mapping::default() };
        let others = [3, 1, 2].map(|n| Mapping { start: n * 0x1000, path: format!("/lib/{n}"), ..Mapping::default() });
        profile.mappings = std::iter::once(main).chain((0..3).map(|i| others[(i + turn) % 3].clone())).collect();
        profile.threads =
            (0..4).map(|i| (i + turn as u32) % 4).map(|tid| Thread { tid, ..Thread::default() }).collect();
        profile.stacks.intern([Frame::named("nobody refers to this")]);
        for i in 0..60 {
            let n = (i * 7 + turn * 13) % 60;
            let path = format!("/lib/{}", n % 3 + 1);
            let mapping = profile.mappings.iter().position(|m| m.path == path).unwrap() as u32;
            let frames = (0..n % 5).map(|depth| Frame::Address {
                mapping: Some(MappingId(mapping)),
                svma: Svma((n / (depth + 1)) as u64),
                kind: AddressKind::Instruction,
            });
            let stack = profile.stacks.intern(frames);
            let thread = profile.threads.iter().position(|t| t.tid == n as u32 % 4).map(|t| ThreadId(t as u32));
            let mut labels = vec![Label::number("n", n as i64), Label::text("state", "on-cpu")];
            labels.rotate_left(turn % 2);
            profile.samples.push(Sample { stack, thread, labels: labels.into(), values: crate::values![n as i64] });
            profile.events.push(Event { unix_ns: n as i64 / 7, thread: thread.unwrap(), stack, weight: n as i64 });
        }
        profile
    }

    #[test]
    fn equal_contents_become_equal_whatever_the_order_they_came_in() {
        let mut first = turned(0);
        first.sort();
        assert_eq!(first.mappings[0].path, "/bin/app");
        assert!(!first.stacks.frames().contains(&Frame::named("nobody refers to this")));
        for turn in 1..20 {
            let mut other = turned(turn);
            assert_ne!(other, first);
            other.sort();
            assert_eq!(other, first, "turn {turn}");
        }
    }
}
