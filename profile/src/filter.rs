//! Parts of a profile: some threads, some labels, some functions.
//!
//! Names that were found before still fit afterwards: mappings stay, and with them their ids.

use crate::{Glob, LabelValue, Profile, Sample, StackId, Stacks, Symbols, ThreadId, names};
use rustc_hash::FxHashMap;

impl Profile {
    /// Keeps only what threads with a fitting name did.
    pub fn retain_threads(&mut self, names: &Glob) {
        let fits: Vec<bool> = self.threads.iter().map(|thread| names.matches(&thread.name)).collect();
        self.samples.retain(|sample| sample.thread.is_some_and(|id| fits[id.index()]));
        self.events.retain(|event| fits[event.thread.index()]);
        self.drop_unused();
    }

    /// Keeps only samples with a label of this key and a fitting value; a number is compared as its digits, without a unit.
    ///
    /// Single observations know no labels: those are kept whose stack the same thread has in kept samples alone.
    pub fn retain_labels(&mut self, key: &str, values: &Glob) {
        self.retain_samples(|sample| {
            sample.labels.iter().filter(|label| label.key == key).any(|label| match &label.value {
                LabelValue::Text(text) => values.matches(text),
                LabelValue::Number { value, .. } => values.matches(&value.to_string()),
            })
        });
    }

    /// Keeps only samples with a function of a fitting name anywhere in their stack, inlined ones included.
    pub fn retain_functions(&mut self, symbols: &Symbols, names: &Glob) {
        let has = self.stacks_with(symbols, names);
        self.retain_samples(|sample| has[sample.stack.index()]);
    }

    /// Keeps only samples without a function of a fitting name in their stack.
    pub fn remove_functions(&mut self, symbols: &Symbols, names: &Glob) {
        let has = self.stacks_with(symbols, names);
        self.retain_samples(|sample| !has[sample.stack.index()]);
    }

    /// By stack, whether one of its frames has a fitting name.
    fn stacks_with(&self, symbols: &Symbols, names: &Glob) -> Vec<bool> {
        let fits = |frame| names::of(frame, self, symbols).iter().any(|name| names.matches(name));
        let frames: Vec<bool> = self.stacks.frames().iter().map(fits).collect();
        let mut has = vec![false; self.stacks.len()];
        // A stack comes after its parent.
        for id in (1..self.stacks.len() as u32).map(StackId) {
            let leaf = self.stacks.leaf_id(id).is_some_and(|leaf| frames[leaf.index()]);
            has[id.index()] = leaf || has[self.stacks.parent(id).index()];
        }
        debug_assert!(!has[Stacks::ROOT.index()]);
        has
    }

    fn retain_samples(&mut self, keep: impl Fn(&Sample) -> bool) {
        let mut kept: FxHashMap<(Option<ThreadId>, StackId), bool> = FxHashMap::default();
        self.samples.retain(|sample| {
            let keep = keep(sample);
            *kept.entry((sample.thread, sample.stack)).or_insert(true) &= keep;
            keep
        });
        self.events.retain(|event| kept.get(&(Some(event.thread), event.stack)).copied().unwrap_or(false));
        self.drop_unused();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{AddressKind, Event, Frame, Label, SampleType, Svma, SymbolFrame, Thread};

    fn profile() -> (Profile, Symbols) {
        let mut profile = Profile::new(vec![SampleType::new("cpu", "nanoseconds")]);
        profile.threads = ["main", "worker-1"].map(|name| Thread { name: name.into(), ..Thread::default() }).to_vec();
        let address = Frame::Address { mapping: None, svma: Svma(16), kind: AddressKind::Instruction };
        let mut symbols = Symbols::new();
        symbols.insert(address.address().unwrap(), ["inlined", "outer"].map(SymbolFrame::named).to_vec());
        let stacks = [vec!["main"], vec!["main", "f"], vec!["main", "f", "g"]];
        let mut stacks: Vec<StackId> =
            stacks.map(|names| profile.stacks.intern(names.into_iter().map(Frame::named))).to_vec();
        stacks.push(profile.stacks.intern([Frame::named("main"), address]));
        for (i, stack) in stacks.into_iter().enumerate() {
            let thread = ThreadId(i as u32 % 2);
            for (label, part) in [("/a", 1), ("/b", 10)] {
                let labels = vec![Label::text("route", label), Label::number("shard", i as i64)];
                profile.samples.push(Sample {
                    stack,
                    thread: Some(thread),
                    labels: labels.into(),
                    values: crate::values![part << (8 * i)],
                });
            }
            profile.events.push(Event { unix_ns: i as i64, thread, stack, weight: 1 });
        }
        (profile, symbols)
    }

    #[test]
    fn functions_are_found_anywhere_in_a_stack_inlined_ones_too() {
        for (pattern, with) in
            [("f", [1, 2].as_slice()), ("g", &[2]), ("inl*", &[3]), ("main", &[0, 1, 2, 3]), ("x", &[])]
        {
            let (mut kept, symbols) = profile();
            let mut rest = kept.clone();
            let whole = kept.total(0);
            kept.retain_functions(&symbols, &Glob::new(pattern));
            rest.remove_functions(&symbols, &Glob::new(pattern));
            assert_eq!(kept.total(0), with.iter().map(|i| 11 << (8 * i)).sum::<i64>(), "{pattern}");
            assert_eq!(kept.total(0) + rest.total(0), whole, "what one takes the other leaves");
            assert_eq!(kept.events.len(), with.len());
        }
    }

    #[test]
    fn labels_are_found_by_text_and_by_number() {
        let (all, _) = profile();
        for (key, value, total) in [
            ("route", "/a", 0x0101_0101),
            ("route", "/?", 0x0b0b_0b0b),
            ("shard", "2", 0x000b_0000),
            ("shard", "/a", 0),
            ("other", "*", 0),
        ] {
            let mut kept = all.clone();
            kept.retain_labels(key, &Glob::new(value));
            assert_eq!(kept.total(0), total, "{key}={value}");
        }
        let (mut half, _) = profile();
        half.retain_labels("route", &Glob::new("/a"));
        assert!(half.events.is_empty(), "an event may have been that of the other label");
    }

    #[test]
    fn threads_are_found_by_name() {
        let (mut kept, _) = profile();
        kept.retain_threads(&Glob::new("worker-*"));
        assert_eq!(kept.total(0), 0x0b00_0b00);
        assert_eq!(kept.threads.iter().map(|t| t.name.as_str()).collect::<Vec<_>>(), ["worker-1"]);
        assert!(kept.events.iter().all(|event| event.thread == ThreadId(0)));
    }
}
