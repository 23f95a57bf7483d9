//! Tests of an attempt's folder, and records that other tests use.

use super::*;
use attempt_dir::STATUS;
use model::allocation::NodeShare;
use model::amount::Bytes;
use model::limits::Limits;
use model::run::LaunchKind;
use model::time::Timestamp;
use nix::unistd::{Gid, Uid};
use wire::order::{FileNames, JobLaunch, Notices, Output, UserIds};
use wire::report::ReportEvent;
use wire::supervisor::SupervisorEvent;

/// The spool of node `n1` below this folder.
pub fn spool_of(state: &Path) -> Result<Spool, AgentError> {
    Spool::open(state, &Spool::open_nodes(state)?, "n1")
}

pub fn attempt(job: u32, number: u32) -> AttemptId {
    AttemptId { job: JobId(job), number }
}

/// A batch job of whoever runs the test.
pub fn launch() -> JobLaunch {
    JobLaunch {
        kind: LaunchKind::Batch,
        user: UserIds {
            name: "me".into(),
            uid: Uid::effective().as_raw(),
            gid: Gid::effective().as_raw(),
            groups: Vec::new(),
        },
        share: NodeShare {
            node: "n1".into(),
            cpus: "0".parse().expect("a CPU list"),
            memory: Bytes::from_mib(64),
            gres: Vec::new(),
            tasks: 1,
            sharers: 1,
            disk: Bytes(0),
            price: None,
        },
        node_index: 0,
        nodes: 1,
        script: None,
        deferred: false,
        arguments: Vec::new(),
        environment: vec!["PATH=/usr/bin:/bin".into()],
        files: Vec::new(),
        internode_ssh: None,
        process_variables: Vec::new(),
        folder_variables: Vec::new(),
        work_dir: "/tmp".into(),
        stdin: "/dev/null".into(),
        stdout: Output::Log,
        stderr: Output::SameAsStdout,
        umask: 0o22,
        rlimits: Default::default(),
        nice: None,
        bound: false,
        over_time_s: 0,
        unkillable_s: 0,
        name: "test".into(),
        end_limit: None,
        kill_wait_s: 1,
        login_environment: None,
        signal: None,
        names: FileNames::default(),
        first_step: None,
        notices: Notices::default(),
        sample_s: None,
        volumes: Vec::new(),
        shared_memory: None,
        own_network: false,
        id_range: Default::default(),
        registry_auth: None,
        workspace: None,
        git_credentials: None,
        call: None,
        container: None,
        prolog_epilog: Default::default(),
    }
}

pub fn record(attempt: AttemptId) -> LaunchRecord {
    LaunchRecord {
        version: 1,
        attempt,
        node: "n1".into(),
        group_root: "sluice-test".into(),
        plugin: "disabled".into(),
        places: Vec::new(),
        node_cpus: 0,
        machine_cpus: 0,
        limits: Limits::default(),
        has_script: true,
        launch: launch(),
        site: Default::default(),
        private_by_default: false,
    }
}

#[test]
fn attempt_is_listed_from_create_to_remove() {
    let state = tempfile::tempdir().expect("a scratch folder");
    let spool = spool_of(state.path()).expect("a spool");
    let dir = spool.create(&record(attempt(12, 1)), Some(b"#!/bin/sh\n")).expect("a folder");
    assert_eq!(dir.read_launch().expect("a launch"), record(attempt(12, 1)));
    assert_eq!(dir.read_status().expect("no status yet"), None);
    let event = SupervisorEvent { number: 1, at: Timestamp(5), event: ReportEvent::Started };
    let status = StatusFile { version: 1, at: Timestamp(5), events: vec![event] };
    dir.write_status(&status, &mut Slots::default()).expect("written");
    assert_eq!(dir.read_status().expect("a status"), Some(status));
    assert_eq!(spool.attempts().expect("a list"), [attempt(12, 1)]);
    assert!(spool.create(&record(attempt(12, 1)), None).is_err(), "never two of one attempt");
    let again = spool_of(state.path()).expect("the spool of a restarted agent");
    again.remove(attempt(12, 1)).expect("removed");
    again.remove(attempt(12, 1)).expect("twice is no error");
    assert_eq!(again.attempts().expect("a list"), []);
}

#[test]
fn only_canonical_names_are_attempts() {
    for (name, expected) in [
        ("12.1", Some(attempt(12, 1))),
        ("012.1", None),
        ("12", None),
        ("12.1.1", None),
        ("x.1", None),
        ("..", None),
    ] {
        assert_eq!(parse_name(name), expected, "{name}");
    }
}

#[test]
fn status_is_written_into_its_reserved_space() {
    use std::os::unix::fs::MetadataExt;
    let state = tempfile::tempdir().expect("a scratch folder");
    let spool = spool_of(state.path()).expect("a spool");
    let dir = spool.create(&record(attempt(12, 1)), None).expect("a folder");
    let file = || {
        let found = std::fs::metadata(dir.path().join(STATUS)).expect("there");
        (found.ino(), found.len(), found.blocks())
    };
    let before = file();
    assert_eq!(before.1, 2 * status::RESERVE_BYTES as u64);
    let event = |number| SupervisorEvent { number, at: Timestamp(5), event: ReportEvent::Started };
    let mut slots = Slots::default();
    for count in [1, 2, 200, 3, 1, 2] {
        let status =
            StatusFile { version: 1, at: Timestamp(5), events: (0..count).map(event).collect() };
        dir.write_status(&status, &mut slots).expect("written");
        assert_eq!(dir.read_status().expect("a status"), Some(status));
        assert_eq!(file(), before, "the reserved space stays, whatever was written");
    }
}

#[test]
fn status_of_the_previous_version_is_read() {
    let state = tempfile::tempdir().expect("a scratch folder");
    let spool = spool_of(state.path()).expect("a spool");
    let dir = spool.create(&record(attempt(12, 1)), None).expect("a folder");
    let event = SupervisorEvent { number: 1, at: Timestamp(5), event: ReportEvent::Started };
    let status = StatusFile { version: 1, at: Timestamp(5), events: vec![event] };
    let old = serde_json::to_vec(&status).expect("JSON");
    std::fs::write(dir.path().join(STATUS), old).expect("written");
    assert_eq!(dir.read_status().expect("a status"), Some(status));
}

#[test]
fn nodes_whose_spools_hold_attempts_are_found_by_name() {
    let state = tempfile::tempdir().expect("a folder");
    assert!(nodes_with_attempts(state.path(), |_| true).is_empty());
    for (node, name) in [("n3", "7.1"), ("n1", "8.2"), ("n2", "log"), ("n4", "9.1")] {
        let spool = state.path().join("nodes").join(node).join(SPOOL);
        std::fs::create_dir_all(spool.join(name)).expect("a folder");
    }
    assert_eq!(nodes_with_attempts(state.path(), |node| node != "n4"), ["n1", "n3"]);
}
