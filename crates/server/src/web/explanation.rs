//! Why a job waits, in sentences for the page. `sluice explain` says the same at more length.

use model::hostlist::compress;
use model::id::JobId;
use model::reason::Reason;
use slurm::words::{limit_remedy, node, note, reason};
use wire::explain::{LimitHolders, ResourceHolder, WaitView};

/// `job` is what `scontrol update` takes for it.
pub fn sentences(wait: &WaitView, job: JobId) -> Vec<String> {
    let mut said = Vec::new();
    match &wait.reason {
        None | Some(Reason::None) => {
            said.push("Nothing holds it back: it starts with the next plan.".into())
        }
        Some(why) => said.push(format!("It waits for: {}.", reason::text(why))),
    }
    if let Some(first) = wait.ahead_first.first() {
        said.push(format!(
            "{} before it in the queue, the first is {} of {}.",
            note::counted(u64::from(wait.ahead), "job"),
            first.job,
            first.user
        ));
    }
    said.extend(wait.limit.as_ref().map(limit));
    let never = wait.limit_never_met.as_ref();
    said.extend(never.map(|never| format!("{}.", limit_remedy::text(never, job))));
    said.extend(wait.dependency.iter().map(|term| {
        let end = if term.failed { "can never be met any more" } else { "is not met yet" };
        format!("Its dependency {} {end}.", term.term)
    }));
    said.extend(wait.licenses.iter().map(|license| {
        let (name, asked, free) = (&license.name, license.asked, license.free);
        format!("License {name}: {asked} asked, {free} free{}.", holders(&license.holders))
    }));
    said.extend(wait.partition_limits.iter().map(|limits| {
        let nodes = note::counted(u64::from(limits.nodes), "node");
        format!("Partition {} gives a job {} and {nodes} at most.", limits.partition, limits.time)
    }));
    for class in &wait.classes {
        let nodes = compress(class.nodes.iter().map(String::as_str));
        said.push(match &class.never {
            Some(never) => format!("{nodes}: never, {never}."),
            None => format!(
                "{nodes}: {} wanted at once, {} free.",
                note::counted(u64::from(class.wanted), "node"),
                class.free.len()
            ),
        });
    }
    if !wait.occupants.is_empty() {
        let named = wait.occupants.iter().map(|one| format!("{} of {}", one.job, one.user));
        let named: Vec<String> = named.collect();
        let more = match wait.more_occupants {
            0 => String::new(),
            count => format!(" and {count} more"),
        };
        said.push(format!("On those nodes: {}{more}.", named.join(", ")));
    }
    said.extend(
        wait.unavailable.iter().map(|out| {
            format!("{} is out of service: {}.", out.node, node::reason_text(&out.reason))
        }),
    );
    said
}

fn limit(reached: &LimitHolders) -> String {
    format!("{}{}.", note::limit_text(&reached.limit), holders(&reached.holders))
}

/// `; held by 12 of ann (2)`
fn holders(holders: &[ResourceHolder]) -> String {
    if holders.is_empty() {
        return String::new();
    }
    let named = holders.iter().map(|one| format!("{} of {} ({})", one.job, one.user, one.amount));
    format!("; held by {}", named.collect::<Vec<_>>().join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use wire::explain::{NamedJob, Occupant};

    #[test]
    fn wait_is_said_with_who_is_before_it_and_who_is_there() {
        let named = NamedJob { job: "12".into(), user: "ann".into() };
        let occupant = Occupant { job: "9".into(), user: "bob".into(), until: None };
        let wait = WaitView {
            reason: Some(Reason::Priority),
            ahead: 1,
            ahead_first: vec![named],
            occupants: vec![occupant],
            more_occupants: 2,
            ..WaitView::default()
        };
        let said = sentences(&wait, JobId(1));
        assert_eq!(said[0], "It waits for: Priority.");
        assert!(said[1].contains("12 of ann"), "{said:?}");
        assert_eq!(said[2], "On those nodes: 9 of bob and 2 more.");
        let free = sentences(&WaitView::default(), JobId(1));
        assert!(free[0].starts_with("Nothing holds it back"), "{free:?}");
    }
}
