//! Messages on standard error: a line each, for people or as JSON.

use crate::settings::{Log, LogFormat, LogLevel};
use tracing::Level;

/// Shows messages from now on. What was set before stays.
pub(crate) fn show(log: &Log) {
    let level = match log.level {
        LogLevel::Error => Level::ERROR,
        LogLevel::Warn => Level::WARN,
        LogLevel::Info => Level::INFO,
        LogLevel::Debug => Level::DEBUG,
    };
    // Libraries tell of their own inner life, of headers for instance.
    let ours = tracing_subscriber::filter::Targets::new().with_target(env!("CARGO_CRATE_NAME"), level);
    let layer = tracing_subscriber::fmt::layer().with_writer(std::io::stderr).with_target(false);
    use tracing_subscriber::layer::{Layer, SubscriberExt};
    use tracing_subscriber::util::SubscriberInitExt;
    let shown = match log.format {
        LogFormat::Text => layer.with_ansi(false).boxed(),
        LogFormat::Json => layer.json().flatten_event(true).boxed(),
    };
    // Of two agents in one process, as in tests, the first is the one to tell how.
    drop(tracing_subscriber::registry().with(shown.with_filter(ours)).try_init());
}
