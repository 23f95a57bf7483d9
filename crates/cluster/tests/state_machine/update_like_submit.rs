//! What a user may not ask for at a submit he does not get by `scontrol update` either, and the other way round.

use crate::job_builder::{Ask, alice, ask};
use crate::testbed::{World, world_with};
use cluster::Command;
use model::account::{Account, Association, Qos, QosFlag};
use model::amount::Bytes;
use model::change::{JobChange, JobField, JobRef};
use model::partition::Partition;
use model::range::Range;
use model::reason::Refusal;
use model::request::Memory;
use model::reservation_request::{DurationEdit, NamesEdit, NodesChoice, ReservationRequest};
use model::run::Hold;
use model::time::TimeLimit;
use model::tres::Tres;
use proptest::prelude::*;
use std::time::Duration;

/// One of everything that a rule can forbid.
#[derive(Debug, Clone)]
struct Wanted {
    qos: &'static str,
    partition: &'static str,
    reservation: Option<&'static str>,
    minutes: u32,
    nodes: u32,
    cpus: u32,
    memory_gib: u64,
    licenses: u32,
}

fn wanted() -> impl Strategy<Value = Wanted> {
    let qos = prop::sample::select(&["normal", "strict", "of-others"][..]);
    let partition = prop::sample::select(&["main", "reserved", "rooted"][..]);
    let reservation = prop::sample::select(&[None, Some("hers"), Some("his"), Some("none")][..]);
    // More nodes than a partition has are taken at a submit, and wait as in Slurm; an update refuses them.
    let numbers = (1..150u32, 1..3u32, 1..12u32, 1..20u64, 0..4u32);
    (qos, partition, reservation, numbers).prop_map(|(qos, partition, reservation, numbers)| {
        let (minutes, nodes, cpus, memory_gib, licenses) = numbers;
        Wanted { qos, partition, reservation, minutes, nodes, cpus, memory_gib, licenses }
    })
}

impl Wanted {
    fn licenses(&self) -> Vec<(String, u32)> {
        let some = Some(self.licenses).filter(|count| *count > 0);
        some.map(|count| ("matlab".to_owned(), count)).into_iter().collect()
    }

    fn submit(&self) -> Ask {
        let ask = ask().with(|spec| spec.qos = Some(self.qos.into()));
        let ask = ask.nodes(self.nodes).cpus(self.cpus).asking(|request| {
            request.partitions = vec![self.partition.into()];
            request.reservation = self.reservation.map(str::to_owned);
            request.time_limit = Some(TimeLimit::Minutes(self.minutes));
            request.memory = Memory::PerNode(Range::exactly(Bytes::from_gib(self.memory_gib)));
            request.licenses = self.licenses();
        });
        ask.held(Hold::User)
    }

    fn update(&self) -> Vec<JobField> {
        vec![
            JobField::Qos(self.qos.into()),
            JobField::Partition(vec![self.partition.into()]),
            JobField::Reservation(self.reservation.map(str::to_owned)),
            JobField::TimeLimit(TimeLimit::Minutes(self.minutes)),
            JobField::Nodes(Range::exactly(self.nodes)),
            JobField::CpusPerTask(self.cpus),
            JobField::MemoryPerNode(Bytes::from_gib(self.memory_gib)),
            JobField::Licenses(self.licenses()),
        ]
    }
}

/// Two nodes, and a rule of each kind: limits of partitions, of a QOS that refuses what is beyond it, of licenses.
fn ruled() -> World {
    let mut w = world_with(2, |config| {
        let parameters = &mut config.parameters;
        parameters.enforce_associations = true;
        parameters.enforce_limits = true;
        parameters.enforce_qos = true;
        parameters.enforce_partition_limits = true;
        parameters.licenses = [("matlab".to_owned(), 2)].into();
        let nodes = config.partitions[0].nodes.clone();
        let mut reserved = Partition::over("reserved", nodes.clone());
        reserved.require_reservation = true;
        let mut rooted = Partition::over("rooted", nodes);
        rooted.root_only = true;
        config.partitions.extend([reserved, rooted]);
        for partition in &mut config.partitions {
            partition.max_time = TimeLimit::Minutes(120);
        }
    });
    let strict = Qos {
        flags: vec![QosFlag::DenyOnLimit],
        max_wall: Some(TimeLimit::Minutes(30)),
        max_tres_per_job: Tres::parse("cpu=4").expect("a list"),
        ..Qos::named("strict")
    };
    for qos in [strict, Qos::named("of-others")] {
        w.run(Command::SetQos(Box::new(qos)));
    }
    w.run(Command::SetAccount(Account {
        name: "lab".into(),
        description: String::new(),
        organization: String::new(),
        parent: Some("root".into()),
        coordinators: Vec::new(),
    }));
    let mut member = Association::plain("lab", Some("alice"));
    member.qos = vec!["normal".into(), "strict".into()];
    w.run(Command::SetAssociation(Box::new(member)));
    for (name, user, day) in [("hers", "alice", 1), ("his", "bob", 2)] {
        let request = ReservationRequest {
            name: Some(name.into()),
            start: Some(w.now + Duration::from_secs(day * 86_400)),
            duration: Some(DurationEdit::Set(TimeLimit::Minutes(60))),
            nodes: Some(NodesChoice::All),
            users: Some(NamesEdit { names: vec![user.into()], ..NamesEdit::default() }),
            ..ReservationRequest::default()
        };
        w.run(Command::CreateReservation(Box::new(request)));
    }
    w
}

/// What alice hears when her job that asks for `first` is to ask for this.
fn updated(first: &Wanted, fields: Vec<JobField>) -> Option<Result<(), Refusal>> {
    let mut w = ruled();
    let job = w.try_submit(first.submit()).ok()?;
    Some(w.change_as(alice(), JobRef::whole(job), JobChange::Fields(fields)).map(|_| ()))
}

const MODEST: Wanted = Wanted {
    qos: "normal",
    partition: "main",
    reservation: None,
    minutes: 10,
    nodes: 1,
    cpus: 1,
    memory_gib: 1,
    licenses: 0,
};

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn update_is_refused_exactly_where_a_submit_of_the_result_is(
        first in wanted(),
        then in wanted(),
    ) {
        let first = if ruled().try_submit(first.submit()).is_ok() { first } else { MODEST };
        let heard = updated(&first, then.update()).expect("a job that was submitted");
        let submitted = ruled().try_submit(then.submit());
        prop_assert_eq!(heard.is_err(), submitted.is_err(), "{:?}: {:?}", heard, submitted);
    }
}

/// One field alone takes a job beyond each rule.
#[test]
fn each_field_is_held_to_the_rules_of_a_submit() {
    let strict = Wanted { qos: "strict", ..MODEST };
    let reserved = Wanted { partition: "reserved", reservation: Some("hers"), ..MODEST };
    let minutes = |m| JobField::TimeLimit(TimeLimit::Minutes(m));
    let table = [
        (&strict, minutes(31)),
        (&strict, JobField::CpusPerTask(5)),
        (&strict, JobField::Tasks(5)),
        (&strict, JobField::Cpus(5)),
        (&MODEST, minutes(121)),
        (&MODEST, JobField::MemoryPerNode(Bytes::from_gib(100_000))),
        (&MODEST, JobField::CpusPerTask(100)),
        (&MODEST, JobField::Licenses(vec![("matlab".into(), 3)])),
        (&MODEST, JobField::Reservation(Some("his".into()))),
        (&MODEST, JobField::Partition(vec!["reserved".into()])),
        (&reserved, JobField::Reservation(None)),
    ];
    for (first, field) in table {
        let heard = updated(first, vec![field.clone()]).expect("a job that was submitted");
        assert!(heard.is_err(), "{field:?} of {first:?}");
    }
    let heard = updated(&MODEST, vec![JobField::Partition(vec!["reserved".into()])]);
    assert_eq!(heard, Some(Err(Refusal::ReservationRequired("reserved".into()))));
}
