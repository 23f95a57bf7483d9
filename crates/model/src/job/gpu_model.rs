//! Models of GPUs: whether the kind of a node's devices names one, whose it is, what it can run, and how much memory it has
//! as its maker counts it.

use crate::amount::{Bytes, GIB};
use crate::gpu::{ComputeCapability, GpuVendor};

struct Model {
    name: &'static str,
    vendor: GpuVendor,
    /// NVIDIA's alone.
    capability: Option<ComputeCapability>,
    /// The sizes of memory, in gigabytes, that it is sold with.
    sold_gb: &'static [u64],
}

const fn nvidia(name: &'static str, (major, minor): (u16, u16), sold_gb: &'static [u64]) -> Model {
    let capability = Some(ComputeCapability(major, minor));
    Model { name, vendor: GpuVendor::Nvidia, capability, sold_gb }
}

const fn amd(name: &'static str, sold_gb: &'static [u64]) -> Model {
    Model { name, vendor: GpuVendor::Amd, capability: None, sold_gb }
}

const MODELS: &[Model] = &[
    nvidia("A10", (8, 6), &[24]),
    nvidia("A100", (8, 0), &[40, 80]),
    nvidia("A10G", (8, 6), &[24]),
    nvidia("A16", (8, 6), &[16]),
    nvidia("A2", (8, 6), &[16]),
    nvidia("A30", (8, 0), &[24]),
    nvidia("A40", (8, 6), &[48]),
    nvidia("A4000", (8, 6), &[16]),
    nvidia("A5000", (8, 6), &[24]),
    nvidia("A6000", (8, 6), &[48]),
    nvidia("B200", (10, 0), &[180, 192]),
    nvidia("B300", (10, 3), &[288]),
    nvidia("GH200", (9, 0), &[96, 144]),
    nvidia("H100", (9, 0), &[80, 94]),
    nvidia("H20", (9, 0), &[96, 141]),
    nvidia("H200", (9, 0), &[141]),
    nvidia("H800", (9, 0), &[80]),
    nvidia("L4", (8, 9), &[24]),
    nvidia("L40", (8, 9), &[48]),
    nvidia("L40S", (8, 9), &[48]),
    amd("MI100", &[32]),
    amd("MI210", &[64]),
    amd("MI250X", &[128]),
    amd("MI300A", &[128]),
    amd("MI300X", &[192]),
    amd("MI325X", &[256]),
    amd("MI355X", &[288]),
    nvidia("P100", (6, 0), &[12, 16]),
    nvidia("RTX3090", (8, 6), &[24]),
    nvidia("RTX4090", (8, 9), &[24]),
    nvidia("RTX5090", (12, 0), &[32]),
    nvidia("T4", (7, 5), &[16]),
    nvidia("V100", (7, 0), &[16, 32]),
];

/// Words of a kind that name the vendor of devices whose model is not in the table.
const VENDOR_WORDS: &[(&str, GpuVendor)] = &[
    ("nvidia", GpuVendor::Nvidia),
    ("tesla", GpuVendor::Nvidia),
    ("geforce", GpuVendor::Nvidia),
    ("quadro", GpuVendor::Nvidia),
    ("amd", GpuVendor::Amd),
    ("radeon", GpuVendor::Amd),
    ("instinct", GpuVendor::Amd),
    ("intel", GpuVendor::Intel),
    ("gaudi", GpuVendor::Intel),
    ("tpu", GpuVendor::Google),
    ("tenstorrent", GpuVendor::Tenstorrent),
];

/// Device files that one vendor's driver alone makes.
const VENDOR_FILES: &[(&str, GpuVendor)] =
    &[("/dev/nvidia", GpuVendor::Nvidia), ("/dev/tenstorrent/", GpuVendor::Tenstorrent)];

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
    let row = known_model(kind).filter(|_| !is_slice(kind));
    let sold = row.map_or(&[][..], |model| model.sold_gb);
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

/// The vendor of devices of this kind with these files; `None` if nothing tells.
pub fn vendor(kind: &str, files: &[String]) -> Option<GpuVendor> {
    let of_files = || {
        let made = |prefix: &str| files.first().is_some_and(|file| file.starts_with(prefix));
        VENDOR_FILES.iter().find(|(prefix, _)| made(prefix))
    };
    let of_words = || VENDOR_WORDS.iter().find(|(word, _)| contains(kind, word)).or_else(of_files);
    known_model(kind).map(|model| model.vendor).or_else(|| of_words().map(|(_, vendor)| *vendor))
}

/// What programs devices of this kind can run, a slice's as its GPU's; `None` if nobody knows.
pub fn compute_capability(kind: &str) -> Option<ComputeCapability> {
    known_model(kind).and_then(|model| model.capability)
}

fn known_model(kind: &str) -> Option<&'static Model> {
    MODELS.iter().find(|model| contains(kind, model.name))
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
    fn vendor_and_capability_are_those_of_the_model_or_not_known() {
        let table = [
            ("nvidia_h100_80gb_hbm3", Some(GpuVendor::Nvidia), Some(ComputeCapability(9, 0))),
            ("a100_1g.5gb", Some(GpuVendor::Nvidia), Some(ComputeCapability(8, 0))),
            ("nvidia_l40s", Some(GpuVendor::Nvidia), Some(ComputeCapability(8, 9))),
            ("nvidia_new_thing", Some(GpuVendor::Nvidia), None),
            ("amd_instinct_mi300x", Some(GpuVendor::Amd), None),
            ("mi300x", Some(GpuVendor::Amd), None),
            ("gaudi3", None, None),
            ("gaudi", Some(GpuVendor::Intel), None),
            ("", None, None),
        ];
        for (kind, expected, capability) in table {
            assert_eq!(vendor(kind, &[]), expected, "{kind}");
            assert_eq!(compute_capability(kind), capability, "{kind}");
        }
        assert_eq!(vendor("", &["/dev/nvidia0".into()]), Some(GpuVendor::Nvidia));
        assert_eq!(vendor("", &["/dev/dri/renderD128".into()]), None);
        assert!(ComputeCapability(10, 0) > ComputeCapability(9, 9));
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
