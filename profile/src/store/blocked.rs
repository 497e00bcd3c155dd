//! The part of a profile of elapsed time that blocked threads have: mode `offcpu`.

use crate::{Label, Profile, SampleType};
use std::collections::HashSet;

/// Keeps what blocked threads did of a profile of elapsed time, under the name of that mode's values: `off_cpu`.
pub fn keep_blocked(profile: &mut Profile) {
    let blocked = Label::text("state", "off-cpu");
    profile.samples.retain_mut(|sample| {
        let is_blocked = sample.labels.contains(&blocked);
        sample.labels.change(|labels| labels.retain(|label| *label != blocked));
        is_blocked
    });
    // A single sample knows its stack and not its state; a stack that ends in a system call is that of a thread that waits there.
    let stacks: HashSet<_> = profile.samples.iter().map(|sample| (sample.thread, sample.stack)).collect();
    profile.events.retain(|event| stacks.contains(&(Some(event.thread), event.stack)));
    for sample_type in &mut profile.sample_types {
        if *sample_type == SampleType::new("wall", "nanoseconds") {
            *sample_type = SampleType::new("off_cpu", "nanoseconds");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Frame, Sample};

    #[test]
    fn only_blocked_threads_are_kept_and_the_values_are_named_for_them() {
        let types = vec![SampleType::new("samples", "count"), SampleType::new("wall", "nanoseconds")];
        let mut profile = Profile::new(types);
        let mut add = |name: &'static str, state, nanos| {
            let stack = profile.stacks.intern([Frame::named("main"), Frame::named(name)]);
            let labels = vec![Label::text("state", state), Label::text("syscall", "poll")];
            profile.samples.push(Sample {
                stack,
                thread: None,
                labels: labels.into(),
                values: crate::values![1, nanos],
            });
        };
        add("poll", "off-cpu", 50);
        add("work", "on-cpu", 70);
        add("work", "runnable", 20);
        keep_blocked(&mut profile);
        assert_eq!((profile.samples.len(), profile.total(1)), (1, 50));
        assert_eq!(*profile.samples[0].labels, [Label::text("syscall", "poll")]);
        assert_eq!(profile.sample_types[1], SampleType::new("off_cpu", "nanoseconds"));
    }
}
