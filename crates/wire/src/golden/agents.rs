//! Messages between server, agent, supervisor and `srun`.

use super::travels;
use crate::file_copy::{FileCopy, FileTimes};
use crate::forward::OwnServer;
use crate::link::{
    Hello, JoinRequest, NodeHello, NodeSsh, PassedClient, PassedFrom, RefusedNode, RefusedOrder,
    ServerAtPort, SpooledAttempt, ToAgent, ToServer, Welcome,
};
use crate::order::{Action, EndOrder, Order, SignalOrder, SignedOrder};
use crate::report::{AttemptEnd, Report, ReportEvent};
use crate::samples::{attempt, order};
use crate::step::StepMessage;
use crate::stream::{StepRole, StreamKind};
use crate::supervisor::{FromSupervisor, StepStream, SupervisorEvent, ToSupervisor};
use model::container::{ContainerNetwork, PortMapping};
use model::id::StepId;
use model::load::LiveUsage;
use model::reason::{LaunchFault, UserFault};
use model::run::{ExitStatus, Usage};
use model::time::Timestamp;
use std::collections::BTreeMap;

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
    // A script that is not UTF-8.
    let json = json.replace(r#""script":"true""#, r#""script":{"base64":"/w=="}"#);
    let Action::Launch(launch) = serde_json::from_str(&json).unwrap() else { panic!("a launch") };
    assert_eq!(launch.script.as_ref().map(|script| script.as_bytes()), Some(&[0xff][..]));
    travels(&Action::Launch(launch), &json);
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
    let (more, takes_bytes, finds_servers) = (false, true, true);
    let nodes = vec![node];
    let network_stack = Some("boot net:[1]".to_owned());
    let hello = Hello {
        version: 1,
        program,
        nodes,
        more,
        renewals,
        takes_bytes,
        network_stack,
        finds_servers,
    };
    let json = serde_json::to_value(ToServer::Hello(hello)).unwrap();
    assert_eq!(json["hello"]["takes_bytes"], true);
    assert_eq!(json["hello"]["finds_servers"], true);
    assert_eq!(json["hello"]["network_stack"], "boot net:[1]");
    let earlier = r#"{"version":1,"program":"sluice 1","nodes":[]}"#;
    travels(&serde_json::from_str::<Hello>(earlier).unwrap(), earlier);
    let attempts = &json["hello"]["nodes"][0]["attempts"];
    assert_eq!(attempts.to_string(), r#"[{"alive":true,"attempt":{"job":12,"number":1}}]"#);
    let ssh = NodeSsh { version: 1, nodes: vec!["n1".into()], login: "12.1".into() };
    travels(&ToServer::Ssh(ssh), r#"{"ssh":{"version":1,"nodes":["n1"],"login":"12.1"}}"#);
    let from = PassedFrom::Socket { uid: 1000, gid: 100, user: "ada".into() };
    travels(
        &ToServer::Passed(PassedClient { version: 1, from, signature: "c2ln".into() }),
        r#"{"passed":{"version":1,"from":{"socket":{"uid":1000,"gid":100,"user":"ada"}},"signature":"c2ln"}}"#,
    );
    let from = PassedFrom::Port { address: [192, 0, 2, 1].into() };
    travels(&from, r#"{"port":{"address":"192.0.2.1"}}"#);
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
    travels(
        &ToServer::ServerFound { request: 4, found: ServerAtPort::default() },
        r#"{"server_found":{"ask":4}}"#,
    );
    let server = Some(OwnServer { address: [127, 0, 0, 1].into(), sockets: vec![7] });
    travels(
        &ToServer::ServerFound { request: 4, found: ServerAtPort { listens: true, server } },
        concat!(
            r#"{"server_found":{"ask":4,"listens":true,"#,
            r#""server":{"address":"127.0.0.1","sockets":[7]}}}"#
        ),
    );
    let welcome = Welcome {
        version: 1,
        term: 2,
        now: Timestamp(5),
        heartbeat_interval_ms: 1000,
        policies: BTreeMap::new(),
        alive_interval_ms: None,
        renew: Some(Timestamp(9)),
        refused: Vec::new(),
    };
    travels(
        &ToAgent::Welcome(welcome.clone()),
        r#"{"welcome":{"version":1,"term":2,"now":5,"beat_interval_ms":1000,"policies":{},"renew":9}}"#,
    );
    travels(
        &ToAgent::Welcome(Welcome {
            renew: None,
            alive_interval_ms: Some(1000),
            ..welcome.clone()
        }),
        concat!(
            r#"{"welcome":{"version":1,"term":2,"now":5,"beat_interval_ms":1000,"policies":{},"#,
            r#""alive_interval_ms":1000}}"#
        ),
    );
    let refused = vec![RefusedNode { node: "n2".into(), why: "it left".into() }];
    travels(
        &ToAgent::Welcome(Welcome { renew: None, refused, ..welcome }),
        concat!(
            r#"{"welcome":{"version":1,"term":2,"now":5,"beat_interval_ms":1000,"policies":{},"#,
            r#""refused":[{"node":"n2","why":"it left"}]}}"#
        ),
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
    travels(
        &ToAgent::FindServer { request: 4, node: "n1".into(), attempt: attempt(), port: 80 },
        r#"{"find_server":{"ask":4,"node":"n1","attempt":{"job":12,"number":1},"port":80}}"#,
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
