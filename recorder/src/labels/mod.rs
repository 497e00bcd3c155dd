//! Labels: what a thread is working on, as attributes of everything that is recorded of it meanwhile.
//!
//! ```
//! # struct Request { id: u64 }
//! # fn work(_: &Request) -> usize { 7 }
//! # let request = Request { id: 4711 };
//! let answer = profile_recorder::labels::with("request", request.id, || work(&request));
//! # assert_eq!(answer, 7);
//! ```
//!
//! Every allocation and every sample of CPU and elapsed time that the thread is the subject of inside the closure carries the label `request` = `4711`, in every
//! format that has room for labels: `go tool pprof -tagfocus request=4711`, `-tags`, `-tagroot request`.
//!
//! Labels nest: an inner one is added to those around it, or takes the place of the one with its key. They belong to the thread, not to what the closure starts
//! on other threads. A child after fork begins without labels. Until a recorder is set up (a server, the first [`measure`](crate::alloc::measure), or
//! `profrec record` around the program) nothing is kept, and `with` costs two loads and a branch.
//!
//! A process can have 65,536 different sets of labels in its life, of a kilobyte at most each. Beyond that the labels around a new one stay in force alone, and
//! the profile says so. Prefer values that recur, like the route, to those that never do.

pub(crate) mod outside;
#[cfg(feature = "tracing")]
mod span;
#[cfg(feature = "tower")]
mod tower;

use capture::region;
use layout::Lost;
use outside::{Before, enter_here, leave_here};
use std::borrow::Cow;
use std::cell::RefCell;
use std::fmt::{self, Display, Write as _};
use std::marker::PhantomData;
use std::pin::Pin;
use std::task::{Context, Poll};

#[cfg(feature = "tracing")]
pub use span::SpanLayer;
#[cfg(feature = "tower")]
pub use tower::{TowerLabelled, TowerLayer};

/// Most bytes of a key or a value; what is longer is cut.
const MOST_BYTES: usize = 256;
/// Keys of labels that samples have already.
const RESERVED: [&str; 7] = ["thread", "tid", "process", "pid", "state", "syscall", "bytes"];
/// Labels of one thread that can be open at a time.
const MOST_OPEN: usize = 64;

/// Runs the closure under a label.
///
/// Keys and values longer than 256 bytes are cut. The keys that the recorder itself uses (`thread`, `tid`, `process`, `pid`, `state`, `syscall`, `bytes`) get an
/// underscore behind them. The value is formatted once, and only if something can be recorded.
#[inline]
pub fn with<R>(key: &str, value: impl Display, f: impl FnOnce() -> R) -> R {
    let _label = enter(key, value);
    f()
}

/// Puts the calling thread under a label until the guard is dropped: for code that cannot be wrapped in a closure.
///
/// In async code hold it between two `.await`s and not across one (the compiler refuses that in tasks that move between threads); [`future`] is for whole futures.
///
/// ```
/// let _label = profile_recorder::labels::enter("table", "orders");
/// ```
#[inline]
#[must_use = "the label lasts as long as the guard"]
pub fn enter(key: &str, value: impl Display) -> LabelGuard {
    let is_recorded = region::header().is_some() || outside::recorder().is_some();
    let token = if is_recorded { enter_slow(key, &value) } else { None };
    LabelGuard { token, of_this_thread: PhantomData }
}

/// A future that is under a label whenever it is polled, on whichever thread: for async code, where requests share threads.
///
/// ```
/// # use std::{future::Future, pin::pin, task::{Context, Poll, Waker}};
/// # use profile_recorder::labels;
/// let answer = labels::future("route", "/orders", async { 42 });
/// # assert_eq!(pin!(answer).poll(&mut Context::from_waker(Waker::noop())), Poll::Ready(42));
/// ```
pub fn future<F: Future>(key: impl Into<Cow<'static, str>>, value: impl Display, future: F) -> Labelled<F> {
    let mut text = Text::EMPTY;
    // A `Display` that fails has said what it could.
    let _ = write!(text, "{value}");
    Labelled { key: key.into(), value: text, future: Box::pin(future) }
}

/// What [`future`] returns.
pub struct Labelled<F> {
    key: Cow<'static, str>,
    value: Text,
    future: Pin<Box<F>>,
}

impl<F: Future> Future for Labelled<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<F::Output> {
        let this = &mut *self;
        let _label = enter(&this.key, this.value.as_str());
        this.future.as_mut().poll(context)
    }
}

impl<F> fmt::Debug for Labelled<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Labelled").field("key", &self.key).field("value", &self.value.as_str()).finish_non_exhaustive()
    }
}

/// Keeps a label in force on the thread that made it.
///
/// Guards may be dropped in any order: the label of one that is dropped before those inside it goes with the last of them.
#[derive(Debug)]
pub struct LabelGuard {
    /// `None`: nothing was entered.
    token: Option<Token>,
    of_this_thread: PhantomData<*const ()>,
}

impl Drop for LabelGuard {
    #[inline]
    fn drop(&mut self) {
        if let Some(token) = self.token.take() {
            leave(token);
        }
    }
}

/// Which label of which store, so that the guards of a parent do nothing in its child after fork.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Token {
    epoch: u32,
    number: u32,
}

/// A label that is in force.
#[derive(Clone, Copy)]
struct Open {
    /// `None`: its guard is gone, but guards inside it are not.
    token: Option<Token>,
    /// What was in force before.
    before: InForce,
}

/// The labels of a thread: to this program's own recorder, and to the one that the preload library brings.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct InForce {
    own: Before,
    outside: Before,
}

/// The open labels of a thread, outermost first.
struct Opened {
    epoch: u32,
    next: u32,
    depth: usize,
    labels: [Open; MOST_OPEN],
}

thread_local! {
    static OPENED: RefCell<Opened> = const { RefCell::new(Opened::NONE) };
}

impl Opened {
    const NONE: Self = Self {
        epoch: 0,
        next: 0,
        depth: 0,
        labels: [Open { token: None, before: InForce { own: 0, outside: 0 } }; MOST_OPEN],
    };

    /// What was open in the process that this one was forked from means nothing here.
    fn forget_other_epochs(&mut self, epoch: u32) {
        if self.epoch != epoch {
            (self.epoch, self.depth) = (epoch, 0);
        }
    }

    /// Notes a label that is about to be entered; `None` if too many are open.
    fn push(&mut self, epoch: u32) -> Option<(Token, &mut InForce)> {
        self.forget_other_epochs(epoch);
        let open = self.labels.get_mut(self.depth)?;
        self.next = self.next.wrapping_add(1);
        let token = Token { epoch, number: self.next };
        *open = Open { token: Some(token), before: InForce::default() };
        self.depth += 1;
        Some((token, &mut open.before))
    }

    /// Ends a label. What is in force then is what the last call of `leave` says, if there is one.
    fn end(&mut self, token: Token, mut leave: impl FnMut(InForce)) {
        self.forget_other_epochs(region::epoch());
        let opened = &mut self.labels[..self.depth];
        let Some(open) = opened.iter_mut().find(|open| open.token == Some(token)) else { return };
        open.token = None;
        while let Some(open) = self.depth.checked_sub(1).map(|last| self.labels[last])
            && open.token.is_none()
        {
            // Each of them: some may be of the process that this one was forked from, and say nothing here.
            leave(open.before);
            self.depth -= 1;
        }
    }
}

#[cold]
fn enter_slow(key: &str, value: &dyn Display) -> Option<Token> {
    let (mut text, mut own_key) = (Text::EMPTY, Text::EMPTY);
    let key = if RESERVED.contains(&key) {
        let _ = write!(own_key, "{key}_");
        own_key.as_str()
    } else {
        cut(key, MOST_BYTES)
    };
    // A `Display` that fails has said what it could.
    let _ = write!(text, "{value}");
    let (key, value) = (key, text.as_str());
    let entered = OPENED.try_with(|opened| {
        let mut opened = opened.try_borrow_mut().ok()?;
        let Some((token, before)) = opened.push(region::epoch()) else {
            region::lose(Lost::LabelsFull, 1, 0);
            return None;
        };
        before.own = enter_here(key.as_bytes(), value.as_bytes());
        if let Some(outside) = outside::recorder() {
            before.outside = outside.enter(key, value);
        }
        Some(token)
    });
    entered.ok().flatten()
}

#[cold]
fn leave(token: Token) {
    let leave = |before: InForce| {
        leave_here(before.own);
        if let Some(outside) = outside::recorder() {
            outside.leave(before.outside);
        }
    };
    // Where the thread's own variables are gone the thread ends, and its labels with it.
    let _ = OPENED.try_with(|opened| opened.try_borrow_mut().map(|mut opened| opened.end(token, leave)));
}

/// The beginning of a text, of at most so many bytes, that ends between characters.
fn cut(text: &str, most: usize) -> &str {
    let end = (0..=most.min(text.len())).rev().find(|end| text.is_char_boundary(*end));
    &text[..end.unwrap_or(0)]
}

/// The beginning of a text, without allocation: a label must not change what it labels.
struct Text {
    bytes: [u8; MOST_BYTES],
    length: usize,
    is_cut: bool,
}

impl Text {
    const EMPTY: Self = Self { bytes: [0; MOST_BYTES], length: 0, is_cut: false };

    fn as_str(&self) -> &str {
        str::from_utf8(&self.bytes[..self.length]).unwrap_or_default()
    }
}

impl fmt::Write for Text {
    fn write_str(&mut self, part: &str) -> fmt::Result {
        let room = if self.is_cut { 0 } else { MOST_BYTES - self.length };
        let fits = cut(part, room);
        self.is_cut |= fits.len() < part.len();
        self.bytes[self.length..self.length + fits.len()].copy_from_slice(fits.as_bytes());
        self.length += fits.len();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn guards_may_be_dropped_in_any_order() {
        let set = |own| InForce { own, outside: 0 };
        let mut opened = Opened::NONE;
        let [a, b, c] = [0, 1, 2].map(|before| {
            let (token, noted) = opened.push(0).unwrap();
            *noted = set(before);
            token
        });
        let end = |opened: &mut Opened, token| {
            let mut last = None;
            opened.end(token, |before| last = Some(before));
            last
        };
        assert_eq!(end(&mut opened, b), None, "c is in force still");
        assert_eq!(end(&mut opened, c), Some(set(1)), "what was in force before b");
        assert_eq!(end(&mut opened, a), Some(set(0)));
        assert_eq!((opened.depth, end(&mut opened, a)), (0, None));
    }

    #[test]
    fn what_was_open_in_the_parent_is_not_open_in_its_child() {
        let mut opened = Opened::NONE;
        let (parents, _) = opened.push(u32::MAX).unwrap();
        opened.end(parents, |_| panic!("this process has another epoch"));
        assert_eq!(opened.depth, 0);
    }

    #[test]
    fn long_values_are_cut_between_characters() {
        let mut text = Text::EMPTY;
        write!(text, "{}x", "ä".repeat(200)).unwrap();
        assert_eq!(text.as_str(), "ä".repeat(128));
        assert_eq!(cut("aä", 2), "a");
    }

    #[test]
    fn labels_deeper_than_can_be_noted_are_refused() {
        let mut opened = Opened::NONE;
        let mut tokens: Vec<_> = (0..MOST_OPEN).map(|_| opened.push(0).unwrap().0).collect();
        assert_eq!(opened.push(0), None);
        opened.end(tokens.pop().unwrap(), |_| ());
        assert!(opened.push(0).is_some());
    }
}
