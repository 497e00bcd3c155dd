extern crate std;
use super::super::Interval;
use super::super::entry::SIZES;
use super::*;
use layout::RecordId;
use std::collections::HashMap;

fn allocation(address: u64, size: u64) -> Allocation {
    Allocation { address, size, values: RecordId(7), interval: Interval::EVERY }
}

fn insert(table: &mut Locked<'_>, address: u64, size: u64) -> Option<u64> {
    table.make_room().unwrap();
    table.insert(Entry::new(&allocation(address, size)).unwrap()).map(|replaced| {
        assert_eq!(replaced, allocation(address, replaced.size));
        replaced.size
    })
}

fn remove(table: &mut Locked<'_>, address: u64) -> Option<u64> {
    table.remove(address).map(|removed| {
        assert_eq!(removed, allocation(address, removed.size));
        removed.size
    })
}

/// Slots in use: of blocks, and of groups.
fn slots(shard: &Shard) -> (usize, usize) {
    let slots = shard.slots();
    // SAFETY: below the number of slots, and nobody else is here.
    let entries = (0..slots.count).map(|index| *unsafe { slots.at(index) }).filter(|entry| !entry.is_free());
    let (groups, blocks): (std::vec::Vec<_>, std::vec::Vec<_>) = entries.partition(|entry| entry.is_paged());
    assert_eq!(groups.len() + blocks.len(), shard.used.load(Ordering::Relaxed));
    (blocks.len(), groups.len())
}

/// Random inserts and removes of blocks that are `step` bytes apart, some too large for a word, against a map.
fn agrees_with_a_map(places: u64, step: u64, steps: u64) {
    let shard = Shard::new();
    let mut table = shard.lock(Wait::Never).unwrap();
    let mut model = HashMap::new();
    let mut random = 1_u64;
    for count in 0..steps {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let address = ((random >> 40) % places + 1) * step;
        // Tides, so that there are few of a group, and many, and none.
        let is_ebb = count / (places * 2) % 2 == 1;
        if (random >> 59) % 8 < if is_ebb { 2 } else { 6 } {
            let size = if (random >> 52).is_multiple_of(16) { Word::SIZES + count } else { count };
            assert_eq!(insert(&mut table, address, size), model.insert(address, size), "{address:#x}");
        } else {
            assert_eq!(remove(&mut table, address), model.remove(&address), "{address:#x}");
        }
    }
    let (blocks, groups) = slots(&shard);
    assert!(groups == 0 || blocks < model.len(), "{blocks} slots of {} blocks, {groups} groups", model.len());
    for (address, size) in model {
        assert_eq!(remove(&mut table, address), Some(size));
    }
    assert_eq!(slots(&shard).0, 0);
}

#[test]
fn the_table_agrees_with_a_map_over_random_inserts_and_removes() {
    for (places, step) in
        [(3_000, 16), (3_000, 32), (700, 48), (3_000, 128), (500, 8), (500, 1), (3_000, 1_040), (300, 4_096)]
    {
        agrees_with_a_map(places, step, 100_000);
    }
}

#[test]
fn an_entry_holds_every_address_and_size() {
    for (address, size) in [(1, 0), (0x7fff_ffff_fff8, SIZES - 1), (0x7fff_ffff_ffff, 0x1_2345_6789)] {
        let interval = Interval::from_number(14);
        let allocation = Allocation { address, size, values: RecordId(0xfedc_ba98), interval };
        assert_eq!(Entry::new(&allocation).unwrap().allocation(), allocation);
        assert!(!Entry::new(&allocation).unwrap().is_paged());
    }
    assert!(Entry::new(&allocation(ADDRESSES, 1)).is_none());
    assert!(Entry::new(&allocation(1, SIZES)).is_none());
}

#[test]
fn a_word_holds_what_is_in_its_window() {
    for (address, size) in [(0x7fff_ffff_fff0, Word::SIZES - 1), (0x10, 0), (0x7f00_1234_5020, 0x765_4321)] {
        let allocation =
            Allocation { address, size, values: RecordId(0xfedc_ba98), interval: Interval::from_number(14) };
        let (window, word) = Word::new(Entry::new(&allocation).unwrap()).unwrap();
        assert_eq!((window, word.allocation(address)), ((address / 32 % 64) as usize, allocation));
        assert!(word.is_at(address) && !word.is_at(address ^ 16) && !word.is_at(address ^ 8));
    }
    for (address, size) in [(0x10, Word::SIZES), (0x18, 1), (0x11, 1)] {
        assert_eq!(Word::new(Entry::new(&allocation(address, size)).unwrap()), None);
    }
}

#[test]
fn blocks_that_are_no_words_apart_are_told_apart() {
    let shard = Shard::new();
    let mut table = shard.lock(Wait::Never).unwrap();
    for address in 0x1000..0x1400 {
        assert_eq!(insert(&mut table, address, address), None);
    }
    let count = shard.slots().count;
    assert!(count * 16 <= 0x400 * 32, "{count} slots");
    for address in 0x1000..0x1400 {
        assert_eq!(remove(&mut table, address), Some(address));
    }
}

#[test]
fn few_blocks_of_a_group_have_slots_and_many_a_page() {
    let shard = Shard::new();
    let mut table = shard.lock(Wait::Never).unwrap();
    for block in 0..FEW as u64 {
        assert_eq!(insert(&mut table, 0x5000 + block * 64, 50), None);
    }
    assert_eq!(slots(&shard), (FEW, 0));
    assert_eq!(insert(&mut table, 0x5010 + FEW as u64 * 64, 50), None);
    assert_eq!(slots(&shard), (0, 1));
    // In the window of another, and too large for a word: beside the page.
    assert_eq!(insert(&mut table, 0x5010, 51), None);
    assert_eq!(insert(&mut table, 0x5400, Word::SIZES), None);
    assert_eq!(slots(&shard), (2, 1));
    // Freed without our seeing it: from the page to a slot, and the other way.
    assert_eq!(insert(&mut table, 0x5040, Word::SIZES + 1), Some(50));
    assert_eq!(insert(&mut table, 0x5400, 52), Some(Word::SIZES));
    assert_eq!(insert(&mut table, 0x5000, 53), Some(50));
    let sizes = [0x5000, 0x5010, 0x5040, 0x5400].map(|address| remove(&mut table, address));
    assert_eq!(sizes, [Some(53), Some(51), Some(Word::SIZES + 1), Some(52)]);
    assert_eq!([0x5000, 0x5010, 0x5040, 0x5400].map(|address| remove(&mut table, address)), [None; 4]);
}

#[test]
fn groups_of_which_nothing_lives_make_room() {
    let shard = Shard::new();
    let mut table = shard.lock(Wait::Never).unwrap();
    for group in 1..10_000_u64 {
        for block in 0..20 {
            assert_eq!(insert(&mut table, (group << GROUP) + block * 96, 90), None);
        }
        for block in 0..20 {
            assert_eq!(remove(&mut table, (group << GROUP) + block * 96), Some(90));
        }
    }
    assert_eq!(shard.slots().count, PAGE_SLOTS);
}

/// What a jump leaves behind: an entry that was written and not counted, one that was moved up and is still where it was, one whose place was free by then; groups that count one too many that are apart, or
/// one too few.
#[test]
fn a_table_that_was_left_in_the_middle_of_a_change_is_mended() {
    let shard = Shard::new();
    let mut table = shard.lock(Wait::Never).unwrap();
    let mut model = HashMap::new();
    // Blocks of groups with a page, of others, and apart.
    let blocks =
        (1..400_u64).map(|i| i * 64).chain((1..300).map(|i| (1 << 30) + i * 4096)).chain((1..80).map(|i| i * 64 + 8));
    for address in blocks {
        insert(&mut table, address, address);
        model.insert(address, address);
    }
    let before = slots(&shard);
    let all = shard.slots();
    // SAFETY: below the number of slots, in a table that is locked here.
    let entry = |index: usize| *unsafe { all.at(index) };
    let is_free = |index: &usize| entry(*index).is_free();
    let free: std::vec::Vec<_> = (0..all.count).filter(is_free).take(2).collect();
    let [twice, halfway] = *free else { panic!("{free:?}") };
    // The one behind a free slot is there once more.
    let other = (0..all.count).rev().find(|index| !is_free(index) && !entry(*index).is_paged()).unwrap();
    // SAFETY: as above.
    unsafe {
        *all.at(twice) = *all.at(other);
        *all.at(halfway) = Entry { key: 0, ..Entry::new(&allocation(1 << 40, 5)).unwrap() };
    }
    let with_apart = (0..all.count).filter(|index| entry(*index).is_paged() && entry(*index).has_apart());
    let with_apart: std::vec::Vec<_> = with_apart.collect();
    assert!(with_apart.len() > 1, "{with_apart:?}");
    for (count, index) in with_apart.into_iter().enumerate() {
        let by = if count % 2 == 0 { ONE_APART } else { ONE_APART.wrapping_neg() };
        // SAFETY: as above.
        let group = unsafe { all.at(index) };
        group.rest = group.rest.wrapping_add(by);
    }
    shard.used.store(before.0 + before.1 - 3, Ordering::Relaxed);
    table.mend();
    assert_eq!(slots(&shard), before);
    let mut told = std::vec::Vec::new();
    table.each(|address| told.push(address));
    told.sort_unstable();
    let mut lives: std::vec::Vec<_> = model.keys().copied().collect();
    lives.sort_unstable();
    assert_eq!(told, lives);
    for (address, size) in model {
        assert_eq!(remove(&mut table, address), Some(size), "{address:#x}");
    }
    assert_eq!(remove(&mut table, 1 << 40), None);
    assert_eq!(slots(&shard).0, 0);
}

#[test]
fn a_table_of_a_few_is_mended_as_a_large_one() {
    let shard = Shard::new();
    let mut table = shard.lock(Wait::Never).unwrap();
    table.mend();
    insert(&mut table, 0x1000, 1);
    shard.used.store(0, Ordering::Relaxed);
    table.mend();
    assert_eq!(slots(&shard), (1, 0));
    assert_eq!(remove(&mut table, 0x1000), Some(1));
}
