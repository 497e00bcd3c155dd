//! What the tick handler and the allocation hooks cannot do, shown on the code of the built preload library.

use profile_recorder_tests::inspect::{
    self, Allowed, Graph, Library, Node, Reasons, Relocation, assert_allowed, assert_stack,
};
use profile_recorder_tests::{programs, scratch};
use std::collections::BTreeSet;
use std::path::Path;
use std::sync::OnceLock;

fn library() -> &'static Library {
    static LIBRARY: OnceLock<Library> = OnceLock::new();
    LIBRARY.get_or_init(inspect::preload_library)
}

fn graph() -> &'static Graph<'static> {
    static GRAPH: OnceLock<Graph<'static>> = OnceLock::new();
    GRAPH.get_or_init(|| Graph::new(library()))
}

fn exports(names: &[&str]) -> Vec<Node> {
    names.iter().map(|name| Node::Function(library().export(name).start)).collect()
}

fn doors() -> impl Iterator<Item = Node> {
    DOORS.iter().map(|name| graph().function(&format!("profrec_preload::doors::{name}")))
}

/// The functions of the malloc family, by whichever door.
fn hooks() -> Vec<Node> {
    exports(&FAMILY).into_iter().chain(doors()).collect()
}

fn tick() -> Node {
    graph().function("profile_recorder::sampler::handler::tick")
}

/// What a thread that `clone` makes calls before and after its function.
fn clone_announces() -> [Node; 2] {
    ["starts", "ends"].map(|name| graph().function(&format!("profrec_preload::clone::begin::{name}")))
}

const FAMILY: [&str; 11] = [
    "malloc",
    "calloc",
    "realloc",
    "reallocarray",
    "free",
    "posix_memalign",
    "aligned_alloc",
    "memalign",
    "valloc",
    "pvalloc",
    "malloc_usable_size",
];
/// Fronts of functions that slots lead to: one of each code, and all that are called like these differ in the pointer alone.
const DOORS: [&str; 18] = [
    "malloc",
    "calloc",
    "realloc",
    "reallocarray",
    "posix_memalign",
    "aligned_alloc",
    "memalign",
    "valloc",
    "pvalloc",
    "free",
    "new",
    "delete",
    "mallocx",
    "rallocx",
    "xallocx",
    "dallocx",
    "dlopen",
    "dlsym",
];
const OTHERS: [&str; 56] = [
    "_Exit",
    "__sigaction",
    "__sysv_signal",
    "_exit",
    "bsd_signal",
    "capset",
    "clone",
    "daemon",
    "dlclose",
    "execl",
    "execle",
    "execlp",
    "execv",
    "execve",
    "execveat",
    "execvp",
    "execvpe",
    "fexecve",
    "fork",
    "forkpty",
    "initgroups",
    "munmap",
    "popen",
    "posix_spawn",
    "posix_spawnp",
    "prctl",
    "profile_recorder_label_enter_v1",
    "profile_recorder_label_leave_v1",
    "pthread_create",
    "pthread_sigmask",
    "setegid",
    "seteuid",
    "setgid",
    "setgroups",
    "setns",
    "setregid",
    "setresgid",
    "setresuid",
    "setreuid",
    "setuid",
    "sigaction",
    "sigaltstack",
    "sigignore",
    "siginterrupt",
    "signal",
    "signalfd",
    "sigprocmask",
    "sigset",
    "sigtimedwait",
    "sigwait",
    "sigwaitinfo",
    "ssignal",
    "syscall",
    "system",
    "sysv_signal",
    "unshare",
];

/// What is in memory of a library's file: sections by address.
fn loaded(path: &Path) -> Vec<(u64, Vec<u8>)> {
    use object::{Object as _, ObjectSection as _};
    let bytes = std::fs::read(path).unwrap();
    let elf = object::File::parse(&*bytes).unwrap();
    let sections = elf.sections().filter(|section| section.address() != 0);
    sections.map(|section| (section.address(), section.data().unwrap().to_vec())).collect()
}

#[test]
fn what_is_looked_into_is_what_is_carried() {
    let (whole, carried) = (loaded(&library().path), loaded(&inspect::carried()));
    assert!(whole.len() > 10 && whole == carried);
}

#[test]
fn every_exported_function_is_looked_into() {
    let known: BTreeSet<&str> = FAMILY.into_iter().chain(OTHERS).collect();
    assert_eq!(library().exports().collect::<BTreeSet<_>>(), known);
}

#[test]
fn what_is_known_to_be_reached_is_found() {
    let directory = scratch();
    let file =
        programs::compile_c_library("reach", directory.path(), &["-O2", "-g", "-fno-reorder-blocks-and-partition"]);
    let library = Library::read(&file);
    let graph = Graph::new(&library);
    let reached = |root: &str| {
        let reached = graph.reach(&[graph.function(root)], |edge| !graph.diverges(&edge.to));
        let mut names: Vec<String> =
            reached.nodes().filter(|n| !matches!(n, Node::Data(_))).map(|n| graph.name(n)).collect();
        names.retain(|name| name != root);
        names
    };
    assert_eq!(reached("root_calls"), ["called"]);
    assert_eq!(reached("root_jumps"), ["jumped_to"]);
    assert_eq!(reached("root_takes_a_table"), ["in_a_table"]);
    assert_eq!(reached("root_calls_through_a_variable"), ["stored"]);
    assert_eq!(reached("root_passes_a_function"), ["passed", "apply", "an unknown pointer"]);
    assert_eq!(reached("root_allocates"), ["free (dynamic symbol)", "malloc (dynamic symbol)"]);
    assert_eq!(reached("root_uses_a_thread_local"), ["__tls_get_addr (dynamic symbol)"]);
    assert_eq!(reached("root_fails"), [""; 0]);
    assert!(graph.diverges(&graph.function("fails")));
    assert_eq!(reached("root_calls_an_argument"), ["an unknown pointer"]);
    assert_eq!(reached("root_switches"), ["one", "two"]);
    let locks = graph.reach(&[graph.function("root_locks")], |_| true);
    assert_eq!(locks.instructions().filter(|(_, mark)| mark.locks).count(), 2);
    let root = graph.function("root_takes_stack");
    let need = graph.reach(std::slice::from_ref(&root), |_| true).stack(&root);
    assert!((4008..4100).contains(&need.bytes), "{need:#?}");
    let path = graph.reach(&[graph.function("root_passes_a_function")], |_| true).path(&graph.function("passed"));
    assert!(path.starts_with("root_passes_a_function\n    Address to passed at 0x"), "{path}");
    assert!(path.contains("tests/victims/reach.c:"), "{path}");
}

#[test]
fn the_threads_word_lies_at_a_fixed_distance_from_the_thread_pointer() {
    let offset = library().thread_locals["profile_recorder_thread_v0_1"];
    let is_fixed = |r: &&Relocation| r.kind == object::elf::R_X86_64_TPOFF64 && r.addend == offset as i64;
    assert_eq!(library().relocations.iter().filter(is_fixed).count(), 1, "reached by the initial-exec model");
    // A pair of words that is handed to `__tls_get_addr` names the module and, for a variable of its own, the offset.
    let modules = library().relocations.iter().filter(|r| r.kind == object::elf::R_X86_64_DTPMOD64);
    for module in modules {
        assert_eq!((module.symbol.as_deref(), library().word(module.slot + 8)), (None, Some(0)), "std's own");
    }
}

const THREAD_LOCAL: Reasons = &[
    ("capture/src/tls.rs", "the one word"),
    // Assembly has no lines.
    ("?? malloc", "the word, in the few instructions that count a call"),
    ("?? calloc", "the same"),
    ("?? realloc", "the same"),
    ("?? free", "the same"),
];

const KERNEL_IN_TICK: Reasons = &[
    ("clock_ns", "CPU time and time"),
    ("process_cpu_ns", "the same of the process"),
    ("is_readable", "asks for a page before it is read"),
    ("read_own", "the same where valgrind runs the program"),
    ("map", "memory of the tree's index"),
    ("unmap", "memory of the tree's index"),
    ("open", "the store's file for more blocks; the list of mappings for a new thread's stack"),
    ("drop", "closes what was opened"),
    ("allocate", "blocks of the store's file"),
    ("write_at", "blocks of the store's file"),
    ("populate", "blocks of the store's file"),
    ("limit", "blocks of the store's file; how far the first thread's stack may grow"),
    ("read", "the list of mappings"),
    ("gettid", "whose state it is"),
    ("robust_list", "a new thread: whether the C library made it"),
    ("thread_pointer", "a new thread: whether the C library made it, and where its stack ends"),
    ("thread_name", "a new thread"),
    ("advise", "a new thread's state is wiped in children"),
    ("new", "a new thread's timer"),
    ("set", "a new thread's timer"),
    ("delete", "the timers of a new thread and of one that ends"),
    ("getpid", "whose store it is: not a child's that shares memory with its parent"),
    ("pending_signals", "whether another signal broke a call off"),
    ("set_signal_mask", "what the application's own handler asked to be blocked"),
];
const SOURCES_OF_TICK: Reasons = &[
    ("capture/src/", "may run in a handler"),
    ("unwind/src/", "may run in a handler"),
    ("layout/src/", "may run in a handler"),
    ("recorder/src/own.rs", "what the recorder's own threads took"),
    ("recorder/src/sampler/account.rs", "the elapsed time that it answers for"),
    ("recorder/src/sampler/action.rs", "what the application's own handler is"),
    ("recorder/src/sampler/effort.rs", "how long it takes"),
    ("recorder/src/sampler/handler.rs", "the handler"),
    ("recorder/src/sampler/mod.rs", "the handler's log"),
    ("recorder/src/sampler/passed.rs", "whether it was here before"),
    ("recorder/src/sampler/resume.rs", "a call that was broken off"),
    ("recorder/src/sampler/spent.rs", "the process's CPU clock"),
    ("capture/src/stacks.rs", "where the handler works"),
    ("recorder/src/sampler/timers.rs", "a new thread's timer"),
    ("alloc-hook/src/thread_end.rs", "a new thread's end will be told"),
    ("core/src/", "no state"),
    ("index.crates.io", "the types of the crate libc"),
];
const NOT_IN_TICK: Reasons = &[
    ("capture/src/spin.rs", "waits"),
    ("capture/src/modules.rs refresh", "reads files"),
    ("capture/src/modules/tables.rs build_piece", "builds"),
    ("capture/src/modules/tables.rs read_file", "reads files"),
    ("unwind/src/build/", "allocates"),
    ("core/src/panicking.rs", "panics"),
    ("core/src/fmt/", "only to panic"),
];

/// What a handler may do, and as much as that from these sources.
fn allowed_in_a_handler(sources: Reasons) -> Allowed {
    Allowed {
        left_out: &[],
        imports: &[
            ("memcpy", "a copy"),
            ("memmove", "a copy"),
            ("memset", "a copy"),
            (
                "pthread_setspecific",
                "of a thread's first tick; glibc keeps the first 32 values in the thread: it stores",
            ),
        ],
        pointers: &[],
        unknown: &[("recorder/src/sampler/handler.rs chain", "the handler that the application installed")],
        locks: None,
        kernel: Some(KERNEL_IN_TICK),
        sources: Some((sources, NOT_IN_TICK)),
        thread_local: THREAD_LOCAL,
        panics: false,
    }
}

#[test]
fn a_tick_contains_nothing_that_a_handler_may_not_do() {
    assert_allowed(graph(), &[tick()], &allowed_in_a_handler(SOURCES_OF_TICK));
}

/// Its thread-local storage may be another's.
#[test]
fn a_thread_that_clone_makes_begins_and_ends_by_what_a_handler_may_do() {
    const MORE: Reasons = &[
        ("preload/src/clone.rs", "its first function"),
        ("recorder/src/preload.rs", "whether the process is recorded"),
        ("recorder/src/sampler/asking.rs forget", "ends its timers"),
        ("recorder/src/sampler/asking.rs leave", "ends its timers"),
        ("recorder/src/sampler/ended.rs", "when it ended"),
        ("recorder/src/sampler/guests.rs", "its beginning and end"),
        ("recorder/src/sampler/blocked.rs", "signals blocked meanwhile"),
    ];
    let sources = [SOURCES_OF_TICK, MORE].concat().leak();
    assert_allowed(graph(), &clone_announces(), &allowed_in_a_handler(sources));
}

/// What a hook that finds everything known does not run.
const COLD: Reasons = &[
    ("profile_recorder_alloc_hook::record::stop", "whoever reads the store has what is wanted: once in a process"),
    ("profile_recorder_alloc_hook::next::resolve", "the first call of the process"),
    ("profile_recorder_alloc_hook::bootstrap::allocate", "during the first call of the process"),
    ("profile_recorder_alloc_hook::family::move_out_of_bootstrap", "a block from then"),
    ("profile_recorder_alloc_hook::fast::compare", "one of the first blocks"),
    ("profile_recorder_alloc_hook::fast::arm_slow", "after a change of what the few instructions go by"),
    ("profile_recorder_alloc_hook::doors::passed", "an object may have been opened"),
    ("profile_recorder_alloc_hook::doors::look", "an object may have been opened"),
    ("profile_recorder_capture::thread::current_slow", "the first call of a thread, or of a child after fork"),
    ("profile_recorder_alloc_hook::record::refresh", "a handler came upon unknown code"),
    ("profile_recorder_capture::modules::refresh", "an object was opened"),
    ("profile_recorder_capture::modules::refresh_if_stale", "an object was closed"),
    ("profile_recorder_capture::rules::resolve_slow", "an address that was not looked up lately"),
    ("<profile_recorder_capture::kept::Kept>::recover", "a frame whose caller takes all registers"),
    ("<profile_recorder_capture::tree::Tree>::child_slow", "a frame that was not called from there before"),
    ("profile_recorder_capture::region::allocate_chunks", "the store grows"),
    ("<profile_recorder_capture::thread::ThreadState>::find_stack", "a thread whose stack was not asked for before"),
    ("<profile_recorder_capture::probed::Probed>::is_page_readable_slow", "a page outside the thread's stack"),
    ("<profile_recorder_alloc_hook::live::table::Locked>::grow", "the live table grows"),
    ("<profile_recorder_alloc_hook::live::table::Locked>::insert_and_gather", "many blocks that lie together live"),
    ("<profile_recorder_capture::kept::tips::Tips>::grow", "tips took each other's places"),
    ("<profile_recorder_capture::tree::Tree>::make_room", "the index of the call tree grows"),
    ("profile_recorder_alloc_hook::record::walked::values_elsewhere", "a stack that is not the thread's own"),
    ("profile_recorder_alloc_hook::record::guard::mend", "a hook was left by a jump"),
    ("profile_recorder_capture::thread::is_own_slow", "a thread's first allocation, or a thread of the recorder's"),
    ("profile_recorder_alloc_hook::bootstrap::allocate_own", "a thread of the recorder's allocates"),
    ("profile_recorder_alloc_hook::bootstrap::release", "a block of such a thread, or of the start"),
];

#[test]
fn a_hook_that_knows_everything_calls_the_next_allocator_and_locks_a_shard_at_most() {
    let allowed = Allowed {
        left_out: COLD,
        imports: &[
            ("memcpy", "a copy"),
            ("memmove", "a copy"),
            ("memset", "a copy"),
            ("__errno_location", "in `fail`, which sets ENOMEM as the C function does"),
        ],
        pointers: &[
            ("profile_recorder_alloc_hook::near::NEAR", "the next allocator"),
            ("profrec_preload::doors", "the function that a door stands in front of"),
            ("profile_recorder_alloc_hook::family::ARRAYS", "the C library's reallocarray"),
        ],
        unknown: &[],
        locks: Some(&[
            ("alloc-hook/src/live/lock.rs try_lock", "a shard of the live allocations"),
            ("alloc-hook/src/live/lock.rs wait_for", "a shard that nobody gives back"),
            ("alloc-hook/src/live.rs count", "a sampled allocation, for the table of intervals"),
            ("capture/src/region.rs add_pair", "a block that another thread allocated"),
            ("capture/src/stacks.rs", "a stack of the recorder's, where the thread's own is another"),
            ("capture/src/live.rs bring_in", "live memory changed by 16 KiB"),
            ("capture/src/live.rs raise", "the peak of live memory"),
            ("capture/src/live.rs change_unregistered", "a thread without a record"),
            ("capture/src/region.rs lose", "what is lost is counted for the process"),
            ("capture/src/thread.rs count_unregistered", "a thread without a record is counted with the process"),
        ]),
        kernel: Some(&[
            ("yield_now", "a shard is taken"),
            ("clock_ns", "when the peak of live memory was, and how long a shard was waited for"),
            ("is_readable", "a page outside the thread's stack"),
            ("told_of_signal_stack", "a thread that is inside already, or was left"),
        ]),
        sources: Some((
            &[
                ("alloc-hook/src/", "the hooks"),
                ("capture/src/", "may run under malloc"),
                ("unwind/src/", "may run under malloc"),
                ("layout/src/", "may run under malloc"),
                ("preload/src/", "the exported functions"),
                ("core/src/", "no state"),
                ("index.crates.io", "logarithms of the sampling countdown"),
            ],
            &[
                ("capture/src/spin.rs", "waits"),
                ("alloc-hook/src/own_heap.rs", "allocates"),
                ("unwind/src/build/", "allocates"),
                ("core/src/panicking.rs", "panics"),
                ("core/src/fmt/", "only to panic"),
            ],
        )),
        thread_local: THREAD_LOCAL,
        panics: false,
    };
    assert_allowed(graph(), &hooks(), &allowed);
}

/// Functions that run outside a handler and may allocate from the recorder's own heap. Their indexing is checked, so a mistake in them could end the process.
const BUILDERS: Reasons = &[
    ("profile_recorder::tables::piece", "builds the rows of a piece of code"),
    ("profile_recorder::tables::file", "reads frame information that is in a file alone"),
    ("profile_recorder::start::in_child", "opens a child's store"),
    ("profile_recorder_alloc_hook::next::resolve", "opens the process's store"),
    ("profile_recorder::resident::end", "waits for a thread of the recorder, before the process confines itself"),
    ("profile_recorder::resident::in_child", "starts a thread of the recorder, in a child"),
    ("profile_recorder::resident::go_on", "starts it again, where the kernel refused that"),
    (
        "profile_recorder::resident::begin",
        "starts a thread of the recorder, where a thread of the host can have no timer",
    ),
];

/// Where the threads of a preloaded server begin, and where the process waits for their end: what these do happens on threads that are not the host's, or where a
/// server was asked for.
const RESIDENT: Reasons = &[
    ("profile_recorder::resident::begin", "starts the agent's thread, from the constructor"),
    ("profile_recorder::resident::in_child", "the same in a child after fork"),
    (
        "profile_recorder::start::reset_control_plane",
        "frees the recorder's locks in a child after fork, on its only thread",
    ),
    ("profile_recorder::resident::end", "waits for the agent"),
    ("profile_recorder::resident::go_on", "starts it again, where the kernel refused what the process ended it for"),
];

#[test]
fn no_entry_point_can_panic_but_where_a_table_is_built_or_a_store_opened() {
    let allowed = Allowed { left_out: BUILDERS, panics: false, ..EVERYTHING };
    let others = exports(&OTHERS);
    assert_allowed(graph(), &[hooks(), others].concat(), &allowed);
}

/// All that the library's code may use, whatever happens.
const EVERYTHING: Allowed = Allowed {
    left_out: &[],
    imports: &[
        ("memcpy", "a copy"),
        ("memmove", "a copy"),
        ("memset", "a copy"),
        ("bcmp", "a comparison"),
        ("strlen", "a length"),
        ("dlsym", "the next function of a name, once"),
        ("__errno_location", "in `fail`; std's, for messages of errors"),
        ("__xpg_strerror_r", "std's, for messages of errors"),
        ("syscall", "std's `Once`: waits for another thread of the recorder"),
        ("pthread_setspecific", "glibc keeps the first 32 values in the thread: it stores"),
        ("getauxval", "reads what the kernel left, at the end of the library"),
        ("pthread_key_create", "once, in the constructor"),
        (
            "pthread_key_delete",
            "once, in the constructor, where the key is none of the first; a plugin, when it is closed",
        ),
        ("__register_atfork", "once, in the constructor"),
        ("dladdr", "once, in the constructor"),
        ("dlopen", "where something unwinds through std's code: it has loaded the unwinder"),
        ("environ", "the host's environment, which is read"),
        ("sigaction", "the constructor installs the handler"),
        ("sigemptyset", "changes its argument alone"),
        ("sigfillset", "changes its argument alone"),
        ("sigdelset", "changes its argument alone"),
        ("pthread_atfork", "once, in the constructor"),
    ],
    pointers: &[
        ("profile_recorder_alloc_hook::near::NEAR", "the next allocator"),
        ("profrec_preload::doors", "the function that a door stands in front of"),
        ("profile_recorder_alloc_hook::family::ARRAYS", "the C library's reallocarray"),
        ("profrec_preload::thread", "the next function of a name"),
        ("profrec_preload::signal", "the next function of a name"),
        ("profrec_preload::clone", "the next function of a name"),
        ("profrec_preload::credentials", "the next function of a name"),
        (
            "profrec_preload::execute",
            "the C library's own, with the host's arguments, and an environment without the library",
        ),
        ("profrec_preload::others", "the function of another library, which the host calls"),
        ("dlsym", "the next function of a name"),
        ("profile_recorder_alloc_hook::thread_end::ON_END", "the recorder's `thread_ends`"),
        ("profile_recorder::sampler::action::REAL", "the C library's"),
        ("profile_recorder::sampler::action::FOLLOWING", "the C library's, or the one that a sanitizer has"),
        ("profile_recorder::start::fork::CHILD", "`in_child`"),
    ],
    unknown: &[
        ("recorder/src/sampler/handler.rs chain", "the handler that the application installed"),
        ("recorder/src/tables.rs", "`publish`; the tables of closures count where they are made"),
        ("core/src/", "a virtual call; tables of functions count where they are referred to"),
        ("alloc/src/", "the same"),
        ("std/src/", "the same"),
        ("profrec_preload::unwinder::unwinder", "the unwinder's own function"),
        ("profrec_preload::thread::begin", "what the application starts a thread with"),
        ("profrec_preload::clone::begin", "the same"),
        ("sigwait", "the C library's own, with the set as it was meant"),
        ("sigwaitinfo", "the same"),
        ("sigtimedwait", "the same"),
        ("daemon", "the C library's own"),
        ("fork", "the same"),
        ("forkpty", "the same"),
        ("execl", "the C library's own, with the registers and the stack as the host left them"),
        ("execle", "the same"),
        ("execlp", "the same"),
        ("execv", "the same"),
        ("execve", "the same"),
        ("execveat", "the same"),
        ("execvp", "the same"),
        ("execvpe", "the same"),
        ("fexecve", "the same"),
        ("popen", "the same"),
        ("posix_spawn", "the same"),
        ("posix_spawnp", "the same"),
        ("system", "the same"),
    ],
    locks: None,
    kernel: None,
    thread_local: THREAD_LOCAL,
    sources: None,
    panics: true,
};

#[test]
fn nothing_in_the_library_calls_the_hosts_heap_or_waits_in_the_c_library() {
    let mut roots = [hooks(), exports(&OTHERS)].concat();
    roots.extend([tick(), graph().function("profrec_preload::CONSTRUCTOR::construct")]);
    roots.extend(
        ["profile_recorder::start::fork::child", "profile_recorder_alloc_hook::thread_end::ends"]
            .map(|name| graph().function(name)),
    );
    assert_allowed(graph(), &roots, &Allowed { left_out: RESIDENT, ..EVERYTHING });
}

/// A constant of the sources, written as a shift.
fn constant(file: &str, name: &str) -> u64 {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(file);
    let source = std::fs::read_to_string(path).expect("a source file");
    let line = source.lines().find_map(|line| line.split_once(&format!("const {name}: u64 = ")));
    let (_, value) = line.unwrap_or_else(|| panic!("{file} has no {name}"));
    let (bytes, shift) = value.trim_end_matches(';').split_once(" << ").expect("a shift");
    bytes.parse::<u64>().expect("a number") << shift.parse::<u32>().expect("a number")
}

#[test]
fn a_tick_takes_little_of_the_applications_stack_and_has_room_on_its_own() {
    const IN_PLACE: Reasons = &[
        ("profile_recorder_capture::stacks::on", "a stack of the recorder's"),
        ("<profile_recorder_capture::kept::Kept>::recover", "asked for room"),
        ("profile_recorder_capture::walk::go_on", "asked for room"),
        ("profile_recorder_capture::rules::resolve_slow", "asked for room"),
    ];
    // Rust gives a thread a signal stack of 8 KiB, and a kernel that saves AVX-512 takes 3376 bytes of it. A first tick registers its thread, without asking.
    assert_stack(graph(), &tick(), IN_PLACE, 8192 - 3376);
    clone_announces().iter().for_each(|root| assert_stack(graph(), root, IN_PLACE, 8192 - 3376));
    let stacks = "profile_recorder_capture::stacks::here";
    let answer = graph().function(&format!("{stacks}::<profile_recorder::sampler::handler::Tick>"));
    // Applications compile the recorder in other ways.
    assert_stack(graph(), &answer, &[], constant("capture/src/stacks.rs", "ENOUGH") / 3);
    let whole = graph().reach(&[tick()], |edge| !graph().diverges(&edge.to)).stack(&tick());
    assert_eq!(whole.recursive, BTreeSet::new(), "functions that call themselves");
}

#[test]
fn a_hook_takes_no_more_stack_than_a_small_one_has() {
    /// A hook that builds nothing: a third of the smallest stack that a thread can ask for.
    const MOST: u64 = 16384 / 3;
    const ELSEWHERE: (&str, &str) = ("profile_recorder_capture::stacks::on", "a stack of the recorder's");
    let on_its_own = |left_out: Reasons| -> Reasons { [left_out, &[ELSEWHERE]].concat().leak() };
    let (without, building) = (on_its_own(BUILDERS), on_its_own(&BUILDERS[2..]));
    let room = constant("capture/src/modules/tables.rs", "ROOM_TO_BUILD");
    for root in hooks() {
        assert_stack(graph(), &root, without, MOST);
        assert_stack(graph(), &root, building, room);
    }
    let elsewhere = "profile_recorder_capture::stacks::here::<profile_recorder_alloc_hook::record::walked::values_elsewhere::Elsewhere>";
    let enough = constant("capture/src/stacks.rs", "ENOUGH");
    assert_stack(graph(), &graph().function(elsewhere), BUILDERS, enough / 3);
    assert_stack(graph(), &graph().function(elsewhere), &BUILDERS[2..], room);
}
