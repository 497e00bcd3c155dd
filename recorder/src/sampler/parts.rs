//! What elapsed of a thread's time and was not given to a stack yet, by the state that the thread was in.

/// Parts of elapsed time, in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Parts {
    pub(super) on_cpu: u64,
    pub(super) runnable: u64,
    /// The rest: the thread was blocked, or waits for a processor and the kernel has not told yet.
    pub(super) off_cpu: u64,
    /// Waits for a processor that were counted before the kernel told.
    foreseen: u64,
}

impl Parts {
    /// Divides what elapsed between two looks. `waited` is the time of waits for a processor that the kernel has told since the last call, if it does: it tells of each when it is over, so
    /// that a part of it may have been taken for time of being blocked.
    pub(super) fn pass(&mut self, elapsed: u64, ran: u64, waited: Option<u64>, runs: bool, ran_before: bool) {
        let on_cpu = ran.min(elapsed);
        let left = elapsed - on_cpu;
        self.on_cpu += on_cpu;
        let told = waited.unwrap_or(0);
        let was_foreseen = told.min(self.foreseen);
        self.foreseen -= was_foreseen;
        let told = told - was_foreseen;
        // Who runs, and has had no time at all, has waited all the while. Where the kernel does not tell, whatever does not show a thread blocked is a wait.
        let waits = runs && (on_cpu == 0 || (waited.is_none() && ran_before));
        let all = if waits { told.max(left) } else { told };
        if waited.is_some() {
            self.foreseen += all - told;
        }
        let rest = self.off_cpu + left;
        let runnable = all.min(rest);
        self.runnable += runnable;
        self.off_cpu = rest - runnable;
    }

    /// Gives back what a thread was asked for.
    pub(super) fn add_running(&mut self, (on_cpu, runnable): (u64, u64)) {
        self.on_cpu += on_cpu;
        self.runnable += runnable;
    }

    pub(super) fn take_running(&mut self) -> (u64, u64) {
        (std::mem::take(&mut self.on_cpu), std::mem::take(&mut self.runnable))
    }

    pub(super) fn take_off_cpu(&mut self) -> u64 {
        std::mem::take(&mut self.off_cpu)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parts(on_cpu: u64, runnable: u64, off_cpu: u64) -> Parts {
        Parts { on_cpu, runnable, off_cpu, foreseen: 0 }
    }

    fn passed(elapsed: u64, ran: u64, waited: Option<u64>, runs: bool, ran_before: bool) -> Parts {
        let mut owed = Parts::default();
        owed.pass(elapsed, ran, waited, runs, ran_before);
        Parts { foreseen: 0, ..owed }
    }

    #[test]
    fn elapsed_time_is_divided_without_a_rest() {
        assert_eq!(passed(100, 30, Some(20), true, true), parts(30, 20, 50));
        assert_eq!(passed(100, 30, Some(90), true, true), parts(30, 70, 0), "clocks that are read one after the other");
        assert_eq!(passed(100, 130, Some(1), true, true), parts(100, 0, 0));
        assert_eq!(passed(100, 0, Some(0), true, false), parts(0, 100, 0), "it was woken, and waits");
        assert_eq!(passed(100, 0, Some(0), false, true), parts(0, 0, 100));
        assert_eq!(passed(100, 40, None, true, true), parts(40, 60, 0), "the kernel does not count waits");
        assert_eq!(passed(100, 40, None, true, false), parts(40, 0, 60), "and it was blocked before");
    }

    #[test]
    fn a_wait_that_was_under_way_is_one_when_the_kernel_tells() {
        let mut owed = Parts::default();
        // It is taken off its processor after 30, and gets one back 10 after the third look; then it is blocked for 50.
        owed.pass(100, 30, Some(0), true, true);
        assert_eq!(owed, parts(30, 0, 70), "nobody knows yet");
        owed.pass(100, 0, Some(0), true, true);
        owed.pass(100, 0, Some(0), true, true);
        assert_eq!(owed.take_running(), (30, 200));
        owed.pass(100, 40, Some(280), true, true);
        assert_eq!(owed, parts(40, 80, 50));
        // What was given away already is not given again.
        assert_eq!(owed.take_off_cpu(), 50);
        owed.pass(100, 90, Some(30), true, true);
        assert_eq!(owed, parts(130, 90, 0));
    }

    /// A thread that runs, waits for a processor and is blocked, all at random, looked at at random: each state has its time when the kernel has told.
    #[test]
    fn each_state_has_its_time_in_the_end() {
        const RUNS: usize = 0;
        const WAITS: usize = 1;
        const BLOCKED: usize = 2;
        let mut random = 1_u64;
        let mut below = |most: usize| {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (random >> 33) as usize % most
        };
        for _ in 0..200 {
            let (mut owed, mut truth, mut given) = (Parts::default(), [0; 3], [0; 3]);
            let (mut ran, mut told, mut elapsed, mut under_way) = (0, 0, 0, 0);
            let (mut state, mut is_blocked) = (RUNS, false);
            for _ in 0..300 {
                state = match state {
                    RUNS => [WAITS, BLOCKED][below(2)],
                    WAITS => RUNS,
                    _ => [RUNS, WAITS][below(2)],
                };
                let mut left = 1 + below(30) as u64;
                if state == BLOCKED {
                    // It made the call.
                    (ran, elapsed, truth[RUNS]) = (ran + 1, elapsed + 1, truth[RUNS] + 1);
                }
                if state == RUNS {
                    told += std::mem::take(&mut under_way);
                }
                while left > 0 {
                    let step = left.min(1 + below(20) as u64);
                    (left, elapsed) = (left - step, elapsed + step);
                    truth[state] += step;
                    match state {
                        RUNS => ran += step,
                        WAITS => under_way += step,
                        _ => {}
                    }
                    // Who was found blocked, and has not run since, is there still: its time is given without this.
                    if below(3) == 0 && !(is_blocked && ran == 0) {
                        is_blocked = state == BLOCKED;
                        let take = std::mem::take::<u64>;
                        owed.pass(take(&mut elapsed), take(&mut ran), Some(take(&mut told)), !is_blocked, true);
                        let (on_cpu, runnable) = owed.take_running();
                        (given[0], given[1]) = (given[0] + on_cpu, given[1] + runnable);
                    }
                }
            }
            told += under_way;
            owed.pass(elapsed + 1, ran + 1, Some(told), true, true);
            let (on_cpu, runnable) = owed.take_running();
            assert_eq!([given[0] + on_cpu - 1, given[1] + runnable, owed.take_off_cpu()], truth);
        }
    }
}
