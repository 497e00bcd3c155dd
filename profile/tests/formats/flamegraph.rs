//! Brendan Gregg's flamegraph.pl comes from our collapsed stacks to the model's numbers, and so does our own flame graph.

use crate::support::{self, ODD, encoded};
use profile_recorder_profile::top::{self, Leaf};
use profile_recorder_profile::{Frame, Growth, Labels, Options, Profile, Sample, SampleType, Symbols, encode, values};
use std::collections::BTreeMap;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

const SCRIPT: &str = "/usr/share/perl5/Devel/NYTProf/flamegraph.pl";

/// One box of the picture.
#[derive(Debug)]
struct Drawn {
    name: String,
    value: i64,
    /// Where it begins, in units of the value.
    start: i64,
    /// Its row, counted from the one of `all`.
    depth: i64,
}

/// The boxes of its picture, the one of `all` first, each before those that stand on it.
fn drawn(of: &(Profile, Symbols), column: usize) -> Vec<Drawn> {
    assert!(Path::new(SCRIPT).exists(), "{SCRIPT} is missing: tests/run installs it");
    let options = Options { sample_type: Some(column), ..Options::default() };
    let collapsed = encoded(encode::collapsed::encode, of, &options);
    // So wide that one unit is one pixel: places are exact, and nothing is too narrow to be drawn.
    let width = (of.0.total(column) + 20).to_string();
    let mut script = Command::new("perl")
        .args([SCRIPT, "--minwidth=0", "--width", &width])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    script.stdin.take().unwrap().write_all(&collapsed).unwrap();
    let output = script.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    // Comments are no stacks, which it tells; every other line is read.
    let ignored = match of.0.comments.len() {
        0 => String::new(),
        comments => format!("Ignored {comments} lines with invalid format\n"),
    };
    assert_eq!(said, ignored);
    let picture = String::from_utf8(output.stdout).unwrap();
    let mut boxes: Vec<Drawn> = picture.split("<title>").skip(1).map(parsed).collect();
    in_order(&mut boxes, 16);
    boxes
}

/// Rows are counted from above, and are so many pixels high.
fn in_order(boxes: &mut [Drawn], row: i64) {
    let root = boxes.iter().map(|drawn| drawn.depth).max().unwrap();
    boxes.iter_mut().for_each(|drawn| drawn.depth = (root - drawn.depth) / row);
    boxes.sort_by_key(|drawn| (drawn.start, drawn.depth));
}

/// The same of our own flame graph, which has places and widths in units of the value beside those in pixels.
fn drawn_by_us(of: &(Profile, Symbols), column: usize) -> Vec<Drawn> {
    let options = Options { sample_type: Some(column), growth: Growth::Up, ..Options::default() };
    let picture = String::from_utf8(encoded(encode::svg::encode, of, &options)).unwrap();
    let boxes = picture.split("<title>").filter(|part| part.contains("fg:w=")).map(|part| {
        let (title, rest) = part.split_once("</title>").unwrap();
        let number = |key: &str| rest.split_once(key).unwrap().1.split_once('"').unwrap().0.parse().unwrap();
        let name = unescaped(title.rsplit_once(" (").unwrap().0);
        Drawn { name, value: number("fg:w=\""), start: number("fg:x=\""), depth: number("y=\"") }
    });
    let mut boxes: Vec<Drawn> = boxes.collect();
    in_order(&mut boxes, 17);
    boxes
}

/// What follows a `<title>`: `NAME (1,234 samples, 5.67%)</title><rect x="10.0" y="33" ...`.
fn parsed(part: &str) -> Drawn {
    let (title, rest) = part.split_once("</title>").unwrap();
    let (name, value) = title.rsplit_once(" (").unwrap();
    let value = value.split_once(" samples, ").unwrap().0.replace(',', "").parse().unwrap();
    let place = |key: &str| {
        let number = rest.split_once(key).unwrap().1.split_once('"').unwrap().0;
        number.parse::<f64>().unwrap() as i64
    };
    Drawn { name: unescaped(name), value, start: place("x=\"") - 10, depth: place("y=\"") }
}

fn unescaped(name: &str) -> String {
    name.replace("&lt;", "<").replace("&gt;", ">").replace("&quot;", "\"").replace("&amp;", "&")
}

/// Self and total of each function. `all` is what the boxes on it add up to.
fn functions(boxes: &[Drawn]) -> BTreeMap<String, (i64, i64)> {
    let mut sums: BTreeMap<String, (i64, i64)> = BTreeMap::new();
    let mut path: Vec<&Drawn> = Vec::new();
    for drawn in boxes {
        path.truncate(drawn.depth as usize);
        assert_eq!(path.len() as i64, drawn.depth, "{drawn:?} stands on nothing");
        if let Some(below) = path.last() {
            assert!(drawn.start + drawn.value <= below.start + below.value, "{drawn:?} is wider than {below:?}");
            sums.get_mut(&below.name).unwrap().0 -= drawn.value;
        }
        let is_outermost = path.iter().all(|below| below.name != drawn.name);
        let sum = sums.entry(drawn.name.clone()).or_default();
        *sum = (sum.0 + drawn.value, sum.1 + if is_outermost { drawn.value } else { 0 });
        path.push(drawn);
    }
    assert_eq!(sums.remove("all").unwrap().0, 0);
    sums
}

/// As collapsed stacks have a name, and our flame graph.
fn folded(name: &str) -> String {
    name.replace(';', ":")
}

/// As the script has it, which knows no angle brackets in functions.
fn shown(name: &str) -> String {
    folded(name).replace('<', "(").replace('>', ")")
}

fn top_equals(what: &str, of: &(Profile, Symbols), column: usize, boxes: &[Drawn], shown: impl Fn(&str) -> String) {
    let what = format!("{what} {:?}", of.0.sample_types[column]);
    assert_eq!((boxes[0].name.as_str(), boxes[0].value), ("all", of.0.total(column)), "{what}");
    let theirs = functions(boxes);
    let mut ours = top::functions(&of.0, &of.1, column, Leaf::Recorded);
    for by in ["self", "total"] {
        if by == "total" {
            ours.sort_by_key(|function| std::cmp::Reverse(function.total));
        }
        for function in ours.iter().take(10) {
            let expected = (function.self_value, function.total);
            let found = theirs.get(&shown(&function.name));
            assert_eq!(found, Some(&expected), "{what} by {by}: {}", function.name);
        }
    }
}

#[test]
fn the_top_ten_of_its_picture_and_of_ours_are_the_models() {
    for (what, of) in [("cpu", support::cpu()), ("heap", support::heap()), ("large", support::large(3000, 200))] {
        for column in 0..of.0.sample_types.len() {
            top_equals(&format!("its {what}"), &of, column, &drawn(&of, column), shown);
            top_equals(&format!("our {what}"), &of, column, &drawn_by_us(&of, column), folded);
        }
    }
}

fn profile_of(stacks: &[(Vec<String>, i64)]) -> (Profile, Symbols) {
    let mut profile = Profile::new(vec![SampleType::new("samples", "count")]);
    for (names, value) in stacks {
        let stack = profile.stacks.intern(names.iter().map(|name| Frame::Named(name.clone().into())));
        profile.samples.push(Sample { stack, thread: None, labels: Labels::new(), values: values![*value] });
    }
    (profile, Symbols::new())
}

#[test]
fn odd_names_are_one_box_of_their_value() {
    let stacks: Vec<_> =
        ODD.iter().enumerate().map(|(i, name)| (["main", name, "leaf"].map(str::to_owned).to_vec(), 1 << i)).collect();
    let mut of = profile_of(&stacks);
    of.0.comments = ODD.iter().map(|&name| name.to_owned()).collect();
    let boxes = drawn(&of, 0);
    let mut theirs: Vec<_> = boxes.iter().filter(|drawn| drawn.depth == 2).collect();
    theirs.sort_by_key(|drawn| drawn.value);
    let theirs: Vec<_> = theirs.iter().map(|drawn| (drawn.name.as_str(), drawn.value)).collect();
    let expected = [
        ("a:b", 1),
        ("operator new[](unsigned long)", 1 << 1),
        ("say \"hi\" & 'bye'", 1 << 2),
        ("two lines   and a tab", 1 << 3),
        ("(T as Trait)::f(&'static str)", 1 << 4),
        ("(/script)(script)alert(1)(/script)", 1 << 5),
        ("]]) --) (!-- &amp:", 1 << 6),
        ("f_12", 1 << 7),
        ("_# not a comment", 1 << 8),
        ("\u{fffd} was no UTF-8", 1 << 9),
        ("naïve::функция::関数", 1 << 10),
        // The empty one, the space and the control character.
        ("_", 0b111 << 11),
        ("(anonymous namespace)::f()", 1 << 14),
        ("[unknown]", 1 << 15),
    ];
    assert_eq!(theirs, expected);
}

#[test]
fn deep_stacks_long_names_and_nothing_at_all_are_drawn() {
    let long = "x".repeat(10_000);
    let deep: Vec<String> = (0..1000).map(|i| format!("recurse_{}", i % 7)).collect();
    let of = profile_of(&[(vec!["main".into(), long.clone()], 5), (deep, 7), (vec![], 2)]);
    let boxes = drawn(&of, 0);
    assert_eq!(boxes.iter().map(|drawn| drawn.depth).max(), Some(1000));
    let found = functions(&boxes);
    assert_eq!((found[&long], found["recurse_6"], found["recurse_5"]), ((5, 5), (0, 7), (7, 7)));
    assert_eq!(found["[no stack]"], (2, 2));
}
