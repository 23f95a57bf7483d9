//! `--cpu-bind` and `--mem-bind`: words separated by commas, some with a list that has commas too. The last kind counts.

use crate::option::error::OptionError;
use model::binding::text::parse_mask;
use model::binding::{CpuBind, CpuBinding, Level, MemBind, MemBinding};
use model::cpuset::CPU_MAX;

type Result<T> = std::result::Result<T, OptionError>;

/// A bound on repeated lists: no step has more tasks on a node.
const LIST_MAX: usize = 65_536;

pub fn cpu_bind(text: &str) -> Result<CpuBinding> {
    let refused = |word: &str| unreadable(format!("unrecognized --cpu-bind argument \"{word}\""));
    let mut binding = CpuBinding::default();
    for item in items(text) {
        let kind = match (item.word.to_ascii_lowercase().as_str(), item.list) {
            ("q" | "quiet", None) => {
                binding.verbose = false;
                continue;
            }
            ("v" | "verbose", None) => {
                binding.verbose = true;
                continue;
            }
            // A flag beside the kind. Slurm's refusals of a binding print it.
            ("one_thread", None) => {
                binding.one_thread = true;
                continue;
            }
            ("no" | "none", None) => CpuBind::None,
            ("rank", None) => CpuBind::Rank,
            ("rank_ldom", None) => CpuBind::RankLdom,
            ("threads" | "thread", None) => CpuBind::To(Level::Threads),
            ("cores" | "core", None) => CpuBind::To(Level::Cores),
            ("sockets" | "socket", None) => CpuBind::To(Level::Sockets),
            ("ldoms" | "ldom", None) => CpuBind::To(Level::Ldoms),
            ("map_cpu", Some(list)) => CpuBind::MapCpu(cpu_list(&list, item.word, number)?),
            ("mask_cpu", Some(list)) => CpuBind::MaskCpu(cpu_list(&list, item.word, parse_mask)?),
            ("map_ldom", Some(list)) => CpuBind::MapLdom(cpu_list(&list, item.word, number)?),
            ("mask_ldom", Some(list)) => CpuBind::MaskLdom(cpu_list(&list, item.word, parse_mask)?),
            _ => return Err(refused(item.whole)),
        };
        if binding.kind != Some(CpuBind::None) {
            binding.kind = Some(kind);
        }
    }
    Ok(binding)
}

pub fn mem_bind(text: &str) -> Result<MemBinding> {
    let refused =
        |word: &str| OptionError::value(format!("unrecognized --mem-bind argument \"{word}\""));
    let mut binding = MemBinding::default();
    for item in items(text) {
        let list = |words: &[&str]| refused(words.first().copied().unwrap_or(item.whole));
        let kind = match (item.word.to_ascii_lowercase().as_str(), item.list) {
            ("q" | "quiet", None) => {
                binding.verbose = false;
                continue;
            }
            ("v" | "verbose", None) => {
                binding.verbose = true;
                continue;
            }
            ("p" | "prefer", None) => {
                binding.prefer = true;
                continue;
            }
            (word @ ("sort" | "nosort"), None) => {
                binding.sort = word == "sort";
                continue;
            }
            ("no" | "none", None) => MemBind::None,
            ("local", None) => MemBind::Local,
            ("rank", None) => MemBind::Rank,
            ("map_mem", Some(words)) => {
                MemBind::Map(repeated(&words, number).ok_or_else(|| list(&words))?)
            }
            ("mask_mem", Some(words)) => {
                MemBind::Mask(repeated(&words, parse_mask).ok_or_else(|| list(&words))?)
            }
            _ => return Err(refused(item.whole)),
        };
        binding.kind = Some(kind);
    }
    Ok(binding)
}

/// Slurm's lines for an unreadable `--cpu-bind`.
fn unreadable(line: String) -> OptionError {
    OptionError::Failure(vec![line, "Failed to parse --cpu-bind= values.".to_owned()])
}

fn cpu_list<T: Clone>(
    words: &[&str],
    kind: &str,
    read: impl Fn(&str) -> Option<T>,
) -> Result<Vec<T>> {
    if words.iter().all(|word| word.is_empty()) {
        return Err(unreadable(format!("missing list for \"--cpu-bind={kind}:<list>\"")));
    }
    repeated(words, read).ok_or_else(|| {
        unreadable(format!("unrecognized --cpu-bind argument \"{}\"", words.join(",")))
    })
}

struct BindingWord<'a> {
    whole: &'a str,
    word: &'a str,
    /// The list after a colon, up to the next word.
    list: Option<Vec<&'a str>>,
}

/// Splits at commas. A part that could be an entry of the list before it belongs to that list.
fn items(text: &str) -> Vec<BindingWord<'_>> {
    let mut items: Vec<BindingWord<'_>> = Vec::new();
    for part in text.split(',') {
        let open = items.last_mut().and_then(|item| item.list.as_mut());
        match (part.split_once(':'), open) {
            (Some((word, first)), _) => {
                items.push(BindingWord { whole: part, word, list: Some(vec![first]) })
            }
            (None, Some(list)) if is_list_entry(part) => list.push(part),
            _ => items.push(BindingWord { whole: part, word: part, list: None }),
        }
    }
    items
}

/// A number, a mask such as `0x3f`, or one of them repeated, as in `0*4`.
fn is_list_entry(text: &str) -> bool {
    let (item, times) = text.split_once('*').unwrap_or((text, "1"));
    let digits = item.strip_prefix("0x").unwrap_or(item);
    number(times).is_some() && !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_hexdigit())
}

/// `3*2,1` is 3, 3, 1.
fn repeated<T: Clone>(words: &[&str], read: impl Fn(&str) -> Option<T>) -> Option<Vec<T>> {
    let mut all = Vec::new();
    for word in words {
        let (item, times) = word.split_once('*').unwrap_or((word, "1"));
        let times = number(times).filter(|times| *times > 0)? as usize;
        let value = read(item)?;
        if all.len() + times > LIST_MAX {
            return None;
        }
        all.resize(all.len() + times, value);
    }
    Some(all)
}

/// Decimal, or hexadecimal after `0x`.
fn number(text: &str) -> Option<u32> {
    let value = match text.strip_prefix("0x") {
        Some(digits) => u32::from_str_radix(digits, 16).ok()?,
        None if text.bytes().all(|byte| byte.is_ascii_digit()) => text.parse().ok()?,
        None => return None,
    };
    (value < CPU_MAX).then_some(value)
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::cpuset::CpuSet;

    fn kind(text: &str) -> Option<CpuBind> {
        cpu_bind(text).expect(text).kind
    }

    fn sets(lists: &[&[u32]]) -> Vec<CpuSet> {
        lists.iter().map(|list| list.iter().copied().collect()).collect()
    }

    #[test]
    fn the_last_kind_counts_and_lists_keep_their_commas() {
        assert_eq!(kind("q"), None);
        assert_eq!(kind("sockets,cores"), Some(CpuBind::To(Level::Cores)));
        assert_eq!(kind("none,cores"), Some(CpuBind::None));
        assert_eq!(kind("map_cpu:3*2,1"), Some(CpuBind::MapCpu(vec![3, 3, 1])));
        assert_eq!(kind("map_cpu:0x1f"), Some(CpuBind::MapCpu(vec![31])));
        let masks = Some(CpuBind::MaskCpu(sets(&[&[0, 1], &[4, 5, 6, 7]])));
        assert_eq!(kind("mask_cpu:0x3,f0"), masks);
        let both = cpu_bind("verbose,mask_cpu:0x0001,0x0002").expect("what tasks are told");
        assert!(both.verbose);
        assert_eq!(both.kind, Some(CpuBind::MaskCpu(sets(&[&[0], &[1]]))));
        assert_eq!(
            kind("cores,mask_cpu:0xFF"),
            Some(CpuBind::MaskCpu(sets(&[&[0, 1, 2, 3, 4, 5, 6, 7]])))
        );
    }

    #[test]
    fn unreadable_bindings_are_refused_in_the_words_of_slurm() {
        for (text, line) in [
            ("boards", "unrecognized --cpu-bind argument \"boards\""),
            ("cores,foo", "unrecognized --cpu-bind argument \"foo\""),
            ("map_cpu:0,zz", "unrecognized --cpu-bind argument \"zz\""),
            ("map_cpu:", "missing list for \"--cpu-bind=map_cpu:<list>\""),
            ("map_cpu:99999999", "unrecognized --cpu-bind argument \"99999999\""),
            ("map_cpu:0*0", "unrecognized --cpu-bind argument \"0*0\""),
            ("map_cpu:0*99999", "unrecognized --cpu-bind argument \"0*99999\""),
        ] {
            let error = cpu_bind(text).expect_err(text);
            let lines = vec![line.to_owned(), "Failed to parse --cpu-bind= values.".to_owned()];
            assert_eq!(error, OptionError::Failure(lines));
        }
        for text in ["foo", "map_mem:x", "map_mem:", "local:1"] {
            assert!(mem_bind(text).is_err(), "{text}");
        }
    }

    #[test]
    fn mem_bind_has_flags_beside_its_kind() {
        let binding = mem_bind("v,local,prefer,sort").expect("words that it knows");
        assert!(binding.verbose && binding.prefer && binding.sort);
        assert_eq!(binding.kind, Some(MemBind::Local));
    }
}
