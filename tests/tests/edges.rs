//! Stacks in unusual places and of unusual sizes.

use profile_recorder_tests::stacks::{self, Stack};
use profile_recorder_tests::{programs, scratch};

/// Frames that are kept of a stack, from its leaf.
const MOST_FRAMES: usize = 4095;
/// The functions of `edges.c` that call each other in turn.
const LEVELS: [&str; 3] = ["zero", "one", "two"];

/// Records a case in one mode; the stacks that come to `work`.
fn record(case: &str, mode: &str, more: &[&str]) -> Vec<Stack> {
    let directory = scratch();
    let program = directory.path().join("edges");
    // Binding a function at its first call takes more stack than some cases leave.
    programs::gcc(Some("edges.c"), &["-g", "-Wl,-z,now"], &program);
    let command = [&[program.to_str().unwrap(), case, mode], more].concat();
    let recorded = if mode == "cpu" { stacks::cpu(&command).cpu } else { stacks::allocs(&command).allocs };
    let work: Vec<Stack> = recorded.iter().filter(|stack| stack.has("work")).cloned().collect();
    if mode == "cpu" {
        let (work, all) = (stacks::count(&work), stacks::count(&recorded));
        assert!(work * 100 >= all * 90, "{work} of {all} ticks: {}", stacks::some(&recorded));
    }
    work
}

fn calls(stack: &Stack) -> usize {
    stack.frames.iter().filter(|frame| frame.is_call()).count()
}

/// The levels between whoever called the first and `work` are in their order; the frames before them, and how many they are.
fn levels(stack: &Stack) -> (Vec<&str>, usize) {
    let names = stack.names();
    let work = names.iter().rposition(|name| *name == "work").unwrap();
    let innermost = LEVELS.iter().position(|level| *level == names[work - 1]).unwrap();
    let is_level = |at: usize| names[at] == LEVELS[(innermost + work - 1 - at) % 3];
    let first = (0..work).rev().take_while(|at| is_level(*at)).last().unwrap_or(work);
    (names[..first].to_vec(), work - first)
}

#[test]
fn of_a_hundred_thousand_frames_those_next_to_the_leaf_are_kept() {
    for mode in ["allocs", "cpu"] {
        for stack in record("deep", mode, &["100000"]) {
            assert_eq!(stack.truncated(), Some("too deep"));
            assert_eq!(calls(&stack), MOST_FRAMES, "{mode}");
            let (before, kept) = levels(&stack);
            assert_eq!(before, ["[truncated: too deep]"]);
            assert!(kept >= MOST_FRAMES - 4, "{kept}: the rest is `work` and what it calls");
        }
    }
}

#[test]
fn a_stack_of_just_as_many_frames_as_are_kept_is_complete() {
    let shallow = &record("deep", "allocs", &["10"])[0];
    let others = calls(shallow) - 11;
    for (more, complete) in [(0, true), (1, false)] {
        let depth = MOST_FRAMES - others - 1 + more;
        let stacks = record("deep", "allocs", &[&depth.to_string()]);
        assert_eq!(stacks::count(&stacks), 100);
        assert!(stacks.iter().all(|stack| stack.truncated().is_none() == complete), "{depth} levels: {complete}");
        assert!(stacks.iter().all(|stack| calls(stack) == MOST_FRAMES));
    }
}

/// The guard page is 8 KiB away, and in CPU mode as much more as the kernel needs for a signal.
#[test]
fn recursion_on_the_smallest_stack_is_walked_to_its_root() {
    for mode in ["allocs", "cpu"] {
        let stacks = record("guarded", mode, &[]);
        for stack in &stacks {
            assert!(stack.truncated().is_none(), "{}", stacks::some([stack]));
            let (before, kept) = levels(stack);
            assert!(before.last() == Some(&"guarded") && kept > 20, "{kept} levels: {}", stacks::some([stack]));
        }
        assert!(mode == "cpu" || stacks::count(&stacks) == 100);
    }
}

/// A walk may take more than the program leaves; without one a hook takes little.
#[test]
fn recursion_to_the_end_of_a_stack_is_survived() {
    for room in ["1400", "2000", "3000", "5000"] {
        let stacks = record("guarded", "allocs", &[room]);
        assert_eq!(stacks::count(&stacks), 100, "{room}");
        for stack in &stacks {
            assert_eq!(stack.names(), ["[truncated: no room on the stack]", "work", "malloc"], "{room}");
        }
    }
}

/// The handler works on a stack of its own: on the application's it needs less than the kernel.
#[test]
fn a_signal_stack_with_next_to_no_room_is_enough() {
    for stack in record("cramped", "cpu", &["1024"]) {
        assert!(stack.truncated().is_none(), "{}", stacks::some([&stack]));
        let (before, kept) = levels(&stack);
        assert!(before.last() == Some(&"cramped") && kept == 100, "{kept} levels: {}", stacks::some([&stack]));
    }
}

#[test]
fn a_fiber_is_walked_to_where_makecontext_put_it() {
    for mode in ["allocs", "cpu"] {
        let stacks = record("fibers", mode, &[]);
        for stack in &stacks {
            assert!(stack.truncated().is_none(), "{}", stacks::some([stack]));
            let (before, kept) = levels(stack);
            // Its root is `__start_context`, whose name is not in every C library.
            assert_eq!((&before[1..], kept), (&["run_fiber", "in_fiber"][..], 31), "{}", stacks::some([stack]));
            assert!(stack.frames[0].object.starts_with("libc"), "{}", stacks::some([stack]));
        }
        assert!(mode == "cpu" || stacks::count(&stacks) == 30 * 2 * 100);
    }
}

/// A walk takes more than the coroutine has left, and nothing tells where its stack ends.
#[test]
fn a_coroutine_at_the_end_of_its_stack_has_nothing_below_it_written_over() {
    for room in ["1400", "2000", "3000"] {
        let stacks = record("unguarded", "allocs", &[room]);
        assert_eq!(stacks::count(&stacks), 100, "{room}");
        for stack in &stacks {
            assert!(stack.truncated().is_none(), "{room}: {}", stacks::some([stack]));
            let (before, kept) = levels(stack);
            assert!(before.last() == Some(&"run_unguarded") && kept > 20, "{room}: {}", stacks::some([stack]));
        }
    }
}

#[test]
fn a_handler_on_an_alternate_stack_is_walked_to_the_root_of_the_thread() {
    const HANDLERS: [&str; 5] = ["main", "alternate", "outer_handler", "inner_handler", "work"];
    for mode in ["allocs", "cpu"] {
        let stacks = record("alternate", mode, &[]);
        for stack in &stacks {
            assert_eq!(stack.frames[0].name, "_start", "{}", stacks::some([stack]));
            let own: Vec<&str> = stack.names().into_iter().filter(|name| HANDLERS.contains(name)).collect();
            assert_eq!(own, HANDLERS, "{}", stacks::some([stack]));
        }
        assert!(mode == "cpu" || stacks::count(&stacks) == 50 * 100);
    }
}
