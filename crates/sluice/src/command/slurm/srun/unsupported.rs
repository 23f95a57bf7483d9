//! Options of `srun` that are read and not carried out. An option is refused if accepting it would pretend, and reported as
//! ignored where Slurm does so. Every other option of the manual acts, or has nothing to act on here.

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
        (step.bcast.is_some(), "--bcast"),
        (step.preserve_env, "--preserve-env"),
        (options.no_kill, "--no-kill"),
        (options.spread_job, "--spread-job"),
        (options.gid.is_some(), "--gid"),
        (!options.licenses.is_empty(), "--licenses"),
    ];
    if let Some((_, option)) = table.into_iter().find(|(given, _)| *given) {
        return Some(format!("{option} is not supported yet"));
    }
    if options.untyped.contains_key(&OptionKey::X11) {
        let without = std::env::var_os("DISPLAY").is_none_or(|display| display.is_empty());
        let words = "No DISPLAY variable set, cannot setup x11 forwarding.";
        return Some(if without { words } else { "--x11 is not supported yet" }.to_owned());
    }
    let mpi = step.mpi.as_deref().filter(|mpi| *mpi != "none")?;
    Some(format!("Couldn't find the specified plugin name for mpi/{mpi}: only --mpi=none is there"))
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
        assert_eq!(line_of(|o| o.step.bcast = Some("x".into())), yet("--bcast"));
        assert_eq!(line_of(|o| o.gpu_bind = Some("single:1".into())), None);
        let mpi = line_of(|o| o.step.mpi = Some("pmix".into())).expect("refused");
        assert!(mpi.contains("mpi/pmix"), "{mpi}");
    }

    #[test]
    fn ignored_options_are_reported_in_slurms_words() {
        let options = JobOptions { core_spec: Some(1), ..JobOptions::default() };
        assert!(ignored(&options)[0].starts_with("Ignoring -S since it's not allowed"));
        assert!(ignored(&JobOptions::default()).is_empty());
    }
}
