//! Tests of steps on a real agent: a fake `srun` listens, and the supervisor dials it.

mod support;

use model::id::StepId;
use model::run::{ExitStatus, LaunchKind, Usage};
use ring::rand::SystemRandom;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use support::{Cluster, FakeLink, TIMEOUT, attempt, wait_until};
use wire::frame::{self, Decoder};
use wire::order::{Action, EndOrder, JobLaunch, ProcessVariable, StepOrder};
use wire::report::{Report, ReportEvent};
use wire::step::{StepInput, StepLaunch, StepMessage, StepStart, channel};
use wire::step_channel::StepChannel;

const KEY: &str = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";

/// The client's end of one step.
struct FakeSrun {
    listener: TcpListener,
}

struct PlayedStep {
    stream: TcpStream,
    channel: StepChannel,
    decoder: Decoder,
}

/// Everything that came from a step's tasks until it was gone.
#[derive(Debug, Default)]
struct Heard {
    stdout: Vec<(u32, String)>,
    stderr: String,
    exits: Vec<(u32, ExitStatus)>,
    failed: Vec<String>,
}

impl FakeSrun {
    fn listen() -> FakeSrun {
        FakeSrun { listener: TcpListener::bind("127.0.0.1:0").expect("a port") }
    }

    fn step(&self, cluster: &Cluster, argv: &[&str], tasks: &[u32]) -> StepOrder {
        StepOrder {
            step: StepId::Number(0),
            launch: StepLaunch {
                name: argv[0].into(),
                argv: argv.iter().map(ToString::to_string).collect(),
                environment: "PATH=/usr/bin:/bin\0A=launch\0B=launch\0".into(),
                secret_variables: Vec::new(),
                registry_auth: None,
                work_dir: cluster.home().display().to_string(),
                tasks: None,
                nodes: None,
                tasks_per_node: None,
                cpus_per_task: None,
                node_list: Vec::new(),
                listen: Vec::new(),
                encrypted_listen: vec![self.listener.local_addr().expect("bound").to_string()],
                network_stack: agent::network_stack(),
                key: KEY.into(),
                umask: 0o022,
                stdin: StepInput::All,
                stdout: None,
                stderr: None,
                submit_line: String::new(),
                overcommit: false,
                pty: false,
                cpu_bind: Default::default(),
                mem_bind: None,
                cpu_frequency: None,
                rlimits: None,
                window: None,
                shape: Default::default(),
                distribution: None,
                gpu_bind: None,
                programs: Vec::new(),
                task_prolog: None,
                task_epilog: None,
                starts: Default::default(),
                time_limit: None,
                container: None,
                joins_script: false,
                own_program: None,
                receives_file: false,
            },
            tasks: tasks.to_vec(),
            step_tasks: None,
            node_index: 1,
            environment: vec!["A=order".into()],
            process_variables: vec![
                ("RANK".into(), ProcessVariable::Rank),
                ("LOCAL".into(), ProcessVariable::LocalRank),
                ("HERE".into(), ProcessVariable::RanksHere),
            ],
            share: None,
            nice: None,
            cpu_bind: None,
            task_orders: Vec::new(),
        }
    }

    fn accept(&self) -> PlayedStep {
        self.accept_at(1, false)
    }

    fn accept_at(&self, node_index: u32, waits: bool) -> PlayedStep {
        let (stream, _) = self.listener.accept().expect("the supervisor dials");
        stream.set_read_timeout(Some(TIMEOUT)).expect("bounded");
        let channel = StepChannel::listener(KEY, &SystemRandom::new()).expect("a key");
        let mut step = PlayedStep { stream, channel, decoder: Decoder::default() };
        let hello = step.next_message();
        let (key, node) = (String::new(), support::NODE.into());
        let expected = StepMessage::Hello { key, node, node_index, waits, step_tasks: None };
        assert_eq!(hello, expected);
        step
    }
}

impl PlayedStep {
    fn next(&mut self) -> frame::Frame {
        loop {
            if let Some(frame) = self.decoder.next_frame().expect("well formed") {
                return frame;
            }
            let mut buffer = [0; 4096];
            let length = self.stream.read(&mut buffer).expect("in time");
            assert!(length > 0, "the supervisor closed the step's link");
            let mut plain = Vec::new();
            self.channel.receive(&buffer[..length], &mut plain).expect("it knows the key");
            self.decoder.push(&plain);
            self.flush();
        }
    }

    fn flush(&mut self) {
        self.stream.write_all(self.channel.unsent()).expect("sent");
        self.channel.mark_sent(self.channel.unsent().len());
    }

    fn next_message(&mut self) -> StepMessage {
        let frame = self.next();
        assert_eq!(frame.channel, channel::CONTROL);
        frame::decode_message(&frame.payload).expect("a message")
    }

    fn send(&mut self, channel: u8, payload: &[u8]) {
        let mut bytes = Vec::new();
        frame::encode(channel, payload, &mut bytes).expect("encoded");
        assert_eq!(self.channel.seal(&bytes), Ok(bytes.len()));
        self.flush();
    }

    fn say(&mut self, message: &StepMessage) {
        self.send(channel::CONTROL, &serde_json::to_vec(message).expect("JSON"));
    }

    fn hear_all(&mut self) -> Heard {
        let mut heard = Heard::default();
        loop {
            let frame = self.next();
            if frame.channel != channel::CONTROL {
                let (rank, text) = frame.payload.split_first_chunk::<4>().expect("a rank");
                let (rank, text) =
                    (u32::from_le_bytes(*rank), String::from_utf8_lossy(text).into_owned());
                match frame.channel {
                    channel::STDOUT => heard.stdout.push((rank, text)),
                    _ => heard.stderr.push_str(&text),
                }
                continue;
            }
            match frame::decode_message(&frame.payload).expect("a message") {
                StepMessage::Exited { task, exit, .. } => heard.exits.push((task, exit)),
                StepMessage::Failed { what, .. } => heard.failed.push(what),
                StepMessage::Gone => break,
                _ => {}
            }
        }
        heard.stdout.sort();
        heard.exits.sort();
        heard
    }
}

fn code(code: i32) -> ExitStatus {
    ExitStatus { code, signal: 0 }
}

/// An allocation that a client holds, with its first step.
fn interactive(cluster: &Cluster, first_step: Option<StepOrder>) -> JobLaunch {
    JobLaunch {
        kind: LaunchKind::Interactive,
        script: None,
        first_step: first_step.map(Box::new),
        ..cluster.batch("")
    }
}

fn await_step_end(cluster: &Cluster, link: &mut FakeLink) -> (ExitStatus, Usage) {
    loop {
        if let Report { event: ReportEvent::StepEnded { exit, usage, .. }, .. } =
            cluster.report(link)
        {
            return (exit, usage);
        }
    }
}

#[test]
fn root_tasks_get_ranks_and_input_and_report_their_exits() {
    let mut cluster = Cluster::start();
    let mut link = cluster.connect();
    let srun = FakeSrun::listen();
    let script =
        "read line; echo \"$line $RANK $LOCAL $HERE $A $B $(id -u)\"; echo err >&2; exit $RANK";
    let step = srun.step(&cluster, &["sh", "-c", script], &[4, 5]);
    let launch = interactive(&cluster, Some(step));
    cluster.order(&mut link, attempt(1, 1), Action::Launch(Box::new(launch)));
    let mut step = srun.accept();
    step.send(channel::STDIN, b"typed\n");
    step.say(&StepMessage::InputEnd);
    let heard = step.hear_all();
    let uid = support::UID;
    let line = |rank: u32| (rank, format!("typed {rank} {} 4,5 order launch {uid}\n", rank - 4));
    assert_eq!(heard.stdout, [line(4), line(5)]);
    assert_eq!(heard.stderr, "err\nerr\n");
    assert_eq!(heard.exits, [(4, code(4)), (5, code(5))]);
    let (exit, usage) = await_step_end(&cluster, &mut link);
    assert_eq!(exit, code(5), "the worst of its tasks");
    assert!(usage.memory_peak_bytes > 0);

    // The allocation outlives its step until the client ends it.
    let end =
        EndOrder { step: None, grace_s: 0, notice: None, step_notice: None, exit: Some(code(5)) };
    cluster.order(&mut link, attempt(1, 1), Action::End(end));
    assert_eq!(cluster.await_end(&mut link, attempt(1, 1)).exit, code(5));
    cluster.assert_no_groups();
}

#[test]
fn root_missing_program_exits_as_in_slurm() {
    let mut cluster = Cluster::start();
    let mut link = cluster.connect();
    let srun = FakeSrun::listen();
    let step = srun.step(&cluster, &["nosuchcmd"], &[0]);
    let launch = interactive(&cluster, Some(step));
    cluster.order(&mut link, attempt(1, 1), Action::Launch(Box::new(launch)));
    let heard = srun.accept().hear_all();
    assert_eq!(heard.stderr, "slurmstepd: error: execve(): nosuchcmd: No such file or directory\n");
    assert_eq!(heard.exits, [(0, code(2))]);
}

#[test]
fn root_step_is_killed_with_its_srun_but_not_the_job() {
    let mut cluster = Cluster::start();
    let mut link = cluster.connect();
    let script = "#!/bin/sh\nwhile [ ! -e go ]; do sleep 0.02; done\nexit 6\n";
    let launch = cluster.batch(script);
    cluster.order(&mut link, attempt(1, 1), Action::Launch(Box::new(launch)));
    cluster.await_started(&mut link);
    let srun = FakeSrun::listen();
    let hidden = "setsid sleep 1000 </dev/null >/dev/null 2>&1 & echo up; sleep 1000";
    let order = srun.step(&cluster, &["sh", "-c", hidden], &[0]);
    cluster.order(&mut link, attempt(1, 1), Action::Step(Box::new(order)));
    let mut step = srun.accept();
    while step.next().channel != channel::STDOUT {}
    drop(step);
    let (exit, _) = await_step_end(&cluster, &mut link);
    assert_eq!(exit, ExitStatus { code: 0, signal: libc::SIGKILL });
    std::fs::write(cluster.home().join("go"), "").expect("the word to go on");
    assert_eq!(cluster.await_end(&mut link, attempt(1, 1)).exit, code(6));
}

#[test]
fn root_large_output_arrives_complete_and_signals_are_forwarded() {
    let mut cluster = Cluster::start();
    let mut link = cluster.connect();
    let srun = FakeSrun::listen();
    let script = "head -c 3000000 /dev/zero | tr '\\0' x; trap 'exit 9' USR1; echo ready >&2; \
                  while :; do sleep 0.02; done";
    let order = srun.step(&cluster, &["sh", "-c", script], &[0]);
    let launch = interactive(&cluster, Some(order));
    cluster.order(&mut link, attempt(1, 1), Action::Launch(Box::new(launch)));
    let mut step = srun.accept();
    let mut total = 0;
    loop {
        let frame = step.next();
        match frame.channel {
            channel::STDOUT => total += frame.payload.len() - 4,
            channel::STDERR => break,
            _ => {}
        }
    }
    step.say(&StepMessage::Signal { signal: libc::SIGUSR1 });
    let heard = step.hear_all();
    total += heard.stdout.iter().map(|(_, text)| text.len()).sum::<usize>();
    assert_eq!(total, 3_000_000);
    assert_eq!(heard.exits, [(0, code(9))]);
}

#[test]
fn root_step_with_pty_has_a_terminal() {
    let mut cluster = Cluster::start();
    let mut link = cluster.connect();
    let srun = FakeSrun::listen();
    let mut order =
        srun.step(&cluster, &["sh", "-c", "tty -s && stty size; read word; echo got $word"], &[0]);
    order.launch.pty = true;
    let launch = interactive(&cluster, Some(order));
    cluster.order(&mut link, attempt(1, 1), Action::Launch(Box::new(launch)));
    let mut step = srun.accept();
    step.send(channel::STDIN, b"typed\n");
    let heard = step.hear_all();
    let text: String = heard.stdout.into_iter().map(|(_, text)| text).collect();
    assert!(text.contains("0 0") && text.contains("got typed"), "{text:?}");
    assert_eq!(heard.exits, [(0, code(0))]);
}

#[test]
fn root_pty_belongs_to_the_first_task_of_a_step_alone() {
    let mut cluster = Cluster::start();
    let mut link = cluster.connect();
    let srun = FakeSrun::listen();
    let script = "if [ $RANK = 0 ]; then tty -s && read word && echo got $word; \
                  else echo \"$(readlink /proc/$$/fd/0 /proc/$$/fd/1 /proc/$$/fd/2)\" > streams; \
                  echo unseen; echo unseen >&2; fi";
    let mut order = srun.step(&cluster, &["sh", "-c", script], &[0, 1]);
    order.launch.pty = true;
    let launch = interactive(&cluster, Some(order));
    cluster.order(&mut link, attempt(1, 1), Action::Launch(Box::new(launch)));
    let mut step = srun.accept();
    step.send(channel::STDIN, b"typed\n");
    let heard = step.hear_all();
    assert!(heard.stdout.iter().all(|(rank, _)| *rank == 0), "{heard:?}");
    let text: String = heard.stdout.iter().map(|(_, text)| text.as_str()).collect();
    assert!(text.contains("got typed") && !text.contains("unseen"), "{text:?}");
    assert_eq!((heard.stderr.as_str(), heard.exits), ("", vec![(0, code(0)), (1, code(0))]));
    let streams = std::fs::read_to_string(cluster.home().join("streams")).expect("written");
    assert_eq!(streams, "/dev/null\n".repeat(3));
}

#[test]
fn root_step_without_its_srun_ends() {
    let mut cluster = Cluster::start();
    let mut link = cluster.connect();
    let srun = FakeSrun::listen();
    let order = srun.step(&cluster, &["true"], &[0]);
    drop(srun);
    let launch = interactive(&cluster, Some(order));
    cluster.order(&mut link, attempt(1, 1), Action::Launch(Box::new(launch)));
    let (exit, _) = await_step_end(&cluster, &mut link);
    assert_eq!(exit, ExitStatus { code: 0, signal: 53 });
}

#[test]
fn root_tasks_start_on_go_and_end_unstarted_without_it() {
    let terminated = ExitStatus { code: 0, signal: libc::SIGTERM };
    let cases = [
        (Some(StepMessage::Go), Some(("ran\n", code(0))), code(0)),
        (Some(StepMessage::End { at_once: false }), Some(("", terminated)), terminated),
        (None, None, ExitStatus { code: 0, signal: 53 }),
    ];
    for (said, expected, end) in cases {
        let mut cluster = Cluster::start();
        let mut link = cluster.connect();
        let srun = FakeSrun::listen();
        let mut order = srun.step(&cluster, &["sh", "-c", "echo ran; touch ran"], &[0]);
        order.launch.starts = StepStart::OnGo;
        let launch = interactive(&cluster, Some(order));
        cluster.order(&mut link, attempt(1, 1), Action::Launch(Box::new(launch)));
        let mut step = srun.accept_at(1, true);
        if let (Some(said), Some((text, exit))) = (said, expected) {
            step.say(&said);
            let heard = step.hear_all();
            let output: String = heard.stdout.into_iter().map(|(_, text)| text).collect();
            assert_eq!((output.as_str(), heard.exits), (text, vec![(0, exit)]));
        }
        drop(step);
        assert_eq!(await_step_end(&cluster, &mut link).0, end);
        assert_eq!(cluster.home().join("ran").exists(), end == code(0));
    }
}

#[test]
fn root_time_limit_of_a_job_is_reported_to_its_steps() {
    let mut cluster = Cluster::start();
    let mut link = cluster.connect();
    let srun = FakeSrun::listen();
    let mut step = srun.step(&cluster, &["sleep", "600"], &[0]);
    step.node_index = 0;
    let mut launch = interactive(&cluster, Some(step));
    launch.end_limit = Some(support::now() + std::time::Duration::from_secs(600));
    cluster.order(&mut link, attempt(1, 1), Action::Launch(Box::new(launch)));
    let mut step = srun.accept_at(0, false);
    let mut told = Vec::new();
    loop {
        let frame = step.next();
        match frame.channel {
            channel::STDERR => told.push(String::from_utf8_lossy(&frame.payload[4..]).into_owned()),
            _ => match frame::decode_message(&frame.payload).expect("a message") {
                StepMessage::Started { .. } => {
                    let end = Some(support::now());
                    cluster.order(&mut link, attempt(1, 1), Action::ExtendTo { end });
                }
                StepMessage::Ending { wait_s } => told.push(format!("ending {wait_s}")),
                StepMessage::Exited { exit, .. } => told.push(format!("signal {}", exit.signal)),
                StepMessage::Gone => break,
                _ => {}
            },
        }
    }
    let line = "*** STEP 1.0 CANCELLED DUE TO TIME LIMIT ***\n";
    assert_eq!(told, ["ending 3", line, "signal 15"]);
}

/// Resident memory of a process.
fn resident_kib(pid: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).expect("it runs");
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("its memory");
    line.trim().trim_end_matches(" kB").parse().expect("a number")
}

#[test]
fn root_huge_frames_of_a_users_own_sruns_leave_the_supervisor_small() {
    const STEPS: u32 = 20;
    const GROWTH_KIB_MAX: u64 = 8 << 10;
    let mut cluster = Cluster::start();
    let mut link = cluster.connect();
    let launch = cluster.batch("#!/bin/sh\necho $PPID > supervisor; sleep 600\n");
    cluster.order(&mut link, attempt(1, 1), Action::Launch(Box::new(launch)));
    cluster.await_started(&mut link);
    let mut open = |number: u32| {
        let srun = FakeSrun::listen();
        let mut order = srun.step(&cluster, &["sleep", "600"], &[0]);
        order.step = StepId::Number(number);
        cluster.order(&mut link, attempt(1, 1), Action::Step(Box::new(order)));
        srun.accept()
    };
    let mut steps: Vec<PlayedStep> = (0..STEPS).map(&mut open).collect();
    let path = cluster.home().join("supervisor");
    let written = || std::fs::read_to_string(&path).unwrap_or_default();
    wait_until("the script says who its parent is", || written().ends_with('\n'));
    let supervisor: u32 = written().trim().parse().expect("a pid");
    let before = resident_kib(supervisor);
    let frame = [&(16u32 << 20).to_le_bytes()[..], &[channel::STDIN]].concat();
    let piece = [7; 16 << 10];
    for step in &mut steps {
        // Fifteen of the sixteen megabytes; the supervisor may close the link at any time.
        let pieces = std::iter::once(frame.as_slice()).chain([piece.as_slice(); 960]);
        for piece in pieces {
            step.channel.seal(piece).expect("proven");
            if step.stream.write_all(step.channel.unsent()).is_err() {
                break;
            }
            step.channel.mark_sent(usize::MAX);
        }
    }
    let after = resident_kib(supervisor);
    assert!(after < before + GROWTH_KIB_MAX, "{before} KiB before, {after} KiB after");
}
