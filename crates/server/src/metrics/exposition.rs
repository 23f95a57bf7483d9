//! Prometheus' text format: families of samples, appended to one text.

use std::fmt::{Display, Write};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Counter,
    Gauge,
    /// A sum of seconds and a count, without quantiles.
    Summary,
    Histogram,
}

impl Kind {
    fn word(self) -> &'static str {
        match self {
            Self::Counter => "counter",
            Self::Gauge => "gauge",
            Self::Summary => "summary",
            Self::Histogram => "histogram",
        }
    }
}

/// The labels of a sample: names and values.
pub type Labels<'a> = &'a [(&'a str, &'a str)];

/// The text of one scrape.
#[derive(Default)]
pub struct Exposition {
    text: String,
}

impl Exposition {
    pub fn with_capacity(bytes: usize) -> Self {
        Self { text: String::with_capacity(bytes) }
    }

    /// Begins a family. The samples of a family follow one another.
    pub fn family<'a>(&'a mut self, name: &'a str, kind: Kind, help: &str) -> Family<'a> {
        for part in ["# HELP ", name, " ", help, "\n# TYPE ", name, " ", kind.word(), "\n"] {
            self.text.push_str(part);
        }
        Family { name, text: &mut self.text }
    }

    pub fn gauge<'a>(&'a mut self, name: &'a str, help: &str) -> Family<'a> {
        self.family(name, Kind::Gauge, help)
    }

    pub fn counter(&mut self, name: &'static str, help: &str) -> Family<'_> {
        self.family(name, Kind::Counter, help)
    }

    pub fn summary(&mut self, name: &'static str, help: &str) -> Family<'_> {
        self.family(name, Kind::Summary, help)
    }

    pub fn into_text(self) -> String {
        self.text
    }
}

pub struct Family<'a> {
    name: &'a str,
    text: &'a mut String,
}

impl Family<'_> {
    pub fn sample(&mut self, labels: Labels<'_>, value: impl Display) {
        self.write("", labels, value);
    }

    /// How often something was done, and how long all of it took.
    pub fn summed(&mut self, labels: Labels<'_>, count: u64, total_us: u64) {
        self.write("_sum", labels, seconds(total_us));
        self.write("_count", labels, count);
    }

    /// How many values are at most each bound and above the one before, how many there are in all, and their sum.
    pub fn distribution(
        &mut self,
        labels: Labels<'_>,
        buckets: impl Iterator<Item = (f64, u64)>,
        count: u64,
        sum: f64,
    ) {
        let mut below = 0;
        let mut bucket = |bound: &str, count: u64| {
            let labels: Vec<(&str, &str)> =
                std::iter::once(("le", bound)).chain(labels.iter().copied()).collect();
            self.write("_bucket", &labels, count);
        };
        for (bound, more) in buckets {
            below += more;
            bucket(&format!("{bound:?}"), below);
        }
        bucket("+Inf", count);
        self.write("_sum", labels, sum);
        self.write("_count", labels, count);
    }

    /// A sample whose labels were written out before, for families that have the same ones.
    pub fn sample_of(&mut self, labels: &WrittenLabels, value: impl Display) {
        self.text.push_str(self.name);
        self.text.push_str(&labels.0);
        let _ = writeln!(self.text, " {value}");
    }

    fn write(&mut self, suffix: &str, labels: Labels<'_>, value: impl Display) {
        self.text.push_str(self.name);
        self.text.push_str(suffix);
        push_labels(self.text, labels);
        // A String takes everything.
        let _ = writeln!(self.text, " {value}");
    }
}

/// Labels as a sample has them.
pub struct WrittenLabels(String);

impl WrittenLabels {
    pub fn of(labels: Labels<'_>) -> Self {
        let mut text = String::new();
        push_labels(&mut text, labels);
        Self(text)
    }
}

fn push_labels(text: &mut String, labels: Labels<'_>) {
    for (at, (name, value)) in labels.iter().enumerate() {
        text.push(if at == 0 { '{' } else { ',' });
        text.push_str(name);
        text.push_str("=\"");
        push_escaped(text, value);
        text.push('"');
    }
    if !labels.is_empty() {
        text.push('}');
    }
}

pub fn seconds(micros: u64) -> f64 {
    micros as f64 / 1e6
}

/// A label's value: backslash, quote and newline have escapes of the format.
fn push_escaped(text: &mut String, value: &str) {
    if !value.bytes().any(|byte| matches!(byte, b'\\' | b'"' | b'\n')) {
        return text.push_str(value);
    }
    for c in value.chars() {
        match c {
            '\\' => text.push_str("\\\\"),
            '"' => text.push_str("\\\""),
            '\n' => text.push_str("\\n"),
            c => text.push(c),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_have_the_form_of_prometheus() {
        let mut text = Exposition::default();
        let mut jobs = text.gauge("jobs", "Jobs by state.");
        jobs.sample(&[("state", "a\"b\\c\nd"), ("at", "x")], 3);
        jobs.sample(&[], 1.5);
        text.summary("plan_seconds", "Plans.").summed(&[], 2, 1_500_000);
        let buckets = [(1.0, 2), (2.5, 1)].into_iter();
        text.family("waits", Kind::Histogram, "Waits.").distribution(
            &[("of", "x")],
            buckets,
            4,
            7.5,
        );
        let expected = "# HELP jobs Jobs by state.\n# TYPE jobs gauge\n\
                        jobs{state=\"a\\\"b\\\\c\\nd\",at=\"x\"} 3\njobs 1.5\n\
                        # HELP plan_seconds Plans.\n# TYPE plan_seconds summary\n\
                        plan_seconds_sum 1.5\nplan_seconds_count 2\n\
                        # HELP waits Waits.\n# TYPE waits histogram\n\
                        waits_bucket{le=\"1.0\",of=\"x\"} 2\nwaits_bucket{le=\"2.5\",of=\"x\"} 3\n\
                        waits_bucket{le=\"+Inf\",of=\"x\"} 4\nwaits_sum{of=\"x\"} 7.5\n\
                        waits_count{of=\"x\"} 4\n";
        assert_eq!(text.into_text(), expected);
    }
}
