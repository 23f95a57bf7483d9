//! What `PrivateData` hides: every call of the authorisation table, by each value and for each role, through the real router.

use super::rights_tests::Caller::{self, *};
use super::rights_tests::{CALLERS, JOB_NAME, OPERATE, SHOWN, World};
use super::route::Route;
use crate::clock;
use crate::testing::{NODE, user};
use cluster::Command;
use model::account::{Account, Association, ROOT_ACCOUNT};
use model::change::NodeChange;
use model::id::JobId;
use model::partition::Partition;
use model::principal::Principal;
use model::private_data::PrivateKind::{self, *};
use model::reservation::ReservationFlag;
use model::reservation_request::{
    DurationEdit, FlagsEdit, NamesEdit, NodesChoice, ReservationRequest,
};
use model::time::{TimeLimit, Timestamp};
use model::tres::TresKind;
use std::time::Duration;
use wire::client::{Answer, Call, HistoryFilter, UsageQuery};

/// Names in what is hidden, each found nowhere else.
const ACCOUNT: &str = "hush-account";
const MEMBER: &str = "hush-member";
const FEATURE: &str = "hush-feature";
pub const PARTITION: &str = "hush-partition";
const RESERVATION: &str = "hush-reservation";
const EVENT: &str = "hush-event";

/// Who is shown the hidden thing of each kind though it is private: a job of the owner in the coordinator's account, a member
/// of that account and what he used, and an account, a node, a partition and a reservation of neither.
const SHOWN_TO: [(PrivateKind, &[Caller]); 8] = [
    (Accounts, OPERATE),
    (Events, OPERATE),
    (Jobs, &[Owner, Coordinator, Operator, Administrator, Root]),
    (Nodes, OPERATE),
    (Partitions, OPERATE),
    (Reservations, OPERATE),
    (Usage, &[Coordinator, Operator, Administrator, Root]),
    (Users, &[Coordinator, Operator, Administrator, Root]),
];

/// A cluster with one thing of each kind to hide, and this `PrivateData`.
pub async fn world(private: &[PrivateKind]) -> World {
    let world = World::new().await;
    let server = &world.server;
    let mut config = (*server.shared.read().config).clone();
    config.partitions.push(Partition::over(PARTITION, vec![NODE.into()]));
    config.parameters.priority.multifactor = true;
    config.parameters.private_data = private.iter().copied().collect();
    let account = Account {
        name: ACCOUNT.into(),
        description: String::new(),
        organization: String::new(),
        parent: Some(ROOT_ACCOUNT.into()),
        coordinators: Vec::new(),
    };
    let reservation = ReservationRequest {
        name: Some(RESERVATION.into()),
        start: Some(clock::now() + Duration::from_secs(86_400)),
        duration: Some(DurationEdit::Set(TimeLimit::Minutes(5))),
        nodes: Some(NodesChoice::All),
        flags: Some(FlagsEdit {
            flags: [ReservationFlag::IgnoreJobs].into(),
            ..Default::default()
        }),
        users: Some(NamesEdit { names: vec!["visitor".into()], ..NamesEdit::default() }),
        ..ReservationRequest::default()
    };
    let features = NodeChange::Features(vec![FEATURE.into()]);
    let setup = [
        Command::Configure(Box::new(config)),
        Command::ChangeNode { nodes: vec![NODE.into()], change: features },
        Command::ChangeNode {
            nodes: vec![NODE.into()],
            change: NodeChange::Drain { reason: EVENT.into() },
        },
        Command::ChangeNode { nodes: vec![NODE.into()], change: NodeChange::Resume },
        Command::SetAccount(account),
        Command::SetAssociation(Box::new(Association::plain("lab", Some(MEMBER)))),
        Command::CreateReservation(Box::new(reservation)),
    ];
    for command in setup {
        server.run(command).await.expect("something to hide");
    }
    let member = Principal { name: MEMBER.into(), uid: 2099, gid: 2099, ..user() };
    drop(server.shared.volatile.counters.begin_call(Call::Ping.kind(), &member));
    // A job of the owner that waits, for `sprio`.
    server.submit(&format!("name: {JOB_NAME}")).await.expect("a job");
    world
}

/// Whether the answer has the hidden thing of this kind in it.
fn has(answer: &Option<Answer>, kind: PrivateKind) -> bool {
    let text = serde_json::to_string(answer).expect("JSON");
    match (kind, answer) {
        (Jobs, Some(Answer::Priorities(view))) => view.jobs.iter().any(|j| j.user == user().name),
        (Usage, Some(Answer::Shares(view))) => {
            view.rows.iter().any(|row| row.association.user.as_deref() == Some(MEMBER))
        }
        (Jobs, _) => text.contains(JOB_NAME),
        (Accounts, _) => text.contains(ACCOUNT),
        (Nodes, _) => text.contains(FEATURE),
        (Partitions, _) => text.contains(PARTITION),
        (Reservations, _) => text.contains(RESERVATION),
        (Users, _) => text.contains(MEMBER),
        (Events, _) => text.contains(EVENT),
        (Usage, _) => false,
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_answer_declares_what_it_shows() {
    let world = world(&[]).await;
    for (sample, shows) in SHOWN {
        for (kind, _) in SHOWN_TO {
            let call = sample(&world);
            let said = format!("{call:?}");
            let (_, answer) = world.call(call, Operator).await;
            assert_eq!(has(&answer, kind), shows.contains(&kind), "{kind:?}: {said}: {answer:?}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn each_value_of_private_data_hides_its_kind_in_every_answer() {
    for (kind, shown_to) in SHOWN_TO {
        let world = world(&[kind]).await;
        for (sample, shows) in SHOWN {
            for caller in CALLERS.into_iter().filter(|caller| *caller != Anonymous) {
                let call = sample(&world);
                let said = format!("{call:?}");
                // A coordinator is shown associations of his members, and neither the members as users nor the audit trail.
                let users_alone =
                    matches!(call, Call::Diagnostics { .. } | Call::ActivityHistory(_));
                let (_, answer) = world.call(call, caller).await;
                let shown_to = if users_alone { OPERATE } else { shown_to };
                let expected = shows.contains(&kind) && shown_to.contains(&caller);
                assert_eq!(
                    has(&answer, kind),
                    expected,
                    "{kind:?}: {caller:?}: {said}: {answer:?}"
                );
            }
        }
    }
}

/// The owner's job runs in the coordinator's account.
#[tokio::test(flavor = "multi_thread")]
async fn usage_is_summed_over_the_period_and_shown_to_whom_it_may_be() {
    let report = |from: i64| {
        let (from, until) = (Some(Timestamp(from)), Some(clock::now() + Duration::from_secs(60)));
        let filter = HistoryFilter { from, until, ..HistoryFilter::default() };
        Call::UsageReport(Box::new(UsageQuery { filter, by_size: false, cluster: true }))
    };
    for (private, shown_to) in [
        (&[][..], &[Stranger, Owner, Coordinator, Operator][..]),
        (&[Usage][..], &[Owner, Coordinator, Operator][..]),
    ] {
        let world = world(private).await;
        for caller in [Stranger, Owner, Coordinator, Operator] {
            let (_, answer) = world.call(report(0), caller).await;
            let Some(Answer::UsageReport(shown)) = answer else { panic!("{answer:?}") };
            let is_shown = shown.rows.iter().any(|row| row.user == user().name && row.jobs > 0);
            assert_eq!(is_shown, shown_to.contains(&caller), "{private:?}: {caller:?}: {shown:?}");
            let whole = shown.whole.expect("nodes are not private");
            assert!(whole.reported.seconds(&TresKind::Cpu) > 0.0, "{whole:?}");
        }
        // What is asked of one user alone says nothing of the whole.
        let mut of_another = report(0);
        if let Call::UsageReport(query) = &mut of_another {
            query.filter.users = vec!["nobody-here".into()];
        }
        let (_, answer) = world.call(of_another, Stranger).await;
        let Some(Answer::UsageReport(shown)) = answer else { panic!("{answer:?}") };
        assert!(shown.rows.is_empty());
        let allocated = shown.whole.expect("it is shown").allocated;
        assert!(allocated.seconds(&TresKind::Cpu) > 0.0, "{allocated:?}");
        let (_, answer) = world.call(report(i64::MAX), Operator).await;
        assert!(matches!(answer, Some(Answer::Refused(_))), "it ends before it begins: {answer:?}");
    }
}

/// A call about a job that the caller is not shown is answered as one about a job that does not exist.
#[tokio::test(flavor = "multi_thread")]
async fn hidden_job_is_answered_as_no_job() {
    const NONE: JobId = JobId(9_999);
    let world = world(&[Jobs]).await;
    let (batch, allocation, cancelled) = (world.batch, world.allocation, world.cancelled);
    let absent = World {
        server: crate::testing::TestServer::without_writer(),
        router: world.router.clone(),
        batch: NONE,
        allocation: NONE,
        cancelled: NONE,
    };
    let mut compared = 0;
    for (sample, _) in SHOWN {
        // A world without a configuration has no names for calls that are not about jobs.
        let call = match sample(&world) {
            call @ (Call::AwaitStart { .. }
            | Call::AwaitEnd { .. }
            | Call::Explain(_)
            | Call::Script { .. }
            | Call::CreateStep(_)
            | Call::LaunchStep { .. }
            | Call::LeaveStep { .. }
            | Call::Relinquish { .. }
            | Call::Cancel(_)
            | Call::SignalStep { .. }
            | Call::UpdateJob { .. }
            | Call::Usage { .. }) => call,
            _ => continue,
        };
        let said = format!("{call:?}");
        let of_absent = sample(&absent);
        let (hidden, none) =
            (world.call(call, Stranger).await, world.call(of_absent, Stranger).await);
        let text = |answer: &Option<Answer>| serde_json::to_string(answer).expect("JSON");
        let mut hidden = text(&hidden.1);
        for id in [batch, allocation, cancelled] {
            hidden = hidden.replace(&format!("\"{id}\""), &format!("\"{NONE}\""));
        }
        assert_eq!(hidden, text(&none.1), "{said}");
        compared += 1;
    }
    assert_eq!(compared, 12, "every call about a job");
    for (route, more) in
        [(Route::Hold, ""), (Route::Logs, ""), (Route::Step, "&step=batch&node=n1")]
    {
        let answer_for = async |job: JobId| {
            let path = format!("{}?job={job}{more}", route.path());
            world.get(&path, Stranger).await.1.map(|answer| format!("{answer:?}"))
        };
        let hidden = answer_for(allocation).await.expect("an answer");
        let none = answer_for(NONE).await.expect("an answer");
        assert_eq!(
            hidden.replace(&allocation.to_string(), &NONE.to_string()),
            none,
            "{}",
            route.path()
        );
    }
}
