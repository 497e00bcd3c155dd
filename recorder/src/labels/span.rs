//! A layer for `tracing`: what a thread does inside a span is labelled with it.

use super::{LabelGuard, enter};
use std::cell::RefCell;
use std::fmt::{self, Write as _};
use tracing_core::field::{Field, Visit};
use tracing_core::span::{Attributes, Id, Record};
use tracing_core::{Metadata, Subscriber};
use tracing_subscriber::layer::{Context, Layer};
use tracing_subscriber::registry::LookupSpan;

/// Puts threads under the label `span` = the span's name while they are inside it, and under a label for each field that was asked for.
///
/// Instrumented futures enter their span whenever they are polled, so the labels follow tasks from thread to thread.
///
/// ```
/// use profile_recorder::labels::SpanLayer;
/// use tracing_subscriber::layer::SubscriberExt;
/// let subscriber = tracing_subscriber::registry().with(SpanLayer::new().field("route"));
/// ```
///
/// Names and values should recur: see the limits of [labels](crate::labels).
#[derive(Clone, Debug, Default)]
pub struct SpanLayer {
    fields: Vec<&'static str>,
}

impl SpanLayer {
    /// Labels with the names of spans alone.
    pub fn new() -> Self {
        Self::default()
    }

    /// Labels with this field of spans as well, where they have it when they are entered.
    #[must_use]
    pub fn field(mut self, name: &'static str) -> Self {
        self.fields.push(name);
        self
    }

    fn reads(&self, metadata: &Metadata<'_>) -> bool {
        self.fields.iter().any(|name| metadata.fields().field(name).is_some())
    }
}

/// Values of the fields that were asked for.
#[derive(Debug, Default)]
struct Values(Vec<(&'static str, String)>);

struct Reader<'a> {
    wanted: &'a [&'static str],
    values: &'a mut Values,
}

impl Reader<'_> {
    fn keep(&mut self, field: &Field, value: &dyn fmt::Display) {
        let Some(name) = self.wanted.iter().find(|name| **name == field.name()) else { return };
        let mut text = String::new();
        // A `Display` that fails has said what it could.
        let _ = write!(text, "{value}");
        match self.values.0.iter_mut().find(|(known, _)| known == name) {
            Some((_, known)) => *known = text,
            None => self.values.0.push((name, text)),
        }
    }
}

impl Visit for Reader<'_> {
    fn record_str(&mut self, field: &Field, value: &str) {
        self.keep(field, &value);
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.keep(field, &format_args!("{value:?}"));
    }
}

thread_local! {
    /// Labels of the spans that the thread is in, with the span's id.
    static ENTERED: RefCell<Vec<(u64, Vec<LabelGuard>)>> = const { RefCell::new(Vec::new()) };
}

impl<S: Subscriber + for<'a> LookupSpan<'a>> Layer<S> for SpanLayer {
    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, context: Context<'_, S>) {
        if !self.reads(attributes.metadata()) {
            return;
        }
        if let Some(span) = context.span(id) {
            let mut values = Values::default();
            attributes.record(&mut Reader { wanted: &self.fields, values: &mut values });
            span.extensions_mut().insert(values);
        }
    }

    fn on_record(&self, id: &Id, record: &Record<'_>, context: Context<'_, S>) {
        if let Some(span) = context.span(id)
            && let Some(values) = span.extensions_mut().get_mut::<Values>()
        {
            record.record(&mut Reader { wanted: &self.fields, values });
        }
    }

    fn on_enter(&self, id: &Id, context: Context<'_, S>) {
        let Some(span) = context.span(id) else { return };
        let mut guards = vec![enter("span", span.name())];
        if let Some(values) = span.extensions().get::<Values>() {
            guards.extend(values.0.iter().map(|(name, value)| enter(name, value)));
        }
        // A thread that ends has no variables any more; its labels end with it.
        let _ = ENTERED.try_with(|entered| entered.borrow_mut().push((id.into_u64(), guards)));
    }

    fn on_exit(&self, id: &Id, _context: Context<'_, S>) {
        let left = ENTERED.try_with(|entered| {
            let mut entered = entered.borrow_mut();
            let position = entered.iter().rposition(|(entered, _)| *entered == id.into_u64())?;
            Some(entered.remove(position))
        });
        // The inner labels go first.
        if let Ok(Some((_, mut guards))) = left {
            while guards.pop().is_some() {}
        }
    }
}
