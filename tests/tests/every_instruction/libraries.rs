//! Victims that are loaded into the test's own process.

use std::ffi::CString;
use std::fmt;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

/// A shared object; never closed.
pub(crate) struct Library {
    handle: *mut libc::c_void,
    path: PathBuf,
    name: String,
}

/// The dynamic linker takes two objects of one path for one.
static NUMBER: AtomicU32 = AtomicU32::new(0);

impl Library {
    /// Compiles a source of the folder `victims/steps` into a shared object, and loads it.
    ///
    /// # Panics
    /// If the compiler fails.
    pub(crate) fn compile(source: &str, flags: &str, directory: &Path) -> Self {
        let compiler = if source.ends_with(".cc") { "g++" } else { "gcc" };
        Self::compile_by(compiler, source, flags, directory)
    }

    /// The same by another compiler.
    ///
    /// # Panics
    /// If it fails.
    pub(crate) fn compile_by(compiler: &str, source: &str, flags: &str, directory: &Path) -> Self {
        let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("victims/steps").join(source);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed).to_string();
        let directory = directory.join(number);
        std::fs::create_dir(&directory).expect("a scratch directory");
        let path = directory.join(source).with_extension("so");
        let mut command = Command::new(compiler);
        // Without `-fno-builtin`, calls of the C library would become something else.
        command.args(["-shared", "-fPIC", "-g", "-fno-builtin", "-o"]).arg(&path).arg(file).args(flags.split(' '));
        assert!(command.status().is_ok_and(|status| status.success()), "{command:?}");
        Self { name: format!("{compiler} {flags} {source}"), ..Self::open(&path) }
    }

    /// Loads a shared object; its calls are bound when they are first made, if it wants so.
    ///
    /// # Panics
    /// If the dynamic linker does not find it.
    pub(crate) fn open(path: &Path) -> Self {
        let name = CString::new(path.as_os_str().as_bytes()).expect("a path is a string");
        // SAFETY: loading runs the constructors of an object that was made for this, or of the system's.
        let handle = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_LAZY) };
        assert!(!handle.is_null(), "cannot load {}", path.display());
        Self { handle, path: path.to_owned(), name: path.display().to_string() }
    }

    /// Where a function or variable lies.
    ///
    /// # Panics
    /// If there is none of this name.
    pub(crate) fn address(&self, name: &str) -> *mut libc::c_void {
        let symbol = CString::new(name).expect("a name is a string");
        // SAFETY: the handle is of an object that is never closed.
        let address = unsafe { libc::dlsym(self.handle, symbol.as_ptr()) };
        assert!(!address.is_null(), "{} has no {name}", self.path.display());
        address
    }

    /// A function without arguments.
    ///
    /// # Panics
    /// If there is none of this name.
    pub(crate) fn function(&self, name: &str) -> extern "C" fn() {
        // SAFETY: all functions that tests ask for have this type.
        unsafe { core::mem::transmute::<*mut libc::c_void, extern "C" fn()>(self.address(name)) }
    }

    /// Whether these bytes are in the file: whether the compiler made what a test is about.
    ///
    /// # Panics
    /// If the file cannot be read.
    pub(crate) fn contains(&self, bytes: &[u8]) -> bool {
        let file = std::fs::read(&self.path).expect("it was loaded");
        file.windows(bytes.len()).any(|window| window == bytes)
    }
}

impl fmt::Display for Library {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)
    }
}
