//! What `srun` prints when a step is refused or has to wait.

use crate::words::refusal;
use model::id::JobId;
use model::reason::{NeverFits, Refusal, UnmetConstraint};
use model::step::StepRefusal;

const BUSY: &str = refusal::NODES_BUSY.text;
const INVALID_GRES: &str = refusal::INVALID_GRES.text;

/// What the words of a refusal depend on besides its reason.
#[derive(Debug, Clone, Copy, Default)]
pub struct RefusalContext {
    /// The step had waited for other steps to end.
    pub waited: bool,
    /// The number of nodes came from the job's environment and not from an option.
    pub nodes_inherited: bool,
}

/// Whole lines for standard error, without the command's name.
pub fn refused(job: JobId, why: &Refusal, context: RefusalContext) -> Vec<String> {
    let create = |text: &str| format!("error: Unable to create step for job {job}: {text}");
    let expired =
        || format!("Check SLURM_JOB_ID environment variable. Expired or invalid job {job}");
    match why {
        Refusal::JobEnded(_) if context.waited => vec![create(&refusal::text(why))],
        Refusal::JobEnded(_) => vec![format!("error: Slurm job {job} has expired"), expired()],
        Refusal::UnknownJob(_) | Refusal::JobNotRunning(_) => {
            let text = refusal::text(why);
            vec![format!("error: Unable to confirm allocation for job {job}: {text}"), expired()]
        }
        Refusal::Step(why) => {
            let (before, text) = step(why, context);
            let before = before.into_iter().map(|line| format!("error: {line}"));
            before.chain(text.map(create)).collect()
        }
        Refusal::NodeConfiguration(UnmetConstraint { why: NeverFits::Cpus { .. }, .. }) => {
            vec![create("More processors requested than permitted")]
        }
        _ => vec![create(&refusal::text(why))],
    }
}

/// The lines before, and the sentence after `Unable to create step`.
fn step(why: &StepRefusal, context: RefusalContext) -> (Vec<String>, Option<&'static str>) {
    match why {
        StepRefusal::Busy => (Vec::new(), Some(BUSY)),
        StepRefusal::Nodes { asked, most, excluded } => {
            let mut lines = vec![format!("Only allocated {most} nodes asked for {asked}")];
            if *excluded {
                lines.push("Are required nodes explicitly excluded?".to_owned());
            }
            (lines, None)
        }
        StepRefusal::NoNodes => (vec!["Hostlist is empty!  Can't run job.".to_owned()], None),
        StepRefusal::Relative { first, asked, most } => {
            let by = if context.nodes_inherited { "SLURM_JOB_NUM_NODES" } else { "--nodes" };
            let line = format!(
                "--relative and {by} option incompatible with count of allocated nodes \
                 ({first}+{asked}>{most})"
            );
            (vec![line], None)
        }
        StepRefusal::Processors { .. } => {
            (Vec::new(), Some("More processors requested than permitted"))
        }
        StepRefusal::Memory { .. } => {
            (Vec::new(), Some("Memory required by task is not available"))
        }
        StepRefusal::GresPerNode { name, asked, most } => {
            let line = format!(
                "Step requested gres_per_node={name}:{asked} is more than the job's \
                 gres_per_node={name}:{most}"
            );
            (vec![line], Some(INVALID_GRES))
        }
        StepRefusal::Gres { .. } => (Vec::new(), Some(INVALID_GRES)),
        StepRefusal::GresUnknown { name } => {
            (vec![format!("Step requested GRES ({name}) not found in the job")], Some(INVALID_GRES))
        }
        StepRefusal::GresBelowNodes { name, asked, nodes } => {
            let line = format!(
                "Step requested gres={name}:{asked} is less than the requested min nodes={nodes}"
            );
            (vec![line], Some(INVALID_GRES))
        }
        StepRefusal::Count { .. } => (Vec::new(), Some("Step limit reached for this job")),
        StepRefusal::OpenBytes { bytes, most } => {
            let line = format!("the job's running steps take {bytes} bytes of {most} allowed");
            (vec![line], Some("Step limit reached for this job"))
        }
        StepRefusal::Hosts { tasks, hosts } => {
            let line = format!("You asked for {tasks} tasks but hostlist specified {hosts} nodes");
            (vec![line], None)
        }
    }
}

/// The line of a step that waits for other steps; `again` after the first time.
pub fn busy(job: JobId, again: bool) -> String {
    let still = if again { "still" } else { "temporarily" };
    format!("Job {job} step creation {still} disabled, retrying ({BUSY})")
}

pub fn created(job: JobId) -> String {
    format!("Step created for job {job}")
}

/// The lines after a signal ended the wait.
pub fn wait_cancelled(job: JobId, signal: i32) -> Vec<String> {
    let context = RefusalContext { waited: true, ..RefusalContext::default() };
    let mut lines = vec![format!("Cancelled pending job step with signal {signal}")];
    lines.extend(refused(job, &Refusal::JobEnded(job), context));
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusals_have_the_captured_words() {
        let job = JobId(5);
        let step = |why| Refusal::Step(why);
        let create = |text: &str| format!("error: Unable to create step for job 5: {text}");
        let expired = "Check SLURM_JOB_ID environment variable. Expired or invalid job 5";
        let gpu = || "gpu".to_owned();
        let table: Vec<(Refusal, Vec<String>)> = vec![
            (step(StepRefusal::Busy), vec![create("Requested nodes are busy")]),
            (
                step(StepRefusal::Nodes { asked: 4, most: 3, excluded: true }),
                vec![
                    "error: Only allocated 3 nodes asked for 4".into(),
                    "error: Are required nodes explicitly excluded?".into(),
                ],
            ),
            (step(StepRefusal::NoNodes), vec!["error: Hostlist is empty!  Can't run job.".into()]),
            (
                step(StepRefusal::Relative { first: 3, asked: 2, most: 4 }),
                vec![
                    "error: --relative and --nodes option incompatible with count of allocated \
                      nodes (3+2>4)"
                        .into(),
                ],
            ),
            (
                step(StepRefusal::Processors { asked: 9, most: 8 }),
                vec![create("More processors requested than permitted")],
            ),
            (
                step(StepRefusal::GresPerNode { name: gpu(), asked: 3, most: 2 }),
                vec![
                    "error: Step requested gres_per_node=gpu:3 is more than the job's \
                     gres_per_node=gpu:2"
                        .into(),
                    create("Invalid generic resource (gres) specification"),
                ],
            ),
            (
                Refusal::JobNotRunning(job),
                vec![
                    "error: Unable to confirm allocation for job 5: Job is pending execution"
                        .into(),
                    expired.into(),
                ],
            ),
            (Refusal::JobEnded(job), vec!["error: Slurm job 5 has expired".into(), expired.into()]),
            (Refusal::AccessDenied, vec![create("Access/permission denied")]),
        ];
        for (why, lines) in table {
            assert_eq!(refused(job, &why, RefusalContext::default()), lines);
        }
        assert_eq!(
            wait_cancelled(job, 2),
            [
                "Cancelled pending job step with signal 2".to_owned(),
                create("Job/step already completing or completed")
            ]
        );
    }
}
