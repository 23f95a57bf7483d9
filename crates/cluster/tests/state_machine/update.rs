//! `scontrol update` and `top`: what may be changed of a job, by whom, and what Slurm says to the rest.

use crate::job_builder::{alice, ask, root};
use crate::testbed::{World, world, world_with};
use cluster::view::priority::Ranking;
use model::change::{JobChange, JobField, JobRef};
use model::id::JobId;
use model::range::Range;
use model::reason::Refusal;
use model::request::{DeviceMake, Sharing};
use model::run::Hold;
use model::time::{TimeLimit, Timestamp};
use std::time::Duration;

fn update(w: &mut World, root_asks: bool, job: JobId, field: JobField) -> Result<(), Refusal> {
    let by = if root_asks { root() } else { alice() };
    w.change_as(by, JobRef::whole(job), JobChange::Fields(vec![field])).map(|_| ())
}

#[test]
fn updates_are_limited_by_role_and_by_whether_the_job_runs() {
    let minutes = |m| JobField::TimeLimit(TimeLimit::Minutes(m));
    let denied = || Err(Refusal::OperatorsOnly);
    let late = |w: &World| w.now + Duration::from_secs(86_400);
    let soon = late(&world(1));
    type Row = (JobField, Result<(), Refusal>, Result<(), Refusal>);
    // The field; what its owner hears while it waits, and while it runs. Operators are refused only what cannot be.
    let not_pending = |w: JobId| Err(Refusal::JobNotPending(w));
    let (waiting, running) = (JobId(2), JobId(1));
    let table: Vec<Row> = vec![
        (minutes(30), Ok(()), Ok(())),
        (minutes(90), Ok(()), denied()),
        (minutes(600), denied(), denied()),
        (JobField::AdminComment("x".into()), denied(), denied()),
        (JobField::Comment("x".into()), Ok(()), Ok(())),
        (JobField::Nice(-1), denied(), denied()),
        (JobField::Nice(5), Ok(()), Ok(())),
        (JobField::Deadline(soon), denied(), Ok(())),
        (JobField::Sharing(Sharing::Node), denied(), not_pending(running)),
        (JobField::Contiguous(true), denied(), not_pending(running)),
        (JobField::Contiguous(false), Ok(()), not_pending(running)),
        (JobField::Wckey("k".into()), Ok(()), not_pending(running)),
        (JobField::Partition(vec!["main".into()]), Ok(()), not_pending(running)),
        (JobField::MailUser("bob".into()), Ok(()), Ok(())),
        (JobField::WithoutEffect("DelayBoot=1".into()), Ok(()), Ok(())),
        (JobField::EndTime(soon), Err(Refusal::JobNotStarted(waiting)), denied()),
        (JobField::ResetAccrueTime, Ok(()), not_pending(running)),
    ];
    for (field, while_waiting, while_running) in table {
        let mut w = world_with(1, |c| c.partitions[0].max_time = TimeLimit::Minutes(120));
        assert_eq!(w.started(ask().cpus(8)).job, running);
        assert_eq!(w.submit(ask().cpus(8)), waiting);
        let heard = update(&mut w, false, waiting, field.clone());
        assert_eq!(heard, while_waiting, "{field:?} of one that waits");
        let heard = update(&mut w, false, running, field.clone());
        assert_eq!(heard, while_running, "{field:?} of one that runs");
        for job in [waiting, running] {
            let heard = update(&mut w, true, job, field.clone());
            assert_ne!(heard, denied(), "{field:?} by an operator");
        }
    }
}

#[test]
fn invalid_values_are_refused_and_change_nothing() {
    let mut w = world(2);
    let job = w.submit(ask().held(Hold::User));
    let past = Timestamp::from_secs(1);
    let gres = model::request::GresRequest {
        per: model::request::Per::Node,
        name: "bogus".into(),
        kinds: Vec::new(),
        count: Range::exactly(1),
        by_model: false,
        make: DeviceMake::default(),
        device_memory: None,
        total_memory: None,
    };
    let features = model::constraint::Constraint::parse("nosuch").expect("a constraint");
    let table = [
        (JobField::Nodes(Range::exactly(99)), Refusal::NodeCount(None)),
        (JobField::Tasks(0), Refusal::TaskCount),
        (JobField::Cpus(9999), Refusal::CpuCount),
        (JobField::CpusPerNode(9999), Refusal::CpuCount),
        (JobField::Partition(Vec::new()), Refusal::UnknownPartition(String::new())),
        (JobField::Partition(vec!["no".into()]), Refusal::UnknownPartition("no".into())),
        (JobField::NodeList(vec!["n9".into()]), Refusal::UnknownNode("n9".into())),
        (JobField::Gres(vec![gres]), Refusal::UnknownGres("bogus".into())),
        (JobField::Features(Some(features)), Refusal::UnknownFeature("nosuch".into())),
        (JobField::Deadline(past), Refusal::TimePassed),
        (JobField::TimeMin(TimeLimit::Minutes(61)), Refusal::TimeMin),
        (JobField::Qos("no".into()), Refusal::InvalidQos("no".into())),
        (JobField::Priority(5), Refusal::JobHeld(job)),
        (JobField::Reservation(Some("no".into())), Refusal::InvalidReservation("no".into())),
    ];
    let before = w.job(job).clone();
    for (field, why) in table {
        let heard = update(&mut w, true, job, field.clone());
        assert_eq!(heard, Err(why), "{field:?}");
        assert_eq!(*w.job(job), before, "{field:?}");
    }
    w.cancel(&[JobRef::whole(job)]);
    let heard = update(&mut w, true, job, JobField::Comment("x".into()));
    assert_eq!(heard, Err(Refusal::JobFinished(job)));
}

#[test]
fn circular_dependency_is_refused() {
    let mut w = world(1);
    let first = w.submit(ask().held(Hold::User));
    let second = w.submit(ask().after(&format!("afterok:{first}")));
    let third = w.submit(ask().after(&format!("afterok:{second}")));
    let after = |id: JobId| {
        let text = format!("afterany:{id}");
        JobField::Dependency(Some(model::dependency::Dependency::parse(&text).expect("one")))
    };
    assert_eq!(update(&mut w, true, first, after(third)), Err(Refusal::CircularDependency));
    assert_eq!(update(&mut w, true, first, after(first)), Err(Refusal::InvalidDependency));
    assert_eq!(update(&mut w, true, third, after(first)), Ok(()));
}

/// The priority that is shown orders the queue as the plan has it, dstack's of a run with it, while the job waits and runs.
#[test]
fn shown_priority_is_the_one_that_counts_where_it_is_not_computed() {
    let mut w = world(1);
    let (plain, run) = (w.submit(ask()), w.submit(ask().with(|s| s.dstack_priority = Some(7))));
    let shown = |w: &World, job: JobId| Ranking::new(&w.state, w.now).shown(w.job(job), w.now);
    let queue = cluster::view::view(&w.state, w.now).queue;
    for entry in &queue {
        assert_eq!(shown(&w, entry.job), entry.priority, "job {}", entry.job);
    }
    assert!(shown(&w, run) > shown(&w, plain), "though it came later");
    let own = w.job(run).priority;
    // What dstack's adds is not the owner's to spend: he would pass others of the same.
    let field = |priority| JobChange::Fields(vec![JobField::Priority(priority)]);
    let by_owner = w.change_as(alice(), JobRef::whole(run), field(own + 1));
    assert_eq!(by_owner, Err(Refusal::OperatorsOnly));
    w.change_as(alice(), JobRef::whole(run), field(own - 5)).expect("lower is the owner's to set");
    assert_eq!(shown(&w, run), (7 << 32) + own - 5);
    w.plan();
    assert!(!w.job(run).is_waiting());
    assert_eq!(shown(&w, run), (7 << 32) + own - 5);
}

#[test]
fn top_moves_a_job_before_its_owners_jobs_only() {
    let mut w = world_with(1, |c| c.parameters.user_top = true);
    w.started(ask().cpus(8));
    let jobs: Vec<JobId> = (0..3).map(|_| w.submit(ask().cpus(8))).collect();
    let others = w.submit(ask().cpus(8).of(crate::job_builder::bob()));
    let order = |w: &World| {
        let view = cluster::view::view(&w.state, w.now);
        let mut waiting: Vec<_> = view.queue.iter().map(|q| (q.priority, q.job)).collect();
        waiting.sort_by_key(|(priority, job)| (std::cmp::Reverse(*priority), *job));
        waiting.into_iter().map(|(_, job)| job).collect::<Vec<_>>()
    };
    assert_eq!(order(&w), [jobs[0], jobs[1], jobs[2], others]);
    let top = |w: &mut World, job| w.change_as(alice(), JobRef::whole(job), JobChange::Top);
    top(&mut w, jobs[2]).expect("the site lets users");
    assert_eq!(order(&w), [jobs[2], jobs[0], jobs[1], others]);
    top(&mut w, jobs[1]).expect("the site lets users");
    assert_eq!(order(&w), [jobs[1], jobs[2], jobs[0], others]);
    assert!(top(&mut w, others).is_err(), "not hers");
    let mut strict = world(1);
    let job = strict.submit(ask().cpus(8));
    assert_eq!(top(&mut strict, job), Err(Refusal::AccessDenied));
}
