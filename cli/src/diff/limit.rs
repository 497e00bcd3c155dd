//! How much more of a metric is allowed: `allocs=+0`, `bytes=+4KiB`, `allocs=+2%|+10`, `allocs=1000`.

use super::metric;
use profile::parse_bytes;
use std::fmt;
use std::str::FromStr;

/// A limit on one metric.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Limit {
    /// The metric.
    pub(crate) metric: String,
    /// Any of these allows.
    bounds: Vec<Bound>,
    typed: String,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Bound {
    /// So much more than the base.
    More(i64),
    /// So many hundredths of the base more.
    Percent(f64),
    /// At most this.
    Most(i64),
}

impl Limit {
    /// The largest value that is allowed, given the base's.
    pub(crate) fn most(&self, base: i64) -> i64 {
        let of = |bound: &Bound| match bound {
            Bound::More(more) => base.saturating_add(*more),
            // Half a percent of 100 allows nothing: a limit is not rounded up.
            Bound::Percent(percent) => base.saturating_add((base as f64 * percent / 100.0).floor() as i64),
            Bound::Most(most) => *most,
        };
        self.bounds.iter().map(of).max().unwrap_or(base)
    }

    /// Whether it needs a base to compare with.
    pub(crate) fn needs_base(&self) -> bool {
        self.bounds.iter().any(|bound| !matches!(bound, Bound::Most(_)))
    }
}

impl fmt::Display for Limit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.typed)
    }
}

impl FromStr for Limit {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || {
            "it must be like allocs=+0, allocs=+2%, bytes=+4KiB, 'allocs=+2%|+10' (either) or allocs=1000".to_owned()
        };
        let (metric, bounds) = text.split_once('=').ok_or_else(wrong)?;
        if metric.trim().is_empty() {
            return Err(wrong());
        }
        let bounds = bounds.split('|').map(|bound| Bound::parse(bound.trim()).ok_or_else(wrong));
        Ok(Self {
            metric: metric::canonical(metric),
            bounds: bounds.collect::<Result<_, _>>()?,
            typed: text.trim().to_owned(),
        })
    }
}

impl Bound {
    fn parse(text: &str) -> Option<Self> {
        let Some(more) = text.strip_prefix('+') else { return number(text).map(Self::Most) };
        match more.strip_suffix('%') {
            Some(percent) => {
                let is_plain = percent.bytes().all(|b| b.is_ascii_digit() || b == b'.');
                percent.parse().ok().filter(|p: &f64| is_plain && p.is_finite()).map(Self::Percent)
            }
            None => number(more).map(Self::More),
        }
    }
}

fn number(text: &str) -> Option<i64> {
    if text.bytes().all(|b| b.is_ascii_digit()) {
        return text.parse().ok();
    }
    parse_bytes(text).and_then(|bytes| i64::try_from(bytes.get()).ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_of_the_bounds_allows() {
        for (limit, base, most) in [
            ("allocs=+0", 1000, 1000),
            ("allocs=+2%", 1000, 1020),
            ("allocs=+0.5%", 100, 100),
            ("allocs=+2%|+10", 100, 110),
            ("allocs=+2% | +10", 1000, 1020),
            ("bytes=+4KiB", 10, 4106),
            ("allocs=1000", 7, 1000),
            ("alloc_space=+1", i64::MAX, i64::MAX),
        ] {
            assert_eq!(limit.parse::<Limit>().unwrap().most(base), most, "{limit}");
        }
        assert_eq!("alloc_space=+1".parse::<Limit>().unwrap().metric, "bytes");
        assert!(!"allocs=1000".parse::<Limit>().unwrap().needs_base());
    }

    #[test]
    fn what_is_no_limit_is_refused_with_examples() {
        for text in [
            "",
            "allocs",
            "allocs=",
            "=+1",
            "allocs=-5",
            "allocs=+",
            "allocs=+%",
            "allocs=+1x",
            "allocs=+1%|",
            "allocs=+inf%",
            "allocs=+-1%",
        ] {
            assert!(text.parse::<Limit>().unwrap_err().contains("allocs=+2%"), "{text}");
        }
    }
}
