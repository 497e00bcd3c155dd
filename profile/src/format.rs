//! The formats by name.

use crate::encode::{self, Options};
use crate::{Profile, Symbols};
use std::fmt;
use std::io::{self, Write};
use std::path::Path;

/// A file format that profiles can be written in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Format {
    /// Gzipped pprof.
    Pprof,
    /// A line a stack, as flame graph tools read.
    Collapsed,
    /// The text that `perf script` prints.
    Perf,
    /// A flame graph.
    Svg,
    /// A page with flame graphs and a table.
    Html,
    /// JSON for scripts.
    Json,
    /// Firefox Profiler's processed profile.
    Firefox,
    /// speedscope's JSON.
    Speedscope,
    /// gProfiler's collapsed stacks.
    Col,
    /// Our own format, which keeps everything.
    Raw,
}

/// A name or extension that is none of a format that can be written; its text lists those that can.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownFormat {
    what: String,
    known: &'static [&'static str],
}

impl fmt::Display for UnknownFormat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, known are {}", self.what, self.known.join(", "))
    }
}

impl std::error::Error for UnknownFormat {}

impl Format {
    /// Every format.
    pub const ALL: [Self; 10] = [
        Self::Pprof,
        Self::Collapsed,
        Self::Perf,
        Self::Svg,
        Self::Html,
        Self::Json,
        Self::Firefox,
        Self::Speedscope,
        Self::Col,
        Self::Raw,
    ];
    /// The file name endings that [`Format::from_path`] knows.
    pub const EXTENSIONS: &[&str] = &[
        ".svg",
        ".html",
        ".pb.gz",
        ".pprof",
        ".perf",
        ".folded",
        ".collapsed",
        ".col",
        ".json",
        ".firefox.json",
        ".speedscope.json",
        ".profrec",
    ];
    /// The names that [`Format::from_name`] knows.
    pub const NAMES: &[&str] = &[
        "pprof",
        "perf",
        "collapsed",
        "svg",
        "html",
        "json",
        "firefox",
        "speedscope",
        "col",
        "raw",
        "pprofSymbolized",
        "perfSymbolized",
        "flamegraphCollapsedSymbolized",
    ];

    /// The format that a file name's ending asks for.
    pub fn from_path(path: &Path) -> Result<Self, UnknownFormat> {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let known = Self::EXTENSIONS.iter().filter(|extension| name.ends_with(**extension));
        // `.speedscope.json` ends like `.json`.
        known
            .max_by_key(|extension| extension.len())
            .and_then(|extension| {
                Some(match *extension {
                    ".svg" => Self::Svg,
                    ".html" => Self::Html,
                    ".pb.gz" | ".pprof" => Self::Pprof,
                    ".perf" => Self::Perf,
                    ".folded" | ".collapsed" => Self::Collapsed,
                    ".col" => Self::Col,
                    ".json" => Self::Json,
                    ".firefox.json" => Self::Firefox,
                    ".speedscope.json" => Self::Speedscope,
                    ".profrec" => Self::Raw,
                    _ => return None,
                })
            })
            .ok_or_else(|| UnknownFormat {
                what: format!("no format is known by the file name '{}'", path.display()),
                known: Self::EXTENSIONS,
            })
    }

    /// The format with this name, as requests spell it.
    pub fn from_name(name: &str) -> Result<Self, UnknownFormat> {
        Ok(match name {
            "pprof" | "pprofSymbolized" => Self::Pprof,
            "perf" | "perfSymbolized" => Self::Perf,
            "collapsed" | "flamegraphCollapsedSymbolized" => Self::Collapsed,
            "svg" => Self::Svg,
            "html" => Self::Html,
            "json" => Self::Json,
            "firefox" => Self::Firefox,
            "speedscope" => Self::Speedscope,
            "col" => Self::Col,
            "raw" => Self::Raw,
            _ => return Err(UnknownFormat { what: format!("no format is named '{name}'"), known: Self::NAMES }),
        })
    }

    /// The name of the format.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Pprof => "pprof",
            Self::Collapsed => "collapsed",
            Self::Perf => "perf",
            Self::Svg => "svg",
            Self::Html => "html",
            Self::Json => "json",
            Self::Firefox => "firefox",
            Self::Speedscope => "speedscope",
            Self::Col => "col",
            Self::Raw => "raw",
        }
    }

    /// The usual file name ending, with its dot.
    pub const fn extension(self) -> &'static str {
        match self {
            Self::Pprof => ".pb.gz",
            Self::Collapsed => ".collapsed",
            Self::Perf => ".perf",
            Self::Svg => ".svg",
            Self::Html => ".html",
            Self::Json => ".json",
            Self::Firefox => ".firefox.json",
            Self::Speedscope => ".speedscope.json",
            Self::Col => ".col",
            Self::Raw => ".profrec",
        }
    }

    /// The media type, as an HTTP answer states it.
    pub const fn content_type(self) -> &'static str {
        match self {
            Self::Pprof | Self::Raw => "application/octet-stream",
            Self::Collapsed | Self::Perf | Self::Col => "text/plain; charset=utf-8",
            Self::Svg => "image/svg+xml",
            Self::Html => "text/html; charset=utf-8",
            Self::Json | Self::Firefox | Self::Speedscope => "application/json",
        }
    }

    /// Writes a profile in this format.
    pub fn encode(
        self,
        profile: &Profile,
        symbols: &Symbols,
        options: &Options,
        out: &mut dyn Write,
    ) -> io::Result<()> {
        match self {
            Self::Pprof => encode::pprof::encode(profile, symbols, options, out),
            Self::Collapsed => encode::collapsed::encode(profile, symbols, options, out),
            Self::Perf => encode::perf::encode(profile, symbols, options, out),
            Self::Svg => encode::svg::encode(profile, symbols, options, out),
            Self::Html => encode::html::encode(profile, symbols, options, out),
            Self::Json => encode::json::encode(profile, symbols, options, out),
            Self::Firefox => encode::firefox::encode(profile, symbols, options, out),
            Self::Speedscope => encode::speedscope::encode(profile, symbols, options, out),
            Self::Col => encode::col::encode(profile, symbols, options, out),
            Self::Raw => encode::raw::encode(profile, symbols, options, out),
        }
    }
}

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_ending_decides() {
        assert_eq!(Format::from_path(Path::new("/a.b/x.pb.gz")), Ok(Format::Pprof));
        assert_eq!(Format::from_path(Path::new("x.folded")), Ok(Format::Collapsed));
        assert_eq!(Format::from_path(Path::new("x.json")), Ok(Format::Json));
        assert_eq!(Format::from_path(Path::new("x.speedscope.json")), Ok(Format::Speedscope));
        for unknown in ["x", "svg", "x.SVG.gz", ""] {
            let error = Format::from_path(Path::new(unknown)).unwrap_err().to_string();
            assert!(error.contains(".folded"), "{error}");
        }
    }

    #[test]
    fn every_name_and_every_extension_leads_to_a_format() {
        for name in Format::NAMES {
            Format::from_name(name).unwrap();
        }
        for extension in Format::EXTENSIONS {
            Format::from_path(Path::new(&format!("profile{extension}"))).unwrap();
        }
        for format in Format::ALL {
            assert_eq!(Format::from_name(format.name()), Ok(format));
            assert_eq!(Format::from_path(Path::new(&format!("x{}", format.extension()))), Ok(format));
        }
        assert!(Format::from_name("flamescope").unwrap_err().to_string().contains("pprof, perf"));
    }
}
