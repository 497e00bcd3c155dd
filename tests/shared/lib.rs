//! A `dylib`: its symbols are exported, so what is inlined from the allocation hooks may not rely on where theirs lie.

use profile_recorder::RecordingAllocator;

#[global_allocator]
static ALLOC: RecordingAllocator = RecordingAllocator::system();

/// Numbers as texts.
pub fn texts(count: usize) -> Vec<String> {
    (0..count).map(|number| number.to_string()).collect()
}

#[cfg(test)]
mod tests {
    use profile_recorder::alloc::measure;

    #[test]
    fn calls_are_counted() {
        for count in [0, 1, 100] {
            let (texts, stats) = measure(|| super::texts(count));
            assert_eq!((texts.len(), stats.allocs()), (count, count as u64 + u64::from(count > 0)));
        }
    }
}
