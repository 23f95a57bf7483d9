//! `--nodes`: one number, a range, or a list of acceptable numbers.

use crate::option::error::OptionError;
use crate::words::refusal;
use model::range::Range;

type Result<T> = std::result::Result<T, OptionError>;

/// `--nodes=min[-max]`, with `k` and `m` for 1024 and 1024².
fn node_count(text: &str) -> Result<Range<u32>> {
    let count = |text: &str| {
        let (digits, factor) = match text.trim().char_indices().next_back() {
            Some((at, 'k' | 'K')) => (&text.trim()[..at], 1 << 10),
            Some((at, 'm' | 'M')) => (&text.trim()[..at], 1 << 20),
            _ => (text.trim(), 1),
        };
        digits
            .strip_prefix('+')
            .unwrap_or(digits)
            .parse::<u32>()
            .ok()
            .and_then(|number| number.checked_mul(factor))
            .ok_or_else(|| OptionError::value(format!("\"{text}\" is not a valid node count")))
    };
    let (min, max) = match text.split_once('-') {
        // `-4` asks for up to four.
        Some(("", max)) => (1, count(max)?),
        Some((min, max)) => (count(min)?, count(max)?),
        None => (count(text)?, count(text)?),
    };
    if min == 0 {
        return Err(OptionError::Refused(refusal::INVALID_NODE_COUNT.text));
    }
    if max < min {
        let words = format!("Maximum node count {max} is less than minimum node count {min}");
        return Err(OptionError::value(words));
    }
    Ok(Range::between(min, max))
}

/// The most numbers that a list may have.
const NODE_COUNTS_MAX: usize = 4_096;

/// `--nodes`: a range with an empty list, or a list such as `1,2,4` or `2-8:2` with its bounds as range.
pub fn node_counts(text: &str) -> Result<(Range<u32>, Vec<u32>)> {
    if !text.contains([',', ':']) {
        return node_count(text).map(|range| (range, Vec::new()));
    }
    let refused = || OptionError::value(format!("\"{text}\" is not a valid node count"));
    let mut counts = Vec::new();
    for part in text.split(',') {
        let (range, step) = part.split_once(':').unwrap_or((part, "1"));
        let step: usize = step.parse().ok().filter(|step| *step > 0).ok_or_else(refused)?;
        let range = node_count(range)?;
        let more = (range.min..=range.max.unwrap_or(range.min)).step_by(step);
        counts.extend(more.take(NODE_COUNTS_MAX + 1));
        if counts.len() > NODE_COUNTS_MAX {
            return Err(refused());
        }
    }
    counts.sort_unstable();
    counts.dedup();
    match (counts.first(), counts.last()) {
        (Some(&min), Some(&max)) => Ok((Range::between(min, max), counts)),
        _ => Err(refused()),
    }
}
