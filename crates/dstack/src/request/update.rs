//! Whether two runs are the same, and what is changed in place.

use super::{specs, unset_owner};
use model::change::JobField;
use model::request::WaitPolicy;
use model::run::JobSpec;
use std::sync::Arc;
use wire::client::Submission;

/// Whether an active run is the one that is asked for, in all its groups: equal but for the submitter, the time and the host.
/// Scripts and environments are stored by content, and compared by their names.
pub fn is_same_run<'a>(
    active: impl IntoIterator<Item = &'a JobSpec>,
    asked: impl IntoIterator<Item = &'a JobSpec>,
) -> bool {
    let (mut active, mut asked) = (active.into_iter(), asked.into_iter());
    loop {
        match (active.next(), asked.next()) {
            (None, None) => return true,
            (Some(active), Some(asked)) if is_same(active, asked) => {}
            _ => return false,
        }
    }
}

fn is_same(active: &JobSpec, asked: &JobSpec) -> bool {
    let (mut active, asked) = (essence(active), essence(asked));
    // A run of a build that did not keep them names none, whatever its configuration says. They are for its client alone: those
    // that a container opens are compared with it.
    if active.launch.port_forwards.is_none() {
        let forwards = asked.launch.port_forwards.clone();
        Arc::make_mut(&mut active.launch).port_forwards = forwards;
    }
    active == asked
}

/// What a run that is active would have to change to be the other, where all of that is changed in place: its priority, and
/// the `inactivity_duration` that dev environments have. `None` if it differs in something else as well, or not at all.
pub fn update_in_place(active: &[&JobSpec], asked: &[JobSpec]) -> Option<Vec<JobField>> {
    let first = asked.first()?;
    let (priority, inactivity) = (first.dstack_priority?, first.inactivity_s);
    let mut updated: Vec<JobSpec> = active.iter().map(|spec| (*spec).clone()).collect();
    for spec in &mut updated {
        (spec.dstack_priority, spec.inactivity_s) = (Some(priority), inactivity);
    }
    let mut fields = Vec::new();
    if active.iter().any(|spec| spec.dstack_priority != Some(priority)) {
        fields.push(JobField::RunPriority(priority));
    }
    if active.iter().any(|spec| spec.inactivity_s != inactivity) {
        fields.push(JobField::RunInactivity(inactivity));
    }
    (!fields.is_empty() && is_same_run(&updated, asked)).then_some(fields)
}

/// The number of the deployment by which the service that is asked for replaces an active one; `None` where one of them is none.
pub fn next_deployment(active: &JobSpec, asked: &JobSpec) -> Option<u32> {
    asked.launch.service.as_ref()?;
    Some(active.launch.service.as_ref()?.deployment.saturating_add(1))
}

/// Sets the deployment of a service in all its groups.
pub fn set_deployment(submission: &mut Submission, deployment: u32) {
    for spec in specs(submission) {
        if let Some(service) = &mut Arc::make_mut(&mut spec.launch).service {
            service.deployment = deployment;
        }
    }
}

/// What decides how a run runs.
fn essence(spec: &JobSpec) -> JobSpec {
    let mut spec = spec.clone();
    spec.owner = unset_owner();
    (spec.account, spec.qos) = (None, None);
    (spec.submit_line, spec.submit_host, spec.submit_sid) = (no_text(), no_text(), 0);
    spec.call = None;
    let launch = Arc::make_mut(&mut spec.launch);
    // What the server keeps beside the script and the environment, which it is made from as well.
    (launch.command, launch.configuration) = (None, None);
    // Encrypted: equal ones differ.
    (launch.registry_auth, launch.git_credentials) = (None, None);
    launch.blob_bytes = Default::default();
    if let Some(service) = &mut launch.service {
        service.deployment = 0;
    }
    // Set by the server.
    launch.has_project_secrets = false;
    for component in Arc::make_mut(&mut spec.components) {
        let request = Arc::make_mut(&mut component.request);
        request.wait_policy = WaitPolicy::Forever;
        // The next time of a schedule.
        request.begin = None;
        request.partitions.clear();
    }
    spec
}

fn no_text() -> Arc<str> {
    Arc::from("")
}
