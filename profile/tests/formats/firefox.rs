//! Firefox Profiler's own loader, by its command line program, comes to the model's numbers.

use crate::readers::installed;
use crate::support::{self, encoded};
use profile_recorder_profile::top::{self, Leaf};
use profile_recorder_profile::{
    Frame, Label, Labels, Options, Profile, Sample, SampleType, Symbols, Thread, ThreadId, encode, values,
};
use serde_json::Value;
use std::collections::BTreeMap;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// The program with a profile loaded, as the process that its commands ask; ends with the test.
struct Viewer {
    session: PathBuf,
    process: Child,
}

impl Viewer {
    fn load(name: &str, of: &(Profile, Symbols), options: &Options) -> Self {
        Self::open(&format!("{name}.firefox.json"), &encoded(encode::firefox::encode, of, options))
    }

    fn open(name: &str, contents: &[u8]) -> Self {
        let file = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("firefox-{name}"));
        std::fs::write(&file, contents).unwrap();
        // Its socket lies there, and paths of sockets are short.
        let session = std::env::temp_dir().join(format!("profrec-firefox-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&session).unwrap();
        // What `load` starts, too. But that gives up after half a second, in which a busy machine starts no program of this size.
        let process =
            command(&session).arg("--daemon").arg(&file).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        let mut viewer = Self { session, process };
        viewer.wait_until_loaded();
        viewer
    }

    fn wait_until_loaded(&mut self) {
        let begun = Instant::now();
        while let Err(error) = self.try_run(&["profile", "info"]) {
            if let Some(status) = self.process.try_wait().unwrap() {
                let mut why = String::new();
                self.process.stderr.take().unwrap().read_to_string(&mut why).unwrap();
                panic!("the viewer ended ({status}): {why}");
            }
            let is_over = error.contains("Profile load failed") || begun.elapsed() > Duration::from_secs(60);
            assert!(!is_over, "the viewer does not load the profile: {error}");
        }
    }

    fn run(&self, arguments: &[&str]) -> String {
        self.try_run(arguments).unwrap_or_else(|error| panic!("{arguments:?}: {error}"))
    }

    fn try_run(&self, arguments: &[&str]) -> Result<String, String> {
        let output = command(&self.session).args(arguments).output().unwrap();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        if output.status.success() { Ok(text(&output.stdout)) } else { Err(text(&output.stderr)) }
    }

    fn json(&self, arguments: &[&str]) -> Value {
        serde_json::from_str(&self.run(&[arguments, &["--json"]].concat())).unwrap()
    }

    fn threads(&self) -> Vec<Value> {
        self.json(&["thread", "list"])["threads"].as_array().unwrap().clone()
    }

    /// Self and total of each function, over all threads.
    fn functions(&self, strategy: &str) -> BTreeMap<String, (i64, i64)> {
        let mut sums: BTreeMap<String, (i64, i64)> = BTreeMap::new();
        for thread in self.threads() {
            let handle = thread["threadHandle"].as_str().unwrap();
            let arguments = ["thread", "functions", "--json", "--limit", "0", "--include-idle", "--thread", handle];
            let found: Value = match self.try_run(&[&arguments[..], &["--strategy", strategy]].concat()) {
                Ok(text) => serde_json::from_str(&text).unwrap(),
                Err(error) if error.contains("has no data") => continue,
                Err(error) => panic!("{error}"),
            };
            for function in found["functions"].as_array().unwrap() {
                let number = |key: &str| function[key].as_f64().unwrap() as i64;
                let sum = sums.entry(function["name"].as_str().unwrap().to_owned()).or_default();
                *sum = (sum.0 + number("selfSamples"), sum.1 + number("totalSamples"));
            }
        }
        sums.retain(|_, sums| *sums != (0, 0));
        sums
    }
}

impl Drop for Viewer {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
        let _ = std::fs::remove_dir_all(&self.session);
    }
}

fn command(session: &Path) -> Command {
    let mut command = Command::new(installed("node/bin/node"));
    command
        .arg(installed("node_modules/@firefox-devtools/profiler-cli/dist/profiler-cli.js"))
        .env("PROFILER_CLI_SESSION_DIR", session);
    command
}

fn expected((profile, symbols): &(Profile, Symbols), column: usize) -> BTreeMap<String, (i64, i64)> {
    let all = top::functions(profile, symbols, column, Leaf::Recorded);
    all.into_iter().map(|f| (f.name, (f.self_value, f.total))).collect()
}

#[test]
fn samples_of_time_weigh_what_the_model_counts_and_cpu_time_is_exact_to_the_microsecond() {
    let of = support::cpu();
    let viewer = Viewer::load("cpu", &of, &Options::default());
    assert_eq!(viewer.functions("timing"), expected(&of, 0));
    let threads = viewer.threads();
    let cpu_ms: f64 = threads.iter().map(|thread| thread["cpuMs"].as_f64().unwrap()).sum();
    assert!((cpu_ms * 1e6 - of.0.total(1) as f64).abs() <= 1e3 * of.0.samples.len() as f64, "{cpu_ms} ms");
    let markers = viewer.run(&["thread", "markers", "--thread", "t-0", "--search", "my app (pid 4711): lost"]);
    assert!(markers.contains("1 markers"), "{markers}");
}

#[test]
fn losses_are_markers_with_all_that_was_lost() {
    let mut of = support::cpu();
    let lost = of.0.samples[4].clone();
    of.0.samples.push(Sample { values: values![2, 1], ..lost.clone() });
    of.0.samples.push(Sample { thread: Some(ThreadId(1)), values: values![4, 0], ..lost });
    let duration_ms = of.0.duration_ns as f64 / 1e6;
    for column in 0..2 {
        let options = Options { sample_type: Some(column), ..Options::default() };
        let viewer = Viewer::load(&format!("lost-{column}"), &of, &options);
        let mut found: Vec<(String, String)> = Vec::new();
        for thread in viewer.threads() {
            let handle = thread["threadHandle"].as_str().unwrap();
            let arguments = ["thread", "markers", "--thread", handle, "--category", "Lost", "--list"];
            let listed = viewer.json(&arguments);
            for marker in listed["flatMarkers"].as_array().unwrap() {
                assert_eq!(marker["duration"].as_f64(), Some(duration_ms), "{marker}");
                let name = thread["name"].as_str().unwrap().to_owned();
                found.push((name, marker["label"].as_str().unwrap().to_owned()));
            }
        }
        found.sort();
        let expected = [
            ("[no thread]", "[lost: store full] 5 samples, 30000001 nanoseconds of cpu"),
            ("worker 7", "[lost: store full] 4 samples"),
        ];
        assert_eq!(found, expected.map(|(thread, text)| (thread.to_owned(), text.to_owned())));
    }
}

/// It counts entries of perf script text, each as one sample, and is to know the text by its beginning, which here is a comment.
#[test]
fn perf_script_text_has_the_models_samples_too() {
    let mut of = support::cpu();
    of.0.events.clear();
    assert!(!of.0.comments.is_empty());
    let viewer = Viewer::open("cpu.perf", &encoded(encode::perf::encode, &of, &Options::default()));
    let mut ours: BTreeMap<String, (i64, i64)> = BTreeMap::new();
    for (name, (own, total)) in expected(&of, 0) {
        // What has no name is one function in perf's text.
        let sum = ours.entry(if name.contains("+0x") { "[unknown]".to_owned() } else { name }).or_default();
        *sum = (sum.0 + own, sum.1 + total);
    }
    assert_eq!(viewer.functions("timing"), ours);
}

#[test]
fn allocations_and_what_stays_of_them_are_the_models() {
    for (name, mut of) in [("heap", support::heap()), ("large", support::large(2000, 150))] {
        of.0.threads.truncate(3);
        let threads = of.0.threads.len() as u32;
        of.0.samples.iter_mut().for_each(|s| s.thread = s.thread.map(|id| ThreadId(id.0 % threads)));
        let viewer = Viewer::load(name, &of, &Options::default());
        assert_eq!(viewer.functions("native-allocations"), expected(&of, 1), "{name}");
        if let Some(in_use) = of.0.column("inuse_space") {
            assert_eq!(viewer.functions("native-retained-allocations"), expected(&of, in_use));
        }
    }
}

#[test]
fn counts_of_objects_are_weights() {
    let mut of = support::large(2000, 150);
    of.0.samples.iter_mut().for_each(|sample| sample.thread = Some(ThreadId(0)));
    of.0.threads.truncate(2);
    let viewer = Viewer::load("objects", &of, &Options { sample_type: Some(0), ..Options::default() });
    assert_eq!(viewer.functions("timing"), expected(&of, 0));
}

/// The category of the leaf of each sample, by the sample's weight.
fn leaf_categories(json: &Value) -> BTreeMap<i64, String> {
    let mut found = BTreeMap::new();
    for thread in json["threads"].as_array().unwrap() {
        let samples = &thread["samples"];
        for (stack, weight) in samples["stack"].as_array().unwrap().iter().zip(samples["weight"].as_array().unwrap()) {
            let Some(stack) = stack.as_u64() else { continue };
            let frame = thread["stackTable"]["frame"][stack as usize].as_u64().unwrap();
            let category = thread["frameTable"]["category"][frame as usize].as_u64().unwrap();
            let name = json["meta"]["categories"][category as usize]["name"].as_str().unwrap();
            found.insert(weight.as_i64().unwrap(), name.to_owned());
        }
    }
    found
}

#[test]
fn states_are_categories_and_odd_contents_are_loaded() {
    let mut profile = Profile::new(vec![SampleType::new("samples", "count"), SampleType::new("wall", "nanoseconds")]);
    profile.threads = vec![Thread { pid: 1, tid: 1, name: "</script>\n\"".into(), process: "\0".into(), slot: 0 }; 2];
    let long = "x".repeat(10_000);
    let deep: Vec<String> = (0..1000).map(|i| format!("recurse_{i}")).collect();
    let mut stacks = vec![vec!["a;b".into(), "<&>\"\n\u{1}".into(), String::new()], vec![long.clone()], deep, vec![]];
    for (i, names) in stacks.drain(..).enumerate() {
        let stack = profile.stacks.intern(names.into_iter().map(|name| Frame::Named(name.into())));
        let state = ["on-cpu", "runnable", "off-cpu", "unheard of"][i];
        let labels = vec![Label::text("state", state)];
        profile.samples.push(Sample {
            stack,
            thread: Some(ThreadId(i as u32 % 2)),
            labels: labels.into(),
            values: values![1 << (10 * i), 1_000_000],
        });
    }
    profile.samples.push(Sample {
        stack: profile.samples[0].stack,
        thread: None,
        labels: Labels::new(),
        values: values![i64::MAX, 5],
    });
    profile.samples.push(Sample {
        stack: profile.samples[1].stack,
        thread: None,
        labels: Labels::new(),
        values: values![-3, -5],
    });
    let of = (profile, Symbols::new());
    let viewer = Viewer::load("odd", &of, &Options::default());
    let functions = viewer.functions("timing");
    assert_eq!(functions["recurse_0"], (0, 1 << 20));
    assert_eq!(functions["recurse_999"], (1 << 20, 1 << 20));
    assert_eq!(functions[&long], (1021, 1021), "negative weights are those of a difference");
    assert_eq!(functions["[no stack]"], (1 << 30, 1 << 30));
    let text = String::from_utf8(encoded(encode::firefox::encode, &of, &Options::default())).unwrap();
    let json: Value = serde_json::from_str(&text).unwrap();
    let categories = leaf_categories(&json);
    for (weight, category) in [(1, "On-CPU"), (1 << 10, "Runnable"), (1 << 20, "Off-CPU")] {
        assert_eq!(categories[&weight], category, "{categories:?}");
    }
    assert!(text.contains("could not be expressed"), "a weight beyond 1024 times 31 bits is told");
}

#[test]
fn a_profile_of_nothing_is_loaded() {
    let nothing = Profile::new(vec![SampleType::new("samples", "count"), SampleType::new("cpu", "nanoseconds")]);
    let viewer = Viewer::load("nothing", &(nothing, Symbols::new()), &Options::default());
    assert_eq!(viewer.functions("timing"), BTreeMap::new());
}
