//! The table of measurements and their bounds.

use serde_json::json;

/// The bound of a measurement.
#[derive(Clone, Copy)]
pub enum Bound {
    /// At most this many times the reference.
    Times(f64),
    AtMost(f64),
    Exactly(f64),
    None,
}

struct Row {
    what: String,
    unit: &'static str,
    measured: f64,
    reference: Option<f64>,
    bound: Bound,
}

impl Row {
    fn ratio(&self) -> Option<f64> {
        self.reference.map(|reference| self.measured / reference)
    }

    fn passes(&self) -> Option<bool> {
        match self.bound {
            Bound::Times(most) => self.ratio().map(|ratio| ratio <= most),
            Bound::AtMost(most) => Some(self.measured <= most),
            Bound::Exactly(count) => Some((self.measured - count).abs() < 1e-9),
            Bound::None => None,
        }
    }
}

#[derive(Default)]
pub struct Table(Vec<Row>);

impl Table {
    pub fn row(
        &mut self,
        what: &str,
        unit: &'static str,
        measured: f64,
        reference: Option<f64>,
        bound: Bound,
    ) {
        self.0.push(Row { what: what.to_owned(), unit, measured, reference, bound });
        eprintln!("{what}: {measured:.3} {unit}");
    }

    /// Prints a table on the standard error, and JSON on the standard output.
    pub fn print(&self) {
        eprintln!(
            "\n{:<52} {:>12} {:>12} {:>7} {:>10}",
            "", "measured", "reference", "ratio", "at most"
        );
        for row in &self.0 {
            let number = |number: Option<f64>| {
                number.map_or_else(String::new, |number| format!("{number:.3}"))
            };
            let ratio = row.ratio().map_or_else(String::new, |ratio| format!("{ratio:.2}"));
            let bound = match row.bound {
                Bound::Times(most) => format!("{most:.2} ×"),
                Bound::AtMost(most) => format!("{most} {}", row.unit),
                Bound::Exactly(count) => format!("{count}"),
                Bound::None => String::new(),
            };
            let passes = row.passes().map_or("", |passes| if passes { "ok" } else { "too much" });
            let measured = format!("{} {}", number(Some(row.measured)), row.unit);
            eprintln!(
                "{:<52} {measured:>12} {:>12} {ratio:>7} {bound:>10} {passes}",
                row.what,
                number(row.reference)
            );
        }
        let rows = self.0.iter().map(|row| {
            json!({
                "what": row.what, "unit": row.unit, "measured": row.measured, "reference": row.reference,
                "ratio": row.ratio(), "passes": row.passes(),
            })
        });
        println!("{}", json!(rows.collect::<Vec<_>>()));
    }

    /// The wrong counts, each in a sentence. Without times, which differ from machine to machine.
    pub fn miscounts(&self) -> Vec<String> {
        let miscount = |row: &Row| match row.bound {
            Bound::Exactly(count) if row.passes() == Some(false) => {
                Some(format!("{}: {}, and must be {count}", row.what, row.measured))
            }
            _ => None,
        };
        self.0.iter().filter_map(miscount).collect()
    }

    pub fn len(&self) -> usize {
        self.0.len()
    }
}

pub fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}
