//! Samples, their values and labels.

use crate::{StackId, ThreadId};
use smallvec::SmallVec;
use std::borrow::Cow;
use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

/// [`Values`], written as with `vec!`.
pub use smallvec::smallvec as values;

/// What a column of values holds.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SampleType {
    /// What is measured: `cpu`, `alloc_space`.
    pub kind: Cow<'static, str>,
    /// What one unit of it is: `nanoseconds`, `bytes`, `count`.
    pub unit: Cow<'static, str>,
}

impl SampleType {
    /// A sample type with a fixed name.
    pub const fn new(kind: &'static str, unit: &'static str) -> Self {
        Self { kind: Cow::Borrowed(kind), unit: Cow::Borrowed(unit) }
    }

    /// Whether this counts allocations or their bytes.
    pub fn is_memory(&self) -> bool {
        ["alloc_", "inuse_", "temporary_"].iter().any(|prefix| self.kind.starts_with(prefix))
    }
}

/// The values of a sample. Most have two at most, which lie in the sample: a million samples are read and written without a million small allocations.
pub type Values = SmallVec<[i64; 2]>;

/// What was observed on one stack of one thread, under one set of labels.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sample {
    /// The stack.
    pub stack: StackId,
    /// The thread; `None` for what belongs to no known thread.
    pub thread: Option<ThreadId>,
    /// Further attributes.
    pub labels: Labels,
    /// One value for each of the profile's sample types; what the sample stands for, after unsampling.
    pub values: Values,
}

/// The attributes of a sample. Samples with the same ones can share them: a million of them have few sets, and a copy is as large as a pointer.
#[derive(Clone, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Labels(Option<Arc<Vec<Label>>>);

impl Labels {
    /// None.
    pub const fn new() -> Self {
        Self(None)
    }

    /// Changes them; of those that are shared a copy.
    pub fn change(&mut self, change: impl FnOnce(&mut Vec<Label>)) {
        let mut labels = self.0.take().map_or_else(Vec::new, Arc::unwrap_or_clone);
        change(&mut labels);
        *self = labels.into();
    }
}

impl From<Vec<Label>> for Labels {
    fn from(labels: Vec<Label>) -> Self {
        // No labels are one value, so that what is equal compares so.
        Self((!labels.is_empty()).then(|| Arc::new(labels)))
    }
}

impl FromIterator<Label> for Labels {
    fn from_iter<I: IntoIterator<Item = Label>>(labels: I) -> Self {
        labels.into_iter().collect::<Vec<_>>().into()
    }
}

impl Deref for Labels {
    type Target = [Label];

    fn deref(&self) -> &[Label] {
        self.0.as_deref().map_or(&[], |labels| labels)
    }
}

impl<'a> IntoIterator for &'a Labels {
    type Item = &'a Label;
    type IntoIter = std::slice::Iter<'a, Label>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

impl fmt::Debug for Labels {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

/// An attribute of a sample.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Label {
    /// Its name.
    pub key: Cow<'static, str>,
    /// Its value.
    pub value: LabelValue,
}

impl Label {
    /// A label that holds a text.
    pub fn text(key: impl Into<Cow<'static, str>>, value: impl Into<String>) -> Self {
        Self { key: key.into(), value: LabelValue::Text(value.into()) }
    }

    /// A label that holds a number without a unit.
    pub fn number(key: impl Into<Cow<'static, str>>, value: i64) -> Self {
        Self { key: key.into(), value: LabelValue::Number { value, unit: None } }
    }
}

/// Value of a [`Label`].
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum LabelValue {
    /// A text.
    Text(String),
    /// A number.
    Number {
        /// The number.
        value: i64,
        /// What one of it is, if stated.
        unit: Option<String>,
    },
}

/// A single time-stamped observation. Events repeat what the samples already hold: they are never added to them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Event {
    /// When, in nanoseconds since 1970.
    pub unix_ns: i64,
    /// Who.
    pub thread: ThreadId,
    /// Where.
    pub stack: StackId,
    /// What it stands for, in the unit of the profile's last sample type.
    pub weight: i64,
}
