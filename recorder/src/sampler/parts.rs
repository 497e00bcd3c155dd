//! What elapsed between two looks at a thread, by the state that it was in.

/// Parts of elapsed time, in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Parts {
    pub(super) on_cpu: u64,
    pub(super) runnable: u64,
    pub(super) off_cpu: u64,
}

impl Parts {
    /// Divides what elapsed between two looks. `waited` is the time that the thread waited for a processor, if the kernel tells.
    pub(super) fn of(elapsed: u64, ran: u64, waited: Option<u64>, runs: bool, ran_before: bool) -> Self {
        let on_cpu = ran.min(elapsed);
        let left = elapsed - on_cpu;
        let runnable = match waited {
            // The kernel counts a wait when it is over: who runs, and has had no time at all, waits.
            _ if runs && on_cpu == 0 => left,
            Some(waited) => waited.min(left),
            None if runs && ran_before => left,
            None => 0,
        };
        Self { on_cpu, runnable, off_cpu: left - runnable }
    }

    pub(super) fn add(&mut self, other: Self) {
        self.on_cpu += other.on_cpu;
        self.runnable += other.runnable;
        self.off_cpu += other.off_cpu;
    }

    pub(super) fn take_running(&mut self) -> (u64, u64) {
        (std::mem::take(&mut self.on_cpu), std::mem::take(&mut self.runnable))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn elapsed_time_is_divided_without_a_rest() {
        let parts = |on_cpu, runnable, off_cpu| Parts { on_cpu, runnable, off_cpu };
        assert_eq!(Parts::of(100, 30, Some(20), true, true), parts(30, 20, 50));
        assert_eq!(
            Parts::of(100, 30, Some(90), true, true),
            parts(30, 70, 0),
            "clocks that are read one after the other"
        );
        assert_eq!(Parts::of(100, 130, Some(1), true, true), parts(100, 0, 0));
        assert_eq!(Parts::of(100, 0, Some(0), true, false), parts(0, 100, 0), "it was woken, and waits");
        assert_eq!(Parts::of(100, 0, Some(0), false, true), parts(0, 0, 100));
        assert_eq!(Parts::of(100, 40, None, true, true), parts(40, 60, 0), "the kernel does not count waits");
        assert_eq!(Parts::of(100, 40, None, true, false), parts(40, 0, 60), "and it was blocked before");
    }
}
