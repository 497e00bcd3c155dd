//! `debug=1` and `debug=2`: profiles as text for people, in the manner of Go's handlers.

use std::fmt::Write;

use profile::{LabelValue, Profile, Sample, Symbols, Values, names};

/// How much a text says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Debug {
    /// Each stack with its values, the greatest first; equal stacks of several threads are one.
    Stacks,
    /// Each sample with its thread and labels.
    Samples,
}

/// The text.
pub(super) fn text(profile: &Profile, symbols: &Symbols, title: &str, debug: Debug) -> String {
    let totals: Vec<_> = profile.sample_types.iter().enumerate().map(|(i, t)| (profile.total(i), t)).collect();
    let totals: Vec<_> = totals.iter().map(|(total, t)| format!("{total} {}/{}", t.kind, t.unit)).collect();
    let mut text = format!("{title}: total {}\n", totals.join(", "));
    for comment in &profile.comments {
        // Writing to a string cannot fail, here and below.
        let _ = writeln!(text, "# {comment}");
    }
    let mut groups: Vec<(Values, &Sample)> = Vec::new();
    match debug {
        Debug::Samples => groups.extend(profile.samples.iter().map(|sample| (sample.values.clone(), sample))),
        Debug::Stacks => {
            let mut places = std::collections::HashMap::new();
            for sample in &profile.samples {
                let place = *places.entry(sample.stack).or_insert(groups.len());
                match groups.get_mut(place) {
                    Some((sums, _)) => {
                        sums.iter_mut().zip(&sample.values).for_each(|(sum, value)| *sum = sum.saturating_add(*value));
                    }
                    None => groups.push((sample.values.clone(), sample)),
                }
            }
        }
    }
    let column = profile.default_column();
    groups.sort_by_key(|(values, _)| std::cmp::Reverse(values.get(column).copied().unwrap_or(0)));
    for (values, sample) in groups {
        let values: Vec<_> = values.iter().map(i64::to_string).collect();
        text.push('\n');
        text.push_str(&values.join(" "));
        if debug == Debug::Samples {
            describe(&mut text, profile, sample);
        }
        text.push_str(" @\n");
        for frame in profile.stacks.frames_leaf_first(sample.stack) {
            match symbols.get(frame) {
                [] => {
                    for name in names::of(frame, profile, symbols) {
                        let _ = writeln!(text, "#\t{name}");
                    }
                }
                found => {
                    for symbol in found {
                        let _ = write!(text, "#\t{}", symbol.name);
                        if let Some(file) = &symbol.file {
                            let _ = write!(text, "\t{file}:{}", symbol.line);
                        }
                        text.push('\n');
                    }
                }
            }
        }
    }
    text
}

fn describe(text: &mut String, profile: &Profile, sample: &Sample) {
    if let Some(thread) = sample.thread.and_then(|id| profile.thread(id)) {
        let _ = write!(text, " thread {} {:?}", thread.tid, thread.name);
    }
    for label in &sample.labels {
        let _ = match &label.value {
            LabelValue::Text(value) => write!(text, " {}={value:?}", label.key),
            LabelValue::Number { value, .. } => write!(text, " {}={value}", label.key),
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use profile::{Frame, Label, SampleType, Thread, ThreadId};

    fn profile() -> Profile {
        let mut profile =
            Profile::new(vec![SampleType::new("samples", "count"), SampleType::new("cpu", "nanoseconds")]);
        profile.comments.push("lost: 1".to_owned());
        let small = profile.stacks.intern(["start", "small"].map(Frame::named));
        let large = profile.stacks.intern(["start", "large"].map(Frame::named));
        for (stack, thread, nanos) in [(small, 0, 5), (large, 0, 6), (large, 1, 7)] {
            let labels = vec![Label::text("route", "/a"), Label::number("n", 3)];
            profile.samples.push(Sample {
                stack,
                thread: Some(ThreadId(thread)),
                labels: labels.into(),
                values: profile::values![1, nanos],
            });
        }
        for name in ["main", "worker"] {
            profile.threads.push(Thread { tid: 7, name: name.to_owned(), ..Thread::default() });
        }
        profile
    }

    #[test]
    fn stacks_are_added_up_and_the_greatest_comes_first() {
        let text = text(&profile(), &Symbols::new(), "cpu profile", Debug::Stacks);
        assert_eq!(
            text,
            "cpu profile: total 3 samples/count, 18 cpu/nanoseconds\n# lost: 1\n\n2 13 @\n#\tlarge\n#\tstart\n\n1 5 @\n#\tsmall\n#\tstart\n"
        );
    }

    #[test]
    fn samples_tell_their_thread_and_labels() {
        let text = text(&profile(), &Symbols::new(), "cpu profile", Debug::Samples);
        assert!(text.contains("\n1 7 thread 7 \"worker\" route=\"/a\" n=3 @\n#\tlarge\n"), "{text}");
        assert_eq!(text.matches(" @\n").count(), 3);
    }
}
