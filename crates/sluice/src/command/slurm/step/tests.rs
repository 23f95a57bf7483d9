//! A step with supervisors made by the test: what they send is what `srun` sees of a cluster.

use super::output::{FilenameFields, Target};
use super::*;
use crate::client::ServerLocation;
use model::id::StepId;
use nix::sys::signal::SigSet;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use wire::frame::{self, Decoder, Frame};
use wire::step::channel;

struct Stage {
    dir: tempfile::TempDir,
    step: Step,
    /// Where the supervisors dial, and with what.
    address: String,
    key: String,
}

impl Stage {
    fn new(tasks: u32, input: Option<&str>) -> Self {
        let dir = tempfile::tempdir().expect("a folder");
        let listener = StepListener::open().expect("a port");
        let endpoint = listener.endpoint().expect("addresses");
        let names = FilenameFields {
            job_id: 5,
            array: None,
            step: "0".into(),
            user: "alice".into(),
            job_name: "x".into(),
            work_dir: dir.path().to_string_lossy().into_owned(),
        };
        let outputs = Outputs::new(Target::File("out".into()), None, false, names).expect("made");
        let input = input.map(|text| {
            let path = dir.path().join("in");
            std::fs::write(&path, text).expect("written");
            File::open(path).expect("there")
        });
        let plan = Plan {
            job: JobId(5),
            name: "5.0".into(),
            tasks: Some(tasks),
            label: false,
            quiet: true,
            terminal: false,
            kill_on_bad_exit: Some(false),
            disable_status: false,
            quit_on_interrupt: false,
            input_task: None,
            wait: Some(Duration::ZERO),
            prolog: None,
            het: None,
        };
        let address = endpoint.listen.last().expect("loopback").clone();
        let nowhere = ServerLocation::Socket(dir.path().join("no.sock"));
        let streams = ServerStreams::new(nowhere, JobId(5), StepId::Number(0), None).expect("made");
        let step = Step::new(plan, listener, streams, outputs, input);
        Self { dir, step, address, key: endpoint.key }
    }

    fn supervisor(&self, node: &str) -> Supervisor {
        self.supervisor_that(node, false)
    }

    fn supervisor_that(&self, node: &str, waits: bool) -> Supervisor {
        let stream = TcpStream::connect(&self.address).expect("the listener is open");
        let mut supervisor = Supervisor { stream, decoder: Decoder::default() };
        let (key, node) = (self.key.clone(), node.to_owned());
        supervisor.say(&StepMessage::Hello { key, node, node_index: 0, waits });
        supervisor
    }

    /// The outcome, and what was written, beside a server that has nothing to say.
    fn run(self) -> (StepOutcome, String) {
        let path = self.dir.path().join("silent.sock");
        let _silent = UnixListener::bind(&path).expect("a socket");
        self.run_beside(path)
    }

    fn run_beside(self, server: PathBuf) -> (StepOutcome, String) {
        let signals = SignalFd::new(&SigSet::empty()).expect("a descriptor");
        let location = ServerLocation::Socket(server);
        let mut watch = Watch::begin(location, JobId(5), false).expect("a thread");
        let outcome = self.step.run(&mut watch, &signals).expect("carried");
        (outcome, read(&self.dir.path().join("out")))
    }
}

fn read(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap_or_default()
}

struct Supervisor {
    stream: TcpStream,
    decoder: Decoder,
}

impl Supervisor {
    fn say(&mut self, message: &StepMessage) {
        let mut bytes = Vec::new();
        frame::encode_message(channel::CONTROL, message, &mut bytes).expect("small");
        self.stream.write_all(&bytes).expect("srun listens");
    }

    fn output(&mut self, channel: u8, task: u32, text: &str) {
        let mut bytes = Vec::new();
        let payload = [&task.to_le_bytes()[..], text.as_bytes()].concat();
        frame::encode(channel, &payload, &mut bytes).expect("small");
        self.stream.write_all(&bytes).expect("srun listens");
    }

    fn exited(&mut self, task: u32, code: i32) {
        let exit = ExitStatus { code, signal: 0 };
        self.say(&StepMessage::Exited { task, exit, oom: false });
    }

    /// The next frame from `srun`.
    fn hear(&mut self) -> Frame {
        loop {
            if let Some(frame) = self.decoder.next_frame().expect("well formed") {
                return frame;
            }
            let mut buffer = [0; 4096];
            let length = self.stream.read(&mut buffer).expect("srun speaks");
            assert!(length > 0, "srun hung up");
            self.decoder.push(&buffer[..length]);
        }
    }

    fn hear_message(&mut self) -> StepMessage {
        frame::decode_message(&self.hear().payload).expect("a message")
    }
}

#[test]
fn output_is_passed_on_and_the_highest_code_is_the_steps() {
    let stage = Stage::new(2, None);
    let (mut one, mut two) = (stage.supervisor("n1"), stage.supervisor("n2"));
    let tasks = std::thread::spawn(move || {
        one.say(&StepMessage::Started { task: 0, pid: 1 });
        two.say(&StepMessage::Started { task: 1, pid: 1 });
        one.output(channel::STDOUT, 0, "zero\n");
        one.exited(0, 3);
        one.say(&StepMessage::Gone);
        two.exited(1, 0);
        // What comes before the last word still counts.
        two.output(channel::STDERR, 1, "one\n");
        two.say(&StepMessage::Gone);
    });
    let (outcome, text) = stage.run();
    tasks.join().expect("no panic");
    assert_eq!((outcome.code, outcome.exit.code, outcome.job_ended), (3, 3, false));
    let mut lines: Vec<&str> = text.lines().collect();
    lines.sort();
    assert_eq!(lines, ["one", "zero"]);
}

#[test]
fn input_goes_to_every_task_once_all_have_begun_and_its_end_is_told() {
    let stage = Stage::new(2, Some("hello"));
    let (mut one, mut two) = (stage.supervisor("n1"), stage.supervisor("n2"));
    let tasks = std::thread::spawn(move || {
        one.say(&StepMessage::Started { task: 0, pid: 1 });
        two.say(&StepMessage::Started { task: 1, pid: 1 });
        for (task, supervisor) in [(0, &mut one), (1, &mut two)] {
            let bytes = supervisor.hear();
            assert_eq!((bytes.channel, bytes.payload.as_slice()), (channel::STDIN, &b"hello"[..]));
            assert_eq!(supervisor.hear_message(), StepMessage::InputEnd);
            supervisor.exited(task, 0);
            supervisor.say(&StepMessage::Gone);
        }
    });
    let (outcome, _) = stage.run();
    tasks.join().expect("no panic");
    assert_eq!(outcome.code, 0);
}

#[test]
fn tasks_are_told_to_go_once_the_program_before_them_has_run() {
    let mut stage = Stage::new(1, None);
    let done = stage.dir.path().join("done");
    let path = stage.dir.path().join("before");
    std::fs::write(&path, format!("#!/bin/sh\nsleep 0.2; echo > {}\n", done.display())).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
    let program = Program::new(path.to_str(), "prolog_srun", JobId(5), StepId::Number(0));
    stage.step.gate = StartGate::new(program);
    stage.step.granted = true;
    let mut one = stage.supervisor_that("n1", true);
    let tasks = std::thread::spawn(move || {
        assert_eq!(one.hear_message(), StepMessage::Go);
        assert!(done.exists());
        one.exited(0, 0);
        one.say(&StepMessage::Gone);
    });
    assert_eq!(stage.run().0.code, 0);
    tasks.join().expect("no panic");
}

#[test]
fn a_node_that_vanishes_takes_its_tasks_along_as_failures() {
    let stage = Stage::new(1, None);
    let mut one = stage.supervisor("n1");
    one.say(&StepMessage::Started { task: 0, pid: 1 });
    drop(one);
    let (outcome, _) = stage.run();
    assert_eq!(outcome.code, 1);
}

#[test]
fn without_a_server_and_without_tasks_there_is_nothing_to_wait_for() {
    let stage = Stage::new(1, None);
    let nobody = stage.dir.path().join("no.sock");
    let (outcome, text) = stage.run_beside(nobody);
    assert_eq!((outcome.code, text.as_str()), (1, ""));
}

/// Two steps of a task each, run as one by a thread: where their supervisors dial, and what comes of it.
fn crowd() -> ([Stage; 2], impl FnOnce([Stage; 2]) -> Option<StepOutcome>) {
    let stage = |at: u32| {
        let mut stage = Stage::new(1, None);
        let environment = vec!["A=b".to_owned()];
        let (first_rank, first_node, tasks) = (at, at, 2);
        stage.step.plan.het = Some(HetPlacement { first_rank, first_node, tasks, environment });
        stage.step.held = true;
        stage.step.expect_nodes(&[(format!("n{at}"), vec![0])]);
        stage
    };
    let run = |stages: [Stage; 2]| {
        let dir = tempfile::tempdir().expect("a folder");
        let path = dir.path().join("silent.sock");
        let _silent = UnixListener::bind(&path).expect("a socket");
        let part = |stage: Stage| {
            let watch = Watch::begin(ServerLocation::Socket(path.clone()), JobId(5), false);
            let watch = watch.expect("a thread");
            het::HetStep { step: stage.step, watch, shares_input: false }
        };
        let parts = stages.into_iter().map(part).collect();
        let signals = SignalFd::new(&SigSet::empty()).expect("a descriptor");
        het::HetStepRunner::new(parts, None).run(&signals).expect("carried")
    };
    ([stage(0), stage(1)], run)
}

#[test]
fn parts_are_told_to_go_once_all_can_and_the_highest_code_is_that_of_all() {
    let (stages, run) = crowd();
    let mut one = stages[0].supervisor_that("n0", true);
    let mut two = stages[1].supervisor_that("n1", true);
    let tasks = std::thread::spawn(move || {
        for (at, supervisor) in [(0, &mut one), (1, &mut two)] {
            let environment = vec!["A=b".to_owned(), format!("SLURM_NODEID={at}")];
            let word = StepMessage::GoAs { first_rank: at, environment };
            assert_eq!(supervisor.hear_message(), word);
        }
        one.exited(0, 5);
        one.say(&StepMessage::Gone);
        two.exited(0, 3);
        two.say(&StepMessage::Gone);
    });
    let outcome = run(stages).expect("all could start");
    tasks.join().expect("no panic");
    assert_eq!((outcome.code, outcome.exit.code), (5, 5));
}

#[test]
fn no_part_is_told_to_go_if_another_cannot() {
    let (stages, run) = crowd();
    let mut one = stages[0].supervisor_that("n0", true);
    let mut two = stages[1].supervisor_that("n1", true);
    // As of one that is ended before its tasks start.
    two.exited(0, 1);
    assert_eq!(run(stages), None);
    let mut rest = Vec::new();
    // What is unread when the other end goes may be an error as well as an end.
    let _ = one.stream.read_to_end(&mut rest);
    assert!(rest.is_empty(), "{rest:?}");
}

#[test]
fn a_node_that_vanishes_before_its_tasks_began_takes_them_along_too() {
    let mut stage = Stage::new(1, None);
    stage.step.expect_nodes(&[("n1".to_owned(), vec![0])]);
    drop(stage.supervisor("n1"));
    assert_eq!(stage.run().0.code, 1);
}
