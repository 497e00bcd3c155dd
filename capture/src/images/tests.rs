//! On the test's own process, whose executable imports from the C library.

extern crate std;
use super::*;
use core::ffi::c_int;
use std::format;

unsafe extern "C" {
    fn getpagesize() -> c_int;
    fn getdtablesize() -> c_int;
    fn dlsym(handle: *mut core::ffi::c_void, name: *const core::ffi::c_char) -> *mut core::ffi::c_void;
}

fn page_size() -> c_int {
    // SAFETY: takes nothing and changes nothing.
    unsafe { getpagesize() }
}

extern "C" fn replaced() -> c_int {
    4711
}

fn own(images: &Images) -> Image<'_> {
    images.of(own as *const () as u64).expect("this code lies in an object")
}

/// The slot that calls of a function go through. Tests run at once: each function belongs to one test alone.
fn with_slot<R>(images: &Images, name: &[u8], f: impl FnOnce(&Slot<'_>) -> R) -> Option<R> {
    let (mut f, mut result) = (Some(f), None);
    own(images).slots(|slot, names| {
        if slot.name(names) == Some(name) {
            result = f.take().map(|f| f(slot));
        }
    });
    result
}

#[test]
fn a_slot_is_replaced_and_its_page_is_protected_as_before() {
    assert_eq!(page_size(), 4096);
    let images = Images::read().unwrap();
    assert!(own(&images).is_settled());
    let was_writable = |images: &Images, slot: &Slot<'_>| images.area(slot.address).unwrap().flags & WRITABLE != 0;
    let new = replaced as *const () as u64;
    let (old, writable) = with_slot(&images, b"getpagesize", |slot| {
        // SAFETY: nobody closes the executable, and only this test calls the function.
        unsafe { slot.replace(new) };
        (slot.value, was_writable(&images, slot))
    })
    .unwrap();
    assert_eq!(page_size(), 4711);
    let images = Images::read().unwrap();
    with_slot(&images, b"getpagesize", |slot| {
        assert_eq!((slot.value, was_writable(&images, slot)), (new, writable));
        // What stands there now is not what was read before.
        let stale = Slot { import: Import { value: old, ..slot.import }, ..*slot };
        // SAFETY: as above.
        unsafe { stale.replace(new + 1) };
        // SAFETY: as above.
        unsafe { slot.replace(old) };
    })
    .unwrap();
    assert_eq!(page_size(), 4096);
}

#[test]
fn a_definition_is_found_where_others_find_it_and_an_import_is_none() {
    // SAFETY: takes nothing and changes nothing. A call that stays makes the import one.
    assert!(unsafe { getdtablesize() } > 0);
    let images = Images::read().unwrap();
    let function = with_slot(&images, b"getdtablesize", |slot| slot.value).unwrap();
    let library = images.of(function).unwrap();
    assert_ne!(library.base(), own(&images).base());
    assert_eq!(library.defines(b"getdtablesize"), Some(function));
    assert_eq!(own(&images).defines(b"getdtablesize"), None);
    for name in [&b"getdtablesiz"[..], b"getdtablesize ", b"", b"no such name"] {
        assert_eq!(library.defines(name), None);
    }
}

#[test]
fn objects_are_disjoint_and_data_is_none() {
    let images = Images::read().unwrap();
    let mut before = 0;
    for image in images.each() {
        assert!(image.base >= before && image.contains(image.base) && !image.contains(image.end));
        before = image.end;
    }
    let local = 0_u8;
    assert!(images.of(&raw const local as u64).is_none());
    // The file of this executable, as data.
    let path = std::fs::read_link("/proc/self/exe").unwrap();
    let file =
        crate::syscall::File::open(format!("{}\0", path.display()).as_bytes(), crate::syscall::File::READ).unwrap();
    let mapped = crate::syscall::map(1 << 16, mm::READ, 2, Some(&file)).unwrap();
    assert!(Images::read().unwrap().of(mapped as u64).is_none());
    // SAFETY: mapped just now.
    unsafe { crate::syscall::unmap(mapped, 1 << 16) };
}

#[test]
fn objects_that_are_closed_while_they_are_read_are_survived() {
    let path = std::fs::read_link("/proc/self/exe").unwrap();
    let file =
        crate::syscall::File::open(format!("{}\0", path.display()).as_bytes(), crate::syscall::File::READ).unwrap();
    let (at, rounds) = (AtomicUsize::new(0), 20_000_u32);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while at.load(Ordering::Relaxed) != usize::MAX {
                let mapped = crate::syscall::map(1 << 16, mm::READ, 2, Some(&file)).unwrap();
                let told = at.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |end| {
                    (end != usize::MAX).then_some(mapped as usize)
                });
                // SAFETY: mapped just now.
                unsafe { crate::syscall::unmap(mapped, 1 << 16) };
                if told.is_err() {
                    break;
                }
            }
        });
        // Until it met one that was there: on a busy machine the other thread begins late.
        let (mut read, mut tried) = (0, 0);
        while tried < rounds || read == 0 {
            let base = at.load(Ordering::SeqCst) as u64;
            read += u32::from(crate::elf::read(base, base, 0).is_some());
            tried += 1;
        }
        for _ in 0..rounds / 100 {
            assert!(Images::read().unwrap().each().count() > 0);
        }
        at.store(usize::MAX, Ordering::SeqCst);
    });
}

/// Where the C library has two versions of a function, new objects are linked with the newer one.
#[test]
fn of_several_versions_the_one_is_found_that_others_find() {
    let images = Images::read().unwrap();
    for name in [
        c"realpath",
        c"posix_spawn",
        c"posix_spawnp",
        c"regexec",
        c"nftw",
        c"glob",
        c"quick_exit",
        c"fmemopen",
        c"sched_setaffinity",
        c"sched_getaffinity",
        c"pthread_cond_wait",
        c"pthread_cond_signal",
        c"pthread_cond_timedwait",
        c"pthread_getaffinity_np",
        c"timer_create",
        c"timer_delete",
        c"sem_wait",
        c"dlopen",
        c"dlsym",
        c"pthread_create",
        c"pthread_attr_getstack",
        c"clock_gettime",
        c"aio_read",
        c"openpty",
        c"login",
    ] {
        // SAFETY: the name is zero-terminated.
        let found = unsafe { dlsym(core::ptr::null_mut(), name.as_ptr()) } as u64;
        let defined = images.of(found).and_then(|image| image.defines(name.to_bytes()));
        assert_eq!(defined, Some(found), "{name:?}");
    }
}
