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

    /// What the dynamic linker calls when it loads the object and when it closes it, in this order. They may be called again.
    ///
    /// # Panics
    /// If it does not say.
    pub(crate) fn beginning_and_end(&self) -> Vec<extern "C" fn()> {
        /// The beginning of `struct link_map`.
        #[repr(C)]
        struct LinkMap {
            bias: u64,
            name: *const libc::c_char,
            dynamic: *const [u64; 2],
        }
        // DT_INIT and so on.
        let [init, fini, init_array, fini_array, init_bytes, fini_bytes] = [12, 13, 25, 26, 27, 28];
        let mut map: *const LinkMap = std::ptr::null();
        // SAFETY: the handle is of an object that is never closed, whose map and dynamic section stay.
        let (bias, entries): (u64, Vec<[u64; 2]>) = unsafe {
            assert_eq!(libc::dlinfo(self.handle, libc::RTLD_DI_LINKMAP, (&raw mut map).cast()), 0);
            let entries = (0..).map(|at| (*map).dynamic.add(at).read()).take_while(|[tag, _]| *tag != 0);
            ((*map).bias, entries.collect())
        };
        let of = |wanted: u64| {
            let value = entries.iter().find_map(|[tag, value]| (*tag == wanted).then_some(*value));
            value.unwrap_or_else(|| panic!("{} has no entry {wanted}", self.path.display()))
        };
        // SAFETY: the dynamic linker relocated the arrays.
        let array = |start: u64, bytes: u64| unsafe {
            std::slice::from_raw_parts((bias + of(start)) as *const u64, (of(bytes) / 8) as usize).to_vec()
        };
        let beginning = [vec![bias + of(init)], array(init_array, init_bytes)];
        let end = [array(fini_array, fini_bytes), vec![bias + of(fini)]];
        // SAFETY: these are functions, which take what they need from registers that hold anything.
        let function = |address: u64| unsafe { core::mem::transmute::<usize, extern "C" fn()>(address as usize) };
        [beginning, end].concat().into_iter().flatten().map(function).collect()
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
