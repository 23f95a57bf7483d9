//! Submits that are refused use no id and leave no trace; those that are taken get the next.

use crate::job_builder::{Ask, alice, ask, bob, root};
use crate::testbed::{World, world, world_with};
use cluster::Command;
use model::account::{Account, Association, Qos};
use model::change::{JobChange, JobField, JobRef, Requeue};
use model::container::Container;
use model::id::JobId;
use model::partition::{Access, Partition, PartitionState};
use model::reason::Refusal;
use model::replica_group::{GroupRole, ReplicaGroup};
use model::request::{Sharing, WaitPolicy};
use model::run::{Hold, JobState};
use model::service::{Scaling, ServedModel, Service};
use std::sync::Arc;
use std::time::Duration;

#[test]
fn refused_submit_uses_no_id_and_leaves_no_record() {
    type Row = (fn(Ask) -> Ask, fn(&Refusal) -> bool);
    let table: [Row; 8] = [
        (|a| a.cpus(9), |r| matches!(r, Refusal::NodeConfiguration(_))),
        (|a| a.gpus(3), |r| matches!(r, Refusal::NodeConfiguration(_))),
        (|a| a.on("n9"), |r| matches!(r, Refusal::UnknownNode(_))),
        (
            |a| a.asking(|r| r.partitions = vec!["nope".into()]),
            |r| matches!(r, Refusal::UnknownPartition(_)),
        ),
        (|a| a.after("afterok:1"), |r| *r == Refusal::InvalidDependency),
        (
            |a| a.asking(|r| r.reservation = Some("nope".into())),
            |r| matches!(r, Refusal::InvalidReservation(_)),
        ),
        (
            |a| a.asking(|r| r.deadline = Some(model::time::Timestamp::from_secs(1))),
            |r| *r == Refusal::DeadlineImpossible,
        ),
        (|a| a.with(|s| s.nice = -1), |r| *r == Refusal::Nice),
    ];
    let mut w = world(2);
    let before = w.state.clone();
    for (at, (set, expected)) in table.into_iter().enumerate() {
        let answer = w.try_submit(set(ask()));
        assert!(answer.as_ref().is_err_and(expected), "row {at}: {answer:?}");
    }
    assert!(w.state == before);
    assert_eq!(w.submit(ask()).0, 1);
}

#[test]
fn unknown_qos_is_refused_only_where_something_is_enforced() {
    let nope = || ask().with(|s| s.qos = Some("nope".into()));
    let mut w = world(1);
    let job = w.submit(nope());
    assert_eq!(&*w.job(job).qos, "normal");
    let mut w = world_with(1, |config| config.parameters.enforce_associations = true);
    assert_eq!(w.try_submit(nope().of(root())), Err(Refusal::InvalidQos("nope".into())));
}

#[test]
fn test_only_submits_nothing() {
    let mut w = world(1);
    let mut only = ask().0;
    only.test_only = true;
    w.try_as(alice(), Command::Submit(Box::new(only))).expect("it would be taken");
    assert_eq!((w.state.jobs.len(), w.state.next_job), (0, 1));
}

#[test]
fn immediate_job_is_refused_when_the_plan_would_not_start_it_now() {
    let mut w = world(1);
    let now = |ask: Ask| ask.asking(|r| r.wait_policy = WaitPolicy::Now);
    w.started(now(ask().cpus(8)));
    assert_eq!(w.try_submit(now(ask())), Err(Refusal::NoCapacityNow));
}

#[test]
fn held_submit_waits_for_its_release() {
    let mut w = world(1);
    let held = w.submit(ask().held(Hold::User));
    let mut zero = ask();
    zero.0.priority = Some(0);
    let zero = w.submit(zero);
    assert_eq!(w.plan(), []);
    for job in [held, zero] {
        assert_eq!(w.job(job).hold, Some(Hold::User));
        w.change(job, JobChange::Release).expect("root may");
    }
    assert_eq!(w.plan().len(), 2);
}

#[test]
fn max_job_count_bounds_jobs_and_ended_ones_do_not_count() {
    let mut w = world_with(1, |c| c.parameters.max_job_count = 2);
    let first = w.submit(ask());
    w.submit(ask());
    assert_eq!(w.try_submit(ask()), Err(Refusal::TooManyJobs { limit: 2 }));
    w.plan();
    w.end(first, 0);
    w.submit(ask());
}

#[test]
fn qos_submit_limit_counts_each_array_task_of_a_user() {
    let mut w = world(1);
    let few = Qos { max_submit_per_user: Some(3), ..Qos::named("few") };
    w.run(Command::SetQos(Box::new(few)));
    let of_few = |ask: Ask| ask.with(|s| s.qos = Some("few".into()));
    w.submit(of_few(ask().array("0-1")));
    let refused = w.try_submit(of_few(ask().array("0-1")));
    assert!(matches!(refused, Err(Refusal::SubmitLimit(_))), "{refused:?}");
    w.submit(of_few(ask()));
}

#[test]
fn accounts_are_checked_where_associations_are_enforced() {
    let mut w = world_with(1, |c| c.parameters.enforce_associations = true);
    assert_eq!(w.try_submit(ask()), Err(Refusal::InvalidAccount(None)));
    for name in ["physics", "biology"] {
        w.run(Command::SetAccount(Account {
            name: name.into(),
            description: String::new(),
            organization: String::new(),
            parent: None,
            coordinators: Vec::new(),
        }));
    }
    let association: Association =
        serde_json::from_value(serde_json::json!({ "account": "physics", "user": "alice" }))
            .expect("the least that an association says");
    w.run(Command::SetAssociation(Box::new(association)));
    let job = w.submit(ask());
    assert_eq!(&*w.job(job).account, "physics");
    let other = Err(Refusal::InvalidAccount(Some("biology".into())));
    assert_eq!(w.try_submit(ask().with(|s| s.account = Some("biology".into()))), other);
    let moved = JobChange::Fields(vec![JobField::Account("biology".into())]);
    let moved = w.change_as(alice(), JobRef::whole(job), moved);
    assert_eq!(moved.map(|_| job), other, "nor by an update");
}

#[test]
fn draining_partition_refuses_jobs_and_down_partition_starts_none() {
    let table = [
        (PartitionState::Drain, false),
        (PartitionState::Inactive, false),
        (PartitionState::Down, true),
    ];
    for (state, taken) in table {
        let mut w = world_with(1, |c| c.partitions[0].state = state);
        assert_eq!(w.try_submit(ask()).is_ok(), taken, "{state:?}");
        assert_eq!(w.plan(), []);
    }
}

#[test]
fn late_plan_is_checked_against_the_present_state() {
    let mut w = world(1);
    let first = w.submit(ask().cpus(8));
    let late = w.planned();
    let sooner = w.submit(ask().cpus(8).of(bob()));
    w.change(first, JobChange::Hold { by: Hold::Admin }).expect("root may");
    assert_eq!(w.plan()[0].job, sooner);
    w.change(first, JobChange::Release).expect("root may");
    let start = Command::Start(Box::new(late[0].clone()));
    assert_eq!(w.try_as(root(), start), Err(Refusal::NoCapacityNow));
    assert_eq!(w.is(first), JobState::Pending);
    w.now = w.now + Duration::from_secs(1);
    w.end(sooner, 0);
    assert_eq!(w.plan()[0].job, first);
}

#[test]
fn late_plan_does_not_start_a_job_on_a_user_exclusive_node() {
    let mut w = world(1);
    let filler = w.started(ask()).job;
    let late_job = w.submit(ask());
    let late = w.planned();
    w.change(late_job, JobChange::Hold { by: Hold::Admin }).expect("root may");
    w.end(filler, 0);
    w.started(ask().of(bob()).asking(|r| r.sharing = Sharing::User));
    w.change(late_job, JobChange::Release).expect("root may");
    let start = Command::Start(Box::new(late[0].clone()));
    assert_eq!(w.try_as(root(), start), Err(Refusal::NoCapacityNow));
}

#[test]
fn late_plan_does_not_start_what_was_put_off_or_throttled_meanwhile() {
    let mut w = world(1);
    let put_off = w.submit(ask());
    let array = w.submit(ask().array("0-3"));
    let late = w.planned();
    assert_eq!(late.len(), 5);
    let update = |field| JobChange::Fields(vec![field]);
    w.change(put_off, update(JobField::Begin(w.now + Duration::from_secs(60)))).expect("root may");
    w.change(array, update(JobField::ArrayThrottle(Some(2)))).expect("root may");
    for start in late {
        let _ = w.try_as(root(), Command::Start(Box::new(start)));
    }
    assert_eq!(w.is(put_off), JobState::Pending);
    let running = w.state.active.iter().filter(|id| w.job(**id).task.is_some());
    assert_eq!(running.count(), 2);
}

/// A client that sends a submission of its own may say either word without the other.
#[test]
fn privileged_containers_and_docker_daemons_each_take_the_sites_consent() {
    let contained = |privileged: bool, docker: bool| {
        let container = Container { privileged, docker, ..Container::default() };
        ask().with(|spec| Arc::make_mut(&mut spec.launch).container = Some(Box::new(container)))
    };
    let mut strict = world(1);
    strict.try_submit(contained(false, false)).expect("plain");
    let mut free = world_with(1, |config| config.site.containers.privileged = true);
    for (privileged, docker) in [(true, false), (false, true)] {
        let refused = strict.try_submit(contained(privileged, docker)).expect_err("no consent");
        assert!(refused.to_string().contains("privileged = true"), "{refused}");
        free.try_submit(contained(privileged, docker)).expect("consent");
    }
}

/// The default first; what is closed to its owner, hidden, drained or asks for a reservation is not among them, and what has no
/// further node neither.
#[test]
fn run_that_names_no_partition_may_use_all_that_admit_it() {
    let w = world_with(9, |config| {
        config.partitions[0].nodes = vec!["n9".into()];
        let mut node = 0;
        let mut over = |name: &str| {
            node += 1;
            Partition::over(name, vec![format!("n{node}")])
        };
        let debug = Partition::over("debug", vec!["n9".into()]);
        let mut hidden = over("hidden");
        hidden.hidden = true;
        let mut rooted = over("rooted");
        rooted.root_only = true;
        let mut reserved = over("reserved");
        reserved.require_reservation = true;
        let mut drained = over("drained");
        drained.state = PartitionState::Drain;
        let mut of_others = over("of-others");
        of_others.allow_groups = Access::Only(vec!["bob".into()]);
        let mut other_qos = over("other-qos");
        other_qos.allow_qos = Access::Only(vec!["high".into()]);
        let before = [debug, over("gpu"), hidden, rooted, reserved, drained, of_others, other_qos];
        config.partitions.splice(0..0, before);
    });
    assert_eq!(w.state.partitions_for(&ask().task().0.spec), ["main", "gpu"]);
    assert_eq!(
        w.state.partitions_for(&ask().task().of(bob()).0.spec),
        ["main", "gpu", "of-others"]
    );
}

/// Requests for a service find it by its project and its name: nobody else may take them.
#[test]
fn name_of_a_service_is_one_services_in_its_project() {
    let mut w = world(2);
    let service = || {
        ask().task().named("web").with(|spec| {
            Arc::make_mut(&mut spec.launch).service = Some(Box::new(Service::at(80)));
        })
    };
    w.submit(service().array("0-2"));
    for by in [alice(), bob()] {
        let refused = w.try_submit(service().of(by)).expect_err("the name is taken");
        assert_eq!(refused.to_string(), "project main has a service web already");
    }
    w.submit(service().named("other"));
    w.submit(ask().task().of(bob()).named("web"));
    assert_eq!(w.state.replicas.len(), 2, "the array's record, and the other service");
    let served = |name: &str| {
        service().named(name).with(|spec| {
            let (name, prefix) = ("llama".into(), "/v1".into());
            let model = ServedModel { name, prefix, eos_token: None };
            let service = Service { model: Some(model), ..Service::at(80) };
            Arc::make_mut(&mut spec.launch).service = Some(Box::new(service));
        })
    };
    assert!(w.try_submit(service().named("a/b")).is_err(), "no part of a path");
    w.submit(served("first"));
    let refused = w.try_submit(served("second")).expect_err("the model is taken");
    assert_eq!(refused.to_string(), "service first of main has model llama");
    let later = || {
        served("first").with(|spec| {
            if let Some(service) = &mut Arc::make_mut(&mut spec.launch).service {
                service.deployment = 1;
            }
        })
    };
    w.submit(later());
    assert!(w.try_submit(later()).is_err(), "the next is later still");
    assert!(w.try_submit(later().of(bob())).is_err(), "nobody else replaces it");
}

#[test]
fn update_that_overtakes_another_may_wait_for_the_place_of_that_one() {
    let mut w = world(1);
    let service = |deployment: u32| {
        let service = Service { deployment, ..Service::at(80) };
        let ask = ask().task().named("web").cpus(4).with(|spec| {
            Arc::make_mut(&mut spec.launch).service = Some(Box::new(service));
        });
        ask.asking(|request| request.wait_policy = WaitPolicy::Now)
    };
    w.started(service(0));
    let other = w.started(ask().cpus(4)).job;
    assert_eq!(w.try_submit(service(1)), Err(Refusal::NoCapacityNow));
    w.end(other, 0);
    w.started(service(1));
    w.submit(service(2));
}

/// What a submit has checked stays so: no change gives a service the address of another's.
#[test]
fn service_comes_by_no_change_to_the_address_of_another() {
    let mut w = world(2);
    let service = |name: &str, model: &str| {
        let model = ServedModel { name: model.into(), prefix: "/v1".into(), eos_token: None };
        let service = Service { model: Some(model), ..Service::at(80) };
        ask().task().named(name).with(|spec| {
            Arc::make_mut(&mut spec.launch).service = Some(Box::new(service));
        })
    };
    let own = w.submit(service("web", "llama").of(bob()));
    for field in [JobField::Name("other".into()), JobField::Account("biology".into())] {
        let change = JobChange::Fields(vec![field]);
        let refused = w.change(own, change).expect_err("an address stays");
        let why = "a service's name and project are its address: submit another";
        assert_eq!(refused.to_string(), why);
    }
    let same = JobChange::Fields(vec![JobField::Name("web".into())]);
    w.change(own, same).expect("nothing changes");
    let requeue = |w: &mut World, job| w.change(job, JobChange::Requeue(Requeue::PLAIN));
    w.cancel(&[JobRef::whole(own)]);
    let by_name = w.submit(service("web", "other"));
    let refused = requeue(&mut w, own).expect_err("the name is taken");
    assert_eq!(refused.to_string(), "project main has a service web already");
    w.cancel(&[JobRef::whole(by_name)]);
    let by_model = w.submit(service("second", "llama"));
    let refused = requeue(&mut w, own).expect_err("the model is taken");
    assert_eq!(refused.to_string(), "service second of main has model llama");
    w.cancel(&[JobRef::whole(by_model)]);
    requeue(&mut w, own).expect("nobody has them now");
}

#[test]
fn replica_that_has_ended_is_requeued_beside_the_others_of_its_service() {
    let mut w = world(2);
    let service = ask().task().named("web").array("0-1").with(|spec| {
        Arc::make_mut(&mut spec.launch).service = Some(Box::new(Service::at(80)));
    });
    w.submit(service);
    let started = w.plan();
    assert_eq!(started.len(), 2);
    w.end(started[0].job, 1);
    assert_eq!(w.is(started[0].job), JobState::Failed);
    let requeue = JobChange::Requeue(Requeue::PLAIN);
    w.change(started[0].job, requeue).expect("the address is its own");
}

/// A group of a service of two, the second of which is scaled.
fn group_of_two(index: u32) -> Ask {
    let scaling =
        Scaling { min: 0, target_milli: 1000, window_s: 60, up_delay_s: 300, down_delay_s: 600 };
    let name = format!("group{index}");
    let role = GroupRole::Serves;
    let place =
        ReplicaGroup { index, count: 2, first_replica: index, name, role, waits_for_router: false };
    let service = Service {
        group: Some(place),
        replicas: 1 + index,
        scaling: Some(scaling).filter(|_| index == 1),
        ..Service::at(80)
    };
    ask().task().named("web").with(|spec| {
        Arc::make_mut(&mut spec.launch).service = Some(Box::new(service));
    })
}

#[test]
fn groups_of_a_service_are_arrays_that_are_submitted_together_or_not_at_all() {
    let mut w = world(2);
    let pair = || {
        let mut first = group_of_two(0);
        first.0.het_components.push(group_of_two(1).0.spec);
        first
    };
    let alone = w.try_submit(group_of_two(0)).expect_err("the other group is missing");
    assert_eq!(alone.to_string(), "group group0: it is not in its place");
    let mut others = pair();
    others.0.het_components[0].account = Some("biology".into());
    let refused = w.try_submit(others).expect_err("another account");
    assert_eq!(refused.to_string(), "the groups of a service have one name, account and owner");
    let first = w.submit(pair());
    let second = w.state.job(JobId(first.0 + 1)).expect("the second group");
    assert_eq!((second.hold, second.het), (Some(Hold::User), None));
    assert_ne!(Some(second.run), w.state.job(first).map(|job| job.run));
    let refused = w.try_submit(pair()).expect_err("the name is taken");
    assert_eq!(refused.to_string(), "project main has a service web already");
    let started = w.plan();
    assert_eq!(started.len(), 1, "the load says when those of the second start");
    w.end(started[0].job, 1);
    let requeue = JobChange::Requeue(Requeue::PLAIN);
    w.change(started[0].job, requeue).expect("the other group has the address too");
}
