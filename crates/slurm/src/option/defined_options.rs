//! The lines of `-v`: every option as it was understood, once command line, environment and script are merged.

use super::command::Command;
use super::key::OptionKey as K;
use super::setting::Setting;
use super::table::{self, Arg};
use model::amount::Bytes;
use model::time;
use std::collections::BTreeMap;

const RULE: &str = "-------------------- --------------------";
/// What stands for an option without a value.
const SET: &str = "set";

/// Options of which all values count, and not the last alone.
const ADDED_UP: [K; 3] = [K::ContainerMounts, K::Secret, K::Volume];

/// The block of lines, without the command's name before each. `settings` are in the order in which they take effect, and
/// `verbose` is the number of `-v` in them.
pub fn lines(command: Command, settings: &[Setting], verbose: u32) -> Vec<String> {
    let mut defined: BTreeMap<String, (&str, String)> = BTreeMap::new();
    for setting in settings {
        let Some(spec) = table::options(command).find(|spec| spec.key == setting.key) else {
            continue;
        };
        let value = match setting.key {
            K::Verbose => verbose.to_string(),
            _ => understood(spec.arg, setting),
        };
        defined.remove(&place(&opposite(spec.long)));
        let (_, known) = defined.entry(place(spec.long)).or_insert((spec.long, String::new()));
        if ADDED_UP.contains(&setting.key) && !known.is_empty() {
            known.push(',');
            known.push_str(&value);
        } else {
            *known = value;
        }
    }
    let options = defined.into_values().map(|(name, value)| format!("{name:<20}: {value}"));
    let before = ["defined options", RULE].map(str::to_owned);
    let after = [RULE, "end of defined options"].map(str::to_owned);
    before.into_iter().chain(options).chain(after).collect()
}

/// Options are ordered as Slurm orders them: `jobid` is before `job-name`.
fn place(name: &str) -> String {
    name.replace('-', "")
}

/// The option that this one takes back, if there is one of that name.
fn opposite(name: &str) -> String {
    match name {
        "exclusive" => "oversubscribe".to_owned(),
        "oversubscribe" => "exclusive".to_owned(),
        "container-readonly" => "container-writable".to_owned(),
        "container-writable" => "container-readonly".to_owned(),
        _ => name.strip_prefix("no-").map_or_else(|| format!("no-{name}"), str::to_owned),
    }
}

/// The value of one setting. One that cannot be read is as it was given: it is refused before anything is printed.
fn understood(arg: Arg, setting: &Setting) -> String {
    let given = setting.text();
    match (setting.key, arg) {
        (K::NoRequeue, _) => "no-requeue".to_owned(),
        (K::Requeue, _) => "requeue".to_owned(),
        (K::Exclusive, _) if given.is_empty() => "exclusive".to_owned(),
        (_, Arg::None) => SET.to_owned(),
        (_, Arg::Optional(_)) if given.is_empty() => SET.to_owned(),
        (K::Mem | K::MemPerCpu | K::MemPerGpu | K::Tmp, _) => {
            Bytes::parse_slurm(given).map_or_else(|_| given.to_owned(), |size| memory(size.mib()))
        }
        (K::Time | K::TimeMin, _) => time::parse_time_limit(given).map_or_else(
            |_| given.to_owned(),
            |limit| time::format_limit_full(limit.zero_is_unlimited()),
        ),
        _ => given.to_owned(),
    }
}

/// `100`, `4G`: megabytes have no suffix.
fn memory(mib: u64) -> String {
    let (mut amount, mut suffix) = (mib, "");
    for larger in ["G", "T", "P"] {
        if amount == 0 || !amount.is_multiple_of(1024) {
            break;
        }
        (amount, suffix) = (amount / 1024, larger);
    }
    format!("{amount}{suffix}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::option::setting::Source;

    fn setting(key: K, value: Option<&str>) -> Setting {
        Setting { key, value: value.map(str::to_owned), source: Source::CommandLine }
    }

    #[test]
    fn options_are_listed_as_slurm_lists_them() {
        // `sbatch -v` of Slurm 22.05 on a script with these options.
        let settings = [
            setting(K::JobName, Some("hdr")),
            setting(K::Time, Some("5")),
            setting(K::Ntasks, Some("2")),
            setting(K::Mem, Some("100")),
            setting(K::Verbose, None),
        ];
        let captured = "\
defined options
-------------------- --------------------
job-name            : hdr
mem                 : 100
ntasks              : 2
time                : 00:05:00
verbose             : 1
-------------------- --------------------
end of defined options";
        assert_eq!(lines(Command::Sbatch, &settings, 1).join("\n"), captured);
    }

    #[test]
    fn value_that_counts_is_the_last_or_all_of_them() {
        let settings = [
            setting(K::Mem, Some("10g")),
            setting(K::Time, Some("0")),
            setting(K::JobName, Some("first")),
            setting(K::JobName, Some("last")),
            setting(K::JobId, Some("7")),
            setting(K::Pty, None),
            setting(K::Exclusive, None),
            setting(K::Secret, Some("a=A")),
            setting(K::Secret, Some("b=B")),
            // An environment variable that is no option of the command.
            setting(K::Wait4Switch, Some("5")),
        ];
        let listed = lines(Command::Srun, &settings, 3);
        let options = [
            "exclusive           : exclusive",
            "jobid               : 7",
            "job-name            : last",
            "mem                 : 10G",
            "pty                 : set",
            "secret              : a=A,b=B",
            "time                : UNLIMITED",
        ];
        assert_eq!(listed[2..listed.len() - 2], options);
        let batch =
            [setting(K::Requeue, None), setting(K::NoRequeue, None), setting(K::Verbose, None)];
        let listed = lines(Command::Sbatch, &batch, 3);
        assert_eq!(listed[2], "no-requeue          : no-requeue");
        assert_eq!(listed[3], "verbose             : 3", "what was taken back is not listed");
    }
}
