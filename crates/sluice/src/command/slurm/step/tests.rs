//! A step beside supervisors that the test plays: `srun` sees of a cluster only what they send.

use super::output::{FilenameFields, Target};
use super::*;
use crate::client::ServerLocation;
use crate::command::slurm::submit::job_watch::{JobEvent, Watched};
use model::id::StepId;
use nix::sys::signal::SigSet;
use ring::rand::SystemRandom;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::num::NonZeroU32;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use wire::frame::{self, Decoder, Frame};
use wire::step::channel;
use wire::step_channel::StepChannel;

struct StepFixture {
    dir: tempfile::TempDir,
    step: Step,
    /// A step that is ready to run, with the address and key that supervisors dial with.
    address: String,
    key: String,
    /// How many tasks its supervisors say that the step has.
    said_tasks: Option<NonZeroU32>,
}

impl StepFixture {
    fn new(tasks: u32, input: Option<&str>) -> Self {
        let dir = tempfile::tempdir().expect("a folder");
        let listener =
            StepListener::open(&ServerLocation::Socket("sluice.sock".into())).expect("a port");
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
            verbose: 0,
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
        Self { dir, step, address, key: endpoint.key, said_tasks: None }
    }

    fn supervisor(&self, node: &str) -> Supervisor {
        self.supervisor_with(node, false)
    }

    fn supervisor_with(&self, node: &str, waits: bool) -> Supervisor {
        let stream = TcpStream::connect(&self.address).expect("the listener is open");
        let channel = StepChannel::dialler(&self.key, &SystemRandom::new()).expect("a key");
        let (key, node) = (String::new(), node.to_owned());
        let mut supervisor =
            Supervisor { stream, channel, decoder: Decoder::default(), waiting: Vec::new() };
        supervisor.send();
        supervisor.say(&StepMessage::Hello {
            key,
            node,
            node_index: 0,
            waits,
            step_tasks: self.said_tasks,
        });
        supervisor
    }

    /// Runs the step beside a server that never answers; the outcome, and what was written.
    fn run(self) -> (StepOutcome, String) {
        let path = self.dir.path().join("silent.sock");
        let _silent = UnixListener::bind(&path).expect("a socket");
        self.run_beside(path)
    }

    fn run_beside(self, server: PathBuf) -> (StepOutcome, String) {
        let signals = SignalFd::new(&SigSet::empty()).expect("a descriptor");
        let location = ServerLocation::Socket(server);
        let mut watch = Watch::begin(watched(location, false)).expect("a thread");
        let outcome = self.step.run(&mut watch, &signals).expect("carried");
        (outcome, read(&self.dir.path().join("out")))
    }
}

fn watched(location: ServerLocation, from_start: bool) -> Watched {
    Watched { location, job: JobId(5), from_start, explains: false }
}

fn read(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap_or_default()
}

struct Supervisor {
    stream: TcpStream,
    channel: StepChannel,
    decoder: Decoder,
    /// Said before the `srun` has run and proven the key.
    waiting: Vec<u8>,
}

impl Supervisor {
    fn say(&mut self, message: &StepMessage) {
        let mut bytes = Vec::new();
        frame::encode_message(channel::CONTROL, message, &mut bytes).expect("small");
        self.waiting.extend(bytes);
        self.send();
    }

    /// Sends what was said; before the proof it waits.
    fn send(&mut self) {
        let taken = self.channel.seal(&self.waiting).expect("few records");
        self.waiting.drain(..taken);
        self.stream.write_all(self.channel.unsent()).expect("srun listens");
        self.channel.mark_sent(self.channel.unsent().len());
    }

    /// Waits for the proof of the `srun`, which must run, and sends what was said so far.
    fn prove(&mut self) {
        let mut answer = [0; 64];
        if !self.channel.is_proven() {
            self.stream.read_exact(&mut answer).expect("srun answers");
            self.channel.receive(&answer, &mut Vec::new()).expect("it knows the key");
            self.send();
        }
    }

    fn output(&mut self, channel: u8, task: u32, text: &str) {
        let mut bytes = Vec::new();
        let payload = [&task.to_le_bytes()[..], text.as_bytes()].concat();
        frame::encode(channel, &payload, &mut bytes).expect("small");
        self.waiting.extend(bytes);
        self.send();
    }

    fn exited(&mut self, task: u32, code: i32) {
        let exit = ExitStatus { code, signal: 0 };
        self.say(&StepMessage::Exited { task, exit, oom: false });
    }

    /// The next frame from `srun`.
    fn hear(&mut self) -> Frame {
        self.prove();
        loop {
            if let Some(frame) = self.decoder.next_frame().expect("well formed") {
                return frame;
            }
            let mut buffer = [0; 4096];
            let length = self.stream.read(&mut buffer).expect("srun speaks");
            assert!(length > 0, "srun hung up");
            let mut plain = Vec::new();
            self.channel.receive(&buffer[..length], &mut plain).expect("whole records");
            self.decoder.push(&plain);
        }
    }

    fn hear_message(&mut self) -> StepMessage {
        frame::decode_message(&self.hear().payload).expect("a message")
    }
}

#[test]
fn output_is_passed_on_and_the_highest_code_is_the_outcome() {
    let fixture = StepFixture::new(2, None);
    let (mut one, mut two) = (fixture.supervisor("n1"), fixture.supervisor("n2"));
    let tasks = std::thread::spawn(move || {
        one.prove();
        two.prove();
        one.say(&StepMessage::Started { task: 0, pid: 1 });
        two.say(&StepMessage::Started { task: 1, pid: 1 });
        one.output(channel::STDOUT, 0, "zero\n");
        one.exited(0, 3);
        one.say(&StepMessage::Gone);
        two.exited(1, 0);
        // Output that comes before `Gone` still counts.
        two.output(channel::STDERR, 1, "one\n");
        two.say(&StepMessage::Gone);
    });
    let (outcome, text) = fixture.run();
    tasks.join().expect("no panic");
    assert_eq!((outcome.code, outcome.exit.code, outcome.job_ended), (3, 3, false));
    let mut lines: Vec<&str> = text.lines().collect();
    lines.sort();
    assert_eq!(lines, ["one", "zero"]);
}

#[test]
fn input_and_its_end_go_to_every_task_once_all_have_started() {
    let fixture = StepFixture::new(2, Some("hello"));
    let (mut one, mut two) = (fixture.supervisor("n1"), fixture.supervisor("n2"));
    let tasks = std::thread::spawn(move || {
        one.prove();
        two.prove();
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
    let (outcome, _) = fixture.run();
    tasks.join().expect("no panic");
    assert_eq!(outcome.code, 0);
}

#[test]
fn step_is_over_when_all_tasks_are_that_its_node_counts_though_the_server_was_not_asked() {
    let mut fixture = StepFixture::new(1, None);
    (fixture.step.plan.tasks, fixture.said_tasks) = (None, NonZeroU32::new(2));
    let mut one = fixture.supervisor("n1");
    let tasks = std::thread::spawn(move || {
        one.prove();
        for task in [0, 1] {
            one.say(&StepMessage::Started { task, pid: 1 });
            one.exited(task, 0);
        }
        one.say(&StepMessage::Gone);
    });
    let signals = SignalFd::new(&SigSet::empty()).expect("a descriptor");
    let nobody = ServerLocation::Socket(fixture.dir.path().join("no.sock"));
    let hour = Duration::from_secs(3600);
    let mut watch = Watch::begin_after(hour, watched(nobody, true)).expect("a channel");
    let outcome = fixture.step.run(&mut watch, &signals).expect("carried");
    tasks.join().expect("no panic");
    assert_eq!((outcome.code, outcome.job_ended), (0, false));
    assert!(watch.begins_in().is_some(), "it was never needed");
}

#[test]
fn nodes_of_a_job_that_waited_are_heard_once_its_allocation_was_said() {
    let mut fixture = StepFixture::new(1, None);
    let step = &mut fixture.step;
    assert!(step.accepts());
    step.on_job_event(JobEvent::Queued).expect("said");
    assert!(!step.accepts());
    step.on_job_event(JobEvent::Ready).expect("said");
    assert!(step.accepts());
}

#[test]
fn tasks_start_after_the_srun_prolog() {
    let mut fixture = StepFixture::new(1, None);
    let done = fixture.dir.path().join("done");
    let path = fixture.dir.path().join("before");
    std::fs::write(&path, format!("#!/bin/sh\nsleep 0.2; echo > {}\n", done.display())).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
    let program = Program::new(path.to_str(), "prolog_srun", JobId(5), StepId::Number(0));
    fixture.step.gate = StartGate::new(program);
    fixture.step.granted = true;
    let mut one = fixture.supervisor_with("n1", true);
    let tasks = std::thread::spawn(move || {
        assert_eq!(one.hear_message(), StepMessage::Go);
        assert!(done.exists());
        one.exited(0, 0);
        one.say(&StepMessage::Gone);
    });
    assert_eq!(fixture.run().0.code, 0);
    tasks.join().expect("no panic");
}

#[test]
fn tasks_of_a_lost_node_count_as_failed() {
    let fixture = StepFixture::new(1, None);
    let mut one = fixture.supervisor("n1");
    one.say(&StepMessage::Started { task: 0, pid: 1 });
    let lost = std::thread::spawn(move || one.prove());
    let (outcome, _) = fixture.run();
    lost.join().expect("no panic");
    assert_eq!(outcome.code, 1);
}

#[test]
fn srun_ends_without_a_server_and_without_tasks() {
    let fixture = StepFixture::new(1, None);
    let nobody = fixture.dir.path().join("no.sock");
    let (outcome, text) = fixture.run_beside(nobody);
    assert_eq!((outcome.code, text.as_str()), (1, ""));
}

/// Two het steps of one task each, and the function that runs them as one.
fn two_het_steps() -> ([StepFixture; 2], impl FnOnce([StepFixture; 2]) -> Option<StepOutcome>) {
    let fixture = |at: u32| {
        let mut fixture = StepFixture::new(1, None);
        let environment = vec!["A=b".to_owned()];
        let (first_rank, first_node, tasks) = (at, at, 2);
        fixture.step.plan.het = Some(HetPlacement { first_rank, first_node, tasks, environment });
        fixture.step.held = true;
        fixture.step.expect_nodes(&[(format!("n{at}"), vec![0])]);
        fixture
    };
    let run = |fixtures: [StepFixture; 2]| {
        let dir = tempfile::tempdir().expect("a folder");
        let path = dir.path().join("silent.sock");
        let _silent = UnixListener::bind(&path).expect("a socket");
        let part = |fixture: StepFixture| {
            let watch = Watch::begin(watched(ServerLocation::Socket(path.clone()), false));
            let watch = watch.expect("a thread");
            het::HetStep { step: fixture.step, watch, shares_input: false }
        };
        let parts = fixtures.into_iter().map(part).collect();
        let signals = SignalFd::new(&SigSet::empty()).expect("a descriptor");
        het::HetStepRunner::new(parts, None).run(&signals).expect("carried")
    };
    ([fixture(0), fixture(1)], run)
}

#[test]
fn het_components_start_together_and_the_highest_code_is_the_outcome() {
    let (fixtures, run) = two_het_steps();
    let mut one = fixtures[0].supervisor_with("n0", true);
    let mut two = fixtures[1].supervisor_with("n1", true);
    let tasks = std::thread::spawn(move || {
        // The start is said when both have proven themselves.
        one.prove();
        two.prove();
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
    let outcome = run(fixtures).expect("all could start");
    tasks.join().expect("no panic");
    assert_eq!((outcome.code, outcome.exit.code), (5, 5));
}

#[test]
fn no_het_component_starts_if_another_cannot() {
    let (fixtures, run) = two_het_steps();
    let mut one = fixtures[0].supervisor_with("n0", true);
    let mut two = fixtures[1].supervisor_with("n1", true);
    let tasks = std::thread::spawn(move || {
        one.prove();
        // As a supervisor reports it whose step is ended before its tasks start.
        two.exited(0, 1);
        two.prove();
        let mut rest = Vec::new();
        // Unread data when the other end closes may show as an error or as an end of file.
        let _ = one.stream.read_to_end(&mut rest);
        rest
    });
    assert_eq!(run(fixtures), None);
    let rest = tasks.join().expect("no panic");
    assert!(rest.is_empty(), "{rest:?}");
}

#[test]
fn tasks_of_a_node_lost_before_it_was_known_which_it_has_count_as_failed() {
    let mut step = StepFixture::new(1, None);
    let mut one = step.supervisor("n1");
    let lost = std::thread::spawn(move || one.prove());
    let step = &mut step.step;
    while !step.links.iter().any(|(link, _)| link.is_broken()) {
        step.on_listener();
        (0..step.links.len()).for_each(|index| step.on_link(index, true).expect("read"));
        std::thread::yield_now();
    }
    lost.join().expect("no panic");
    assert!(!step.all_ended(), "nobody has said yet which tasks the node has");
    step.expect_nodes(&[("n1".to_owned(), vec![0])]);
    step.lose_tasks_of_broken_links().expect("ended");
    assert!(step.all_ended());
    assert_eq!(step.outcome().code, 1);
}

#[test]
fn tasks_of_a_node_lost_before_their_start_count_as_failed() {
    let mut fixture = StepFixture::new(1, None);
    fixture.step.expect_nodes(&[("n1".to_owned(), vec![0])]);
    let mut one = fixture.supervisor("n1");
    let lost = std::thread::spawn(move || one.prove());
    assert_eq!(fixture.run().0.code, 1);
    lost.join().expect("no panic");
}
