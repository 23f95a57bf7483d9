//! `scontrol show step`.

use super::Options;
use super::record::RecordWriter;
use crate::output::Moment;
use crate::output::text::frequency_text;
use crate::words::NULL;
use model::hostlist;
use model::id::StepId;
use model::run::Step;
use model::tres::{Tres, TresKind};
use wire::view::JobView;

/// Prints the running steps of a job, or only the step `wanted`.
pub fn push(
    out: &mut String,
    job: &JobView,
    wanted: Option<StepId>,
    moment: Moment<'_>,
    options: Options,
) {
    let steps = job.steps.iter().filter(|step| step.end.is_none());
    for step in steps.filter(|step| wanted.is_none_or(|id| step.id == id)) {
        push_one(out, job, step, moment, options);
    }
}

fn push_one(out: &mut String, job: &JobView, step: &Step, moment: Moment<'_>, options: Options) {
    let mut record = RecordWriter::new(out, options.oneliner);
    record.line(format!(
        "StepId={}.{} UserId={} StartTime={} TimeLimit=UNLIMITED",
        job.id,
        step.id,
        job.spec.owner.uid,
        moment.iso(step.start)
    ));
    record.line(format!(
        "State=RUNNING Partition={} NodeList={}",
        job.partition,
        hostlist::compress(&step.nodes)
    ));
    // The batch script's CPUs are its job's; Slurm counts none for the step itself.
    let cpus = if step.id == StepId::Batch { 0 } else { step.cpus };
    record.line(format!(
        "Nodes={} CPUs={cpus} Tasks={} Name={} Network=(null)",
        step.nodes.len(),
        step.tasks,
        step.name
    ));
    record.line(match step.id {
        StepId::Number(_) => format!("TRES={}", tres(step)),
        _ => format!("TRES={NULL}"),
    });
    record.line("ResvPorts=(null)");
    record.line(format!("CPUFreqReq={}", frequency_text::request(step.cpu_frequency)));
    record.line("SrunHost:Pid=(null):0");
    record.end();
}

/// The resources of the step, ordered by name.
fn tres(step: &Step) -> String {
    let mut tres = Tres::default();
    step.shares.iter().for_each(|share| tres.merge(&share.tres()));
    tres.set(TresKind::Cpu, u64::from(step.cpus));
    tres.set(TresKind::Node, step.nodes.len() as u64);
    tres.display_by_name()
}
