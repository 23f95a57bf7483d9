//! How busy Gaudi cards are and how much of their memory is used, as the vendor's tool `hl-smi` says: the driver's files do
//! not.

use crate::detect::gpu::vendor_tool;
use model::amount::Bytes;
use model::gpu_health::GpuReading;
use std::path::{Path, PathBuf};
use std::time::Duration;

const PLACES: [&str; 2] = ["usr/bin/hl-smi", "usr/local/bin/hl-smi"];
const ARGUMENTS: [&str; 4] =
    ["-Q", "bus_id,utilization.aip,memory.used,memory.total", "-f", "csv,noheader,nounits"];
const TIMEOUT: Duration = Duration::from_secs(5);
/// The tool is asked in one of this many rounds, since it takes as long as all else together: every half minute.
const ROUNDS: u32 = 6;

pub(super) struct GaudiTool {
    /// `None` once it has failed: it is not asked again.
    tool: Option<PathBuf>,
    round: u32,
    cards: Vec<CardUse>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct CardUse {
    /// `0000:4d:00.0`
    pci: String,
    busy_percent: u64,
    memory_used: Bytes,
    memory: Bytes,
}

impl GaudiTool {
    pub fn find(root: &Path) -> GaudiTool {
        GaudiTool { tool: vendor_tool::find(root, &PLACES), round: 0, cards: Vec::new() }
    }

    /// Adds what the tool says of a card to its reading.
    pub fn add_to(&self, reading: &mut GpuReading) {
        if let Some(card) = self.cards.iter().find(|card| card.pci == reading.pci) {
            reading.busy_percent = Some(card.busy_percent);
            reading.memory_used = card.memory_used;
            reading.memory = card.memory;
        }
    }

    /// Asks the tool if it is time to; called once a round.
    pub fn refresh(&mut self) {
        let is_due = self.round == 0;
        self.round = (self.round + 1) % ROUNDS;
        let Some(tool) = self.tool.as_deref().filter(|_| is_due) else { return };
        match vendor_tool::output(tool, &ARGUMENTS, TIMEOUT) {
            Some(text) => self.cards = text.lines().filter_map(CardUse::parse).collect(),
            None => (self.tool, self.cards) = (None, Vec::new()),
        }
    }
}

impl CardUse {
    /// A line of the tool: the PCI address, percents, and amounts in MiB.
    fn parse(line: &str) -> Option<CardUse> {
        let mut fields = line.split(',').map(str::trim);
        let pci = fields.next().filter(|pci| !pci.is_empty())?.to_ascii_lowercase();
        let mut number = || fields.next()?.parse::<u64>().ok();
        let (busy, used, total) = (number()?, number()?, number()?);
        let bytes = |mib: u64| mib.checked_mul(1 << 20).map(Bytes);
        Some(CardUse {
            pci,
            busy_percent: busy.min(100),
            memory_used: bytes(used)?,
            memory: bytes(total)?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn line_of_the_tool_is_a_cards_use_or_nothing() {
        let card = CardUse {
            pci: "0000:4d:00.0".into(),
            busy_percent: 37,
            memory_used: Bytes(768 << 20),
            memory: Bytes::from_gib(96),
        };
        assert_eq!(CardUse::parse("0000:4D:00.0, 37, 768, 98304"), Some(card.clone()));
        let over = CardUse { busy_percent: 100, ..card };
        assert_eq!(CardUse::parse("0000:4d:00.0,400,768,98304"), Some(over));
        for none in ["", "0000:4d:00.0, N/A, 768, 98304", "0000:4d:00.0, 1, 2", ", 1, 2, 3"] {
            assert_eq!(CardUse::parse(none), None, "{none}");
        }
        let huge = format!("x, 1, {}, 2", u64::MAX);
        assert_eq!(CardUse::parse(&huge), None);
    }
}
