//! Options of `srun` that are read and not carried out. An option is refused if accepting it would pretend, and reported as
//! ignored where Slurm does so. Every other option of the manual acts, or has nothing to act on here.

use ::slurm::mpi;
use ::slurm::option::JobOptions;
use ::slurm::option::key::OptionKey;

/// The answer to `--mpi=list`.
pub const MPI_LIST: &str = "MPI plugin types are...\n\tnone";

pub fn wants_mpi_list(options: &JobOptions) -> bool {
    options.step.mpi.as_deref() == Some("list")
}

/// The line that refuses the first unsupported option.
pub fn refused(options: &JobOptions) -> Option<String> {
    let step = &options.step;
    let table = [
        (step.no_allocate, "--no-allocate"),
        (step.preserve_env, "--preserve-env"),
        (options.gid.is_some(), "--gid"),
    ];
    if let Some((_, option)) = table.into_iter().find(|(given, _)| *given) {
        return Some(format!("{option} is not supported yet"));
    }
    if options.untyped.contains_key(&OptionKey::X11) {
        let without = std::env::var_os("DISPLAY").is_none_or(|display| display.is_empty());
        let words = "No DISPLAY variable set, cannot setup x11 forwarding.";
        return Some(if without { words } else { "--x11 is not supported yet" }.to_owned());
    }
    let kind = step.mpi.as_deref().filter(|kind| !mpi::is_known(kind))?;
    Some(format!(
        "Couldn't find the specified plugin name for mpi/{kind}: only --mpi=none is there"
    ))
}

/// The lines about options that act where a job is made, for a step in a job that is there.
pub fn of_the_job(options: &JobOptions) -> Vec<String> {
    let table =
        [(!options.licenses.is_empty(), "--licenses"), (options.spread_job, "--spread-job")];
    let given = table.into_iter().filter(|(given, _)| *given);
    given
        .map(|(_, option)| {
            format!("note: {option} changes nothing in a job: it is said where the job is made")
        })
        .collect()
}

/// The tasks that the options ask for.
fn task_count(options: &JobOptions) -> u32 {
    options.ntasks.unwrap_or_else(|| {
        let nodes = options.nodes.map_or(1, |nodes| nodes.min);
        nodes.saturating_mul(options.ntasks_per_node.unwrap_or(1))
    })
}

/// The line about tasks that would be the ranks of an MPI program elsewhere. `site`: `MpiDefault`, for a step that does not
/// say itself.
pub fn unconnected_ranks(
    options: &JobOptions,
    tasks: Option<u32>,
    site: Option<&str>,
) -> Option<String> {
    let kind = options.step.mpi.as_deref().or(site)?;
    let tasks = tasks.unwrap_or_else(|| task_count(options));
    let is_told = tasks > 1 && mpi::connects_ranks(kind);
    is_told.then(|| format!("note: --mpi={kind}: {}", mpi::NOT_CONNECTED))
}

/// The lines for ignored options, in Slurm's words.
pub fn ignored(options: &JobOptions) -> Vec<String> {
    let table =
        [(options.core_spec.is_some(), "-S"), (options.thread_spec.is_some(), "--thread-spec")];
    let given = table.into_iter().filter(|(given, _)| *given);
    let line = |option: &str| {
        let why = "AllowSpecResourcesUsage = No";
        format!("Ignoring {option} since it's not allowed by configuration ({why})")
    };
    given.map(|(_, option)| line(option)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line_of(set: impl FnOnce(&mut JobOptions)) -> Option<String> {
        let mut options = JobOptions::default();
        set(&mut options);
        refused(&options)
    }

    #[test]
    fn unsupported_options_are_refused_by_name() {
        let none = || Some("none".to_owned());
        assert_eq!(line_of(|_| {}), None);
        assert_eq!(line_of(|o| (o.step.mpi, o.step.prolog) = (none(), none())), None);
        assert_eq!(line_of(|o| o.gpu_bind = Some("verbose,closest".into())), None);
        let yet = |option: &str| Some(format!("{option} is not supported yet"));
        assert_eq!(line_of(|o| o.step.no_allocate = true), yet("--no-allocate"));
        assert_eq!(line_of(|o| o.step.preserve_env = true), yet("--preserve-env"));
        assert_eq!(line_of(|o| o.gpu_bind = Some("single:1".into())), None);
        let ranks = line_of(|o| {
            o.step.mpi = Some("pmix".into());
            o.ntasks = Some(2);
        });
        assert_eq!(ranks, None, "a note is told instead");
        let mpi = line_of(|o| o.step.mpi = Some("bogus".into())).expect("refused");
        assert!(mpi.contains("mpi/bogus"), "{mpi}");
    }

    #[test]
    fn tasks_that_would_be_ranks_are_told_once() {
        let with = |mpi: Option<&str>, ntasks: Option<u32>| {
            let mut options = JobOptions { ntasks, ..JobOptions::default() };
            options.step.mpi = mpi.map(str::to_owned);
            options
        };
        let told = |options: &JobOptions, tasks, site| unconnected_ranks(options, tasks, site);
        let pmix = told(&with(Some("pmix"), Some(2)), None, None).expect("a note");
        assert!(pmix.starts_with("note: --mpi=pmix: the ranks of an MPI program"), "{pmix}");
        assert!(told(&with(None, None), Some(2), Some("pmi2")).is_some());
        assert_eq!(told(&with(Some("none"), Some(2)), None, Some("pmi2")), None);
        assert_eq!(told(&with(None, None), None, Some("pmi2")), None, "one task needs nobody");
        assert_eq!(told(&with(None, Some(2)), None, None), None);
    }

    #[test]
    fn options_of_the_job_are_told_in_it_and_not_refused() {
        let options = JobOptions { spread_job: true, no_kill: true, ..JobOptions::default() };
        assert_eq!(refused(&options), None);
        let told = of_the_job(&options);
        assert_eq!(told.len(), 1);
        assert!(told[0].starts_with("note: --spread-job changes nothing in a job"), "{told:?}");
        assert!(of_the_job(&JobOptions::default()).is_empty());
    }

    #[test]
    fn ignored_options_are_reported_in_slurms_words() {
        let options = JobOptions { core_spec: Some(1), ..JobOptions::default() };
        assert!(ignored(&options)[0].starts_with("Ignoring -S since it's not allowed"));
        assert!(ignored(&JobOptions::default()).is_empty());
    }
}
