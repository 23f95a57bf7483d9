//! The JSON of one message of each kind, word for word: a renamed field or variant is found here before a neighbouring
//! version misses it. A change of these texts is a change of the protocol (`version.rs`).

use crate::agent_view::{AgentView, JoinMethodView, JoinView, NewNodes};
use crate::client::{Answer, Call, Cancel, Envelope, SubmitForecast, WebLinkQuery};
use crate::diagnostics::{DiagnosticsView, PlanCounts};
use crate::explain::{ExpectedStart, WaitView};
use crate::file_copy::{FileCopy, FileTimes};
use crate::fleet::{FleetConfiguration, FleetHostState, FleetHostView, FleetView};
use crate::link::{
    Hello, JoinRequest, NodeHello, NodeSsh, RefusedOrder, Renewal, SignedRenewal, SpooledAttempt,
    ToAgent, ToServer, Welcome,
};
use crate::machine::{MachineView, MachinesView, SourceView};
use crate::order::{Action, EndOrder, IdRange, Order, SignalOrder, SignedOrder};
use crate::report::{AttemptEnd, Report, ReportEvent};
use crate::reservation::ReservationPurpose;
use crate::samples::{attempt, job_view, order};
use crate::ssh::{SshEndpoint, SshKeyView, SshRequest, key_proof_text};
use crate::step::{SrunPrologEpilog, StepLayout, StepMessage, StepNode};
use crate::stream::{StepRole, StreamKind};
use crate::supervisor::{FromSupervisor, StepStream, SupervisorEvent, ToSupervisor};
use crate::token::TokenLife;
use crate::version::{AgentVersion, VersionsView};
use crate::view::JobExtras;
use crate::volume::{LaunchVolume, VolumeAction, VolumeOrder, VolumeView};
use crate::what_if::{AddedNodes, ChangedStart, WhatIfQuery, WhatIfView};
use model::amount::Bytes;
use model::change::{JobFilter, JobRef};
use model::container::{ContainerNetwork, PortMapping};
use model::id::{JobId, RunId, StepId};
use model::load::LiveUsage;
use model::machine::{Machine, MachinePhase, Offer as MachineOffer};
use model::price::{Cost, Price};
use model::reason::{LaunchFault, UserFault};
use model::run::{ExitStatus, HetComponent, Usage};
use model::secret::SecretValue;
use model::time::Timestamp;
use model::volume::{VolumeFolder, VolumePlace, VolumeState};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::collections::BTreeMap;

/// `value` is written as `json`, and what is read from `json` is written as `json` again.
#[track_caller]
fn travels<T: Serialize + DeserializeOwned>(value: &T, json: &str) {
    assert_eq!(serde_json::to_string(value).unwrap(), json);
    let read: T = serde_json::from_str(json).unwrap();
    assert_eq!(serde_json::to_string(&read).unwrap(), json);
}

#[test]
fn changes_of_nodes_and_of_starts_keep_their_names() {
    let added = vec![AddedNodes { count: 2, like: "n1".into() }];
    let files = Some([("slurm.conf".to_string(), "".to_string())].into());
    let query = WhatIfQuery { added, removed: vec!["n2".into()], files };
    travels(
        &Call::WhatIf(query),
        r#"{"what_if":{"added":[{"count":2,"like":"n1"}],"removed":["n2"],"files":{"slurm.conf":""}}}"#,
    );
    let change = ChangedStart {
        job: "7".into(),
        name: "train".into(),
        user: "ann".into(),
        start: Some(Timestamp(5)),
        start_then: None,
    };
    let view = WhatIfView { jobs: 3, earlier: 0, later: 1, changes: vec![change] };
    travels(
        &Answer::WhatIf(view),
        r#"{"what_if":{"jobs":3,"earlier":0,"later":1,"changes":[{"job":"7","name":"train","user":"ann","start":5}]}}"#,
    );
}

#[test]
fn keys_of_users_keep_their_names() {
    let add = |proof| SshRequest::Add { key: "k".into(), proof };
    travels(&add(None), r#"{"add":{"key":"k"}}"#);
    travels(&add(Some("s".into())), r#"{"add":{"key":"k","proof":"s"}}"#);
    let key = |is_unproved| SshKeyView {
        fingerprint: "f".into(),
        algorithm: "a".into(),
        comment: "c".into(),
        is_unproved,
    };
    travels(&key(false), r#"{"fingerprint":"f","algorithm":"a","comment":"c"}"#);
    travels(&key(true), r#"{"fingerprint":"f","algorithm":"a","comment":"c","is_unproved":true}"#);
    // A client signs this, and a server of another version compares it.
    let endpoint = SshEndpoint { host: "h".into(), port: 1, host_key: "k".into() };
    let signed = "sluice key add\nuser ada\nauthority f\nendpoint k\n";
    assert_eq!(key_proof_text("ada", "f", &endpoint), signed);
}

#[test]
fn ranges_of_ids_keep_their_names() {
    travels(&IdRange::OfUid, r#""of_uid""#);
    travels(&IdRange::Number(7), r#"{"number":7}"#);
    travels(&IdRange::Exhausted, r#""exhausted""#);
}

#[test]
fn calls_of_clients_keep_their_names() {
    let ping = Envelope { version: 1, id: None, call: Call::Ping };
    travels(&ping, r#"{"version":1,"call":"ping"}"#);
    let id = model::id::CallId::parse("3f2a-1");
    travels(&Envelope { id, ..ping }, r#"{"version":1,"id":"3f2a-1","call":"ping"}"#);
    let filter = JobFilter { jobs: vec![JobRef::whole(JobId(12))], ..JobFilter::default() };
    let cancel = Cancel { filter, step: None, signal: Some(15), batch_only: false, full: true };
    travels(
        &Call::Cancel(cancel),
        concat!(
            r#"{"cancel":{"filter":{"jobs":[{"id":12}],"users":[],"accounts":[],"partitions":[],"names":[],"qos":[],"#,
            r#""nodes":[],"reservations":[],"states":[],"all_states":false},"step":null,"signal":15,"#,
            r#""batch_only":false,"full":true}}"#
        ),
    );
    let configuration = FleetConfiguration(serde_json::json!({"type": "fleet"}));
    travels(
        &Call::ApplyFleet { project: "main".into(), configuration },
        r#"{"apply_fleet":{"project":"main","configuration":{"type":"fleet"}}}"#,
    );
    let (project, name) = ("main".to_owned(), "lab".to_owned());
    travels(
        &Call::RemoveFleetHosts { project, name, numbers: Some(vec![2]) },
        r#"{"remove_fleet_hosts":{"project":"main","name":"lab","numbers":[2]}}"#,
    );
    let step = StepId::Number(0);
    travels(
        &Call::SignalStep { job: JobId(12), step, signal: 2 },
        r#"{"signal_step":{"job":12,"step":{"number":0},"signal":2}}"#,
    );
}

#[test]
fn fleets_keep_their_names() {
    let host = FleetHostView {
        number: 0,
        node: "lab-0".into(),
        hostname: "10.0.0.1".into(),
        state: FleetHostState::Joined,
        blocks: Some(4),
        failure: Some("sudo: a password is required".into()),
    };
    let fleet = FleetView {
        name: "lab".into(),
        project: "main".into(),
        configuration: "{}".into(),
        created: Timestamp(1),
        hosts: vec![host],
    };
    travels(
        &Answer::Fleets(vec![fleet]),
        concat!(
            r#"{"fleets":[{"name":"lab","project":"main","configuration":"{}","created":1,"hosts":["#,
            r#"{"number":0,"node":"lab-0","hostname":"10.0.0.1","state":"joined","blocks":4,"#,
            r#""failure":"sudo: a password is required"}]}]}"#
        ),
    );
}

#[test]
fn machines_and_how_they_join_keep_their_names() {
    let call = Call::GroupToken {
        pattern: "gpu[1-9]".into(),
        count: Some(3),
        dynamic: false,
        life: TokenLife::Seconds(60),
    };
    travels(&call, r#"{"group_token":{"pattern":"gpu[1-9]","count":3,"life":{"seconds":60}}}"#);
    let (pattern, count, life) = ("d[1-9]".into(), None, TokenLife::Usual);
    let call = Call::GroupToken { pattern, count, dynamic: true, life };
    travels(&call, r#"{"group_token":{"pattern":"d[1-9]","dynamic":true}}"#);
    travels(&Call::Agents, r#""agents""#);
    travels(&Call::RejoinNode { name: "n1".into() }, r#"{"rejoin_node":{"name":"n1"}}"#);
    travels(&Call::RemoveNode { name: "n1".into() }, r#"{"remove_node":{"name":"n1"}}"#);
    travels(
        &Call::DeleteNodes { nodes: vec!["d1".into()] },
        r#"{"delete_nodes":{"nodes":["d1"]}}"#,
    );
    let created = NewNodes {
        names: "d[1-2]".into(),
        addresses: vec!["10.0.0.1".into(), "10.0.0.2".into()],
        hostnames: Vec::new(),
        node: model::node::NodeConfig::plain("", 1, Bytes(1)),
    };
    let json = serde_json::to_value(Call::CreateNodes(Box::new(created))).unwrap();
    let created = &json["create_nodes"];
    assert_eq!(created["names"], "d[1-2]");
    assert_eq!(created["addresses"].to_string(), r#"["10.0.0.1","10.0.0.2"]"#);
    assert_eq!(
        (&created["hostnames"], &created["node"]["cpus"]),
        (&serde_json::Value::Null, &1.into())
    );
    let joined = JoinView {
        at: Some(Timestamp(1)),
        method: Some(JoinMethodView::Group),
        token: Some("join-0".into()),
        certificate_end: Some(Timestamp(9)),
    };
    let view = AgentView {
        node: "n1".into(),
        login: false,
        address: Some("10.0.0.1".into()),
        version: Some("sluice 1".into()),
        connected: Some(Timestamp(2)),
        joined: Some(joined),
        rejoin_until: None,
    };
    travels(
        &Answer::Agents(vec![view]),
        concat!(
            r#"{"agents":[{"node":"n1","address":"10.0.0.1","version":"sluice 1","connected":2,"#,
            r#""joined":{"at":1,"method":"group","token":"join-0","certificate_end":9}}]}"#
        ),
    );
    travels(
        &ToServer::Renew { certificate_request: "c".into() },
        r#"{"renew":{"certificate_request":"c"}}"#,
    );
    travels(
        &ToAgent::Renewed { certificate: "c".into(), expires: Timestamp(9), proof: None },
        r#"{"renewed":{"certificate":"c","expires":9}}"#,
    );
    let proof = Some(SignedRenewal { body: "b".into(), signature: "s".into() });
    travels(
        &ToAgent::Renewed { certificate: "c".into(), expires: Timestamp(9), proof },
        r#"{"renewed":{"certificate":"c","expires":9,"proof":{"body":"b","signature":"s"}}}"#,
    );
    travels(
        &Renewal { former: "f".into(), renewed: "r".into(), expires: Timestamp(9) },
        r#"{"former":"f","renewed":"r","expires":9}"#,
    );
}

#[test]
fn links_to_web_pages_keep_their_names() {
    let wanted = WebLinkQuery { job: JobId(12), rank: 1, port: 8888, whole_path: true };
    travels(
        &Call::WebLink(wanted),
        r#"{"web_link":{"job":12,"rank":1,"port":8888,"whole_path":true}}"#,
    );
    travels(&Answer::WebLink { url: SecretValue("u".into()) }, r#"{"web_link":{"url":"u"}}"#);
}

#[test]
fn machines_keep_their_names() {
    travels(&Call::Machines, r#""machines""#);
    travels(
        &Call::DeleteMachine { name: "cloud-1".into() },
        r#"{"delete_machine":{"name":"cloud-1"}}"#,
    );
    let source = SourceView {
        name: "cloud".into(),
        offers: 2,
        machines: 1,
        machines_max: 4,
        price_hour: Price::from_dollars(2.5).expect("a price"),
        month: Cost::from_dollars(1.0).expect("an amount"),
        budget: None,
        failure: Some("refused".into()),
        strangers: vec!["i-1".into()],
    };
    let offer = MachineOffer {
        id: "small".into(),
        cpus: 2,
        memory: Bytes(1024),
        disk: Bytes(0),
        gpus: None,
        region: String::new(),
        price: Price::from_dollars(2.5).expect("a price"),
        spot: false,
    };
    let machine = Machine {
        token: "1-a".into(),
        number: 1,
        source: "cloud".into(),
        offer,
        node: "cloud-1".into(),
        job: Some(JobId(7)),
        asked: Timestamp(1),
        made: None,
        joined: None,
        gone: None,
        id: None,
        phase: MachinePhase::Asked,
        failure: None,
    };
    let machines = vec![MachineView { machine, idle: false, cost: Cost::default() }];
    travels(
        &Answer::Machines(MachinesView { sources: vec![source], machines }),
        concat!(
            r#"{"machines":{"sources":[{"name":"cloud","offers":2,"machines":1,"machines_max":4,"#,
            r#""price_hour":25000,"month":1000000,"failure":"refused","strangers":["i-1"]}],"#,
            r#""machines":[{"machine":{"token":"1-a","number":1,"#,
            r#""source":"cloud","offer":{"id":"small","cpus":2,"memory":1024,"disk":0,"price":25000},"#,
            r#""node":"cloud-1","job":7,"asked":1,"phase":"asked"},"cost":0}]}}"#
        ),
    );
}

#[test]
fn volumes_keep_their_names() {
    let (project, name) = ("main".to_owned(), "data".to_owned());
    let (place, size) = (VolumePlace::Node("n1".into()), Some(Bytes(1024)));
    travels(
        &Call::CreateVolume { project, name, place: place.clone(), size },
        r#"{"create_volume":{"project":"main","name":"data","place":{"node":"n1"},"size":1024}}"#,
    );
    let view = VolumeView {
        name: "data".into(),
        project: "main".into(),
        owner: "ann".into(),
        place,
        size: None,
        created: Timestamp(1),
        state: VolumeState::Ready,
        jobs: vec![JobId(12)],
        may_delete: None,
    };
    travels(
        &Answer::Volumes(vec![view]),
        concat!(
            r#"{"volumes":[{"name":"data","project":"main","owner":"ann","place":{"node":"n1"},"#,
            r#""created":1,"state":"ready","jobs":[12]}]}"#
        ),
    );
    let folder = VolumeFolder::of_instance("cache", 7);
    let order = VolumeOrder { folder: folder.clone(), action: VolumeAction::Remove };
    travels(
        &Action::Volume(order),
        r#"{"volume":{"folder":{"name":"7.cache","instance":true},"action":"remove"}}"#,
    );
    travels(&VolumeAction::Make { gid: 7, size }, r#"{"make":{"gid":7,"size":1024}}"#);
    let volume = LaunchVolume { name: "cache".into(), folder, path: "/c".into(), read_only: true };
    travels(
        &volume,
        r#"{"name":"cache","folder":{"name":"7.cache","instance":true},"path":"/c","read_only":true}"#,
    );
    let order = SignedOrder { body: "{}".into(), signature: "s".into() };
    travels(&StreamKind::Volume { order }, r#"{"volume":{"order":{"body":"{}","signature":"s"}}}"#);
}

#[test]
fn answers_to_clients_keep_their_names() {
    let srun = SrunPrologEpilog { prolog: Some("/p".into()), ..Default::default() };
    travels(
        &Answer::Submitted {
            job: JobId(12),
            run: RunId(1),
            name: "sweep".into(),
            srun_prolog_epilog: srun.clone(),
            beyond_partition: None,
        },
        concat!(
            r#"{"submitted":{"job":12,"run":"00000000-0000-0000-0000-000000000001","name":"sweep","#,
            r#""programs":{"prolog":"/p"}}}"#
        ),
    );
    let forecast = SubmitForecast {
        job: None,
        start: Timestamp(5),
        nodes: vec!["n1".into()],
        cpus: 2,
        partition: "main".into(),
    };
    travels(
        &Answer::Tested(vec![forecast]),
        r#"{"tested":[{"job":null,"start":5,"nodes":["n1"],"cpus":2,"partition":"main"}]}"#,
    );
    let node = StepNode { node: "n1".into(), tasks: vec![0, 1], cpus: 2 };
    travels(
        &Answer::Step(StepLayout {
            job: JobId(12),
            step: StepId::Number(0),
            attempt: 1,
            nodes: vec![node],
            cpus_per_task: 1,
            srun_prolog_epilog: srun,
        }),
        concat!(
            r#"{"step":{"job":12,"step":{"number":0},"attempt":1,"nodes":[{"node":"n1","tasks":[0,1],"cpus":2}],"#,
            r#""cpus_per_task":1,"programs":{"prolog":"/p"}}}"#
        ),
    );
}

#[test]
fn views_keep_their_names() {
    let mut job = job_view(12);
    job.array = None;
    job.het = Some(HetComponent { first: JobId(12), offset: 0, size: 2 });
    job.extras = Some(Box::new(JobExtras {
        suspend_time: Some(Timestamp(4)),
        pre_suspend_s: 3,
        preempt_time: None,
        admin_comment: None,
        magnetic_reservation: Some("maint".into()),
        network: None,
    }));
    let json = serde_json::to_value(&job).unwrap();
    assert_eq!(json["together"], serde_json::json!({"first": 12, "offset": 0, "size": 2}));
    let extras = serde_json::json!({"suspend_time": 4, "ran_before_s": 3, "preempt_time": null,
        "admin_comment": null, "drawn_into": "maint"});
    assert_eq!(json["further"], extras);
    assert_eq!(json["spec"]["components"][0]["request"]["patience"], "forever");
    assert_eq!(serde_json::from_value::<crate::view::JobView>(json).unwrap(), job);

    travels(&ReservationPurpose::Users, r#""somebody""#);
    let slot = ExpectedStart { start: Timestamp(5), partition: "main".into(), nodes: Vec::new() };
    travels(
        &WaitView { backfill_slot: Some(slot), ..WaitView::default() },
        concat!(
            r#"{"reason":null,"ahead":0,"ahead_first":[],"#,
            r#""kept":{"start":5,"partition":"main","nodes":[]},"#,
            r#""more_occupants":0,"endless_occupants":false}"#
        ),
    );
    let agents = AgentVersion { version: "0.1.0".into(), protocol: 1, nodes: vec!["n1".into()] };
    let (server, agents) = ("0.1.0 (abc)".into(), vec![agents]);
    travels(
        &VersionsView { server, protocol: 1, journal: 1, agents },
        concat!(
            r#"{"server":"0.1.0 (abc)","protocol":1,"journal":1,"#,
            r#""agents":[{"version":"0.1.0","protocol":1,"nodes":["n1"]}]}"#
        ),
    );
    let plans = PlanCounts { last_slots: 1, total_slots: 2, ..PlanCounts::default() };
    let json = serde_json::to_value(DiagnosticsView { plans, ..Default::default() }).unwrap();
    assert_eq!((&json["plans"]["last_kept"], &json["plans"]["total_kept"]), (&1.into(), &2.into()));
    assert_eq!(json["plans"]["backfilled_ever"], 0);
}

#[test]
fn orders_keep_their_names() {
    let head = concat!(
        r#"{"version":1,"term":2,"serial":3,"node":"n1","attempt":{"job":12,"number":1},"#,
        r#""uid":1000,"expires":120000,"action":"#
    );
    let signal = SignalOrder { step: None, signal: 10, leader_only: true, steps_only: false };
    let table = [
        (Action::Suspend, r#""suspend""#),
        (Action::Begin, r#""begin""#),
        (Action::Forget, r#""forget""#),
        (Action::ExtendTo { end: Some(Timestamp(9)) }, r#"{"extend_to":{"end":9}}"#),
        (
            Action::Reboot { program: "/sbin/reboot".into(), since: Some(Timestamp(7)) },
            r#"{"reboot":{"program":"/sbin/reboot","since":7}}"#,
        ),
        (
            Action::Reboot { program: "/sbin/reboot".into(), since: None },
            r#"{"reboot":{"program":"/sbin/reboot"}}"#,
        ),
        (Action::Disown { step: StepId::Batch }, r#"{"disown":{"step":"batch"}}"#),
        (
            Action::Signal(signal),
            r#"{"signal":{"step":null,"signal":10,"leader_only":true,"steps_only":false}}"#,
        ),
        (
            Action::End(EndOrder::kill(Some(StepId::Number(2)), None)),
            r#"{"end":{"step":{"number":2},"grace_s":0,"notice":null,"step_notice":null,"exit":null}}"#,
        ),
    ];
    for (action, json) in table {
        travels::<Order>(&order(action), &format!("{head}{json}}}"));
    }
    travels(
        &SignedOrder { body: "{}".into(), signature: "c2ln".into() },
        r#"{"body":"{}","signature":"c2ln"}"#,
    );
}

#[test]
fn launch_of_a_job_keeps_its_names() {
    let json = concat!(
        r#"{"launch":{"kind":"batch","user":{"name":"alice","uid":1000,"gid":1000,"groups":[]},"#,
        r#""share":{"node":"n1","cpus":"0-1","memory":1024,"tasks":1},"node_index":0,"nodes":1,"script":"true","#,
        r#""arguments":[],"environment":["A=1"],"login_environment":{"timeout_s":8,"login":true},"process_variables":[["RANK","rank"]],"work_dir":"/","stdin":"/dev/null","#,
        r#""stdout":{"file":{"pattern":"o","append":false}},"stderr":"same_as_stdout","umask":18,"#,
        r#""rlimits":{"soft":[],"asked":false},"bound":false,"name":"sweep","end_limit":null,"kill_wait_s":30,"#,
        r#""over_time_s":0,"unkillable_s":0,"signal":null,"#,
        r#""names":{"job_id":12,"array_job_id":null,"array_task_id":null,"user":"alice","job_name":"sweep"},"#,
        r#""first_step":null,"notices":{"time_limit":"t","out_of_memory":"m","node_failure":"n","step_time_limit":"","#,
        r#""cpu_time_limit":"","step_cpu_time_limit":"","step_cancelled":"","exec_failed":"","limit_refused":"","#,
        r#""nice_refused":"","cpu_frequency_refused":"","work_dir_failed":"","task_prolog_failed":"","own_prolog_failed":""},"#,
        r#""around":{"environment":["B=2"],"variables":[["C",{"context":{"before":"prolog","after":"epilog"}}]]}}}"#
    );
    let Action::Launch(launch) = serde_json::from_str(json).unwrap() else { panic!("a launch") };
    assert_eq!(launch.prolog_epilog.environment, ["B=2"]);
    travels(&Action::Launch(launch), json);
}

#[test]
fn reports_keep_their_names() {
    let report = |event| Report {
        serial: 7,
        node: "n1".into(),
        attempt: attempt(),
        at: Timestamp(5),
        event,
    };
    let head = r#"{"serial":7,"node":"n1","attempt":{"job":12,"number":1},"at":5,"event":"#;
    let usage = Usage { cpu_user_us: 1, ..Usage::default() };
    let used = r#"{"cpu_user_us":1,"cpu_system_us":0,"memory_peak_bytes":0,"oom_kills":0}"#;
    let exit = ExitStatus { code: 1, signal: 0 };
    let end = AttemptEnd {
        exit,
        usage: usage.clone(),
        oom: false,
        timed_out: true,
        supervisor_lost: false,
    };
    let table = [
        (ReportEvent::Started, r#""started""#.to_owned()),
        (
            ReportEvent::LaunchFailed {
                what: "no script".into(),
                fault: LaunchFault::Other,
                unfit: None,
                hold: true,
                user: None,
            },
            r#"{"launch_failed":{"what":"no script","hold":true}}"#.to_owned(),
        ),
        (
            ReportEvent::LaunchFailed {
                what: "no user".into(),
                fault: LaunchFault::Other,
                unfit: None,
                hold: false,
                user: Some(UserFault::Expired),
            },
            r#"{"launch_failed":{"what":"no user","user":"expired"}}"#.to_owned(),
        ),
        (
            ReportEvent::LaunchFailed {
                what: "no image".into(),
                fault: LaunchFault::Container,
                unfit: None,
                hold: false,
                user: None,
            },
            r#"{"launch_failed":{"what":"no image","fault":"container"}}"#.to_owned(),
        ),
        (
            ReportEvent::Network(ContainerNetwork {
                ports: vec![PortMapping { container: 80, node: 20_000 }],
            }),
            r#"{"network":{"ports":[{"container":80,"node":20000}]}}"#.to_owned(),
        ),
        (ReportEvent::Unfit { why: "disk".into() }, r#"{"unfit":{"why":"disk"}}"#.to_owned()),
        (
            ReportEvent::StepEnded { step: StepId::Batch, exit, usage, oom: false },
            format!(
                r#"{{"step_ended":{{"step":"batch","exit":{{"code":1,"signal":0}},"usage":{used},"oom":false}}}}"#
            ),
        ),
        (
            ReportEvent::ScriptEnded { exit, oom: false, timed_out: true },
            r#"{"script_ended":{"exit":{"code":1,"signal":0},"oom":false,"timed_out":true}}"#
                .to_owned(),
        ),
        (
            ReportEvent::Ended(end),
            format!(
                r#"{{"ended":{{"exit":{{"code":1,"signal":0}},"usage":{used},"oom":false,"timed_out":true,"supervisor_lost":false}}}}"#
            ),
        ),
    ];
    for (event, json) in table {
        travels(&report(event), &format!("{head}{json}}}"));
    }
}

#[test]
fn messages_of_the_agent_link_keep_their_names() {
    let join = JoinRequest {
        version: 1,
        token: "t".into(),
        certificate_request: "PEM".into(),
        node: None,
        dynamic: false,
        future: None,
    };
    travels(
        &ToServer::Join(join.clone()),
        r#"{"join":{"version":1,"token":"t","certificate_request":"PEM"}}"#,
    );
    travels(
        &ToServer::Join(JoinRequest { node: Some("d1".into()), dynamic: true, ..join }),
        r#"{"join":{"version":1,"token":"t","certificate_request":"PEM","node":"d1","dynamic":true}}"#,
    );
    let node = NodeHello {
        name: "n1".into(),
        facts: Default::default(),
        detected: model::node::NodeConfig::plain("n1", 1, model::amount::Bytes(1)),
        attempts: vec![SpooledAttempt { attempt: attempt(), alive: true }],
        device_change: None,
        dynamic: None,
    };
    let (program, renewals) = ("sluice 1".into(), Vec::new());
    let hello = Hello { version: 1, program, nodes: vec![node], more: false, renewals };
    let json = serde_json::to_value(ToServer::Hello(hello)).unwrap();
    let attempts = &json["hello"]["nodes"][0]["attempts"];
    assert_eq!(attempts.to_string(), r#"[{"alive":true,"attempt":{"job":12,"number":1}}]"#);
    let ssh = NodeSsh { version: 1, nodes: vec!["n1".into()], login: "12.1".into() };
    travels(&ToServer::Ssh(ssh), r#"{"ssh":{"version":1,"nodes":["n1"],"login":"12.1"}}"#);
    travels(&ToServer::Heartbeat { nodes: Vec::new() }, r#"{"beat":{"nodes":[]}}"#);
    let (source, failure) = (model::health::HealthSource::Check, Some("disk full".into()));
    travels(
        &ToServer::Health { node: "n1".into(), source, failure },
        r#"{"health":{"node":"n1","source":"check","failure":"disk full"}}"#,
    );
    travels(
        &ToServer::StepAccepted { node: "n1".into(), attempt: attempt(), step: StepId::Batch },
        r#"{"step_taken":{"node":"n1","attempt":{"job":12,"number":1},"step":"batch"}}"#,
    );
    let refused = ToServer::OrderRefused {
        serial: 3,
        attempt: attempt(),
        node: "n1".into(),
        order: RefusedOrder::LaunchedBefore,
        why: "late".into(),
        unfit: None,
    };
    travels(
        &refused,
        concat!(
            r#"{"order_refused":{"serial":3,"attempt":{"job":12,"number":1},"node":"n1","#,
            r#""order":"launched_before","why":"late"}}"#
        ),
    );
    travels(
        &ToServer::Measured { request: 4, used: LiveUsage::default() },
        r#"{"measured":{"ask":4,"steps":[]}}"#,
    );
    let welcome = Welcome {
        version: 1,
        term: 2,
        now: Timestamp(5),
        heartbeat_interval_ms: 1000,
        policies: BTreeMap::new(),
        renew: Some(Timestamp(9)),
    };
    travels(
        &ToAgent::Welcome(welcome),
        r#"{"welcome":{"version":1,"term":2,"now":5,"beat_interval_ms":1000,"policies":{},"renew":9}}"#,
    );
    travels(&ToAgent::Ack { serial: 7 }, r#"{"ack":{"serial":7}}"#);
    let role = StepRole::Srun { key: "k".into(), received: 9 };
    let open = ToAgent::Open {
        stream: 1,
        node: "n1".into(),
        attempt: attempt(),
        kind: StreamKind::Step { step: StepId::Number(0), role },
    };
    travels(
        &open,
        concat!(
            r#"{"open":{"stream":1,"node":"n1","attempt":{"job":12,"number":1},"#,
            r#""kind":{"step":{"step":{"number":0},"role":{"srun":{"key":"k","received":9}}}}}}"#
        ),
    );
    travels(
        &ToAgent::Measure { request: 4, node: "n1".into(), attempt: attempt() },
        r#"{"measure":{"ask":4,"node":"n1","attempt":{"job":12,"number":1}}}"#,
    );
}

#[test]
fn messages_of_supervisors_keep_their_names() {
    travels(&ToSupervisor::Execute(Action::Resume), r#"{"do":"resume"}"#);
    travels(&ToSupervisor::Acknowledge { number: 3 }, r#"{"taken":{"number":3}}"#);
    travels(&ToSupervisor::Measure { request: 4 }, r#"{"measure":{"ask":4}}"#);
    travels(
        &FromSupervisor::Hello { version: 1, attempt: attempt(), pid: 71, takes_notices: false },
        r#"{"hello":{"version":1,"attempt":{"job":12,"number":1},"pid":71}}"#,
    );
    travels(&ToSupervisor::Notice { line: "x".into() }, r#"{"notice":{"line":"x"}}"#);
    travels(&ToSupervisor::Warn, r#""warn""#);
    travels(
        &FromSupervisor::StepAccepted { step: StepId::Number(0) },
        r#"{"step_taken":{"step":{"number":0}}}"#,
    );
    let event = SupervisorEvent { number: 1, at: Timestamp(5), event: ReportEvent::Started };
    assert!(!event.is_last());
    travels(&FromSupervisor::Event(event), r#"{"event":{"number":1,"at":5,"event":"started"}}"#);
    travels(
        &StepStream { step: StepId::Number(0), role: StepRole::Attached, stream: 2 },
        r#"{"step":{"number":0},"role":"attached","stream":2}"#,
    );
}

#[test]
fn messages_of_steps_keep_their_names() {
    let table = [
        (
            StepMessage::Hello {
                key: "k".into(),
                node: "n1".into(),
                node_index: 0,
                waits: true,
                step_tasks: std::num::NonZeroU32::new(2),
            },
            r#"{"hello":{"key":"k","node":"n1","node_index":0,"waits":true,"step_tasks":2}}"#,
        ),
        (StepMessage::Started { task: 0, pid: 71 }, r#"{"started":{"task":0,"pid":71}}"#),
        (
            StepMessage::Failed { task: 0, errno: 2, what: "x".into() },
            r#"{"failed":{"task":0,"errno":2,"what":"x"}}"#,
        ),
        (
            StepMessage::Exited { task: 0, exit: ExitStatus { code: 0, signal: 9 }, oom: true },
            r#"{"exited":{"task":0,"exit":{"code":0,"signal":9},"oom":true}}"#,
        ),
        (StepMessage::Gone, r#""gone""#),
        (StepMessage::Received { bytes: 5 }, r#"{"received":{"bytes":5}}"#),
        (
            StepMessage::Refused { why: "w".into(), again: true },
            r#"{"refused":{"why":"w","again":true}}"#,
        ),
        (StepMessage::InputCredit { bytes: 5 }, r#"{"input_credit":{"bytes":5}}"#),
        (StepMessage::Skipped { bytes: 5 }, r#"{"skipped":{"bytes":5}}"#),
        (StepMessage::Signal { signal: 2 }, r#"{"signal":{"signal":2}}"#),
        (StepMessage::End { at_once: true }, r#"{"end":{"at_once":true}}"#),
        (StepMessage::Ending { wait_s: 30 }, r#"{"ending":{"wait_s":30}}"#),
        (StepMessage::InputEnd, r#""input_end""#),
        (StepMessage::Go, r#""go""#),
        (
            StepMessage::GoAs { first_rank: 2, environment: vec!["A=1".into()] },
            r#"{"go_as":{"first_rank":2,"environment":["A=1"]}}"#,
        ),
        (StepMessage::Resize { rows: 24, columns: 80 }, r#"{"resize":{"rows":24,"columns":80}}"#),
    ];
    for (message, json) in table {
        travels(&message, json);
    }
}

#[test]
fn copied_files_keep_their_names() {
    let times = FileTimes { accessed: (1, 2), modified: (3, 4) };
    let plain = FileCopy {
        destination: "/tmp/x".into(),
        length: 5,
        mode: 0o644,
        preserved: None,
        replace: false,
    };
    travels(&plain, r#"{"destination":"/tmp/x","length":5,"mode":420}"#);
    travels(
        &FileCopy { preserved: Some(times), replace: true, ..plain },
        concat!(
            r#"{"destination":"/tmp/x","length":5,"mode":420,"#,
            r#""preserved":{"accessed":[1,2],"modified":[3,4]},"replace":true}"#
        ),
    );
}
