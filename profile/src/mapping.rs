//! Where code came from and who ran it.

use crate::Svma;

/// Index of a [`Mapping`] in [`crate::Profile::mappings`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct MappingId(pub u32);

impl MappingId {
    /// Position in [`crate::Profile::mappings`].
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

/// A file whose code was mapped in the process.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Mapping {
    /// First address of its code in the process (AVMA).
    pub start: u64,
    /// End of its code in the process (AVMA).
    pub end: u64,
    /// Offset in the file of what lies at `start`.
    pub file_offset: u64,
    /// Address in the process minus address in the file; wraps around for objects that lie below their linked address.
    pub bias: u64,
    /// Path of the file when it was mapped, or a name in brackets such as `[vdso]`.
    pub path: String,
    /// Contents of the file's `.note.gnu.build-id`; empty if it has none.
    pub build_id: Vec<u8>,
}

impl Mapping {
    /// The address in the file of an address in the process. The bias is subtracted here and nowhere else.
    pub const fn to_svma(&self, avma: u64) -> Svma {
        Svma(avma.wrapping_sub(self.bias))
    }

    /// Moves the mapping to where the file wants to lie: the addresses in the process become those in the file.
    pub const fn normalize(&mut self) {
        self.start = self.start.wrapping_sub(self.bias);
        self.end = self.end.wrapping_sub(self.bias);
        self.bias = 0;
    }

    /// The address in the process of an address in the file.
    pub const fn to_avma(&self, svma: Svma) -> u64 {
        svma.0.wrapping_add(self.bias)
    }

    /// Last component of the path.
    pub fn file_name(&self) -> &str {
        file_name(&self.path)
    }

    /// The build id as lower-case hexadecimal digits.
    pub fn build_id_hex(&self) -> String {
        self.build_id.iter().map(|byte| format!("{byte:02x}")).collect()
    }
}

/// Last component of a path, or the whole if that is empty.
pub(crate) fn file_name(path: &str) -> &str {
    match path.rsplit('/').next() {
        Some(last) if !last.is_empty() => last,
        _ => path,
    }
}

/// Index of a [`Thread`] in [`crate::Profile::threads`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ThreadId(pub u32);

impl ThreadId {
    /// Position in [`crate::Profile::threads`].
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

/// A thread, or several threads of one name that ran one after the other.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Thread {
    /// Process it belongs to; 0 if unknown.
    pub pid: u32,
    /// Kernel thread id; 0 if it stands for several threads or is unknown.
    pub tid: u32,
    /// The thread's name (comm).
    pub name: String,
    /// File name of the process's executable.
    pub process: String,
    /// Number that stays the same in all snapshots of one process, while `tid` and `name` may change; 0 if there is none.
    pub slot: u32,
}
