//! Stores built by hand, byte by byte as the layout defines them.

use layout::{
    AllocValues, CHUNK, Called, Chunk, ChunkKind, DIRECTORY_OFFSET, Frame, Function, Header, LabelText, Labels, MAGIC,
    Module, Node, Pseudo, RecordId, Root, Thread, TimeSample, TimeValues, VERSION,
};
use std::collections::HashMap;
use std::mem::offset_of;

const CAPACITY: usize = 256;
const DATA: usize = (DIRECTORY_OFFSET + CAPACITY * 8).next_multiple_of(CHUNK);

pub struct Store {
    pub bytes: Vec<u8>,
    /// Where the next record of a kind goes, by the kind's number.
    cursors: HashMap<u32, usize>,
}

impl Store {
    pub fn new(modes: u32, exe: &str) -> Self {
        let mut store = Self { bytes: vec![0; DATA], cursors: HashMap::new() };
        store.u64(offset_of!(Header, magic), MAGIC);
        store.u32(offset_of!(Header, version), VERSION);
        store.u32(offset_of!(Header, pid), 77);
        store.u32(offset_of!(Header, parent_pid), 7);
        store.u32(offset_of!(Header, modes), modes);
        store.u32(offset_of!(Header, data_offset), DATA as u32);
        store.u32(offset_of!(Header, capacity_chunks), CAPACITY as u32);
        store.u32(offset_of!(Header, used_chunks), (DATA / CHUNK) as u32);
        store.u64(offset_of!(Header, alloc_interval_bytes), 1);
        store.u64(offset_of!(Header, period_ns), 10_000_000);
        store.u64(offset_of!(Header, start_realtime_ns), 1_700_000_000_000_000_000);
        store.u64(offset_of!(Header, start_monotonic_ns), 5_000);
        store.u64(offset_of!(Header, last_monotonic_ns), 1_000_005_000);
        store.u64(offset_of!(Header, exe_length), exe.len() as u64);
        store.write(offset_of!(Header, exe), exe.as_bytes());
        store
    }

    pub fn u32(&mut self, at: usize, value: u32) {
        self.write(at, &value.to_le_bytes());
    }

    pub fn u64(&mut self, at: usize, value: u64) {
        self.write(at, &value.to_le_bytes());
    }

    fn write(&mut self, at: usize, bytes: &[u8]) {
        self.bytes[at..at + bytes.len()].copy_from_slice(bytes);
    }

    fn allocate(&mut self, kind: ChunkKind, size: usize) -> usize {
        let at = self.cursors.get(&(kind as u32)).copied().unwrap_or(CHUNK);
        let at = if at % CHUNK == 0 || at % CHUNK + size > CHUNK {
            let chunk = self.bytes.len() / CHUNK;
            assert!(chunk < CAPACITY);
            self.bytes.resize(self.bytes.len() + CHUNK, 0);
            self.u64(DIRECTORY_OFFSET + chunk * 8, Chunk { kind, owner: RecordId::NONE }.to_bits());
            self.u32(offset_of!(Header, used_chunks), chunk as u32 + 1);
            chunk * CHUNK
        } else {
            at
        };
        self.cursors.insert(kind as u32, at + size.next_multiple_of(16));
        at
    }

    pub fn lose(&mut self, reason: layout::Lost, events: u64, weight: u64) {
        self.u64(offset_of!(Header, lost) + reason as usize * 8, events);
        self.u64(offset_of!(Header, lost_weight) + reason as usize * 8, weight);
    }

    pub fn thread(&mut self, tid: u32, name: &str, calls_of_malloc: u64, bytes_of_malloc: u64) -> RecordId {
        let at = self.allocate(ChunkKind::Threads, size_of::<Thread>());
        self.u32(at + offset_of!(Thread, used), 1);
        self.u32(at + offset_of!(Thread, tid), tid);
        self.write(at + offset_of!(Thread, name), name.as_bytes());
        let malloc = at + offset_of!(Thread, functions) + Function::Malloc as usize * size_of::<Called>();
        self.u64(malloc + offset_of!(Called, calls), calls_of_malloc);
        self.u64(malloc + offset_of!(Called, bytes), bytes_of_malloc);
        RecordId::at_offset(at)
    }

    pub fn module(&mut self, index: u32, path: &str, start: u64, bias: u64, own: bool) {
        let text = self.allocate(ChunkKind::Text, path.len());
        self.write(text, path.as_bytes());
        let at = self.allocate(ChunkKind::Modules, size_of::<Module>());
        self.u64(at + offset_of!(Module, start_avma), start);
        self.u64(at + offset_of!(Module, end_avma), start + 0x10000);
        self.u64(at + offset_of!(Module, file_offset), 0x1000);
        self.u64(at + offset_of!(Module, bias), bias);
        self.u32(at + offset_of!(Module, path), RecordId::at_offset(text).0);
        self.u32(at + offset_of!(Module, path_length), path.len() as u32);
        self.write(at + offset_of!(Module, build_id), &[index as u8; 20]);
        self.u32(at + offset_of!(Module, build_id_length), 20);
        self.u32(at + offset_of!(Module, own), u32::from(own));
        self.u32(at + offset_of!(Module, index), index);
    }

    pub fn labels(&mut self, labels: &[(&str, &str)]) -> RecordId {
        let text = labels.iter().fold(None::<LabelText>, |outer, (key, value)| {
            let outer = outer.as_ref().and_then(|text| Labels::new(text.bytes()));
            LabelText::new(outer, key.as_bytes(), value.as_bytes())
        });
        let text = text.expect("few labels");
        let at = self.allocate(ChunkKind::Text, text.bytes().len());
        self.write(at, text.bytes());
        RecordId::at_offset(at)
    }

    pub fn root(&mut self, root: Root, thread: RecordId) -> RecordId {
        self.node(RecordId::NONE, Frame::pseudo(Pseudo::Root(root, thread)))
    }

    pub fn node(&mut self, parent: RecordId, frame: Frame) -> RecordId {
        let at = self.allocate(ChunkKind::Nodes, size_of::<Node>());
        self.u32(at + offset_of!(Node, parent), parent.0);
        self.u64(at + offset_of!(Node, frame), frame.to_bits());
        RecordId::at_offset(at)
    }

    pub fn alloc_values(&mut self, node: RecordId, values: [u64; 5]) {
        let at = self.allocate(ChunkKind::AllocValues, size_of::<AllocValues>());
        let [objects_q16, bytes, freed_objects_q16, freed_bytes, temporary_q16] = values;
        // A third of the objects that are freed are so by another thread.
        let (objects_elsewhere, bytes_elsewhere) = (freed_objects_q16 / 3, freed_bytes / 3);
        for (offset, value) in [
            (offset_of!(AllocValues, objects_q16), objects_q16),
            (offset_of!(AllocValues, bytes), bytes),
            (offset_of!(AllocValues, freed_objects_q16), freed_objects_q16 - objects_elsewhere),
            (offset_of!(AllocValues, freed_bytes), freed_bytes - bytes_elsewhere),
            (offset_of!(AllocValues, freed_elsewhere_objects_q16), objects_elsewhere),
            (offset_of!(AllocValues, freed_elsewhere_bytes), bytes_elsewhere),
            (offset_of!(AllocValues, temporary_objects_q16), temporary_q16),
        ] {
            self.u64(at + offset, value);
        }
        self.u32(node.offset() + offset_of!(Node, values), RecordId::at_offset(at).0);
    }

    pub fn time_values(&mut self, node: RecordId, samples: u64, nanos: u64) {
        let at = self.allocate(ChunkKind::TimeValues, size_of::<TimeValues>());
        self.u64(at + offset_of!(TimeValues, samples), samples);
        self.u64(at + offset_of!(TimeValues, nanos), nanos);
        self.u32(node.offset() + offset_of!(Node, values), RecordId::at_offset(at).0);
    }

    pub fn time_sample(&mut self, node: RecordId, thread: RecordId, tid: u32, monotonic_ns: u64, weight_ns: u64) {
        let at = self.allocate(ChunkKind::TimeSamples, size_of::<TimeSample>());
        self.u32(at + offset_of!(TimeSample, node), node.0);
        self.u32(at + offset_of!(TimeSample, thread), thread.0);
        self.u32(at + offset_of!(TimeSample, tid), tid);
        self.u64(at + offset_of!(TimeSample, monotonic_ns), monotonic_ns);
        self.u64(at + offset_of!(TimeSample, weight_ns), weight_ns);
    }
}
