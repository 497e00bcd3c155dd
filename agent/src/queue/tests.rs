//! Claims about the account, over restarts at the worst moments.

use super::*;

const ROOM: Limits = Limits { bytes: 1000, age: Duration::from_secs(3600) };

fn directory() -> tempfile::TempDir {
    tempfile::tempdir().unwrap()
}

fn next(queue: &Queue) -> Item {
    queue.next(None).unwrap()
}

#[test]
fn what_is_kept_survives_a_restart_in_its_order() {
    let place = directory();
    let queue = Queue::open(place.path(), ROOM).unwrap();
    ["a", "b", "c"].iter().for_each(|body| queue.put(body.as_bytes()));
    let first = next(&queue);
    assert_eq!(queue.begin(first).unwrap(), b"a");
    queue.settle(first, &Settled::Sent);
    drop(queue);
    let queue = Queue::open(place.path(), ROOM).unwrap();
    queue.put(b"d");
    for body in ["b", "c", "d"] {
        let item = next(&queue);
        assert_eq!(queue.begin(item).unwrap(), body.as_bytes());
        queue.settle(item, &Settled::Sent);
    }
    let account = queue.account();
    assert_eq!((account.sent, account.sent_bytes, account.repeated, account.accepted()), (4, 4, 0, 4));
}

#[test]
fn an_item_that_was_settled_and_not_removed_counts_once() {
    let place = directory();
    let queue = Queue::open(place.path(), ROOM).unwrap();
    queue.put(b"a");
    let item = next(&queue);
    let path = queue.path(item);
    queue.begin(item).unwrap();
    queue.settle(item, &Settled::Sent);
    drop(queue);
    fs::write(&path, "a").unwrap();
    let queue = Queue::open(place.path(), ROOM).unwrap();
    assert_eq!((queue.account().sent, queue.account().kept), (1, 0));
    assert!(!path.exists());
    // Its number is not given again, or the next one would be taken for it.
    queue.put(b"b");
    drop(queue);
    assert_eq!(Queue::open(place.path(), ROOM).unwrap().account().accepted(), 2);
}

#[test]
fn what_may_have_arrived_is_counted_when_it_is_sent_again() {
    let place = directory();
    let queue = Queue::open(place.path(), ROOM).unwrap();
    queue.put(b"a");
    for settled in [Settled::Kept, Settled::Unknown] {
        let item = next(&queue);
        queue.begin(item).unwrap();
        queue.settle(item, &settled);
        assert_eq!(queue.account().repeated, 0, "{settled:?}");
    }
    drop(queue);
    let queue = Queue::open(place.path(), ROOM).unwrap();
    let item = next(&queue);
    queue.begin(item).unwrap();
    queue.settle(item, &Settled::Sent);
    assert_eq!((queue.account().repeated, queue.account().sent), (1, 1));
}

#[test]
fn what_is_oldest_makes_room_but_not_what_is_being_sent() {
    let place = directory();
    let queue = Queue::open(place.path(), Limits { bytes: 25, ..ROOM }).unwrap();
    queue.put(&[1; 10]);
    queue.put(&[2; 10]);
    let sending = next(&queue);
    queue.begin(sending).unwrap();
    queue.put(&[3; 10]);
    queue.put(&[4; 26]);
    assert_eq!(next(&queue), sending);
    let account = queue.account();
    let given_up: Vec<_> = account.given_up.iter().map(|(why, count)| (why.as_str(), *count)).collect();
    assert_eq!(given_up, [("larger than the queue", 1), ("the queue is full", 1)]);
    assert_eq!((account.kept, account.kept_bytes, account.accepted()), (2, 20, 4));
}

#[test]
fn what_is_too_old_is_given_up() {
    let place = directory();
    let queue = Queue::open(place.path(), ROOM).unwrap();
    queue.put(b"a");
    drop(queue);
    let queue = Queue::open(place.path(), Limits { age: Duration::ZERO, ..ROOM }).unwrap();
    let waiting = std::thread::scope(|scope| {
        let waiting = scope.spawn(|| queue.next(None));
        while queue.account().kept != 0 {
            std::thread::yield_now();
        }
        queue.close();
        waiting.join().unwrap()
    });
    assert_eq!(waiting, None);
    assert_eq!(queue.account().given_up["too old"], 1);
}

#[test]
fn nobody_else_reads_what_waits() {
    use std::os::unix::fs::PermissionsExt;
    let place = directory();
    let below = place.path().join("queues/main");
    let _queue = Queue::open(&below, ROOM).unwrap();
    assert_eq!(below.metadata().unwrap().permissions().mode() & 0o077, 0);
}

#[test]
fn two_agents_do_not_use_one_queue() {
    let place = directory();
    let _first = Queue::open(place.path(), ROOM).unwrap();
    let error = Queue::open(place.path(), ROOM).unwrap_err();
    assert!(error.line().starts_with("another agent uses the queue"), "{error}");
}

#[test]
fn a_damaged_account_is_put_aside_and_what_waits_is_sent() {
    for damaged in [&b""[..], b"{\"account\":{\"sent\"", &[0; 100]] {
        let place = directory();
        let queue = Queue::open(place.path(), ROOM).unwrap();
        ["a", "b"].iter().for_each(|body| queue.put(body.as_bytes()));
        queue.settle(next(&queue), &Settled::Sent);
        drop(queue);
        fs::write(place.path().join("account.json"), damaged).unwrap();
        let queue = Queue::open(place.path(), ROOM).unwrap();
        assert_eq!((queue.account().sent, queue.account().kept), (0, 1));
        let item = next(&queue);
        assert_eq!(queue.begin(item).unwrap(), b"b");
        queue.settle(item, &Settled::Sent);
        assert_eq!((queue.account().sent, queue.account().kept), (1, 0));
        assert_eq!(fs::read(place.path().join("account.damaged")).unwrap(), damaged);
    }
}
