//! The JSON of one message of each kind, word for word: a renamed field or variant is found here before a neighbouring
//! version misses it. A change of these texts is a change of the protocol (`version.rs`). Here are those of clients; `agents` has those
//! of agents, supervisors and steps.

mod agents;

use crate::agent_view::{AgentView, JoinMethodView, JoinView, NewNodes};
use crate::client::{Answer, Call, Cancel, Envelope, SubmitForecast, WebLinkQuery};
use crate::diagnostics::{DiagnosticsView, PlanCounts};
use crate::explain::{ExpectedStart, WaitView};
use crate::fleet::{FleetConfiguration, FleetHostState, FleetHostView, FleetView};
use crate::gateway::{
    GatewayReport, GatewayRoutes, ReplicaRoute, ServiceLoad, ServiceRoute, TokenRoute,
};
use crate::link::{Renewal, SignedRenewal, ToAgent, ToServer};
use crate::machine::{BudgetView, MachineView, MachinesView, SourceView};
use crate::order::{Action, IdRange, SignedOrder};
use crate::reservation::ReservationPurpose;
use crate::samples::job_view;
use crate::ssh::{SshEndpoint, SshKeyView, SshRequest, key_proof_text};
use crate::step::{SrunPrologEpilog, StepLayout, StepNode};
use crate::stream::StreamKind;
use crate::token::TokenLife;
use crate::version::{AgentVersion, VersionsView};
use crate::view::{JobExtras, SubmitChoices, UnknownNames};
use crate::volume::{LaunchVolume, VolumeAction, VolumeOrder, VolumeView};
use crate::what_if::{AddedNodes, ChangedStart, WhatIfQuery, WhatIfView};
use model::amount::Bytes;
use model::change::{JobFilter, JobRef};
use model::id::{JobId, RunId, StepId};
use model::machine::{Machine, MachinePhase, Offer as MachineOffer};
use model::price::{Cost, Price};
use model::run::HetComponent;
use model::secret::SecretValue;
use model::service::ProbeProgress;
use model::time::Timestamp;
use model::volume::{VolumeFolder, VolumePlace, VolumeState};
use serde::Serialize;
use serde::de::DeserializeOwned;

/// `value` is written as `json`, and what is read from `json` is written as `json` again.
#[track_caller]
fn travels<T: Serialize + DeserializeOwned>(value: &T, json: &str) {
    assert_eq!(serde_json::to_string(value).unwrap(), json);
    let read: T = serde_json::from_str(json).unwrap();
    assert_eq!(serde_json::to_string(&read).unwrap(), json);
}

#[test]
fn choices_at_a_submit_keep_their_names() {
    travels(&Call::SubmitChoices, r#""submit_choices""#);
    let (partitions, accounts) = (vec!["gpu".into()], vec!["physics".into()]);
    let choices = SubmitChoices { partitions, accounts, qos: vec!["normal".into()] };
    travels(
        &Answer::SubmitChoices(choices),
        r#"{"submit_choices":{"partitions":["gpu"],"accounts":["physics"],"qos":["normal"]}}"#,
    );
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
fn reports_and_routes_of_gateways_keep_their_names() {
    let attempt = model::id::AttemptId { job: JobId(12), number: 1 };
    let load = ServiceLoad {
        project: "main".into(),
        run: "web".into(),
        requests: 3,
        outstanding: vec![(attempt, 2)],
    };
    let (name, loads) = ("edge".into(), vec![load]);
    let report = GatewayReport { name, loads, has_tls: true, ..Default::default() };
    travels(
        &Call::SyncGateway(report),
        r#"{"sync_gateway":{"name":"edge","has_tls":true,"loads":[{"project":"main","run":"web","requests":3,"outstanding":[[{"job":12,"number":1},2]]}]}}"#,
    );
    let service = ServiceRoute {
        project: "main".into(),
        run: "web".into(),
        auth: true,
        strip_prefix: true,
        https: model::publication::HttpsChoice::Off,
        is_ready: true,
        rate_limits: Vec::new(),
        replicas: vec![ReplicaRoute {
            attempt,
            host: "n1".into(),
            port: 80,
            sockets: vec![7],
            uid: Some(1000),
        }],
    };
    let token = TokenRoute { hash: "h".into(), expires: None, projects: vec!["main".into()] };
    let routes = GatewayRoutes {
        is_settled: true,
        proxy_port: Some(6823),
        domain: None,
        services: vec![service],
        withdrawn: vec!["main/other".into()],
        tokens: vec![token],
    };
    travels(
        &Answer::GatewayRoutes(Box::new(routes)),
        r#"{"gateway_routes":{"is_settled":true,"proxy_port":6823,"services":[{"project":"main","run":"web","auth":true,"strip_prefix":true,"https":"off","is_ready":true,"replicas":[{"attempt":{"job":12,"number":1},"host":"n1","port":80,"sockets":[7],"uid":1000}]}],"withdrawn":["main/other"],"tokens":[{"hash":"h","projects":["main"]}]}}"#,
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
    travels(
        &Call::SetBackend { project: "main".into(), config_yaml: SecretValue("type: aws".into()) },
        r#"{"set_backend":{"project":"main","config_yaml":"type: aws"}}"#,
    );
    travels(
        &Call::RemoveBackends { project: "main".into(), names: vec!["aws".into()] },
        r#"{"remove_backends":{"project":"main","names":["aws"]}}"#,
    );
    let source = SourceView {
        name: "cloud".into(),
        kind: String::new(),
        project: None,
        regions: Vec::new(),
        offers: 2,
        machines: 1,
        machines_max: 4,
        price_hour: Price::from_dollars(2.5).expect("a price"),
        month: Cost::from_dollars(1.0).expect("an amount"),
        idle: None,
        budget: None,
        failure: Some("refused".into()),
        notices: Vec::new(),
        paused: None,
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
        terms: Default::default(),
    };
    let machines = vec![MachineView { machine, idle: false, cost: Cost::default() }];
    let budget = BudgetView {
        account: "lab".into(),
        month: Cost::from_dollars(2.0).expect("an amount"),
        spent: Cost::from_dollars(1.0).expect("an amount"),
        price_hour: Price::from_dollars(2.5).expect("a price"),
        warned: false,
    };
    let budgets = vec![budget];
    travels(
        &Answer::Machines(MachinesView { sources: vec![source], machines, budgets }),
        concat!(
            r#"{"machines":{"sources":[{"name":"cloud","offers":2,"machines":1,"machines_max":4,"#,
            r#""price_hour":25000,"month":1000000,"failure":"refused","strangers":["i-1"]}],"#,
            r#""machines":[{"machine":{"token":"1-a","number":1,"#,
            r#""source":"cloud","offer":{"id":"small","cpus":2,"memory":1024,"disk":0,"price":25000},"#,
            r#""node":"cloud-1","job":7,"asked":1,"phase":"asked"},"cost":0}],"#,
            r#""budgets":[{"account":"lab","month":2000000,"spent":1000000,"price_hour":25000}]}}"#
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
        disk: None,
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
    let devices = vec!["/dev/xvdf".to_owned()];
    travels(
        &VolumeAction::Mount { gid: 7, devices },
        r#"{"mount":{"gid":7,"devices":["/dev/xvdf"]}}"#,
    );
    travels(&VolumeAction::Unmount, r#""unmount""#);
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
            beyond_time: None,
            unknown_names: UnknownNames::default(),
        },
        concat!(
            r#"{"submitted":{"job":12,"run":"00000000-0000-0000-0000-000000000001","name":"sweep","#,
            r#""programs":{"prolog":"/p"}}}"#
        ),
    );
    let unknown = UnknownNames { jobs: vec!["99_2".into()], ..UnknownNames::default() };
    travels(&unknown, r#"{"jobs":["99_2"]}"#);
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
        provisioning: false,
        service_url: None,
        probes: vec![ProbeProgress::Ready, ProbeProgress::Succeeding, ProbeProgress::Failing],
    }));
    let json = serde_json::to_value(&job).unwrap();
    assert_eq!(json["together"], serde_json::json!({"first": 12, "offset": 0, "size": 2}));
    let extras = serde_json::json!({"suspend_time": 4, "ran_before_s": 3, "preempt_time": null,
        "admin_comment": null, "drawn_into": "maint",
        "probes": ["ready", "succeeding", "failing"]});
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
