//! Times and sizes in the file: numbers (seconds, bytes), or texts with a unit; and modes, by their names.

use profile::Mode;
use serde::{Deserialize, Deserializer, de::Error};
use std::time::Duration;

#[derive(Deserialize)]
#[serde(untagged)]
enum Written {
    Whole(u64),
    Decimal(f64),
    Text(String),
}

fn seconds<E: Error>(written: Written) -> Result<Duration, E> {
    let wrong = |what: String| E::custom(format!("{what} is no time: write seconds, or '90s', '5min', '7days'"));
    match written {
        Written::Whole(seconds) => Ok(Duration::from_secs(seconds)),
        Written::Decimal(seconds) => Duration::try_from_secs_f64(seconds).map_err(|_| wrong(seconds.to_string())),
        Written::Text(text) => humantime::parse_duration(&text).map_err(|_| wrong(format!("'{text}'"))),
    }
}

fn size<E: Error>(written: Written) -> Result<u64, E> {
    match written {
        Written::Whole(bytes) => Ok(bytes),
        Written::Decimal(bytes) => Err(E::custom(format!("{bytes} is no number of bytes"))),
        Written::Text(text) => parse_size(&text).map_err(|why| E::custom(format!("'{text}': {why}"))),
    }
}

pub(super) fn duration<'de, D: Deserializer<'de>>(from: D) -> Result<Duration, D::Error> {
    seconds(Written::deserialize(from)?)
}

pub(super) fn some_duration<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Duration>, D::Error> {
    duration(from).map(Some)
}

pub(super) fn bytes<'de, D: Deserializer<'de>>(from: D) -> Result<u64, D::Error> {
    size(Written::deserialize(from)?)
}

pub(super) fn some_bytes<'de, D: Deserializer<'de>>(from: D) -> Result<Option<u64>, D::Error> {
    bytes(from).map(Some)
}

/// A number of bytes, as people write them.
///
/// # Errors
/// If it is none from 1 to 1 TiB.
pub fn parse_size(text: &str) -> Result<u64, String> {
    profile::parse_bytes(text).map(u64::from).ok_or_else(|| format!("it must be {}", profile::BYTES_ALLOWED))
}

/// A mode of which there is a profile for each cycle.
///
/// # Errors
/// If none has that name.
pub fn parse_mode(name: &str) -> Result<Mode, String> {
    let mut recorded = Mode::ALL.into_iter().filter(|mode| *mode != Mode::Threads);
    let names = || recorded.clone().map(Mode::name).collect::<Vec<_>>().join(", ");
    let unknown = format!("no mode is named '{name}'; there are {}", names());
    recorded.find(|mode| mode.name() == name).ok_or(unknown)
}

pub(super) fn modes<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<Mode>, D::Error> {
    let names: Vec<String> = Vec::deserialize(from)?;
    names.iter().map(|name| parse_mode(name).map_err(D::Error::custom)).collect()
}

pub(super) fn some_modes<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Vec<Mode>>, D::Error> {
    modes(from).map(Some)
}
