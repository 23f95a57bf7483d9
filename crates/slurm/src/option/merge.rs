//! The order of precedence of settings: the command line overrides the environment, which overrides the script.

use super::error::OptionError;
use super::key::OptionKey;
use super::setting::{Setting, Source};

/// The refusal of `--gpus-per-task` together with `--ntasks-per-gpu`.
pub(super) const GPUS_PER_TASK_CONFLICT: &str =
    "--gpus-per-task is mutually exclusive with --ntasks-per-gpu and SLURM_NTASKS_PER_GPU";

/// Ways to ask for memory, of which a job uses one.
const MEMORY: [OptionKey; 3] = [OptionKey::Mem, OptionKey::MemPerCpu, OptionKey::MemPerGpu];

/// Options whose values may stand for much, of which the last counts: the others are not read.
const READ_ONCE: [OptionKey; 3] = [OptionKey::Array, OptionKey::Exclude, OptionKey::Nodelist];

/// All settings in the order in which they take effect: a later one overrides an earlier one of the same key.
/// `srun` and `salloc` have no script.
pub fn merge(
    script: &[Setting],
    environment: &[Setting],
    command_line: &[Setting],
) -> Result<Vec<Setting>, OptionError> {
    let mut merged = [script, environment, command_line].concat();
    leave_out_overridden(&mut merged);
    keep_one_kind_of_memory(&mut merged)?;
    refuse_contradictions(&merged)?;
    Ok(merged)
}

/// Leaves out settings of [`READ_ONCE`] that a later one overrides.
fn leave_out_overridden(settings: &mut Vec<Setting>) {
    let mut later: Vec<OptionKey> = Vec::new();
    settings.reverse();
    settings.retain(|setting| {
        let is_overridden = later.contains(&setting.key);
        if !is_overridden && READ_ONCE.contains(&setting.key) {
            later.push(setting.key);
        }
        !is_overridden
    });
    settings.reverse();
}

/// A memory option of the command line or script replaces all memory options of the environment. More than one is refused.
fn keep_one_kind_of_memory(settings: &mut Vec<Setting>) -> Result<(), OptionError> {
    let from_environment = |setting: &Setting| matches!(setting.source, Source::Environment(_));
    let kinds = |environment: bool| {
        MEMORY
            .into_iter()
            .filter(|kind| {
                settings.iter().any(|s| s.key == *kind && from_environment(s) == environment)
            })
            .count()
    };
    let (in_options, in_environment) = (kinds(false), kinds(true));
    if in_options > 1 {
        let words = "--mem, --mem-per-cpu, and --mem-per-gpu are mutually exclusive.";
        return Err(OptionError::Fatal(words.to_owned()));
    }
    if in_options == 1 {
        settings.retain(|setting| !MEMORY.contains(&setting.key) || !from_environment(setting));
    } else if in_environment > 1 {
        let words =
            "SLURM_MEM_PER_CPU, SLURM_MEM_PER_GPU, and SLURM_MEM_PER_NODE are mutually exclusive.";
        return Err(OptionError::Fatal(words.to_owned()));
    }
    Ok(())
}

fn refuse_contradictions(settings: &[Setting]) -> Result<(), OptionError> {
    let has = |key| settings.iter().any(|setting| setting.key == key);
    let in_options =
        |key| settings.iter().any(|s| s.key == key && !matches!(s.source, Source::Environment(_)));
    if in_options(OptionKey::CoreSpec) && in_options(OptionKey::ThreadSpec) {
        let words = "-S/--core-spec and --thread-spec options are mutually exclusive";
        return Err(OptionError::Fatal(words.to_owned()));
    }
    if in_options(OptionKey::GpusPerTask) && has(OptionKey::NtasksPerGpu) {
        return Err(OptionError::Fatal(GPUS_PER_TASK_CONFLICT.to_owned()));
    }
    if in_options(OptionKey::Verbose) && in_options(OptionKey::Quiet) {
        let words = "don't specify both --verbose (-v) and --quiet (-Q)";
        return Err(OptionError::failure(words));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn setting(key: OptionKey, value: &str, source: Source) -> Setting {
        Setting { key, value: Some(value.to_owned()), source }
    }

    const SCRIPT: Source = Source::Script { line: 2 };
    const ENVIRONMENT: Source = Source::Environment("SBATCH_TIMELIMIT");

    #[test]
    fn the_command_line_wins_over_the_environment_and_this_over_the_script() {
        let script = [setting(OptionKey::Time, "1", SCRIPT)];
        let environment = [setting(OptionKey::Time, "2", ENVIRONMENT)];
        let command_line = [setting(OptionKey::Time, "3", Source::CommandLine)];
        let last = |merged: Vec<Setting>| merged.last().map(|s| s.text().to_owned());
        let all = merge(&script, &environment, &command_line).expect("no contradiction");
        assert_eq!(last(all).as_deref(), Some("3"));
        let two = merge(&script, &environment, &[]).expect("no contradiction");
        assert_eq!(last(two).as_deref(), Some("2"));
    }

    #[test]
    fn memory_asked_for_in_options_replaces_the_environments() {
        let environment = [setting(OptionKey::MemPerCpu, "5", ENVIRONMENT)];
        for (script, command_line) in [
            (vec![setting(OptionKey::Mem, "1", SCRIPT)], vec![]),
            (vec![], vec![setting(OptionKey::Mem, "1", Source::CommandLine)]),
        ] {
            let merged = merge(&script, &environment, &command_line).expect("no contradiction");
            let keys: Vec<_> = merged.iter().map(|s| s.key).collect();
            assert_eq!(keys, [OptionKey::Mem]);
        }
    }

    #[test]
    fn contradictions_are_refused_in_slurms_words() {
        let cases = [
            (OptionKey::Mem, SCRIPT, OptionKey::MemPerCpu, Source::CommandLine, "--mem, "),
            (OptionKey::Mem, ENVIRONMENT, OptionKey::MemPerGpu, ENVIRONMENT, "SLURM_MEM_PER_CPU, "),
            (OptionKey::Verbose, SCRIPT, OptionKey::Quiet, Source::CommandLine, "don't specify "),
            (OptionKey::NtasksPerGpu, SCRIPT, OptionKey::GpusPerTask, SCRIPT, "--gpus-per-task is"),
            (OptionKey::CoreSpec, SCRIPT, OptionKey::ThreadSpec, SCRIPT, "-S/--core-spec and"),
        ];
        for (one, one_source, other, other_source, words) in cases {
            let settings = [setting(one, "1", one_source), setting(other, "1", other_source)];
            let refused = merge(&settings, &[], &[]).expect_err("contradiction").to_string();
            assert!(refused.starts_with(words), "{one:?} and {other:?}: {refused}");
        }
    }

    #[test]
    fn of_values_that_stand_for_much_the_last_alone_is_read() {
        let script = [
            setting(OptionKey::Nodelist, "n1", SCRIPT),
            setting(OptionKey::Array, "0-1", SCRIPT),
            setting(OptionKey::Nodelist, "n2", SCRIPT),
            setting(OptionKey::MailType, "END", SCRIPT),
            setting(OptionKey::MailType, "FAIL", SCRIPT),
        ];
        let merged = merge(&script, &[], &[]).expect("no contradiction");
        let values: Vec<_> = merged.iter().filter_map(|setting| setting.value.as_deref()).collect();
        assert_eq!(values, ["0-1", "n2", "END", "FAIL"]);
    }
}
