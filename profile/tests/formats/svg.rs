//! What stands in a flame graph: exact numbers, the title and the unit that are asked for, whichever way it grows.

use crate::support::{self, encoded};
use profile_recorder_profile::{Frame, Growth, Labels, Options, Profile, Sample, SampleType, Symbols, encode, values};

/// Both ways of both beginnings.
fn variants(options: &Options) -> [Options; 4] {
    [(false, Growth::Down), (false, Growth::Up), (true, Growth::Down), (true, Growth::Up)]
        .map(|(reversed, growth)| Options { reversed, growth, ..options.clone() })
}

fn drawn(of: &(Profile, Symbols), options: &Options) -> String {
    String::from_utf8(encoded(encode::svg::encode, of, options)).unwrap()
}

/// Of each frame `NAME (NUMBER UNIT`, in the order of the bytes; the share after it is rounded.
fn titles(svg: &str) -> Vec<&str> {
    let titles = svg.split("<title>").skip(1).map(|part| part.split_once("</title>").unwrap().0);
    let mut titles: Vec<&str> = titles.map(|title| title.rsplit_once(", ").unwrap().0).collect();
    titles.sort_unstable();
    titles
}

fn with_commas(number: i64) -> String {
    let digits = number.to_string();
    let groups: Vec<&str> = digits.as_bytes().rchunks(3).rev().map(|c| std::str::from_utf8(c).unwrap()).collect();
    groups.join(",")
}

#[test]
fn numbers_in_titles_are_exact_beyond_what_a_double_holds() {
    for value in [1_000, (1 << 50) - 4, (1 << 50) + 1, (1 << 53) + 1, i64::MAX / 2] {
        for (kind, unit, shown_as, divisor) in [
            ("alloc_space", "bytes", "bytes", 1),
            ("a (b, c)\u{1}\n<7", "count", "a (b, c)  &lt;7", 1),
            ("cpu", "nanoseconds", "microseconds", 1000),
        ] {
            let mut profile = Profile::new(vec![SampleType::new(kind, unit)]);
            for (name, value) in [("f (1, 2)", value), ("g 12", value - 1)] {
                let stack = profile.stacks.intern(["main", name].map(Frame::named));
                profile.samples.push(Sample { stack, thread: None, labels: Labels::new(), values: values![value] });
            }
            let of = (profile, Symbols::new());
            for options in variants(&Options::default()) {
                let title = |name: &str, value: i64| {
                    let whole = value / divisor + i64::from(value % divisor * 2 >= divisor);
                    format!("{name} ({} {shown_as}", with_commas(whole))
                };
                let mut expected =
                    vec![title("all", 2 * value - 1), title("f (1, 2)", value), title("g_12", value - 1)];
                if options.reversed {
                    expected.extend([title("main", value), title("main", value - 1)]);
                } else {
                    expected.push(title("main", 2 * value - 1));
                }
                expected.sort_unstable();
                assert_eq!(titles(&drawn(&of, &options)), expected, "{options:?}");
            }
        }
    }
}

#[test]
fn the_title_and_the_unit_are_those_that_are_asked_for() {
    for (of, columns) in [
        (support::cpu(), &[("Samples", "samples"), ("CPU time", "microseconds")][..]),
        (
            support::heap(),
            &[
                ("Allocations", "allocations"),
                ("Allocated bytes", "bytes"),
                ("Live allocations", "allocations"),
                ("Live bytes", "bytes"),
            ],
        ),
    ] {
        for (column, (caption, unit)) in columns.iter().enumerate() {
            let title = Some("mine <&>\n".to_owned());
            for options in variants(&Options { sample_type: Some(column), title, ..Options::default() }) {
                let svg = drawn(&of, &options);
                let heading = svg.split_once("id=\"title\"").unwrap().1.split_once('>').unwrap().1;
                let heading = heading.split_once("</text>").unwrap().0;
                assert_eq!(heading, format!("mine &lt;&amp;&gt; : {caption}"), "{options:?}");
                let titles = titles(&svg);
                assert!(titles.len() > 3, "{titles:?}");
                assert!(titles.iter().all(|title| title.ends_with(&format!(" {unit}"))), "{unit}: {titles:?}");
            }
        }
    }
}
