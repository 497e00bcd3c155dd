//! Names and stacks for reading: what every program has is left out, and generic noise is shortened.
//!
//! A short name has no types of parameters and no type arguments: `alloc::vec::Vec<T,A>::push` stays a path of the same words,
//! `std::vector<int, std::allocator<int> >::push_back(int const&)` becomes `std::vector<…>::push_back`. A short stack has neither
//! the frames by which a run-time library starts a program or thread nor those between the code that allocates and the allocation
//! function. Values stay: a stack that is nothing else keeps its leaf.

use std::sync::Arc;

use profile::{Frame, Profile, StackId, Stacks, SymbolFrame, Symbols};

/// How names are shown.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum NameStyle {
    /// As the debug information or the symbol table has them, demangled.
    #[default]
    Full,
    /// For reading: see [`short`].
    Short,
}

/// Frames between the start of a thread and the code that somebody wrote.
const START: &[&str] = &[
    "_start",
    "__libc_start_main",
    "__libc_start_call_main",
    "call_init",
    "_dl_start_user",
    "_dl_start",
    "_dl_init",
    "start_thread",
    "clone",
    "clone3",
    "__clone3",
    "__clone",
    "__clone_internal",
    "std::rt::lang_start",
    "std::rt::lang_start_internal",
    "std::rt::lang_start::{{closure}}",
    "std::rt::lang_start_internal::{{closure}}",
    "std::rt::lang_start::{closure#0}",
    "std::rt::lang_start_internal::{closure#0}",
    "std::panicking::try",
    "std::panicking::try::do_call",
    "std::panicking::catch_unwind",
    "std::panicking::catch_unwind::do_call",
    "std::panic::catch_unwind",
    "__rust_try",
    "core::ops::function::FnOnce::call_once",
    "core::ops::function::FnOnce::call_once{{vtable.shim}}",
];

/// Beginnings of such names.
const START_PREFIXES: &[&str] = &[
    "std::sys::backtrace::__rust_begin_short_backtrace",
    "std::sys_common::backtrace::__rust_begin_short_backtrace",
    "std::sys::thread::",
    "std::sys::pal::unix::thread::Thread::new",
    "std::thread::lifecycle::",
    "std::thread::Builder::spawn_unchecked",
    "<alloc::boxed::Box<F,A> as core::ops::function::FnOnce<Args>>::call_once",
    "<alloc::boxed::Box<dyn core::ops::function::FnOnce",
    "<core::panic::unwind_safe::AssertUnwindSafe",
];

/// Beginnings of the names of what passes an allocation on.
const ALLOCATOR_PREFIXES: &[&str] = &[
    "alloc::alloc::alloc",
    "alloc::alloc::dealloc",
    "alloc::alloc::realloc",
    "alloc::alloc::exchange_malloc",
    "alloc::alloc::Global::",
    "<alloc::alloc::Global as ",
    "alloc::raw_vec::",
    "__rust_alloc",
    "__rust_dealloc",
    "__rust_realloc",
    "__rdl_",
    "__rg_",
    "__rustc::__rust_",
    "__rustc::__rdl_",
    "<std::alloc::System as ",
    "std::sys::alloc::",
    "<profile_recorder_alloc_hook::",
    "profile_recorder_alloc_hook::",
    "operator new",
    "operator delete",
    "__gnu_cxx::new_allocator",
    "std::__new_allocator",
    "std::allocator_traits",
    "std::allocator<",
    "std::_Vector_base",
    "g_malloc",
    "g_realloc",
];

/// The profile with short names and short stacks, and its symbols: see the rules at [`NameStyle::Short`].
///
/// Every value stays, on the stack that is left of its own.
pub fn short(profile: &Profile, symbols: &Symbols) -> (Profile, Symbols) {
    let mut kept = Symbols::new();
    let frames: Vec<Part> = profile.stacks.frames().iter().map(|frame| Part::of(symbols.get(frame))).collect();
    let mut short = profile.clone();
    short.stacks = Stacks::new();
    let mut new_ids: Vec<Option<StackId>> = vec![None; profile.stacks.len()];
    let samples = profile.samples.iter().map(|sample| sample.stack);
    for stack in samples.chain(profile.events.iter().map(|event| event.stack)) {
        if let Some(at @ None) = new_ids.get_mut(stack.index()) {
            *at = Some(short_stack(profile, stack, &frames, &mut short.stacks));
        }
    }
    let renumbered = |stack: StackId| new_ids.get(stack.index()).copied().flatten().unwrap_or(Stacks::ROOT);
    short.samples.iter_mut().for_each(|sample| sample.stack = renumbered(sample.stack));
    short.events.iter_mut().for_each(|event| event.stack = renumbered(event.stack));
    for frame in short.stacks.frames() {
        let found = symbols.get(frame);
        // Inlined start-up and allocator code goes, unless nothing else is there.
        let mut shown: Vec<&SymbolFrame> = found.iter().filter(|f| Part::of_name(&f.name) == Part::Code).collect();
        if shown.is_empty() {
            shown = found.iter().collect();
        }
        let last = shown.len().saturating_sub(1);
        let shown = shown.into_iter().enumerate().map(|(at, frame)| SymbolFrame {
            name: Arc::from(short_name(&frame.name)),
            inlined: at < last,
            ..frame.clone()
        });
        if let Some(key) = frame.address() {
            kept.insert(key, shown.collect());
        }
    }
    (short, kept)
}

/// What a frame is to a reader.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Part {
    Start,
    Allocator,
    Code,
}

impl Part {
    /// Of an address: code if any of its functions is.
    fn of(functions: &[SymbolFrame]) -> Part {
        let mut parts = functions.iter().map(|function| Part::of_name(&function.name));
        let first = parts.next().unwrap_or(Part::Code);
        if parts.all(|part| part != Part::Code) { first } else { Part::Code }
    }

    fn of_name(name: &str) -> Part {
        let plain = name.split_once("@").map_or(name, |(plain, _)| plain);
        let bare = short_name(plain);
        let starts = |prefixes: &[&str]| prefixes.iter().any(|prefix| plain.starts_with(prefix));
        if START.contains(&plain) || START.contains(&bare.replace("::<…>", "").as_str()) || starts(START_PREFIXES) {
            Part::Start
        } else if starts(ALLOCATOR_PREFIXES) {
            Part::Allocator
        } else {
            Part::Code
        }
    }
}

fn short_stack(profile: &Profile, stack: StackId, parts: &[Part], stacks: &mut Stacks) -> StackId {
    let ids: Vec<_> = profile.stacks.frame_ids_leaf_first(stack).collect();
    let part = |at: usize| ids.get(at).and_then(|id| parts.get(id.index())).copied().unwrap_or(Part::Code);
    let frame = |at: usize| ids.get(at).and_then(|id| profile.stacks.frames().get(id.index()));
    let mut kept: Vec<usize> = Vec::new();
    // The leaf side: an allocation function, which is a frame of a name alone, and what stands between it and its caller.
    let mut at = 0;
    if matches!(frame(0), Some(Frame::Named(_))) {
        kept.push(0);
        at = 1;
        while at < ids.len() && part(at) == Part::Allocator {
            at += 1;
        }
    }
    // The root side.
    let mut end = ids.len();
    while end > at && part(end - 1) == Part::Start {
        end -= 1;
    }
    kept.extend(at..end);
    if kept.is_empty() && !ids.is_empty() {
        kept.push(0);
    }
    kept.into_iter().rev().filter_map(frame).fold(Stacks::ROOT, |stack, frame| {
        let frame = stacks.frame_id(frame.clone());
        stacks.push(stack, frame)
    })
}

/// What C++ calls a namespace without a name.
const ANONYMOUS: &str = "(anonymous namespace)";

/// A name without parameter types, type arguments and marks of clones.
fn short_name(name: &str) -> String {
    let name = name.split(" [clone ").next().unwrap_or(name);
    let mut short = String::with_capacity(name.len());
    let mut rest = name;
    let mut qualified = 0_u32;
    // The signs of an operator open nothing.
    let mut after_operator = false;
    while let Some(c) = rest.chars().next() {
        if let Some(symbol) = operator(rest).filter(|_| !ends_in_word(&short)) {
            short.push_str(symbol);
            rest = rest.get(symbol.len()..).unwrap_or_default();
            after_operator = true;
            continue;
        }
        let opened = |signs: &[char]| !after_operator && short.ends_with(signs);
        let group = match c {
            // `<T as Trait>::f` and `<T>::f` of Rust name the function by a type: that type is the name.
            '<' if short.is_empty() || opened(&['<', ' ', '&', '(']) => {
                qualified += 1;
                None
            }
            '>' if qualified > 0 => {
                qualified -= 1;
                None
            }
            '<' => group(rest, "<…>"),
            '(' if qualified == 0 && !rest.starts_with(ANONYMOUS) && !short.is_empty() && !opened(&['<', ' ', '&']) => {
                group(rest, "")
            }
            _ => None,
        };
        after_operator &= c == ' ';
        match group {
            Some((shown, length)) => {
                short.push_str(shown);
                rest = rest.get(length..).unwrap_or_default();
                // `const` and references of a method follow its parameters.
                if shown.is_empty() && !rest.starts_with([':', '#']) {
                    let end = short.trim_end().len();
                    short.truncate(end);
                    short.drain(..result_type(&short));
                    break;
                }
            }
            None if rest.starts_with(ANONYMOUS) => {
                short.push_str(ANONYMOUS);
                rest = rest.get(ANONYMOUS.len()..).unwrap_or_default();
            }
            None => {
                short.push(c);
                rest = rest.get(c.len_utf8()..).unwrap_or_default();
            }
        }
    }
    let short = short.trim_end();
    if short.is_empty() { name.to_owned() } else { short.to_owned() }
}

/// Where the name begins behind the type of its result, which C++ puts before names of templates.
fn result_type(name: &str) -> usize {
    let (mut depth, mut start) = (0_u32, 0);
    for (at, c) in name.char_indices() {
        match c {
            '<' | '(' | '{' => depth += 1,
            '>' | ')' | '}' => depth = depth.saturating_sub(1),
            ' ' if depth == 0 => start = at + 1,
            _ if name.get(at..).is_some_and(|rest| rest.starts_with("operator")) => break,
            _ => {}
        }
    }
    start
}

/// A C++ operator at the beginning, whose signs are no brackets.
fn operator(rest: &str) -> Option<&str> {
    const OPERATORS: &[&str] = &[
        "operator<<=",
        "operator>>=",
        "operator<=>",
        "operator->*",
        "operator<<",
        "operator>>",
        "operator<=",
        "operator>=",
        "operator->",
        "operator()",
        "operator<",
        "operator>",
    ];
    let found = OPERATORS.iter().find(|operator| rest.starts_with(**operator))?;
    rest.get(..found.len())
}

fn ends_in_word(text: &str) -> bool {
    text.ends_with(|c: char| c.is_alphanumeric() || c == '_')
}

/// What stands for a bracketed group at the beginning of `rest`, and how long that is; `None` if it does not end.
fn group<'a>(rest: &str, shown: &'a str) -> Option<(&'a str, usize)> {
    let mut depth = 0_u32;
    let mut before = ' ';
    for (at, c) in rest.char_indices() {
        match c {
            '<' | '(' | '[' | '{' => depth += 1,
            // `->` of a function type is no bracket.
            '>' if before == '-' => {}
            '>' | ')' | ']' | '}' => {
                depth = depth.checked_sub(1)?;
                if depth == 0 {
                    return Some((shown, at + c.len_utf8()));
                }
            }
            _ => {}
        }
        before = c;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use profile::{AddressKind, Sample, Svma};

    #[test]
    fn types_of_parameters_and_arguments_go() {
        for (full, expected) in [
            ("std::vector<int, std::allocator<int> >::push_back(int const&)", "std::vector<…>::push_back"),
            ("space::foo(int, bool) const", "space::foo"),
            ("(anonymous namespace)::foo(int)", "(anonymous namespace)::foo"),
            ("a::operator<(b<c> const&)", "a::operator<"),
            ("std::operator<< <char>(std::ostream&)", "std::operator<< <…>"),
            ("a::f(int)::{lambda(int)#1}::operator()(int) const", "a::f::{lambda#1}::operator()"),
            ("core::ptr::drop_in_place::<alloc::vec::Vec<u8>>", "core::ptr::drop_in_place::<…>"),
            ("<app::S as app::T>::foo", "<app::S as app::T>::foo"),
            ("<alloc::vec::Vec<T,A> as core::ops::Drop>::drop", "<alloc::vec::Vec<…> as core::ops::Drop>::drop"),
            ("app::main::{{closure}}", "app::main::{{closure}}"),
            ("core::iter::map::<fn(u8) -> u8>", "core::iter::map::<…>"),
            ("void space::fill<long>(std::vector<long, std::allocator<long> >&)", "space::fill<…>"),
            ("unsigned long& a<b>::f<c>(d)", "a<…>::f<…>"),
            ("std::ostream& std::operator<< <char>(std::ostream&)", "std::operator<< <…>"),
            ("a::operator bool() const", "a::operator bool"),
            ("operator new(unsigned long)", "operator new"),
            ("void (anonymous namespace)::f<int>()", "(anonymous namespace)::f<…>"),
            ("<fn(u8) -> u8 as core::ops::Fn<u8>>::call", "<fn(u8) -> u8 as core::ops::Fn<…>>::call"),
            ("work.part.0", "work.part.0"),
            ("space::foo(int) [clone .isra.0]", "space::foo"),
            ("malloc", "malloc"),
            ("", ""),
            ("a<b", "a<b"),
            ("<", "<"),
            ("f(", "f("),
        ] {
            assert_eq!(short_name(full), expected, "{full}");
        }
    }

    #[test]
    fn start_up_and_allocator_frames_go_and_values_stay() {
        let mut profile = Profile::new(vec![profile::SampleType::new("alloc_objects", "count")]);
        let mut symbols = Symbols::new();
        let names = [
            "_start",
            "__libc_start_main@@GLIBC_2.34",
            "std::rt::lang_start::<()>",
            "app::main",
            "app::work(int)",
            "alloc::raw_vec::RawVec<T,A>::grow_one",
            "__rust_alloc",
        ];
        let mut frames: Vec<Frame> = names
            .iter()
            .zip(1..)
            .map(|(name, at)| {
                let frame = Frame::Address { mapping: None, svma: Svma(at), kind: AddressKind::Instruction };
                symbols.insert(frame.address().unwrap(), vec![SymbolFrame::named(*name)]);
                frame
            })
            .collect();
        frames.push(Frame::named("malloc"));
        for (length, value) in [(8, 5), (4, 3), (1, 2)] {
            let stack = profile.stacks.intern(frames[..length].iter().cloned());
            profile.samples.push(Sample {
                stack,
                thread: None,
                labels: profile::Labels::new(),
                values: profile::values![value],
            });
        }
        let (short, symbols) = super::short(&profile, &symbols);
        assert_eq!(short.total(0), 10);
        let stacks: Vec<Vec<String>> = short
            .samples
            .iter()
            .map(|sample| {
                let frames = short.stacks.frames_leaf_first(sample.stack);
                frames
                    .flat_map(|frame| profile::names::of(frame, &short, &symbols))
                    .map(|name| name.into_owned())
                    .collect()
            })
            .collect();
        assert_eq!(stacks, [vec!["malloc", "app::work", "app::main"], vec!["app::main"], vec!["_start"]]);
    }
}
