//! Fewer samples: what differs only in what nobody asks for becomes one.

use crate::{Label, Profile, Sample};
use rustc_hash::FxHashMap;

impl Profile {
    /// Adds up samples of one stack that differ only in their thread, unless `by_thread`, or in labels whose key `by_label` refuses.
    ///
    /// Totals of every column stay as they are. Samples keep the order of their first occurrence, and labels that stay are put in order.
    pub fn aggregate(&mut self, by_thread: bool, by_label: impl Fn(&str) -> bool) {
        let mut index: FxHashMap<_, usize> = FxHashMap::default();
        let mut sums: Vec<Sample> = Vec::new();
        for mut sample in std::mem::take(&mut self.samples) {
            let is_kept = |label: &Label| by_label(&label.key);
            if !sample.labels.iter().all(is_kept) || !sample.labels.is_sorted() {
                sample.labels.change(|labels| {
                    labels.retain(is_kept);
                    labels.sort_unstable();
                });
            }
            sample.thread = sample.thread.filter(|_| by_thread);
            let at = *index.entry((sample.stack, sample.thread, sample.labels.clone())).or_insert(sums.len());
            match sums.get_mut(at) {
                Some(sum) => {
                    for (sum, value) in sum.values.iter_mut().zip(&sample.values) {
                        *sum = sum.saturating_add(*value);
                    }
                }
                None => sums.push(sample),
            }
        }
        self.samples = sums;
        self.drop_unused();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Frame, SampleType, Thread, ThreadId};

    fn profile() -> Profile {
        let mut profile =
            Profile::new(vec![SampleType::new("samples", "count"), SampleType::new("cpu", "nanoseconds")]);
        profile.threads = (0..3).map(|tid| Thread { tid, ..Thread::default() }).collect();
        for i in 0..60_u32 {
            let stack = profile.stacks.intern([Frame::named(["f", "g"][i as usize % 2])]);
            let mut labels = vec![Label::number("shard", i64::from(i % 5)), Label::text("route", "/a")];
            labels.rotate_left(i as usize / 30);
            profile.samples.push(Sample {
                stack,
                thread: Some(ThreadId(i % 3)),
                labels: labels.into(),
                values: crate::values![1, i64::from(i)],
            });
        }
        profile
    }

    #[test]
    fn only_what_is_asked_for_tells_samples_apart_and_totals_stay() {
        for (by_thread, key, expected) in
            [(true, "*", 30), (true, "route", 6), (true, "shard", 30), (false, "shard", 10), (false, "", 2)]
        {
            let mut sums = profile();
            sums.aggregate(by_thread, |label| key == "*" || label == key);
            assert_eq!(sums.samples.len(), expected, "{by_thread} {key}");
            assert_eq!((sums.total(0), sums.total(1)), (60, 59 * 30));
            let once = sums.clone();
            sums.aggregate(by_thread, |label| key == "*" || label == key);
            assert_eq!(sums, once);
        }
    }
}
