//! A profile of one process as its part of a whole machine's: names instead of addresses, marked by runtime as gProfiler does, and the process instead of its
//! threads.
//!
//! Frames that a runtime generated code for end in `_[p]` (Python), `_[j]` (Java), `_[net]`, `_[rb]` or `_[php]`, and the interpreter's own frames on a stack with Python
//! frames in `_[pn]`. node's names say what they are (`JS:*f`), machine code stays as it is.

use crate::process::{Process, Runtime};
use crate::settings::Labels;
use profile::{Frame, FrameId, Label, LabelValue, Profile, Sample, Stacks, Symbols, Thread, ThreadId, names};
use std::borrow::Cow;
use std::collections::HashMap;

/// The keys of labels that say what a process is.
pub(crate) const ABOUT_PROCESS: [&str; 2] = ["exe", "pid"];

/// What one frame becomes.
struct Named {
    /// Innermost last, so that they can be pushed in this order.
    root_first: Vec<String>,
    python: bool,
    native: bool,
}

/// The profile by names, of one thread that stands for the process. The sum of every column stays.
pub(crate) fn by_name(
    profile: &Profile,
    symbols: &Symbols,
    process: &Process,
    labels: &Labels,
    appids: bool,
) -> Profile {
    let mut whole = Profile::new(profile.sample_types.clone());
    (whole.default_sample_type, whole.period_type) = (profile.default_sample_type, profile.period_type.clone());
    (whole.period, whole.start_unix_ns, whole.duration_ns) =
        (profile.period, profile.start_unix_ns, profile.duration_ns);
    whole.comments.clone_from(&profile.comments);
    let first = profile.threads.first();
    let recorded = first.map_or("", |thread| if thread.process.is_empty() { &thread.name } else { &thread.process });
    let name = if process.comm.is_empty() { recorded } else { &process.comm }.to_owned();
    let pid = if process.pid == 0 { first.map_or(0, |thread| thread.pid) } else { process.pid };
    whole.threads.push(Thread { pid, name: name.clone(), process: name, ..Thread::default() });

    let frames: Vec<Named> =
        profile.stacks.frames().iter().map(|frame| named(frame, profile, symbols, process.runtime)).collect();
    let appid = process.application.as_ref().filter(|_| appids).map(|application| &application.id);
    let appid = appid.map(|id| whole.stacks.frame_id(Frame::Named(Cow::Owned(format!("appid: {id}")))));
    let mut ids: HashMap<String, FrameId> = HashMap::new();
    let mut stacks = HashMap::new();
    let added = added(process, labels);
    for sample in &profile.samples {
        let stack = *stacks.entry(sample.stack).or_insert_with(|| {
            let mut of_stack: Vec<&Named> =
                profile.stacks.frame_ids_leaf_first(sample.stack).filter_map(|id| frames.get(id.index())).collect();
            of_stack.reverse();
            let has_python = of_stack.iter().any(|frame| frame.python);
            let mut stack = appid.map_or(Stacks::ROOT, |id| whole.stacks.push(Stacks::ROOT, id));
            for frame in of_stack {
                for name in &frame.root_first {
                    let name = if has_python && frame.native { format!("{name}_[pn]") } else { name.clone() };
                    let id = *ids
                        .entry(name)
                        .or_insert_with_key(|name| whole.stacks.frame_id(Frame::Named(Cow::Owned(name.clone()))));
                    stack = whole.stacks.push(stack, id);
                }
            }
            stack
        });
        let own = sample.labels.iter().filter(|label| label.key != "syscall");
        let labels = own.chain(&added).cloned().collect();
        whole.samples.push(Sample { stack, thread: Some(ThreadId(0)), labels, values: sample.values.clone() });
    }
    whole.aggregate(true, |_| true);
    whole
}

fn added(process: &Process, labels: &Labels) -> Vec<Label> {
    let mut all = labels.clone();
    all.remove("service_name");
    all.extend(about(process));
    all.into_iter().map(|(key, value)| Label { key: Cow::Owned(key), value: LabelValue::Text(value) }).collect()
}

/// Executable, process id and container, as far as they are known.
pub(crate) fn about(process: &Process) -> Labels {
    let mut about = Labels::new();
    if process.pid != 0 {
        about.insert("pid".to_owned(), process.pid.to_string());
        about.insert("exe".to_owned(), process.executable.display().to_string());
    }
    if let Some(container) = &process.container {
        about.insert("container".to_owned(), container.clone());
    }
    about
}

fn named(frame: &Frame, profile: &Profile, symbols: &Symbols, runtime: Runtime) -> Named {
    let names = names::of(frame, profile, symbols);
    let has_name = !symbols.get(frame).is_empty();
    // Code outside of all files that has a name was generated, and its runtime said what it is.
    let generated = has_name && matches!(frame, Frame::Address { mapping: None, .. });
    let root_first = names.iter().rev().map(|name| if generated { marked(name, runtime) } else { name.to_string() });
    Named {
        root_first: root_first.collect(),
        python: generated && names.iter().any(|name| name.starts_with("py::")),
        native: !generated && matches!(frame, Frame::Address { .. }),
    }
}

/// A name from a perf map as gProfiler's users know it.
fn marked(name: &str, runtime: Runtime) -> String {
    if let Some(python) = name.strip_prefix("py::") {
        // CPython writes `py::function:file`.
        let (function, file) = python.split_once(':').unwrap_or((python, ""));
        return if file.is_empty() { format!("{function}_[p]") } else { format!("{function} ({file})_[p]") };
    }
    match runtime {
        Runtime::Java => {
            // `Lcom/shop/Cart;::add` is `com/shop/Cart.add`; a `;` that stays would end the frame.
            let class_and_method = name.strip_prefix('L').and_then(|name| name.split_once(";::"));
            let name = class_and_method.map_or_else(|| name.to_owned(), |(class, method)| format!("{class}.{method}"));
            format!("{}_[j]", name.replace(';', "|"))
        }
        Runtime::Net => format!("{name}_[net]"),
        Runtime::Ruby => format!("{name}_[rb]"),
        Runtime::Php => format!("{name}_[php]"),
        Runtime::Python | Runtime::Node | Runtime::Native => name.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use profile::{AddressKind, Mapping, MappingId, SampleType, Svma, SymbolFrame};

    fn recorded() -> (Profile, Symbols) {
        let mut profile =
            Profile::new(vec![SampleType::new("samples", "count"), SampleType::new("cpu", "nanoseconds")]);
        profile.mappings.push(Mapping { path: "/usr/lib/libpython.so".into(), ..Mapping::default() });
        profile.threads = (1..3).map(|tid| Thread { pid: 9, tid, ..Thread::default() }).collect();
        let address = |mapping: Option<u32>, at: u64| Frame::Address {
            mapping: mapping.map(MappingId),
            svma: Svma(at),
            kind: AddressKind::Instruction,
        };
        let (main, eval, leaf) = (address(Some(0), 1), address(Some(0), 2), address(None, 3));
        let mut symbols = Symbols::new();
        symbols.insert(main.address().unwrap(), vec![SymbolFrame::named("inlined"), SymbolFrame::named("main")]);
        symbols.insert(leaf.address().unwrap(), vec![SymbolFrame::named("py::work:/srv/app.py")]);
        let python = profile.stacks.intern([main.clone(), eval.clone(), leaf]);
        let native = profile.stacks.intern([main, Frame::named("[lost: store full]")]);
        for (stack, thread, call) in [(python, 0, "read"), (python, 1, "write"), (native, 1, "read")] {
            let labels = vec![Label::text("syscall", call), Label::text("route", "/")];
            profile.samples.push(Sample {
                stack,
                thread: Some(ThreadId(thread)),
                labels: labels.into(),
                values: profile::values![1, 10],
            });
        }
        (profile, symbols)
    }

    #[test]
    fn python_frames_are_marked_and_so_is_the_interpreter_below_them() {
        let (profile, symbols) = recorded();
        let process = Process { pid: 7, comm: "app".into(), runtime: Runtime::Python, ..Process::default() };
        let whole = by_name(&profile, &symbols, &process, &Labels::new(), true);
        let mut lines: Vec<(Vec<String>, Vec<i64>)> = whole
            .samples
            .iter()
            .map(|sample| {
                let names = whole.stacks.frames_leaf_first(sample.stack).map(|frame| match frame {
                    Frame::Named(name) => name.to_string(),
                    Frame::Address { .. } => unreachable!("all have names"),
                });
                (names.collect(), sample.values.to_vec())
            })
            .collect();
        lines.sort();
        let text = |names: &[&str]| names.iter().map(ToString::to_string).collect::<Vec<_>>();
        let expected = [
            (text(&["[lost: store full]", "inlined", "main"]), vec![1, 10]),
            (text(&["work (/srv/app.py)_[p]", "libpython.so+0x2_[pn]", "inlined_[pn]", "main_[pn]"]), vec![2, 20]),
        ];
        assert_eq!(lines, expected);
        assert_eq!((whole.threads[0].pid, whole.threads[0].process.as_str()), (7, "app"));
        let keys: Vec<&str> = whole.samples[0].labels.iter().map(|label| &*label.key).collect();
        assert_eq!(keys, ["exe", "pid", "route"]);
    }

    #[test]
    fn names_of_runtimes_are_marked() {
        for (runtime, name, expected) in [
            (Runtime::Java, "Lcom/shop/Cart;::add", "com/shop/Cart.add_[j]"),
            (Runtime::Java, "f([I;J)V", "f([I|J)V_[j]"),
            (Runtime::Net, "void [shop] Cart::Add()", "void [shop] Cart::Add()_[net]"),
            (Runtime::Node, "JS:*work /srv/s.js:1:19", "JS:*work /srv/s.js:1:19"),
            (Runtime::Python, "py::<module>", "<module>_[p]"),
        ] {
            assert_eq!(marked(name, runtime), expected);
        }
    }
}
