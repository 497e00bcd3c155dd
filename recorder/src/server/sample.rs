//! The body of `POST /sample`, as clients of Swift Profile Recorder send it.

use profile::Format;
use serde_json::{Map, Value};
use symbolize::Detail;

use super::order::{self, Delivery, Order};
use super::problem::Problem;
use super::sessions;
use crate::limits::{self, MAX_SAMPLES, MAX_SECONDS};
use crate::session::Request;
use profile::Mode;

/// A body that works, for those whose body does not.
pub(super) const EXAMPLE: &str = r#"{"numberOfSamples":100,"timeInterval":"10 ms"}"#;

/// What a body asks for. Unknown keys and `symbolizer` are ignored.
pub(super) fn order(body: &[u8]) -> Result<Order, Problem> {
    let body: Value = serde_json::from_slice(body)
        .map_err(|error| Problem::BadRequest(format!("the body is not JSON ({error}); send for example {EXAMPLE}")))?;
    let Value::Object(body) = body else {
        return Err(Problem::BadRequest(format!("the body is not a JSON object; send for example {EXAMPLE}")));
    };
    let samples = samples(required(&body, "numberOfSamples")?)?;
    let nanos = time_interval(required(&body, "timeInterval")?)?;
    let seconds = samples as f64 * nanos / 1e9;
    if seconds > MAX_SECONDS {
        return Err(Problem::BadRequest(format!(
            "\"numberOfSamples\" times \"timeInterval\" is {seconds} s: at most {MAX_SECONDS} s is allowed"
        )));
    }
    let mode = optional(&body, "mode", order::mode)?.unwrap_or(Mode::Wall);
    Ok(Order {
        request: Request { mode, hz: limits::hz_of_time_interval(nanos), seconds: Some(seconds), interval: None },
        empty: None,
        debug: None,
        format: optional(&body, "format", order::format)?.unwrap_or(Format::Perf),
        detail: optional(&body, "symbols", order::detail)?.unwrap_or(Detail::Full),
        thread: optional(&body, "thread", |_, glob| Ok(profile::Glob::new(glob)))?,
        delivery: Delivery::Samples,
        session: optional(&body, "session", sessions::Name::of)?,
    })
}

fn required<'a>(body: &'a Map<String, Value>, name: &str) -> Result<&'a Value, Problem> {
    body.get(name)
        .filter(|value| !value.is_null())
        .ok_or_else(|| Problem::BadRequest(format!("{name:?} is missing; send for example {EXAMPLE}")))
}

fn optional<T>(
    body: &Map<String, Value>,
    name: &str,
    parse: impl FnOnce(&str, &str) -> Result<T, Problem>,
) -> Result<Option<T>, Problem> {
    match body.get(name) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(text)) => parse(name, text).map(Some),
        Some(other) => Err(Problem::parameter(name, &other.to_string(), "a string")),
    }
}

fn samples(value: &Value) -> Result<u64, Problem> {
    value
        .as_u64()
        .filter(|samples| (1..=MAX_SAMPLES).contains(samples))
        .ok_or_else(|| Problem::parameter("numberOfSamples", &value.to_string(), "a whole number from 1 to 1000000"))
}

/// A text with a unit, or a plain number of milliseconds.
fn time_interval(value: &Value) -> Result<f64, Problem> {
    let text = match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    };
    limits::time_interval(&text).map_err(|allowed| Problem::parameter("timeInterval", &text, allowed.0))
}

#[cfg(test)]
mod tests;
