//! Values that are only checked against the words that Slurm knows: GPU binding, frequencies, hints, profiles.

use crate::option::error::OptionError;
use crate::option::key::OptionKey;

type Result<T> = std::result::Result<T, OptionError>;

const GPU_BIND: &[&str] = &["closest", "none"];
const GPU_BIND_WITH_LIST: &[&str] = &["map_gpu", "mask_gpu", "single", "per_task"];

const FREQUENCIES: &[&str] = &["low", "medium", "high", "highm1"];
const HINTS: &[&str] = &["compute_bound", "memory_bound", "multithread", "nomultithread"];
const PROFILES: &[&str] = &["none", "all", "energy", "task", "lustre", "network"];
const SAMPLED: &[&str] = &["task", "energy", "network", "filesystem"];
const RLIMITS: &[&str] = &[
    "ALL", "NONE", "AS", "CORE", "CPU", "DATA", "FSIZE", "MEMLOCK", "NOFILE", "NPROC", "RSS",
    "STACK",
];

fn is_one_of(word: &str, words: &[&str]) -> bool {
    words.iter().any(|known| known.eq_ignore_ascii_case(word))
}

fn is_number(word: &str) -> bool {
    !word.is_empty() && word.bytes().all(|byte| byte.is_ascii_digit())
}

/// Words separated by commas, where a word may be `name:list` and the list may have commas of its own.
fn is_binding(text: &str, plain: &[&str], with_list: &[&str]) -> bool {
    let mut in_list = false;
    text.split(',').all(|part| match part.split_once(':') {
        Some((name, item)) => {
            in_list = true;
            is_one_of(name, with_list) && is_list_item(item)
        }
        None => is_one_of(part, plain) || (in_list && is_list_item(part)),
    })
}

/// A number, a mask such as `0x3f`, or one of them repeated, as in `0*4`.
fn is_list_item(text: &str) -> bool {
    let (item, times) = text.split_once('*').unwrap_or((text, "1"));
    let is_mask =
        |digits: &str| !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_hexdigit());
    is_number(times) && is_mask(item.strip_prefix("0x").unwrap_or(item))
}

pub fn gpu_bind(text: &str) -> Result<String> {
    let lower = text.to_ascii_lowercase();
    let kind = lower.strip_prefix("verbose,").unwrap_or(&lower);
    if is_binding(kind, GPU_BIND, GPU_BIND_WITH_LIST) {
        return Ok(text.to_owned());
    }
    Err(OptionError::value(format!("Invalid --gpu-bind argument: gpu:{text}")))
}

/// `gres/gpu:type`, with the types of `--gpu-bind`: only GPUs can be bound.
pub fn tres_bind(text: &str) -> Result<String> {
    let wrong = || OptionError::value(format!("Invalid --tres-bind argument: {text}"));
    let kind = text.strip_prefix("gres/gpu:").ok_or_else(wrong)?;
    gpu_bind(kind).map_err(|_| wrong())
}

/// `[frequency][,memory=frequency][,verbose]`.
pub fn gpu_freq(text: &str) -> Result<String> {
    let is_frequency = |word: &str| is_one_of(word, FREQUENCIES) || is_number(word);
    let right = text.split(',').all(|part| {
        is_frequency(part)
            || part.eq_ignore_ascii_case("verbose")
            || part.strip_prefix("memory=").is_some_and(is_frequency)
    });
    if right {
        return Ok(text.to_owned());
    }
    Err(OptionError::value(format!("Invalid --gpu-freq argument: gpu:{text}")))
}

/// In small letters, however it was written.
pub fn hint(text: &str) -> Result<String> {
    if is_one_of(text, HINTS) {
        return Ok(text.to_ascii_lowercase());
    }
    let words = format!("unrecognized --hint argument \"{text}\", see --hint=help");
    Err(OptionError::failure(words))
}

pub fn profile(text: &str) -> Result<String> {
    if text.split(',').all(|part| is_one_of(part, PROFILES)) {
        return Ok(text.to_owned());
    }
    Err(OptionError::value(format!("invalid --profile={text} option")))
}

/// `30`, or `task=30,energy=60`.
pub fn acctg_freq(text: &str) -> Result<String> {
    let right = text.split(',').all(|part| match part.split_once('=') {
        Some((kind, interval)) => is_one_of(kind, SAMPLED) && is_number(interval),
        None => is_number(part),
    });
    if right {
        return Ok(text.to_owned());
    }
    Err(OptionError::value(format!("Invalid --acctg-freq specification: {text}")))
}

/// `--propagate[=limits]`; without a value all limits.
pub fn propagate(text: Option<&str>) -> Result<Vec<String>> {
    let names = super::list(text.unwrap_or("ALL"));
    for name in &names {
        let bare = name.strip_prefix("RLIMIT_").unwrap_or(name);
        if !is_one_of(bare, RLIMITS) {
            return Err(OptionError::Failure(vec![
                format!("Bad rlimit name: {name}"),
                format!("--propagate={} is not valid.", text.unwrap_or_default()),
            ]));
        }
    }
    Ok(names.iter().map(|name| name.to_ascii_uppercase()).collect())
}

/// `--accel-bind`: a letter each for GPUs, MICs, NICs and verbose.
pub fn accel_bind(text: &str) -> Result<String> {
    if !text.is_empty() && text.chars().all(|c| "gmnv".contains(c)) {
        return Ok(text.to_owned());
    }
    Err(OptionError::Specification("accel-bind"))
}

/// Checks the text of an option that has no type of its own, where Slurm would refuse it.
pub fn check_untyped(key: OptionKey, text: &str) -> Result<String> {
    match key {
        OptionKey::AcctgFreq => acctg_freq(text),
        OptionKey::AccelBind => accel_bind(text),
        OptionKey::GpuFreq => gpu_freq(text),
        OptionKey::SendLibs if !text.is_empty() => {
            super::yes_or_no(text, "send-libs").map(|_| text.to_owned())
        }
        OptionKey::MsgTimeout => {
            super::number_from(0, text, "--msg-timeout").map(|_| text.to_owned())
        }
        OptionKey::OomKillStep if !matches!(text, "" | "0" | "1") => {
            Err(OptionError::Specification("oom-kill-step"))
        }
        OptionKey::ResvPorts if !text.is_empty() => {
            super::number_from(0, text, "--resv-port").map(|_| text.to_owned())
        }
        _ => Ok(text.to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    type Check = fn(&str) -> Result<String>;

    #[test]
    fn words_that_slurm_knows_are_kept_unchanged() {
        let cases: &[(Check, &[&str])] = &[
            (gpu_bind, &["closest", "single:2", "map_gpu:0,1", "verbose,none"]),
            (gpu_freq, &["medium", "memory=high", "450,memory=low,verbose"]),
            (hint, &["nomultithread", "compute_bound"]),
            (profile, &["all", "task,energy"]),
            (acctg_freq, &["30", "task=10,network=5"]),
            (accel_bind, &["g", "gnv"]),
        ];
        for (check, texts) in cases {
            for text in *texts {
                assert_eq!(check(text).as_deref(), Ok(*text));
                assert!(check(&format!("{text}!")).is_err(), "{text}!");
            }
        }
    }

    #[test]
    fn gpu_bind_takes_one_kind_with_verbose_before_it() {
        for text in ["verbose", "v,single:1", "single:1,verbose", "verbose,verbose,none"] {
            let line = format!("Invalid --gpu-bind argument: gpu:{text}");
            assert_eq!(gpu_bind(text), Err(OptionError::value(line)));
        }
    }

    #[test]
    fn tres_bind_names_gpus_and_a_kind_of_gpu_bind() {
        assert_eq!(tres_bind("gres/gpu:verbose,single:2").as_deref(), Ok("verbose,single:2"));
        for text in ["closest", "gres/nic:closest", "gres/gpu:foo", "gres/gpu"] {
            let line = format!("Invalid --tres-bind argument: {text}");
            assert_eq!(tres_bind(text), Err(OptionError::value(line)));
        }
    }

    #[test]
    fn propagate_without_a_value_means_all_limits() {
        assert_eq!(propagate(None).expect("a default"), ["ALL"]);
        assert_eq!(propagate(Some("STACK,core")).expect("known names"), ["STACK", "CORE"]);
        assert_eq!(propagate(Some("RLIMIT_CPU")).expect("a known name"), ["RLIMIT_CPU"]);
        assert!(propagate(Some("foo")).is_err());
    }
}
