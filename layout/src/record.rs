//! The records of the store, each defined once for its writer and its readers.

use crate::function::{FUNCTIONS, Function};
use crate::live::most_live_bytes;
use core::sync::atomic::{AtomicU32, AtomicU64};

/// Names a record: its byte offset in the store divided by 16. 0 names none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct RecordId(pub u32);

impl RecordId {
    /// No record.
    pub const NONE: Self = Self(0);

    /// Byte offset of the record in the store.
    pub const fn offset(self) -> usize {
        self.0 as usize * 16
    }

    /// The id of the record at a byte offset, which is a multiple of 16.
    pub const fn at_offset(offset: usize) -> Self {
        Self((offset / 16) as u32)
    }

    /// Whether this names no record.
    pub const fn is_none(self) -> bool {
        self.0 == 0
    }
}

/// A record as readers see it: a copy of its fields.
pub trait Record: Sized {
    /// Bytes of the record.
    const SIZE: usize;
    /// Kind of the chunks that hold it; `None` for the header.
    const KIND: Option<ChunkKind>;
    /// Copies the record out of the first `SIZE` bytes; `None` if there are fewer.
    fn read(bytes: &[u8]) -> Option<Self>;
}

/// A value that a record can hold.
pub trait Field: Sized + Copy {
    /// What the writer stores it in.
    type Cell;
    /// Copies the value out of the first bytes; `None` if there are too few.
    fn read(bytes: &[u8]) -> Option<Self>;
}

impl Field for u32 {
    type Cell = AtomicU32;
    fn read(bytes: &[u8]) -> Option<Self> {
        Some(Self::from_le_bytes(bytes.get(..4)?.try_into().ok()?))
    }
}

impl Field for u64 {
    type Cell = AtomicU64;
    fn read(bytes: &[u8]) -> Option<Self> {
        Some(Self::from_le_bytes(bytes.get(..8)?.try_into().ok()?))
    }
}

impl<T: Field, const N: usize> Field for [T; N] {
    type Cell = [T::Cell; N];
    fn read(bytes: &[u8]) -> Option<Self> {
        let mut all = [T::read(bytes)?; N];
        for (i, value) in all.iter_mut().enumerate() {
            *value = T::read(bytes.get(i * size_of::<T::Cell>()..)?)?;
        }
        Some(all)
    }
}

/// Calls of one function, as the writer holds them.
#[repr(C)]
pub struct Called {
    /// Number of calls.
    pub calls: AtomicU64,
    /// Bytes asked in those calls; of Rust's `dealloc`, bytes given back.
    pub bytes: AtomicU64,
}

/// The same, as read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CalledFields {
    /// Number of calls.
    pub calls: u64,
    /// Bytes asked in those calls; of Rust's `dealloc`, bytes given back.
    pub bytes: u64,
}

impl Field for CalledFields {
    type Cell = Called;
    fn read(bytes: &[u8]) -> Option<Self> {
        Some(Self { calls: u64::read(bytes)?, bytes: u64::read(bytes.get(core::mem::offset_of!(Called, bytes)..)?)? })
    }
}

/// Defines `$name` (atomic cells, what the writer holds) and `$fields` (plain values, what a reader gets).
macro_rules! record {
    ($(#[$doc:meta])* $name:ident / $fields:ident, $kind:expr, $size:literal {
        $($(#[$field_doc:meta])* $field:ident: $type:ty,)*
    }) => {
        $(#[$doc])*
        #[repr(C)]
        pub struct $name {
            $($(#[$field_doc])* pub $field: <$type as Field>::Cell,)*
        }

        #[doc = concat!("The fields of one [`", stringify!($name), "`], as read.")]
        #[derive(Clone, Debug, PartialEq, Eq)]
        pub struct $fields {
            $($(#[$field_doc])* pub $field: $type,)*
        }

        impl Record for $fields {
            const SIZE: usize = size_of::<$name>();
            const KIND: Option<ChunkKind> = $kind;
            fn read(bytes: &[u8]) -> Option<Self> {
                Some(Self { $($field: <$type as Field>::read(bytes.get(core::mem::offset_of!($name, $field)..)?)?,)* })
            }
        }

        const _: () = assert!(size_of::<$name>() == $size && $size % 16 == 0);
    };
}

record! {
    /// First bytes of the store.
    Header / HeaderFields, None, 4864 {
        /// [`crate::MAGIC`]; written last when the store is set up.
        magic: u64,
        /// [`crate::VERSION`].
        version: u32,
        /// Process that writes here.
        pid: u32,
        /// Its parent when the store was made.
        parent_pid: u32,
        /// What is recorded: bits of [`crate::modes`].
        modes: u32,
        /// Byte offset of the first data chunk, a multiple of [`crate::CHUNK`].
        data_offset: u32,
        /// Chunks that the store may have in all, those of header and directory included.
        capacity_chunks: u32,
        /// Chunks in use so far, those of header and directory included. May pass the capacity when the store is full.
        used_chunks: u32,
        /// Chunks whose memory is known to be there (file blocks are allocated before use, so that no write can fault).
        committed_chunks: u32,
        /// Modules numbered so far.
        modules: u32,
        /// 1 once the process ended in an orderly way.
        ended: u32,
        /// Mean bytes between sampled allocations; 1: every allocation; 0: none.
        alloc_interval_bytes: u64,
        /// Nanoseconds between ticks of `cpu` or `wall`.
        period_ns: u64,
        /// CLOCK_REALTIME when recording began.
        start_realtime_ns: u64,
        /// CLOCK_MONOTONIC when recording began.
        start_monotonic_ns: u64,
        /// CLOCK_MONOTONIC at the last write of a slow path, and at an orderly end.
        last_monotonic_ns: u64,
        /// Bytes of `exe` in use.
        exe_length: u64,
        /// Events lost, by number of the reason ([`crate::Lost`]).
        lost: [u64; 16],
        /// What those events stood for: bytes of allocations, nanoseconds of time.
        lost_weight: [u64; 16],
        /// Calls of each allocation function made by threads that have no record.
        functions: [CalledFields; FUNCTIONS],
        /// Path of the executable (`/proc/self/exe`), `exe_length` bytes, padded with zeros.
        exe: [u64; 512],
        /// Live bytes of all threads, but for what each has not brought in yet ([`ThreadFields::live_bytes`]). A signed number.
        live_bytes: u64,
        /// Most that `live_bytes` came to.
        peak_live_bytes: u64,
        /// CLOCK_MONOTONIC then.
        peak_monotonic_ns: u64,
        /// What live bytes are: a [`crate::Live`].
        live: u32,
        /// 1 once nothing more shall be recorded. The one field that a reader of the store's file writes, at [`STOPPED_OFFSET`].
        stopped: u32,
        /// 1 if the executable exports a `malloc` of its own: calls that it makes itself are not seen.
        own_malloc: u64,
        /// CLOCK_PROCESS_CPUTIME_ID when recording began.
        start_cpu_ns: u64,
        /// The same clock at the last sign of the process, without what the recorder's own threads used; 0: not noted.
        last_cpu_ns: u64,
        /// CPU clock of the thread on which recording began, at that time: before an `exec` it and others may have used more of the process's.
        start_thread_cpu_ns: u64,
        /// Inode of the PID namespace in which `pid` is the process's number (pid_namespaces(7)); 0: not known.
        pid_namespace: u64,
        /// Programs that the process, or a child of it, executed and that are not recorded, by number of the reason ([`crate::Unfollowed`]).
        unfollowed: [u32; 6],
    }
}

/// Where [`Header`]'s `stopped` lies, in bytes from the store's first.
pub const STOPPED_OFFSET: usize = core::mem::offset_of!(Header, stopped);

record! {
    /// A thread: its name, and its own counters.
    Thread / ThreadFields, Some(ChunkKind::Threads), 512 {
        /// Kernel thread id; 0 once the record stands for several threads, one after the other. Written last.
        used: u32,
        /// Kernel thread id; 0: several threads of this name, one after the other.
        tid: u32,
        /// The thread's name (comm), zero-padded.
        name: [u64; 2],
        /// 1 while the thread runs, 0 after its end.
        alive: u32,
        /// Times this record was taken over by another thread of the same name.
        adopted: u32,
        /// CPU time that samples have accounted for.
        sampled_cpu_ns: u64,
        /// CPU time at whose end the thread was gone, or the process, with no sample to give it to.
        unsampled_cpu_ns: u64,
        /// Calls of each allocation function. What hooks add to most often, and the two fields that follow, lie in as few lines of the processor's cache as can be.
        functions: [CalledFields; FUNCTIONS],
        /// Most live bytes that the thread had since it brought them into the header's last, and [`crate::LIVE_GRAIN`]: as far as it has noted them ([`crate::most_live_bytes`]).
        live_bytes_max: u64,
        /// How far below that they are. Less than [`crate::LIVE_GRAIN`] where they have passed the most since. A signed number, like their difference, which is what the thread has not brought in yet.
        live_bytes_below_max: u64,
        /// Reserved.
        reserved: [u64; 16],
    }
}

/// Bytes of a line of the processor's cache.
const LINE: usize = 64;

impl Thread {
    /// Where a record has what is counted of the function with this number, in bytes from its first.
    pub const fn called_at(function: usize) -> usize {
        core::mem::offset_of!(Self, functions) + function * size_of::<Called>()
    }
}

const _: () = {
    const fn line_of(function: Function) -> usize {
        Thread::called_at(function as usize) / LINE
    }
    assert!(line_of(Function::Malloc) == line_of(Function::Free));
    assert!(line_of(Function::RustAlloc) == line_of(Function::RustDealloc));
    assert!(line_of(Function::RustAlloc) == core::mem::offset_of!(Thread, live_bytes_below_max) / LINE);
};

impl ThreadFields {
    /// Live bytes that the thread has not brought into the header's yet.
    pub const fn live_bytes(&self) -> i64 {
        self.live_bytes_max.wrapping_sub(self.live_bytes_below_max) as i64
    }

    /// Most of these since it brought any in.
    pub const fn most_live_bytes(&self) -> i64 {
        most_live_bytes(self.live_bytes_max, self.live_bytes_below_max)
    }
}

record! {
    /// One node of a thread's call tree: a frame below its caller.
    Node / NodeFields, Some(ChunkKind::Nodes), 16 {
        /// The caller's node; 0 for a root.
        parent: u32,
        /// The node's values, if stacks end here: [`AllocValues`] or [`TimeValues`], as the tree's root says.
        values: u32,
        /// The [`crate::Frame`]; written last.
        frame: u64,
    }
}

record! {
    /// Allocations of one stack. Object counts are fixed-point with [`crate::OBJECTS_FRACTION_BITS`] fraction bits.
    ///
    /// The thread whose site it is writes with plain instructions, between two steps of `sequence`; other threads, when they free, write `freed_elsewhere_*`, both at once.
    AllocValues / AllocValuesFields, Some(ChunkKind::AllocValues), 64 {
        /// Objects allocated.
        objects_q16: u64,
        /// Bytes asked for them.
        bytes: u64,
        /// Of these, objects that the same thread freed since. Only if frees are followed.
        freed_objects_q16: u64,
        /// Bytes of the objects that it freed.
        freed_bytes: u64,
        /// Objects that other threads freed.
        freed_elsewhere_objects_q16: u64,
        /// Bytes of the objects that other threads freed.
        freed_elsewhere_bytes: u64,
        /// Objects that the same thread freed with no other allocation of it in between.
        temporary_objects_q16: u64,
        /// Odd while the thread writes.
        sequence: u32,
        /// The thread's [`Thread`] record.
        owner: u32,
    }
}

record! {
    /// Time of one stack.
    TimeValues / TimeValuesFields, Some(ChunkKind::TimeValues), 16 {
        /// Samples taken.
        samples: u64,
        /// Nanoseconds they stand for.
        nanos: u64,
    }
}

record! {
    /// One time sample in the log, in no particular order. The log is optional: values are complete without it.
    TimeSample / TimeSampleFields, Some(ChunkKind::TimeSamples), 32 {
        /// Leaf node of the stack; written last.
        node: u32,
        /// The thread's [`Thread`] record.
        thread: u32,
        /// CLOCK_MONOTONIC.
        monotonic_ns: u64,
        /// Nanoseconds that the sample stands for.
        weight_ns: u64,
        /// Kernel thread id at the time.
        tid: u32,
        /// Reserved.
        reserved: u32,
    }
}

record! {
    /// A loaded object: one ELF file, or the vDSO.
    Module / ModuleFields, Some(ChunkKind::Modules), 128 {
        /// Number in frames, from 1; written last.
        index: u32,
        /// Bytes of the build id in use.
        build_id_length: u32,
        /// Lowest address of its executable mappings.
        start_avma: u64,
        /// End of its executable mappings.
        end_avma: u64,
        /// Offset in the file of `start_avma`.
        file_offset: u64,
        /// Address in the process minus address in the ELF file.
        bias: u64,
        /// Inode of the file (0 for the vDSO).
        inode: u64,
        /// Device of the file, as `makedev` packs it.
        device: u64,
        /// Record id of the path's text in a [`ChunkKind::Text`] chunk.
        path: u32,
        /// Bytes of the path.
        path_length: u32,
        /// The build id, zero-padded.
        build_id: [u64; 4],
        /// 1 if the object is the recorder's own preload library, whose frames are left out of stacks.
        own: u32,
        /// Reserved.
        reserved: u32,
        /// Reserved.
        reserved2: [u64; 3],
    }
}

/// What the records of a chunk are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u32)]
pub enum ChunkKind {
    /// [`Thread`] records.
    Threads = 1,
    /// [`Node`] records.
    Nodes = 2,
    /// [`AllocValues`] records.
    AllocValues = 3,
    /// [`TimeValues`] records.
    TimeValues = 4,
    /// [`TimeSample`] records.
    TimeSamples = 5,
    /// [`Module`] records.
    Modules = 6,
    /// Bytes of paths.
    Text = 7,
}

impl ChunkKind {
    const ALL: [Self; 7] =
        [Self::Threads, Self::Nodes, Self::AllocValues, Self::TimeValues, Self::TimeSamples, Self::Modules, Self::Text];

    pub(crate) fn from_number(number: u32) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| *kind as u32 == number)
    }
}

/// An entry of the chunk directory, a `u64`: kind in the low half, owner's thread record in the high half. Zero: not in use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Chunk {
    /// What the chunk holds.
    pub kind: ChunkKind,
    /// The [`Thread`] record of the thread that fills it; none if several do.
    pub owner: RecordId,
}

impl Chunk {
    /// The entry as stored.
    pub const fn to_bits(self) -> u64 {
        self.kind as u64 | ((self.owner.0 as u64) << 32)
    }

    /// The entry that was stored; `None` if it is not in use or of an unknown kind.
    pub fn from_bits(bits: u64) -> Option<Self> {
        Some(Self { kind: ChunkKind::from_number(bits as u32)?, owner: RecordId((bits >> 32) as u32) })
    }
}

const _: () = assert!(size_of::<Header>() <= crate::DIRECTORY_OFFSET);
