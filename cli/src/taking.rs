//! Takes up what processes leave that end while others run, on a thread of its own: who waits for the command hears of its end, and of signals, at once.

use crate::store::StoreDirectory;
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

/// A directory that is looked into again and again. When dropped, it goes.
#[derive(Debug)]
pub(crate) struct Taking {
    directory: Option<Arc<Mutex<StoreDirectory>>>,
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Taking {
    /// Begins.
    pub(crate) fn start(directory: StoreDirectory) -> Self {
        let directory = Arc::new(Mutex::new(directory));
        let (stop, stopped) = mpsc::channel();
        let shared = Arc::clone(&directory);
        let take = move || {
            let mut directory = shared.lock().unwrap_or_else(PoisonError::into_inner);
            while stopped.recv_timeout(directory.until_next_look()) == Err(RecvTimeoutError::Timeout) {
                directory.take_ended();
            }
        };
        // Without a thread for it everything is taken up at the end.
        let thread = std::thread::Builder::new().name("taking".to_owned()).spawn(take).ok();
        Self { directory: Some(directory), stop: Some(stop), thread }
    }

    /// Ends it when the look that was begun is over, and gives the directory back.
    pub(crate) fn finish(mut self) -> Option<StoreDirectory> {
        self.stop();
        let directory = Arc::into_inner(self.directory.take()?)?;
        Some(directory.into_inner().unwrap_or_else(PoisonError::into_inner))
    }

    fn stop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl Drop for Taking {
    fn drop(&mut self) {
        self.stop();
    }
}
