//! A recorder without a process to record.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use layout::{Function, Lost};
use profile::store::Counters;
use profile::{Frame, Profile, Sample, SampleType, Thread, ThreadId};

use crate::health::StoreHealth;
use crate::server::recording::Recording;
use crate::session::{Cancel, Request, SessionError};

/// What the recorder does with a request.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) enum Behaviour {
    /// Answers at once.
    #[default]
    Quick,
    /// Records until it is cancelled.
    Endless,
    Busy,
    Unavailable,
    Panics,
}

#[derive(Debug, Default)]
pub(crate) struct Fake {
    pub(crate) behaviour: Mutex<Behaviour>,
    /// The requests that came.
    pub(crate) requests: Mutex<Vec<Request>>,
    pub(crate) running: AtomicUsize,
    pub(crate) cancelled: AtomicUsize,
    pub(crate) prepared: AtomicUsize,
}

impl Fake {
    pub(crate) fn set(&self, behaviour: Behaviour) {
        *self.behaviour.lock().unwrap() = behaviour;
    }

    pub(crate) fn last_request(&self) -> Request {
        self.requests.lock().unwrap().last().unwrap().clone()
    }

    /// Waits until that many recordings run.
    pub(crate) fn wait_running(&self, count: usize) {
        wait_for("running recordings", || self.running.load(Ordering::SeqCst) == count);
    }
}

pub(crate) fn wait_for(what: &str, condition: impl Fn() -> bool) {
    let start = Instant::now();
    while !condition() {
        assert!(start.elapsed() < Duration::from_secs(20), "{what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

impl Recording for Fake {
    fn prepare(&self, _alloc_interval_bytes: u64) -> Result<(), SessionError> {
        self.prepared.fetch_add(1, Ordering::SeqCst);
        Ok(())
    }

    fn record(&self, request: &Request, cancel: &Cancel) -> Result<Profile, SessionError> {
        self.requests.lock().unwrap().push(request.clone());
        let behaviour = *self.behaviour.lock().unwrap();
        match behaviour {
            Behaviour::Quick => Ok(profile()),
            Behaviour::Endless => {
                self.running.fetch_add(1, Ordering::SeqCst);
                while !cancel.ends() {
                    std::thread::sleep(Duration::from_millis(5));
                }
                self.running.fetch_sub(1, Ordering::SeqCst);
                if !cancel.is_cancelled() {
                    return Ok(profile());
                }
                self.cancelled.fetch_add(1, Ordering::SeqCst);
                Err(SessionError::Cancelled)
            }
            Behaviour::Busy => Err(SessionError::Busy { retry_after: Duration::from_millis(2500) }),
            Behaviour::Unavailable => Err(SessionError::Unavailable("no timers are left".to_owned())),
            Behaviour::Panics => panic!("the recorder has a bug"),
        }
    }

    fn health(&self) -> StoreHealth {
        StoreHealth {
            used_bytes: 4096,
            budget_bytes: 8192,
            time_samples: 5,
            handler_ns: 6,
            lost: vec![(Lost::StoreFull, 2, 64)],
        }
    }

    fn counters(&self) -> Counters {
        let mut counters = Counters::default();
        counters.counts.calls[Function::Malloc as usize] = 3;
        counters.counts.bytes[Function::Malloc as usize] = 100;
        counters
    }
}

/// One sample each of the threads `worker-1` and `main`.
fn profile() -> Profile {
    let mut profile = Profile::new(vec![SampleType::new("samples", "count"), SampleType::new("cpu", "nanoseconds")]);
    for (index, name) in ["worker-1", "main"].into_iter().enumerate() {
        let tid = u32::try_from(index).unwrap() + 7;
        profile.threads.push(Thread {
            pid: 7,
            tid,
            name: name.to_owned(),
            process: "app".to_owned(),
            ..Thread::default()
        });
        let leaf = if index == 0 { "parse_json" } else { "render_page" };
        let stack = profile.stacks.intern(["start", leaf].map(Frame::named));
        let thread = Some(ThreadId(u32::try_from(index).unwrap()));
        profile.samples.push(Sample {
            stack,
            thread,
            labels: profile::Labels::new(),
            values: profile::values![1, 10_101_010],
        });
    }
    profile
}
