//! Flame graphs that grow the other way or begin at the leaves, and labels as frames.

use crate::support::{self, encoded};
use profile_recorder_profile::{Frame, Growth, Label, Options, Profile, Sample, SampleType, Symbols, encode, values};

fn profile() -> (Profile, Symbols) {
    let mut profile = Profile::new(vec![SampleType::new("samples", "count")]);
    for (names, shard, value) in
        [(["main", "a", "hot"], 1, 30), (["main", "b", "hot"], 1, 50), (["main", "b", "cold"], 2, 20)]
    {
        let stack = profile.stacks.intern(names.map(Frame::named));
        let labels = vec![Label::number("shard", shard), Label::text("route", "/a;b")];
        profile.samples.push(Sample { stack, thread: None, labels: labels.into(), values: values![value] });
    }
    (profile, Symbols::new())
}

/// Of each frame of a graph: its name, its samples, and where it stands from above.
fn frames(options: &Options) -> Vec<(String, i64, f64)> {
    let svg = String::from_utf8(encoded(encode::svg::encode, &profile(), options)).unwrap();
    svg.split("<title>")
        .skip(2)
        .map(|part| {
            let (title, rest) = part.split_once("</title>").unwrap();
            let (name, value) = title.split_once(" (").unwrap();
            let y = rest.split_once("y=\"").unwrap().1.split_once('"').unwrap().0;
            (name.to_owned(), value.split_once(' ').unwrap().0.parse().unwrap(), y.parse().unwrap())
        })
        .collect()
}

fn find<'a>(frames: &'a [(String, i64, f64)], name: &str) -> Vec<&'a (String, i64, f64)> {
    frames.iter().filter(|frame| frame.0 == name).collect()
}

#[test]
fn a_flame_graph_grows_down_or_up() {
    let down = frames(&Options::default());
    assert!(find(&down, "main")[0].2 < find(&down, "hot")[0].2, "{down:?}");
    let up = frames(&Options { growth: Growth::Up, ..Options::default() });
    assert!(find(&up, "main")[0].2 > find(&up, "hot")[0].2, "{up:?}");
    assert_eq!(down.len(), up.len());
}

#[test]
fn a_reversed_flame_graph_adds_callers_up_at_the_leaf() {
    let reversed = frames(&Options { reversed: true, ..Options::default() });
    let [hot] = find(&reversed, "hot")[..] else { panic!("{reversed:?}") };
    assert_eq!(hot.1, 80);
    let mut mains: Vec<i64> = find(&reversed, "main").iter().map(|frame| frame.1).collect();
    mains.sort_unstable();
    assert_eq!(mains, [20, 30, 50]);
    assert!(find(&reversed, "main").iter().all(|main| main.2 > hot.2));
}

#[test]
fn labels_become_frames_where_they_are_asked_for() {
    let options = Options { label_frames: true, ..Options::default() };
    let collapsed = String::from_utf8(encoded(encode::collapsed::encode, &profile(), &options)).unwrap();
    assert_eq!(
        collapsed,
        "route=/a:b;shard=1;main;a;hot 30\nroute=/a:b;shard=1;main;b;hot 50\nroute=/a:b;shard=2;main;b;cold 20\n"
    );
    let with_labels = frames(&options);
    assert_eq!(find(&with_labels, "shard=1")[0].1, 80);
    let speedscope = String::from_utf8(encoded(encode::speedscope::encode, &profile(), &options)).unwrap();
    assert!(speedscope.contains("\"shard=1\""));
    // The labels of one thread tell its samples apart.
    let (cpu, symbols) = support::cpu();
    let text = String::from_utf8(encoded(encode::collapsed::encode, &(cpu, symbols), &options)).unwrap();
    assert!(text.contains("request=GET /;shard=3;app::main;"), "{text}");
}

/// The colour of each function's frames, as red, green and blue.
fn colours(svg: &str) -> Vec<(String, Vec<u32>)> {
    let frames = svg.split("<title>").skip(1).map(|part| {
        let (title, rest) = part.split_once("</title>").unwrap();
        let fill = rest.split_once("fill=\"rgb(").unwrap().1.split_once(')').unwrap().0;
        (title.split_once(" (").unwrap().0.to_owned(), fill.split(',').map(|part| part.parse().unwrap()).collect())
    });
    frames.collect()
}

#[test]
fn colours_tell_whose_code_a_function_is() {
    let (profile, symbols) = support::cpu();
    for options in [Options::default(), Options { reversed: true, growth: Growth::Up, ..Options::default() }] {
        let svg =
            String::from_utf8(encoded(encode::svg::encode, &(profile.clone(), symbols.clone()), &options)).unwrap();
        // To look at.
        let picture =
            std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("colours-{:?}.svg", options.growth));
        std::fs::write(picture, &svg).unwrap();
        assert!(svg.contains("orange: program, blue: libc and kernel, grey: other"), "{svg}");
        let all = colours(&svg);
        let of =
            |name: &str| &all.iter().find(|(known, _)| known == name).unwrap_or_else(|| panic!("{name}: {all:?}")).1;
        let (program, system) = (of("app::main"), of("memcpy"));
        assert!(program[0] > program[1] && program[1] > program[2], "orange {program:?}");
        assert!(system[2] > system[1] && system[1] > system[0], "blue {system:?}");
        let lost = of("[lost: store full]");
        assert!(lost.iter().all(|part| *part == lost[0]), "grey {lost:?}");
        // A function has one colour wherever it is.
        assert!(all.iter().all(|(name, colour)| of(name) == colour));
    }
}
