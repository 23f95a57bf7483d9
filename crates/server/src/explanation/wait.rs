//! The text of a wait: its reason, what is missing and who has it, and the expected start.

use model::hostlist;
use model::id::JobId;
use model::machine::MachineAnswer;
use model::node_reason::ReasonAuthor;
use model::printable::printable;
use model::reason::{Limit, NeverFits, Reason, UserFault};
use model::run::{Hold, JobState};
use model::shortage::{MissingResource, NodeClassReport, Shortage};
use model::time::{TimeLimit, format_limit_full};
use slurm::output::Moment;
use slurm::words::note::{amount, counted, limit_text, memory, units};
use slurm::words::{self, job as state, limit_remedy};
use wire::explain::{
    ExpectedStart, HeldResource, LicenseShortage, LimitHolders, NodeReservation, Occupant,
    ResourceHolder, TermJob, UnavailableNode, UnmetTerm, WaitView,
};
use wire::view::JobView;

/// A sentence on what the reason means for this job.
pub fn sentence(job: &JobView, wait: &WaitView, reason: &Reason, moment: Moment<'_>) -> String {
    let text = match reason {
        _ if is_parked(job, reason) => {
            "Its service does not need it now: the server starts it when the load asks for it."
        }
        Reason::Resources => "Its turn has come; not enough is free for it.",
        Reason::Priority => "Others are before it, and it may not delay them.",
        Reason::Dependency => "It waits for other jobs.",
        Reason::DependencyNeverSatisfied => "What it waits for cannot come about any more.",
        Reason::HeldByUser => "Its owner holds it; `scontrol release` lets it go.",
        Reason::HeldByAdmin => "An operator holds it; only an operator can release it.",
        Reason::ArrayTaskLimit => return throttled(job),
        Reason::PartitionDown => "Its partition is down.",
        Reason::PartitionInactive => "Its partition is inactive.",
        Reason::PartitionNodeLimit => return too_wide(job, wait),
        Reason::PartitionTimeLimit => return too_long(job, wait),
        Reason::NodesDown => "Nodes that it needs are down or drained.",
        Reason::RequiredNodesUnavailable { nodes }
            if !wait.gone_nodes.is_empty()
                && nodes.iter().all(|node| wait.gone_nodes.contains(node)) =>
        {
            "Nodes that it names are gone."
        }
        Reason::RequiredNodesUnavailable { .. } => "Nodes that it names are down or drained.",
        Reason::Licenses => "Not enough licences are free.",
        Reason::Reservation => {
            "The reservation that it asks for has not begun, or does not let it in."
        }
        Reason::ReservationGone(_) => "The reservation that it asked for is gone.",
        Reason::NodesReserved => "Nodes that it needs are kept by a reservation.",
        Reason::BadConstraints => "No nodes of its partition could ever hold it as they are now.",
        Reason::UsageThreshold => "Its owner's fair share is below what its QOS asks for.",
        Reason::LaunchFailed | Reason::LaunchFailedHeld => {
            "A node could not launch it; only an operator can release it, when that is mended."
        }
        Reason::RequeuedHeld if job.hold == Some(Hold::Admin) => {
            "It was put back and is held; only an operator can release it."
        }
        Reason::RequeuedHeld => "It was put back and is held; `scontrol release` lets it go.",
        Reason::UserRefused(fault) => return refused_user(*fault).to_owned(),
        Reason::Deadline => "It could not end before its deadline any more.",
        Reason::RestoredNodesAwaited => {
            "The cluster was restored from a backup, after which it may have started: it waits until every node has connected and \
             has ended what it ran since, or is down. Those are the nodes that sinfo shows with a * or as completing; \
             scontrol update nodename=… state=resume ends the wait for one (docs/backup.md)."
        }
        Reason::NotPlanned | Reason::None => "No plan has looked at it yet.",
        Reason::BeginTime => {
            return match wait.begin {
                Some(begin) => format!("It is not to start before {}.", moment.iso(begin)),
                None => "Its begin time has just come.".to_owned(),
            };
        }
        Reason::Limit(limit) => return format!("{}.", limit_text(limit)),
        _ => "It is held back until somebody changes it.",
    };
    text.to_owned()
}

/// Whether it is a replica of a service that is scaled, which the server holds while the load does not ask for it.
fn is_parked(job: &JobView, reason: &Reason) -> bool {
    let service = job.spec.launch.service.as_deref();
    service.is_some_and(|service| service.scaling.is_some())
        && job.hold == Some(Hold::User)
        && job.state != JobState::SpecialExit
        && matches!(reason, Reason::HeldByUser | Reason::RequeuedHeld)
}

/// What a node has against the job's owner, and who can mend it.
fn refused_user(fault: UserFault) -> &'static str {
    match fault {
        UserFault::Unknown => {
            "A node does not know its owner; an operator can release it when that is mended."
        }
        UserFault::Renamed => {
            "On a node its owner's user id belongs to another name; an operator can release it when that is mended."
        }
        UserFault::Expired => {
            "Its owner's account has expired; an operator can release it when that is mended."
        }
        UserFault::Locked => {
            "Its owner's account is locked; an operator can release it when that is mended."
        }
    }
}

fn throttled(job: &JobView) -> String {
    let most = job.array.as_ref().and_then(|array| array.throttle).unwrap_or(0);
    format!("No more than {} of the array may run at a time.", counted(u64::from(most), "task"))
}

fn too_wide(job: &JobView, wait: &WaitView) -> String {
    let asked = counted(u64::from(job.nodes.min), "node");
    let mut text = format!("It asks for {asked}, another number than its partition gives a job");
    for (at, limits) in wait.partition_limits.iter().enumerate() {
        let most = counted(u64::from(limits.nodes), "node");
        text += if at == 0 { ": " } else { "; " };
        text += &format!("{} gives at most {most}", limits.partition);
    }
    text + "."
}

fn too_long(job: &JobView, wait: &WaitView) -> String {
    let asked = match job.time_limit {
        TimeLimit::Unlimited => "no limit at all".to_owned(),
        limit => format_limit_full(limit),
    };
    let mut text = format!("Its time limit ({asked}) is beyond its partition's");
    for (at, limits) in wait.partition_limits.iter().enumerate() {
        let most = format_limit_full(limits.time);
        text += if at == 0 { ": " } else { "; " };
        text += &format!("{} gives at most {most}", limits.partition);
    }
    text + "."
}

/// What holds the job back beside that, and when it is expected to start.
pub fn lines(job: &JobView, wait: &WaitView, moment: Moment<'_>) -> Vec<String> {
    let mut lines = Vec::new();
    wait.dependency.iter().for_each(|term| lines.push(open_term(term, moment)));
    if let Some(begin) = wait.begin.filter(|_| wait.reason != Some(Reason::BeginTime)) {
        lines.push(format!("Nor is it to start before {}.", moment.iso(begin)));
    }
    if let Some(LimitHolders { limit, holders, others, others_amount }) = &wait.limit {
        let of = |count| amount(limit, count);
        lines.extend(holder_lines(holders, *others, *others_amount, &of));
    }
    wait.licenses.iter().for_each(|license| lines.extend(license_lines(license)));
    if let Some(reservation) = &wait.reservation {
        lines.push(match reservation.window {
            None => format!("Reservation {}: there is none of that name.", reservation.name),
            Some((start, end)) => format!(
                "Reservation {}: from {} to {}.",
                reservation.name,
                moment.iso(start),
                moment.iso(end)
            ),
        });
    }
    if !wait.gone_nodes.is_empty() {
        let (gone, id) = (hostlist::compress(&wait.gone_nodes), update_id(job));
        lines.push(format!(
            "It names {gone}, which the cluster does not have any more; `scontrol update JobId={id} NodeList=…` names another."
        ));
    }
    // Free resources matter only if nothing else holds the job.
    if matters(wait.reason.as_ref()) {
        let several = job.partition.contains(',');
        wait.classes.iter().for_each(|class| lines.extend(class_lines(class, several)));
        let request = job.spec.request();
        let is_enough = |class: &NodeClassReport| class.free.len() >= class.wanted as usize;
        if (request.one_switch || request.switches.is_some()) && wait.classes.iter().any(is_enough)
        {
            let below = match request.switches {
                Some(few) if few.count > 1 => format!("{} switches", few.count),
                _ => "one switch".to_owned(),
            };
            lines.push(format!(
                "Those that are free are not together below {below}, as it has to be."
            ));
        }
        lines.extend(occupants_line(wait, moment));
        lines.extend(wait.node_reservations.iter().map(|one| node_reservation(one, moment)));
    }
    wait.unavailable.iter().for_each(|node| lines.push(out_of_service(node, moment)));
    wait.machine.iter().for_each(|answer| lines.extend(machine_lines(answer, moment)));
    if let Some(limit) = &wait.limit_never_met {
        lines.push(never_met(job, wait, limit));
        return lines;
    }
    if wait.ahead > 0 {
        let named = wait.ahead_first.iter().map(|one| format!("{} ({})", one.job, one.user));
        let named = named.collect::<Vec<_>>().join(", ");
        // Jobs of others may be hidden from the user: they count, and have no names.
        let first = if named.is_empty() { named } else { format!("; first {named}") };
        lines.push(format!("Ahead of it: {}{first}.", counted(wait.ahead.into(), "job")));
    }
    // The slot's own time leaves out tasks of arrays that have no slot yet: the start that is expected is the one time told.
    if wait.backfill_slot.is_some() {
        lines.push("A place is kept for it: jobs behind it may not delay it.".to_owned());
    }
    lines.push(match &wait.expected {
        Some(expected) => format!("Expected start: {}.", start_text(expected, moment)),
        None => format!("Expected start: not known{}.", why_unknown(wait)),
    });
    lines
}

/// What lets a job start that breaks a limit by itself, and that limit where it is not the one of its reason.
fn never_met(job: &JobView, wait: &WaitView, limit: &Limit) -> String {
    let remedy = limit_remedy::text(limit, update_id(job));
    let is_told = matches!(&wait.reason, Some(Reason::Limit(told)) if **told == *limit);
    if is_told { format!("{remedy}.") } else { format!("{}. {remedy}.", limit_text(limit)) }
}

/// What `scontrol update` takes for the job; for the pending tasks of an array, the array.
fn update_id(job: &JobView) -> JobId {
    let array = job.array.as_ref().filter(|array| array.index.is_none());
    array.map_or(job.id, |array| array.array)
}

/// `Reservation course has n[1-2] from … to ….`
fn node_reservation(reservation: &NodeReservation, moment: Moment<'_>) -> String {
    let NodeReservation { name, nodes, start, end } = reservation;
    let nodes = hostlist::compress(nodes);
    format!("Reservation {name} has {nodes} from {} to {}.", moment.iso(*start), moment.iso(*end))
}

/// `4 GPUs`, `16G of memory`
fn held_text(held: &HeldResource) -> String {
    match &held.what {
        MissingResource::MemoryMib => format!("{} of memory", memory(held.amount)),
        MissingResource::Gres(name) => units(held.amount, name),
        _ => counted(held.amount, "CPU"),
    }
}

/// `On them: job 7 (ada) with 4 GPUs until …; job 8 (bob) without a time limit; and 3 more jobs.`
fn occupants_line(wait: &WaitView, moment: Moment<'_>) -> Option<String> {
    let one = |on: &Occupant| {
        let until = on.until.map_or_else(
            || "without a time limit".to_owned(),
            |until| format!("until {} at the latest", moment.iso(until)),
        );
        let held: Vec<String> = on.held.iter().map(held_text).collect();
        let held =
            if held.is_empty() { held.join("") } else { format!(" with {}", held.join(", ")) };
        format!("job {} ({}){held} {until}", on.job, on.user)
    };
    let mut parts: Vec<String> = wait.occupants.iter().map(one).collect();
    match (parts.is_empty(), wait.more_occupants) {
        (_, 0) => {}
        (true, more) => parts.push(counted(more.into(), "job")),
        (false, more) => parts.push(format!("and {}", counted(more.into(), "more job"))),
    }
    (!parts.is_empty()).then(|| format!("On them: {}.", parts.join("; ")))
}

/// Whether a machine is made for it, and why not.
fn machine_lines(answer: &MachineAnswer, moment: Moment<'_>) -> Vec<String> {
    let none = |why: &str| vec![format!("No machine is made for it: {why}.")];
    match answer {
        MachineAnswer::Ordered { source, offer, price } => {
            let offer = printable(offer);
            vec![format!("A machine is asked for: {offer} of source {source}, {price} an hour.")]
        }
        MachineAnswer::Coming => vec!["A machine that is on its way has room for it.".into()],
        MachineAnswer::NodesSooner => none("nodes are expected to be free before it would be up"),
        MachineAnswer::Unserved => {
            none("one that was made for it has joined, and it does not start there")
        }
        MachineAnswer::ReuseOnly => none("its `creation_policy` is `reuse`"),
        MachineAnswer::Bound => {
            none("it names its nodes or a reservation, or is part of a heterogeneous job")
        }
        MachineAnswer::NoOffer => none("no source of its partitions offers one that could hold it"),
        MachineAnswer::HeldBack(holds) => holds
            .iter()
            .flat_map(|hold| {
                let until = hold.cause.until().map(|at| moment.iso(at));
                let until = until.map(|at| format!("; it is left alone until {at}"));
                let until = until.unwrap_or_default();
                none(&format!("source {}: {}{until}", hold.source, hold.cause))
            })
            .collect(),
    }
}

/// `node1 is out of service by root since …: disk failed.`
fn out_of_service(out: &UnavailableNode, moment: Moment<'_>) -> String {
    let UnavailableNode { node, reason } = out;
    let why = printable(words::node::reason_text(reason)).into_owned();
    let since = moment.iso(reason.at);
    match &reason.author {
        ReasonAuthor::User { name, .. } => {
            format!("{node} is out of service by {name} since {since}: {why}.")
        }
        ReasonAuthor::System => format!("{node} is out of service since {since}: {why}."),
    }
}

/// What makes a start unknown, as far as it is known.
fn why_unknown(wait: &WaitView) -> &'static str {
    match &wait.reason {
        Some(
            Reason::HeldByUser
            | Reason::HeldByAdmin
            | Reason::RequeuedHeld
            | Reason::LaunchFailedHeld
            | Reason::UserRefused(_),
        ) => " while it is held",
        Some(Reason::Dependency) => ": the end of what it depends on is not known",
        Some(Reason::DependencyNeverSatisfied) => {
            ": it does not start unless its dependency is changed (scontrol update JobId=… Dependency=…)"
        }
        _ if !wait.gone_nodes.is_empty() => ": it names what is gone",
        Some(Reason::NodesDown | Reason::RequiredNodesUnavailable { .. }) => {
            ": nobody knows when nodes return"
        }
        _ if wait.endless_occupants => ": a job that holds what it needs has no time limit",
        Some(Reason::PartitionTimeLimit | Reason::PartitionNodeLimit) => {
            " while its partition does not allow it"
        }
        _ if wait.ahead > 0 => ": jobs before it have no time limit, or no known start",
        _ => "",
    }
}

fn matters(reason: Option<&Reason>) -> bool {
    matches!(
        reason,
        Some(
            Reason::Resources
                | Reason::Priority
                | Reason::NodesDown
                | Reason::NodesReserved
                | Reason::RequiredNodesUnavailable { .. }
                | Reason::BadConstraints
                | Reason::Reservation
        )
    )
}

fn start_text(expected: &ExpectedStart, moment: Moment<'_>) -> String {
    let ExpectedStart { start, partition, nodes } = expected;
    let nodes = hostlist::compress(nodes);
    format!("{} on {nodes} (partition {partition})", moment.iso(*start))
}

fn open_term(term: &UnmetTerm, moment: Moment<'_>) -> String {
    let one = |job: &TermJob| {
        let when = match job.end {
            Some(end) if job.state.is_ended() => format!(" since {}", moment.iso(end)),
            Some(end) => format!(", until {} at the latest", moment.iso(end)),
            None => String::new(),
        };
        format!("job {} is {}{when}", job.job, state::long(job.state))
    };
    let mut jobs: Vec<String> = term.jobs.iter().map(one).collect();
    let others = term.count.saturating_sub(term.jobs.len() as u32);
    if others > 0 {
        jobs.push(format!("and {}", counted(others.into(), "more job")));
    }
    if jobs.is_empty() {
        // A job that nobody knows fails no dependency.
        let why = if term.failed {
            "what it names was cancelled before it started"
        } else {
            "nobody knows such a job"
        };
        jobs.push(why.to_owned());
    }
    let verdict = if term.failed { " can never be met" } else { "" };
    format!("{}{verdict}: {}.", term.term, jobs.join("; "))
}

fn holder_lines(
    holders: &[ResourceHolder],
    others: u32,
    others_amount: u64,
    of: &dyn Fn(u64) -> String,
) -> Vec<String> {
    let one = |holder: &ResourceHolder| {
        format!("  held by job {} ({}): {}", holder.job, holder.user, of(holder.amount))
    };
    let mut lines: Vec<String> = holders.iter().map(one).collect();
    if others > 0 {
        let more = counted(others.into(), "more job");
        lines.push(format!("  and by {more} with {}", of(others_amount)));
    }
    lines
}

fn license_lines(license: &LicenseShortage) -> Vec<String> {
    let LicenseShortage { name, asked, free, holders, others, others_amount } = license;
    let mut lines = vec![format!("Licence {name}: {free} free, {asked} asked.")];
    lines.extend(holder_lines(holders, *others, *others_amount, &|count| count.to_string()));
    lines
}

fn class_lines(class: &NodeClassReport, several: bool) -> Vec<String> {
    let nodes = counted(class.nodes.len() as u64, "node");
    let partition =
        if several { format!(" (partition {})", class.partition) } else { String::new() };
    let head = format!("{nodes} {}{partition}", hostlist::compress(&class.nodes));
    if let Some(never) = &class.never {
        return vec![format!("{head}: {}.", never_text(never))];
    }
    let mut parts: Vec<String> = class.missing.iter().map(|m| missing(m, class)).collect();
    if !class.free.is_empty() {
        let free = counted(class.free.len() as u64, "node");
        let enough = if class.free.len() < class.wanted as usize {
            format!(", {} needed at once", class.wanted)
        } else {
            String::new()
        };
        parts.push(format!("{free} free{enough}"));
    }
    match parts.as_slice() {
        [one] => vec![format!("{head}: {one}.")],
        _ => {
            let lines = parts.iter().map(|part| format!("  {part}"));
            std::iter::once(format!("{head}:")).chain(lines).collect()
        }
    }
}

fn missing(missing: &Shortage, class: &NodeClassReport) -> String {
    let Shortage { what, nodes, asked, most_free, total } = missing;
    let amounts = |unit: &dyn Fn(u64) -> String| {
        format!("at most {most_free} of {} free, {asked} asked", unit(*total))
    };
    let what = match what {
        MissingResource::Drained => "drained".to_owned(),
        MissingResource::Down => "down".to_owned(),
        MissingResource::NotResponding => "does not answer, or must end something first".to_owned(),
        MissingResource::NodeList => "not among the nodes that the job may use".to_owned(),
        MissingResource::Hardware => "not of the sort that was asked for".to_owned(),
        MissingResource::Cpus => amounts(&|count| counted(count, "CPU")),
        MissingResource::MemoryMib => format!(
            "at most {} of {} of memory free, {} asked",
            memory(*most_free),
            memory(*total),
            memory(*asked)
        ),
        MissingResource::Gres(name) if *asked > 0 => amounts(&|count| units(count, name)),
        MissingResource::Gres(name) => format!("what is free of {name} does not go together"),
        MissingResource::Exclusive => {
            "somebody there has the node alone, or wants it alone".to_owned()
        }
        MissingResource::Reservation => "kept by a reservation".to_owned(),
        MissingResource::KeptForOthers => {
            "free now, but kept for jobs before it within its time limit".to_owned()
        }
    };
    if nodes.len() == class.nodes.len() {
        what
    } else {
        format!("{}: {what}", hostlist::compress(nodes))
    }
}

/// What even an empty node of the class has too little of.
fn never_text(never: &NeverFits) -> String {
    match never {
        NeverFits::Cpus { asked, most } => format!("has {}; {asked} asked", counted(*most, "CPU")),
        NeverFits::Memory { asked_mib, most_mib } => {
            format!("has {} of memory; {} asked", memory(*most_mib), memory(*asked_mib))
        }
        NeverFits::Gres { name, asked, most, .. } => {
            format!("has {}; {asked} asked", units(*most, name))
        }
        NeverFits::Features(features) => format!("does not have the features {features}"),
        NeverFits::Architecture(asked) => format!("does not have {asked} processors"),
        NeverFits::Price { most } => format!("costs more than {most} an hour"),
        NeverFits::OtherProject => {
            "is a machine of another project's backend, for that project's jobs alone".into()
        }
        NeverFits::Disk { asked_mib, most_mib } => {
            let (most, asked) = (memory(*most_mib), memory(*asked_mib));
            format!("has {most} of local disk (TmpDisk); {asked} asked")
        }
        _ => "not of the sort that was asked for".to_owned(),
    }
}
