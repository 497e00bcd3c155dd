//! The allocation functions that are counted.

/// An allocation function; its number indexes the `functions` of threads and of the header.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
#[allow(missing_docs, reason = "each variant is the function of that name")]
pub enum Function {
    Reallocarray = 0,
    Malloc = 1,
    Free = 2,
    Calloc = 3,
    Realloc = 4,
    PosixMemalign = 5,
    AlignedAlloc = 6,
    Memalign = 7,
    Valloc = 8,
    Pvalloc = 9,
    /// C++'s `operator new` of every kind, where it is an allocator's own and does not come through `malloc`. A call that throws is not counted.
    OperatorNew = 10,
    /// C++'s `operator delete` of every kind, where it is an allocator's own.
    OperatorDelete = 11,
    /// jemalloc's own.
    Mallocx = 12,
    /// jemalloc's own.
    Rallocx = 13,
    /// jemalloc's own: a block gets another size where it is, or keeps its own.
    Xallocx = 14,
    /// jemalloc's own, with a size (`sdallocx`) or without.
    Dallocx = 15,
    /// `GlobalAlloc::realloc` of the Rust wrapper.
    RustRealloc = 16,
    /// `GlobalAlloc::alloc_zeroed` of the Rust wrapper.
    RustAllocZeroed = 17,
    /// `GlobalAlloc::alloc` of the Rust wrapper.
    RustAlloc = 18,
    /// `GlobalAlloc::dealloc` of the Rust wrapper.
    RustDealloc = 19,
}

/// Length of the per-function arrays.
pub const FUNCTIONS: usize = 20;

impl Function {
    /// Every function, in the order in which a person reads them.
    pub const ALL: [Self; FUNCTIONS] = [
        Self::Malloc,
        Self::Calloc,
        Self::Realloc,
        Self::Reallocarray,
        Self::Free,
        Self::PosixMemalign,
        Self::AlignedAlloc,
        Self::Memalign,
        Self::Valloc,
        Self::Pvalloc,
        Self::RustAlloc,
        Self::RustAllocZeroed,
        Self::RustRealloc,
        Self::RustDealloc,
        Self::OperatorNew,
        Self::OperatorDelete,
        Self::Mallocx,
        Self::Rallocx,
        Self::Xallocx,
        Self::Dallocx,
    ];

    /// The name a person reads, in `stat` and as the leaf frame of allocation stacks.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Malloc => "malloc",
            Self::Calloc => "calloc",
            Self::Realloc => "realloc",
            Self::Reallocarray => "reallocarray",
            Self::Free => "free",
            Self::PosixMemalign => "posix_memalign",
            Self::AlignedAlloc => "aligned_alloc",
            Self::Memalign => "memalign",
            Self::Valloc => "valloc",
            Self::Pvalloc => "pvalloc",
            Self::RustAlloc => "alloc",
            Self::RustAllocZeroed => "alloc_zeroed",
            Self::RustRealloc => "realloc (Rust)",
            Self::RustDealloc => "dealloc",
            Self::OperatorNew => "operator new",
            Self::OperatorDelete => "operator delete",
            Self::Mallocx => "mallocx",
            Self::Rallocx => "rallocx",
            Self::Xallocx => "xallocx",
            Self::Dallocx => "dallocx",
        }
    }

    /// Whether the function only releases memory.
    pub const fn releases(self) -> bool {
        matches!(self, Self::Free | Self::RustDealloc | Self::OperatorDelete | Self::Dallocx)
    }

    /// Whether the function is one of Rust's `GlobalAlloc`.
    pub const fn is_rust(self) -> bool {
        matches!(self, Self::RustAlloc | Self::RustAllocZeroed | Self::RustRealloc | Self::RustDealloc)
    }

    /// The function with this number.
    pub const fn from_number(number: u8) -> Option<Self> {
        let mut i = 0;
        while i < Self::ALL.len() {
            if Self::ALL[i] as u8 == number {
                return Some(Self::ALL[i]);
            }
            i += 1;
        }
        None
    }
}
