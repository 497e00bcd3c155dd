//! A plugin that carries the recorder is closed while the threads that used it go on and end.
//!
//! # Safety
//! The functions have the types that the plugin gives them, and are called while it is open.
#![allow(unsafe_code)]

use std::ffi::{CStr, CString};
use std::sync::mpsc;

/// The plugin, open.
struct Plugin {
    handle: *mut libc::c_void,
    path: String,
}

/// A recorder samples the other test's threads, too.
static ONE_AT_A_TIME: std::sync::Mutex<()> = std::sync::Mutex::new(());

impl Plugin {
    /// A copy of it, which nobody else has open.
    fn open(directory: &std::path::Path) -> Self {
        let built = std::env::current_exe().expect("this test").with_file_name("libplugin.so");
        let path = directory.join("plugin.so");
        std::fs::copy(built, &path).expect("cargo builds the plugin beside its test");
        let path = path.to_str().expect("text").to_owned();
        let name = CString::new(path.as_str()).expect("no zero");
        // SAFETY: the library's initialisation is what is tested.
        let handle = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW) };
        // SAFETY: the message is the calling thread's.
        assert!(!handle.is_null(), "{:?}", unsafe { CStr::from_ptr(libc::dlerror()) });
        Self { handle, path }
    }

    fn symbol(&self, name: &CStr) -> *mut libc::c_void {
        // SAFETY: the handle is open.
        let address = unsafe { libc::dlsym(self.handle, name.as_ptr()) };
        assert!(!address.is_null(), "{name:?}");
        address
    }

    /// Closes it. Whether it is there afterwards.
    fn close(self) -> bool {
        // SAFETY: it is open, and nothing of it is used any more.
        assert_eq!(unsafe { libc::dlclose(self.handle) }, 0);
        std::fs::read_to_string("/proc/self/maps").expect("what is mapped").contains(&self.path)
    }
}

#[test]
fn threads_that_used_its_allocator_end_after_it_is_closed() {
    let _one = ONE_AT_A_TIME.lock();
    let directory = tempfile::tempdir().expect("a directory");
    for _ in 0..10 {
        let plugin = Plugin::open(directory.path());
        // SAFETY: the plugin's function has this type.
        let works: extern "C" fn() -> usize = unsafe { std::mem::transmute(plugin.symbol(c"plugin_works")) };
        let (end, ended) = mpsc::channel::<()>();
        let (worked, has_worked) = mpsc::channel();
        let user = std::thread::spawn(move || {
            worked.send(works()).expect("somebody waits");
            ended.recv().expect("told");
        });
        assert_eq!(has_worked.recv(), Ok(4950));
        assert!(!plugin.close(), "it is closed while the thread goes on");
        end.send(()).expect("it waits");
        user.join().expect("it ends as any other");
    }
}

#[test]
fn one_that_recorded_stays() {
    let _one = ONE_AT_A_TIME.lock();
    let directory = tempfile::tempdir().expect("a directory");
    let plugin = Plugin::open(directory.path());
    // SAFETY: the plugin's function has this type.
    let records: extern "C" fn() -> bool = unsafe { std::mem::transmute(plugin.symbol(c"plugin_records")) };
    assert!(std::thread::spawn(move || records()).join().expect("it ends as any other"));
    assert!(plugin.close(), "signals may still come");
    // SAFETY: the signal is one that the plugin's recorder took for itself.
    assert_eq!(unsafe { libc::raise(libc::SIGPROF) }, 0);
}
