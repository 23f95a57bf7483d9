//! One record of `scontrol show`: lines that begin with three spaces, or all on one line.

use model::printable::printable;

/// A record being written. An empty line ends it, unless it is on one line.
pub struct RecordWriter<'a> {
    out: &'a mut String,
    oneliner: bool,
    begun: bool,
}

impl<'a> RecordWriter<'a> {
    pub fn new(out: &'a mut String, oneliner: bool) -> Self {
        Self { out, oneliner, begun: false }
    }

    pub fn line(&mut self, text: impl AsRef<str>) {
        self.put("\n   ", text.as_ref());
    }

    /// A line that belongs to the one before.
    pub fn detail(&mut self, text: impl AsRef<str>) {
        self.put("\n     ", text.as_ref());
    }

    fn put(&mut self, lead: &str, text: &str) {
        if self.begun {
            self.out.push_str(if self.oneliner { " " } else { lead });
        }
        self.begun = true;
        self.out.push_str(&printable(text));
    }

    pub fn end(self) {
        self.out.push_str(if self.oneliner { "\n" } else { "\n\n" });
    }
}
