//! The edges along which jobs and nodes move, as data: what an event may find, and what it leaves. ARCHITECTURE.md draws them.

use super::{Broken, hold};
use cluster::{Event, Job, Node, Phase, State};
use model::attempt::{EndCause, Ending};
use model::id::{AttemptId, JobId};
use model::node::{AdminState, SlotState};
use std::collections::BTreeSet;

/// Where a job is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stage {
    /// No job has this id.
    None,
    Waiting,
    Held,
    Running,
    Suspended,
    Ending,
    Ended,
}

/// What an event does to a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Move {
    Submit,
    Hold,
    Release,
    Change,
    /// A task leaves its array with an id of its own.
    Split,
    /// The array's last task takes the array's own id.
    SplitLast,
    CancelTasks,
    LoseReservation,
    Start,
    /// A task starts under an id of its own.
    StartTask,
    Suspend,
    /// A job that was suspended for another stays so.
    StaySuspended,
    AskResume,
    Resume,
    StartStep,
    /// A node says something of the attempt.
    Report,
    End,
    /// An end that is under way becomes another.
    EndOtherwise,
    Close,
    Requeue,
    Revive,
    Purge,
}

use Stage::{Ended, Ending as Ends, Held, None as Unknown, Running, Suspended, Waiting};

/// A move, the stages that it may find, and those that it may leave; with none of these the job stays where it is.
type Edge = (Move, &'static [Stage], &'static [Stage]);

const JOB_EDGES: &[Edge] = &[
    (Move::Submit, &[Unknown], &[Waiting, Held]),
    (Move::Hold, &[Waiting, Held], &[Held]),
    (Move::Hold, &[Running, Suspended, Ends], &[]),
    (Move::Release, &[Waiting, Held], &[Waiting]),
    (Move::Release, &[Running, Suspended, Ends], &[]),
    (Move::Change, &[Waiting, Held], &[Waiting, Held]),
    (Move::Change, &[Running, Suspended, Ends, Ended], &[]),
    (Move::Split, &[Unknown], &[Waiting, Held]),
    (Move::SplitLast, &[Waiting, Held], &[]),
    (Move::CancelTasks, &[Waiting, Held], &[Waiting, Held, Ended]),
    (Move::LoseReservation, &[Waiting, Held], &[Waiting, Held]),
    (Move::Start, &[Waiting], &[Running]),
    (Move::StartTask, &[Unknown], &[Running]),
    (Move::Suspend, &[Running], &[Suspended]),
    (Move::StaySuspended, &[Suspended], &[]),
    (Move::AskResume, &[Suspended], &[]),
    (Move::Resume, &[Suspended], &[Running]),
    (Move::StartStep, &[Running, Suspended], &[]),
    (Move::Report, &[Running, Suspended, Ends], &[]),
    (Move::End, &[Running, Suspended], &[Ends]),
    (Move::EndOtherwise, &[Ends], &[]),
    (Move::Close, &[Waiting, Held, Running, Suspended, Ends], &[Ended]),
    (Move::Requeue, &[Running, Suspended, Ends], &[Waiting, Held]),
    (Move::Revive, &[Ended], &[Waiting, Held]),
    (Move::Purge, &[Ended], &[Unknown]),
];

/// An event's node, the slots that it may find, and the one that it leaves.
type NodeEdge = (NodeMove, &'static [SlotState], SlotState);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum NodeMove {
    SayHello,
    FallSilent,
    GoDown,
}

const NODE_EDGES: &[NodeEdge] = &[
    (
        NodeMove::SayHello,
        &[SlotState::Joining, SlotState::Up, SlotState::Silent, SlotState::Down],
        SlotState::Up,
    ),
    (NodeMove::FallSilent, &[SlotState::Up], SlotState::Silent),
    (NodeMove::GoDown, &[SlotState::Silent], SlotState::Down),
];

pub fn stage(state: &State, id: JobId) -> Stage {
    let Some(job) = state.job(id) else { return Stage::None };
    match &job.phase {
        Phase::Waiting if job.hold.is_some() => Stage::Held,
        Phase::Waiting => Stage::Waiting,
        Phase::Active(attempt) if attempt.ending.is_some() => Stage::Ending,
        Phase::Active(attempt) if attempt.suspended => Stage::Suspended,
        Phase::Active(_) => Stage::Running,
        Phase::Ended(_) => Stage::Ended,
    }
}

/// A job on an edge: where it was, and what the event does to it.
pub struct Moving {
    job: JobId,
    what: Move,
    from: Stage,
}

/// Whether the event may follow in this state. Ids that were given out before are not given again.
pub fn before(
    state: &State,
    event: &Event,
    given: &BTreeSet<JobId>,
) -> Result<Vec<Moving>, Broken> {
    let off_edge = || format!("this event cannot follow here: {event:?}");
    node_before(state, event)?;
    let mut moving = Vec::new();
    for (job, what) in moves(state, event) {
        let from = stage(state, job);
        let is_drawn = JOB_EDGES.iter().any(|(edge, of, _)| *edge == what && of.contains(&from));
        if matches!(what, Move::Submit | Move::Split | Move::StartTask) {
            let is_new = from == Stage::None && !given.contains(&job);
            hold(is_new, || format!("job id {job} is given twice"))?;
        }
        hold(is_drawn, || format!("{} Job {job} is {from:?}.", off_edge()))?;
        moving.push(Moving { job, what, from });
    }
    Ok(moving)
}

/// Whether the event has left its jobs and nodes where an edge leads.
pub fn after(state: &State, event: &Event, moving: &[Moving]) -> Result<(), Broken> {
    for Moving { job, what, from } in moving {
        let to = stage(state, *job);
        let leads = |edge: &&Edge| {
            let stays = edge.2.is_empty() && to == *from;
            edge.0 == *what && edge.1.contains(from) && (stays || edge.2.contains(&to))
        };
        hold(JOB_EDGES.iter().any(|edge| leads(&edge)), || {
            format!("job {job} was {from:?} and is {to:?} after {event:?}")
        })?;
    }
    node_after(state, event)
}

fn moves(state: &State, event: &Event) -> Vec<(JobId, Move)> {
    let attempt = |id: &JobId| state.job(*id).and_then(Job::attempt);
    let one = |job: &JobId, what: Move| vec![(*job, what)];
    match event {
        Event::Submitted(submitted) => one(&submitted.job, Move::Submit),
        Event::Held { job, .. } => one(job, Move::Hold),
        Event::Released { job } => one(job, Move::Release),
        Event::Changed { job, .. } => one(job, Move::Change),
        Event::TaskSplit { array, job, .. } if array == job => one(job, Move::SplitLast),
        Event::TaskSplit { job, .. } => one(job, Move::Split),
        Event::TasksCancelled { array, .. } => one(array, Move::CancelTasks),
        Event::ReservationLost { job, .. } => one(job, Move::LoseReservation),
        Event::Started(started) => {
            let id = &started.attempt.job;
            let is_own = started.task.is_some_and(|(array, _)| array != *id);
            one(id, if is_own { Move::StartTask } else { Move::Start })
        }
        Event::Suspended { job, for_preemption, .. } => {
            let known = attempt(job).filter(|attempt| attempt.suspended);
            let stays = known.is_some_and(|attempt| attempt.auto_resume && !for_preemption);
            one(job, if stays { Move::StaySuspended } else { Move::Suspend })
        }
        Event::ResumeRequested { job } => one(job, Move::AskResume),
        Event::Resumed { job, .. } => one(job, Move::Resume),
        Event::StepStarted { job, .. } => one(job, Move::StartStep),
        Event::PreemptionGraceStarted { job, .. } | Event::StepEndedOnNode { job, .. } => {
            one(job, Move::Report)
        }
        Event::PrologEndedOnNode { attempt, .. }
        | Event::NetworkMade { attempt, .. }
        | Event::AttemptEndedOnNode { attempt, .. }
        | Event::AttemptAbandonedOnNode { attempt, .. } => one(&attempt.job, Move::Report),
        Event::Ending { job, ending, .. } => {
            let known = attempt(job).and_then(|attempt| attempt.ending);
            let is_other = known.is_some_and(|known| may_become(&known, ending));
            one(job, if is_other { Move::EndOtherwise } else { Move::End })
        }
        Event::Ended { job, .. } => one(job, Move::Close),
        Event::Requeued { job, .. } => one(job, Move::Requeue),
        Event::EndedJobRequeued { job, .. } => one(job, Move::Revive),
        Event::Purged { jobs } => jobs.iter().map(|job| (*job, Move::Purge)).collect(),
        _ => Vec::new(),
    }
}

/// An end that is under way changes in two ways: the job is not requeued after all, or one that was cancelled is killed at once.
fn may_become(known: &Ending, new: &Ending) -> bool {
    let for_good = known.requeue.is_some() && new.requeue.is_none();
    for_good || (known.cause == EndCause::Usual && new.cause == EndCause::Aborted)
}

fn node_move(event: &Event) -> Option<(&str, NodeMove)> {
    match event {
        Event::NodeUp { node, .. } => Some((node, NodeMove::SayHello)),
        Event::NodeSilent { node, .. } => Some((node, NodeMove::FallSilent)),
        Event::NodeDown { node, .. } => Some((node, NodeMove::GoDown)),
        _ => None,
    }
}

fn node_before(state: &State, event: &Event) -> Result<(), Broken> {
    let off_edge = || format!("this event of a node cannot follow here: {event:?}");
    if let Some((name, what)) = node_move(event) {
        let slot = state.nodes.get(name).map(|node| node.slot);
        let is_drawn =
            |edge: &NodeEdge| edge.0 == what && slot.is_some_and(|slot| edge.1.contains(&slot));
        return hold(NODE_EDGES.iter().any(is_drawn), off_edge);
    }
    let holds = |attempt: &AttemptId, node: &str| {
        let active = state.job(attempt.job).and_then(Job::attempt);
        let active = active.filter(|active| active.number == attempt.number);
        active.is_some_and(|active| active.held_nodes.iter().any(|held| held == node))
    };
    let is_down =
        |node: &Node| node.slot == SlotState::Down || node.admin == Some(AdminState::Down);
    let may_follow = match event {
        Event::AttemptEndedOnNode { attempt, node, .. } => holds(attempt, node),
        Event::AttemptAbandonedOnNode { attempt, node } => {
            holds(attempt, node) && state.nodes.get(node).is_some_and(is_down)
        }
        Event::StaleAttemptGone { node, attempt } => {
            state.nodes.get(node).is_some_and(|node| node.stale.contains(attempt))
        }
        Event::TermStarted { term, .. } => *term > state.term,
        _ => true,
    };
    hold(may_follow, off_edge)
}

fn node_after(state: &State, event: &Event) -> Result<(), Broken> {
    if let Some((name, what)) = node_move(event) {
        let slot = state.nodes.get(name).map(|node| node.slot);
        let leads = |edge: &NodeEdge| edge.0 == what && slot == Some(edge.2);
        return hold(NODE_EDGES.iter().any(leads), || {
            format!("{name} is {slot:?} after {event:?}")
        });
    }
    let is_up = |node: &Node| node.slot == SlotState::Up;
    let is_term = matches!(event, Event::TermStarted { .. });
    hold(!is_term || !state.nodes.values().any(is_up), || {
        "a node is up before it has said hello to the server of this term".to_owned()
    })
}
