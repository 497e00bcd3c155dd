//! What a reader wants to know of the machine: its name, its kernel, and how busy it was.

use serde_json::{Map, Value, json};
use std::fs;

/// The machine's name.
pub(crate) fn host_name() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

/// Number of processors.
pub(crate) fn processors() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// What does not change: the first part of the metadata.
pub(crate) fn metadata() -> Map<String, Value> {
    let name = rustix::system::uname();
    let memory_kib = field(&text("/proc/meminfo"), "MemTotal:").unwrap_or(0);
    let metadata = json!({
        "agent_version": env!("CARGO_PKG_VERSION"),
        "hostname": host_name(),
        "os_name": name.sysname().to_string_lossy(),
        "kernel_release": name.release().to_string_lossy(),
        "kernel_version": name.version().to_string_lossy(),
        "machine": name.machine().to_string_lossy(),
        "processors": processors(),
        "memory_capacity_mb": memory_kib / 1024,
    });
    if let Value::Object(metadata) = metadata { metadata } else { Map::new() }
}

/// How busy the machine is, from its creation on.
#[derive(Debug)]
pub(crate) struct Load {
    begun: Option<(u64, u64)>,
    memory_percent: Vec<f64>,
}

impl Load {
    /// Begins to look.
    pub(crate) fn begin() -> Self {
        let mut load = Self { begun: processor_ticks(&text("/proc/stat")), memory_percent: Vec::new() };
        load.look();
        load
    }

    /// Takes note of the memory in use now.
    pub(crate) fn look(&mut self) {
        let memory = text("/proc/meminfo");
        if let Some((total, free)) = field(&memory, "MemTotal:").zip(field(&memory, "MemAvailable:")) {
            self.memory_percent.push(100.0 * (1.0 - free as f64 / total.max(1) as f64));
        }
    }

    /// Average load of all processors and average use of memory so far, in percent, as gProfiler names them.
    pub(crate) fn metrics(&self) -> Value {
        let busy = self.begun.zip(processor_ticks(&text("/proc/stat"))).and_then(|(before, after)| {
            let (busy, all) = (after.0.checked_sub(before.0)?, after.1.checked_sub(before.1)?);
            (all != 0).then(|| 100.0 * busy as f64 / all as f64)
        });
        let memory = self.memory_percent.iter().sum::<f64>() / self.memory_percent.len().max(1) as f64;
        json!({ "cpu_avg": busy.map(hundredths), "mem_avg": hundredths(memory) })
    }
}

fn hundredths(number: f64) -> f64 {
    (number * 100.0).round() / 100.0
}

fn text(path: &str) -> String {
    fs::read_to_string(path).unwrap_or_default()
}

fn field(text: &str, name: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    line.split_ascii_whitespace().next()?.parse().ok()
}

/// Ticks that all processors worked, and all of theirs.
fn processor_ticks(stat: &str) -> Option<(u64, u64)> {
    let line = stat.lines().find_map(|line| line.strip_prefix("cpu "))?;
    // The last two, of guests, are in the first ones as well.
    let ticks: Vec<u64> = line.split_ascii_whitespace().take(8).filter_map(|tick| tick.parse().ok()).collect();
    let all: u64 = ticks.iter().sum();
    let idle = ticks.get(3)? + ticks.get(4)?;
    Some((all - idle, all))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn idle_time_and_waiting_for_disks_are_not_busy() {
        assert_eq!(processor_ticks("cpu  10 0 5 80 5 0 0 0 3 3\ncpu0 1"), Some((15, 100)));
        assert_eq!(processor_ticks("intr 1"), None);
    }

    #[test]
    fn the_machine_is_described() {
        let metadata = metadata();
        assert!(metadata["processors"].as_u64().unwrap() > 0 && metadata["memory_capacity_mb"].as_u64().unwrap() > 0);
        assert!(!metadata["hostname"].as_str().unwrap().is_empty());
        let metrics = Load::begin().metrics();
        assert!((0.0..=100.0).contains(&metrics["mem_avg"].as_f64().unwrap()), "{metrics}");
    }
}
