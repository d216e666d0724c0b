//! The fields of a span as JSON, each written straight into the text. A span is made for every
//! message, and most of them log nothing.

use std::fmt;

use lambda_runtime::tracing::subscriber::field::RecordFields;
use lambda_runtime::tracing::subscriber::fmt::FormattedFields;
use lambda_runtime::tracing::subscriber::fmt::format::{FormatFields, JsonFields, Writer};
use serde::Serialize;
use tracing::field::{Field, Visit};
use tracing::span;

/// Writes the same text as [`JsonFields`], which collects values in a map before.
pub(super) struct SpanFields;

impl<'w> FormatFields<'w> for SpanFields {
    fn format_fields<R: RecordFields>(&self, mut writer: Writer<'w>, fields: R) -> fmt::Result {
        let mut object = JsonObject::default();
        fields.record(&mut object);
        writer.write_str(&object.finish()?)
    }

    /// Adds fields to the text, since some become known later.
    fn add_fields(
        &self,
        current: &'w mut FormattedFields<Self>,
        fields: &span::Record<'_>,
    ) -> fmt::Result {
        let mut merged = FormattedFields::<JsonFields>::new(std::mem::take(&mut current.fields));
        let added = JsonFields::new().add_fields(&mut merged, fields);
        current.fields = merged.fields;
        added
    }
}

/// The text of a JSON object, without its last bracket.
struct JsonObject(Vec<u8>);

impl Default for JsonObject {
    fn default() -> Self {
        // The span of a message takes about 150 bytes.
        Self(Vec::with_capacity(192))
    }
}

impl JsonObject {
    fn member(&mut self, name: &str, value: &(impl Serialize + ?Sized)) {
        self.0.push(if self.0.is_empty() { b'{' } else { b',' });
        self.json(name);
        self.0.push(b':');
        self.json(value);
    }

    fn json(&mut self, value: &(impl Serialize + ?Sized)) {
        // A text, a number and a vector can always be written.
        let _ = serde_json::to_writer(&mut self.0, value);
    }

    fn finish(mut self) -> Result<String, fmt::Error> {
        if self.0.is_empty() {
            self.0.push(b'{');
        }
        self.0.push(b'}');
        String::from_utf8(self.0).map_err(|_| fmt::Error)
    }
}

macro_rules! members {
    ($($record:ident: $kind:ty),+) => {
        $(fn $record(&mut self, field: &Field, value: $kind) {
            self.member(field.name(), &value);
        })+
    };
}

impl Visit for JsonObject {
    members!(record_f64: f64, record_i64: i64, record_u64: u64, record_bool: bool);
    members!(record_str: &str, record_bytes: &[u8]);

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        let name = field.name();
        self.member(name.strip_prefix("r#").unwrap_or(name), &format!("{value:?}"));
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::sync::{Arc, Mutex};

    use lambda_runtime::tracing::dispatcher::{Dispatch, with_default};
    use lambda_runtime::tracing::subscriber::fmt;
    use serde_json::Value;

    use super::*;

    #[derive(Clone, Default)]
    struct Lines(Arc<Mutex<Vec<u8>>>);

    impl Write for Lines {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.lock().expect("no panic").write(bytes)
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    fn lines(log: &Lines) -> Vec<Value> {
        let log = log.0.lock().expect("no panic");
        let lines = log.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
        lines.map(|line| serde_json::from_slice(line).expect("JSON")).collect()
    }

    fn say() {
        use tracing::field::{Empty, debug};

        let none: Option<&str> = None;
        tracing::info_span!("none").in_scope(|| tracing::info!("1"));
        tracing::info_span!("absent", none).in_scope(|| tracing::info!("2"));
        let span = tracing::info_span!(
            "kinds",
            text = "quotes \" and\nlines, \u{1}, ü",
            r#type = ?("a", 1),
            r#move = 1,
            "a \"name\"" = %"shown",
            signed = -1_i64,
            unsigned = u64::MAX,
            wide = i128::MAX,
            fraction = 0.5,
            no_number = f64::NAN,
            flag = true,
            bytes = &b"bytes"[..],
            later = Empty,
        );
        span.in_scope(|| tracing::info!("3"));
        span.record("later", debug(Some("known")));
        span.in_scope(|| tracing::info!("4"));
        let later = tracing::info_span!("later", later = Empty);
        later.record("later", 5);
        later.in_scope(|| tracing::info!("5"));
    }

    #[test]
    fn spans_are_logged_as_by_the_library() {
        let (ours, theirs) = (Lines::default(), Lines::default());
        let writer = ours.clone();
        let json =
            fmt().json().without_time().with_writer(move || writer.clone()).fmt_fields(SpanFields);
        with_default(&Dispatch::new(json.finish()), say);
        let writer = theirs.clone();
        let json = fmt().json().without_time().with_writer(move || writer.clone());
        with_default(&Dispatch::new(json.finish()), say);
        assert_eq!(lines(&ours), lines(&theirs));
        assert_eq!(lines(&ours).len(), 5);
    }
}
