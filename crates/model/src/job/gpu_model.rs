//! Models of GPUs: whether the kind of a node's devices names one, and how much memory it has as its maker counts it.

use crate::amount::{Bytes, GIB};

/// The sizes of memory, in gigabytes, that a model is sold with.
const SOLD_GB: &[(&str, &[u64])] = &[
    ("A10", &[24]),
    ("A100", &[40, 80]),
    ("A10G", &[24]),
    ("A16", &[16]),
    ("A2", &[16]),
    ("A30", &[24]),
    ("A40", &[48]),
    ("A4000", &[16]),
    ("A5000", &[24]),
    ("A6000", &[48]),
    ("B200", &[180, 192]),
    ("B300", &[288]),
    ("GH200", &[96, 144]),
    ("H100", &[80, 94]),
    ("H20", &[96, 141]),
    ("H200", &[141]),
    ("H800", &[80]),
    ("L4", &[24]),
    ("L40", &[48]),
    ("L40S", &[48]),
    ("MI100", &[32]),
    ("MI210", &[64]),
    ("MI250X", &[128]),
    ("MI300A", &[128]),
    ("MI300X", &[192]),
    ("MI325X", &[256]),
    ("MI355X", &[288]),
    ("P100", &[12, 16]),
    ("RTX3090", &[24]),
    ("RTX4090", &[24]),
    ("RTX5090", &[32]),
    ("T4", &[16]),
    ("V100", &[16, 32]),
];

/// How far from its maker's number the measured memory may be, in percent: a driver keeps a part, and counts in other units.
const MEASURED_PERCENT: u64 = 7;

/// Whether a kind such as `nvidia_h100_80gb_hbm3` or `a100` is of this model. The model is one word of it, or several
/// that follow one another: `RTX4090` in `nvidia_geforce_rtx_4090`. A slice of a GPU (`a100_1g.5gb`) is not the GPU.
pub fn is_model(kind: &str, model: &str) -> bool {
    !is_slice(kind) && contains(kind, model)
}

/// The sizes that devices of this kind may have, of which one is theirs: what was measured, as its maker counts it, or
/// what the kind says (`a100-80gb`), or those that the model is sold with. Empty if nobody knows.
pub fn memory_sizes(kind: &str, measured: Option<Bytes>) -> impl Iterator<Item = Bytes> {
    let row = SOLD_GB.iter().filter(|_| !is_slice(kind)).find(|(model, _)| contains(kind, model));
    let sold = row.map_or(&[][..], |(_, sizes)| *sizes);
    let known = match measured {
        Some(Bytes(measured)) => {
            let is_near = |size: &u64| measured.abs_diff(*size) <= size / 100 * MEASURED_PERCENT;
            let of_maker = sold.iter().map(|size| size * GIB).filter(is_near);
            let of_maker = of_maker.min_by_key(|size| measured.abs_diff(*size));
            Some(of_maker.unwrap_or(measured.div_ceil(GIB) * GIB))
        }
        None => words(kind).find_map(said_size),
    };
    let sold = if known.is_some() { &[][..] } else { sold };
    known.into_iter().chain(sold.iter().map(|size| size * GIB)).map(Bytes)
}

/// The size that a word such as `80gb` says.
fn said_size(word: &str) -> Option<u64> {
    let (size, unit) = word.split_at_checked(word.len().checked_sub(2)?)?;
    let size: u64 = size.parse().ok().filter(|_| unit.eq_ignore_ascii_case("gb"))?;
    Some(size.saturating_mul(GIB))
}

/// Whether the kind is that of a slice: `mig`, or a profile such as `1g`.
fn is_slice(kind: &str) -> bool {
    let is_profile = |word: &str| {
        word.strip_suffix(['g', 'G']).is_some_and(|slices| slices.parse::<u32>().is_ok())
    };
    words(kind).any(|word| word.eq_ignore_ascii_case("mig") || is_profile(word))
}

fn words(kind: &str) -> impl Iterator<Item = &str> {
    kind.split(|c: char| !c.is_ascii_alphanumeric()).filter(|word| !word.is_empty())
}

/// Whether words of the kind that follow one another are the model. The scheduler asks it of every device: nothing is
/// allocated.
fn contains(kind: &str, model: &str) -> bool {
    let letters = kind.as_bytes();
    let begins_word = |at: usize| {
        letters[at].is_ascii_alphanumeric() && (at == 0 || !letters[at - 1].is_ascii_alphanumeric())
    };
    (0..letters.len()).any(|at| begins_word(at) && begins_with(&letters[at..], model))
}

fn begins_with(text: &[u8], model: &str) -> bool {
    let model = model.bytes().filter(u8::is_ascii_alphanumeric);
    let mut model = model.map(|letter| letter.to_ascii_lowercase()).peekable();
    let mut letters = text.iter().peekable();
    while let Some(letter) = letters.next() {
        if !letter.is_ascii_alphanumeric() {
            continue;
        }
        if model.next() != Some(letter.to_ascii_lowercase()) {
            return false;
        }
        let ends_word = letters.peek().is_none_or(|next| !next.is_ascii_alphanumeric());
        if ends_word && model.peek().is_none() {
            return true;
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_model_is_found_in_the_names_that_drivers_give() {
        let table = [
            ("a100", "A100", true),
            ("nvidia_h100_80gb_hbm3", "H100", true),
            ("nvidia_a100-sxm4-80gb", "A100", true),
            ("nvidia_geforce_rtx_4090", "RTX4090", true),
            ("nvidia_rtx_a6000", "A6000", true),
            ("tesla_t4", "T4", true),
            ("amd_instinct_mi300x", "MI300X", true),
            ("nvidia_l40s", "L40", false),
            ("nvidia_l40", "L4", false),
            ("nvidia_a10g", "A10", false),
            ("nvidia_h200", "H100", false),
            ("a100_1g.5gb", "A100", false),
            ("nvidia_a100_mig_3g.20gb", "A100", false),
            ("", "H100", false),
            ("nvidia_h100", "", false),
        ];
        for (kind, model, expected) in table {
            assert_eq!(is_model(kind, model), expected, "{kind} {model}");
        }
    }

    #[test]
    fn memory_is_what_was_measured_or_said_or_sold() {
        let gb = |sizes: &[Bytes]| -> Vec<u64> { sizes.iter().map(|size| size.0 / GIB).collect() };
        let measured = |mib: u64| Some(Bytes::from_mib(mib));
        let table: [(&str, Option<Bytes>, &[u64]); 9] = [
            ("nvidia_h100_80gb_hbm3", measured(81_559), &[80]),
            ("nvidia_h200", measured(143_771), &[141]),
            ("nvidia_a100-sxm4-40gb", measured(40_536), &[40]),
            ("some_card", measured(12_000), &[12]),
            ("tesla_t4", measured(15_360), &[16]),
            ("a100_80gb", None, &[80]),
            ("a100", None, &[40, 80]),
            ("h200", None, &[141]),
            ("some_card", None, &[]),
        ];
        for (kind, measured, expected) in table {
            let sizes: Vec<Bytes> = memory_sizes(kind, measured).collect();
            assert_eq!(gb(&sizes), expected, "{kind}");
        }
    }
}
