//! Doors: fronts of functions that the host does not reach through the names that the preload library exports.
//!
//! The dynamic linker asks the executable first. One that exports a `malloc` of its own serves every library of the process, and so does an allocator with its
//! `operator new`, which no library before it has. The import slots of the loaded objects are pointed at fronts then (`look`), and a front calls what stood there.
//!
//! Not reached: calls that go through no slot, which are those inside the object that defines the function, pointers got by `dlsym` or kept in data, and the dynamic
//! linker's own; constructors of an object that is opened later, as long as no look finds it before `dlopen` returns; objects that the C library opens by itself, until
//! the next `dlopen`; unbound slots of objects that are opened after one with `RTLD_DEEPBIND`, since where they lead is not known.
//!
//! An object that is opened later is found by the next look. One is due when `dlsym` is called after a `dlopen`, before it looks anything up, and after 1, 2, 4 ... calls of fronts.
//! The front of `dlopen` only sets two counters to zero, and both jump to the real function with the stack and the return address as they were: it looks at its caller.
//!
//! An allocation is counted once: if the real function comes back through a hook, that one has seen it. (Of a release, the outer one counts.) What a front needs to know across the call lies in
//! its own frame, so that an exception or a `longjmp` out of the real function leaves nothing behind.
//!
//! Called from: the start of the process, fronts, `dlclose`. May: what hooks may.
//!
//! # Orderings
//!
//! A look stores `LOOKING`, then loads `CLOSING`; a `dlclose` adds to `CLOSING`, then loads `LOOKING` (all SeqCst): the look leaves most objects out, or the `dlclose` waits.
#![allow(unsafe_code)]

use crate::linked::{self, default, is_in_libc, next};
use crate::{bootstrap, family, record};
use capture::images::{Image, Images, Names, Slot};
use capture::probed::Probed;
use capture::wait;
use core::ffi::{CStr, c_void};
use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use layout::Live;
use unwind::cfi::Source;

mod call;
pub use call::{Call, FRAME, allocated, allocating, released, releasing};

/// A front, closed as long as `real` is null.
#[derive(Debug)]
pub struct Door {
    /// The function's name.
    pub name: &'static CStr,
    /// What stood in the slots, and what the front calls.
    pub real: &'static AtomicPtr<c_void>,
    /// The front.
    pub front: unsafe extern "C" fn(),
    /// Who opens it.
    pub kind: Kind,
}

/// What a door stands in front of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A function of the malloc family.
    Family,
    /// A function that an allocator may bring along: one of C++'s operators, or of those that jemalloc has besides.
    Extra,
    /// `dlopen` or `dlsym`.
    Linker,
}

/// Looks at 1, 2, 4 ... fronts' calls after a `dlopen`, up to this number; then the object is taken for known.
const ENOUGH: u32 = 1 << 16;
/// The first so many calls of `dlsym` after a `dlopen` look each, the others as fronts do.
const EACH: u32 = 64;

/// Calls of fronts, and of `dlsym`, since the last `dlopen`. The front of `dlopen` sets both to zero.
pub static SINCE: [AtomicU32; 2] = [const { AtomicU32::new(ENOUGH) }; 2];
/// Whether an object was opened with `RTLD_DEEPBIND`: where its unbound slots will lead is not known. The front of `dlopen` sets it.
pub static DEEP: AtomicBool = AtomicBool::new(false);

static DOORS: AtomicPtr<Door> = AtomicPtr::new(core::ptr::null_mut());
static COUNT: AtomicUsize = AtomicUsize::new(0);
static OWN_MALLOC: AtomicBool = AtomicBool::new(false);
/// The dynamic linker's list of objects, and where that stands.
static LIST: AtomicU64 = AtomicU64::new(0);
static LINKER: AtomicU64 = AtomicU64::new(0);

/// Nanoseconds that a `dlclose` waits for a look.
const LOOKS_TAKE_NS: u64 = 10_000_000_000;

static LOOKING: AtomicBool = AtomicBool::new(false);
static CLOSING: AtomicU32 = AtomicU32::new(0);

/// First addresses of objects whose slots are done.
static DONE: [AtomicU64; 1024] = [const { AtomicU64::new(0) }; 1024];

fn doors() -> &'static [Door] {
    let first = DOORS.load(Ordering::Acquire);
    if first.is_null() {
        return &[];
    }
    // SAFETY: `open` stored the address and the length of a static slice, the length first.
    unsafe { core::slice::from_raw_parts(first, COUNT.load(Ordering::Relaxed)) }
}

/// Where the dynamic linker finds the function, if that is a definition. (An executable's own linkage table can stand for a function whose address it takes.)
fn definition(images: &Images, name: &CStr, find: fn(&CStr) -> u64) -> Option<u64> {
    let at = find(name);
    (images.of(at)?.defines(name.to_bytes()) == Some(at)).then_some(at)
}

/// The objects that define a `malloc`, but for this library: few programs have two.
struct Allocators<'a>([Option<Image<'a>>; 8]);

impl<'a> Allocators<'a> {
    fn among(images: &'a Images, own_malloc: u64) -> Self {
        let mut found = [None; 8];
        let all = images.each().filter(|i| !i.contains(own_malloc) && i.defines(b"malloc").is_some());
        found.iter_mut().zip(all).for_each(|(place, image)| *place = Some(image));
        Self(found)
    }

    fn each(&self) -> impl Iterator<Item = &Image<'a>> {
        self.0.iter().flatten()
    }
}

/// The function that a door of the malloc family, or of what allocators bring along, has to stand in front of, if it has to.
fn host_function(images: &Images, allocators: &Allocators<'_>, door: &Door, own_malloc: u64) -> Option<u64> {
    match door.kind {
        // Whoever the host asks first. If that is this library, what it exports is enough.
        Kind::Family => definition(images, door.name, default)
            .filter(|at| !images.of(*at).is_some_and(|image| image.contains(own_malloc))),
        // The operators of the C++ library call `malloc`. One that an allocator brings along is searched for only if there is one, since the host would find the error of
        // a search in vain.
        Kind::Extra => {
            allocators.each().find(|image| image.defines(door.name.to_bytes()).is_some())?;
            let at = definition(images, door.name, default).or_else(|| definition(images, door.name, next))?;
            allocators.each().any(|image| image.contains(at)).then_some(at)
        }
        Kind::Linker => None,
    }
}

/// Opens the doors that this process needs, none in most. `own_malloc` is the address under which this library exports its own. Must not be called by a thread whose
/// allocations are recorded.
pub fn open(doors: &'static [Door], own_malloc: u64) {
    let (linker, list) = linked::list();
    if default(c"malloc") == own_malloc && is_in_libc(next(c"malloc")) {
        return;
    }
    let Some(images) = Images::read() else { return };
    let (mut any, mut own, mut foreign, mut arrays) = (false, false, false, false);
    let (allocators, tells_sizes) = (Allocators::among(&images, own_malloc), next(c"malloc_usable_size"));
    for door in doors {
        let Some(real) = host_function(&images, &allocators, door, own_malloc) else { continue };
        door.real.store(real as *mut c_void, Ordering::Relaxed);
        any = true;
        foreign |= !images.of(real).is_some_and(|image| image.contains(tells_sizes));
        arrays |= door.name == c"realloc";
        own |= door.name == c"malloc";
    }
    if !any {
        return;
    }
    for door in doors.iter().filter(|door| door.kind == Kind::Linker) {
        door.real.store(default(door.name) as *mut c_void, Ordering::Relaxed);
    }
    if foreign && record::accounts(Live::Allocated) {
        // What the blocks of this allocator have is not known.
        record::account_live(Live::Unknown);
    }
    if arrays {
        family::leave_arrays_to(next(c"reallocarray") as *mut c_void);
    }
    LIST.store(list, Ordering::Relaxed);
    LINKER.store(linker, Ordering::Relaxed);
    OWN_MALLOC.store(own, Ordering::Relaxed);
    COUNT.store(doors.len(), Ordering::Relaxed);
    DOORS.store(doors.as_ptr().cast_mut(), Ordering::Release);
    tell();
    again();
    look(false, 0);
}

/// Writes what cannot be seen into the store; again in a child, whose store is new.
pub fn tell() {
    if OWN_MALLOC.load(Ordering::Relaxed)
        && let Some(header) = capture::region::header()
    {
        header.own_malloc.store(1, Ordering::Relaxed);
    }
}

/// Once the objects that the program starts with are ready to run, whatever can be seen of them.
pub fn program_starts() {
    look(true, 0);
}

/// Makes looks due, as a `dlopen` does.
fn again() {
    SINCE.iter().for_each(|count| count.store(0, Ordering::Relaxed));
}

/// In a child after fork: whoever was looking is not here.
pub fn reset_in_child() {
    LOOKING.store(false, Ordering::SeqCst);
    CLOSING.store(0, Ordering::SeqCst);
    bootstrap::reset_in_child();
    tell();
}

/// A front is called.
#[inline(always)]
fn look_if_due() {
    if is_due(&SINCE[0], 1) {
        look(false, 0);
    }
}

/// `dlsym` is called, after a `dlopen`: what is looked up may be called next. Another look is waited for.
pub extern "C" fn before_dlsym(handle: u64) {
    if is_due(&SINCE[1], EACH) {
        // glibc's handle of an object is its description, which begins with where it was loaded; the others are no addresses.
        let held = Source::read(&mut Probed::new(), handle).map_or(0, u64::from_le_bytes);
        wait::wait_until(|| look(false, held));
    }
}

#[inline(always)]
fn is_due(since: &AtomicU32, each: u32) -> bool {
    since.load(Ordering::Relaxed) < ENOUGH && passed(since, each)
}

#[cold]
#[inline(never)]
fn passed(since: &AtomicU32, each: u32) -> bool {
    let count = since.fetch_add(1, Ordering::Relaxed);
    count < each || count.wrapping_add(1).is_power_of_two()
}

/// Keeps looks away while an object is closed.
#[derive(Debug)]
pub struct Closing(());

/// An object is about to be closed.
pub fn closing() -> Option<Closing> {
    if doors().is_empty() {
        return None;
    }
    CLOSING.fetch_add(1, Ordering::SeqCst);
    // Bounded: in a child that nobody announced, who was looking is not there. Who is there may wait long for a processor, and reads the object.
    wait::wait_at_most(LOOKS_TAKE_NS, || !LOOKING.load(Ordering::SeqCst));
    Some(Closing(()))
}

impl Drop for Closing {
    fn drop(&mut self) {
        // Another object may come to lie where a known one was.
        DONE.iter().for_each(|base| base.store(0, Ordering::Relaxed));
        let _ = CLOSING.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |count| count.checked_sub(1));
    }
}

/// Points the slots of objects that were not seen before at the fronts. False if another look is under way. While an object is being closed, only the one that was loaded at
/// `held` is looked at: the caller has a handle of it, so it stays.
#[cold]
#[inline(never)]
fn look(all_are_settled: bool, held: u64) -> bool {
    if doors().is_empty() {
        return true;
    }
    if LOOKING.swap(true, Ordering::SeqCst) {
        return false;
    }
    if CLOSING.load(Ordering::SeqCst) == 0 {
        if let Some(images) = Images::read() {
            images.each().for_each(|image| look_at(&image, all_are_settled));
        }
    } else {
        SINCE[0].store(0, Ordering::Relaxed);
        if let Some(image) = Some(held).filter(|held| *held != 0).and(Images::read()).as_ref().and_then(|i| i.at(held))
        {
            look_at(&image, all_are_settled);
        }
    }
    LOOKING.store(false, Ordering::SeqCst);
    true
}

fn look_at(image: &Image<'_>, is_settled: bool) {
    if is_done(image) {
        return;
    }
    if image.contains(look_at as *const () as u64) || image.contains(LINKER.load(Ordering::Relaxed)) {
        done(image);
    } else if is_settled || image.is_settled() {
        point_slots_of(image);
        done(image);
    }
}

fn is_done(image: &Image<'_>) -> bool {
    DONE.iter().map(|base| base.load(Ordering::Relaxed)).take_while(|base| *base != 0).any(|base| base == image.base())
}

fn done(image: &Image<'_>) {
    // One too many is looked at each time.
    if let Some(free) = DONE.iter().find(|base| base.load(Ordering::Relaxed) == 0) {
        free.store(image.base(), Ordering::Relaxed);
    }
}

fn point_slots_of(image: &Image<'_>) {
    let deep = DEEP.load(Ordering::Relaxed);
    let may_be_unbound = !deep && image.is_listed_after(LIST.load(Ordering::Relaxed));
    image.slots(|slot, names| {
        if let Some(door) = door_of(image, slot, names, may_be_unbound) {
            // SAFETY: the object is settled, `CLOSING` was zero after `LOOKING` was set, and the front calls what stood there or would come to stand there.
            unsafe { slot.replace(door.front as usize as u64) };
        }
    });
}

fn door_of(image: &Image<'_>, slot: &Slot<'_>, names: &mut Names, may_be_unbound: bool) -> Option<&'static Door> {
    let open = |door: &&Door| {
        let real = door.real.load(Ordering::Relaxed) as u64;
        real != 0 && !image.contains(real)
    };
    let mut held = doors().iter().filter(open).filter(|d| slot.value == d.real.load(Ordering::Relaxed) as u64);
    let held_by = held.next();
    if held_by.is_none() && !(may_be_unbound && slot.is_unbound()) {
        return None;
    }
    let name = slot.name(names);
    let named = |door: &&Door| name == Some(door.name.to_bytes());
    if let Some(first) = held_by {
        // One function can have several names: tcmalloc's `free` is an `operator delete` too.
        return Some(held.chain([first]).find(named).unwrap_or(first));
    }
    let mut unbound = doors().iter().filter(open).filter(named);
    unbound.find(|door| !image.is_symbolic() || image.defines(door.name.to_bytes()).is_none())
}
