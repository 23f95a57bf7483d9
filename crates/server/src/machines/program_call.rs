//! One call of a provider program: a request on its standard input, an answer on its standard output, within a time and a size.

use model::printable::printable;
use model::search_path::SYSTEM_PATH;
use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use std::io::{PipeReader, Read, Write};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

/// The interval at which the program is looked at.
const POLL_INTERVAL: Duration = Duration::from_millis(10);

/// The most bytes of an answer, and what is kept of its errors for the log.
const ANSWER_BYTES_MAX: usize = 4 << 20;
const ERROR_BYTES_MAX: usize = 4 << 10;

/// What a program answered, and how it ended.
pub struct ProgramAnswer {
    pub text: Vec<u8>,
    pub status: ExitStatus,
}

/// Runs the program, which is killed with what it has started in its process group when it takes too long or prints too much.
pub fn call(program: &str, request: Vec<u8>, limit: Duration) -> Result<ProgramAnswer, String> {
    let mut command = Command::new(program);
    command.env_clear().env("PATH", SYSTEM_PATH);
    run(program, command, request, limit)
}

/// The same of a command with arguments and variables of its own.
pub fn run(
    program: &str,
    mut command: Command,
    request: Vec<u8>,
    limit: Duration,
) -> Result<ProgramAnswer, String> {
    let failed = |what: String| format!("{program} {what}");
    let (mut answer, answers) = Output::new(ANSWER_BYTES_MAX).map_err(|e| failed(e.to_string()))?;
    let (mut errors, complaints) =
        Output::new(ERROR_BYTES_MAX).map_err(|e| failed(e.to_string()))?;
    command.current_dir("/").process_group(0);
    command.stdin(Stdio::piped()).stdout(answers).stderr(complaints);
    let child = command.spawn();
    // The command holds the pipes' other ends until it is dropped.
    drop(command);
    let mut child = child.map_err(|e| format!("{program}: {e}"))?;
    if let Some(mut input) = child.stdin.take() {
        // A program that does not read its request must not hold up its own limit. The write ends with the program.
        std::thread::spawn(move || drop(input.write_all(&request)));
    }
    let status = await_end(&mut child, &mut answer, &mut errors, limit);
    errors.read();
    errors.log(program);
    let status = status.map_err(failed)?;
    while answer.read() {}
    if answer.is_over {
        return Err(failed(format!("printed more than {ANSWER_BYTES_MAX} bytes")));
    }
    Ok(ProgramAnswer { text: answer.kept, status })
}

fn await_end(
    child: &mut Child,
    answer: &mut Output,
    errors: &mut Output,
    limit: Duration,
) -> Result<ExitStatus, String> {
    let until = Instant::now() + limit;
    loop {
        let has_more = answer.read();
        errors.read();
        let why = if answer.is_over {
            format!("printed more than {ANSWER_BYTES_MAX} bytes")
        } else if Instant::now() >= until {
            format!("took longer than {} s", limit.as_secs())
        } else {
            match child.try_wait().map_err(|e| e.to_string())? {
                Some(status) => return Ok(status),
                None if has_more => {}
                None => std::thread::sleep(POLL_INTERVAL),
            }
            continue;
        };
        let _ = killpg(Pid::from_raw(child.id() as i32), Signal::SIGKILL);
        let _ = child.wait();
        return Err(why);
    }
}

/// One of the program's outputs. What processes that it leaves behind print after its end is not read.
struct Output {
    reader: PipeReader,
    kept: Vec<u8>,
    most: usize,
    /// There was more than is kept.
    is_over: bool,
}

impl Output {
    fn new(most: usize) -> std::io::Result<(Self, std::io::PipeWriter)> {
        let (reader, writer) = std::io::pipe()?;
        fcntl(&reader, FcntlArg::F_SETFL(OFlag::O_NONBLOCK)).map_err(std::io::Error::from)?;
        Ok((Self { reader, kept: Vec::new(), most, is_over: false }, writer))
    }

    /// Reads a part of what is there; whether there may be more.
    fn read(&mut self) -> bool {
        let mut buffer = [0; 16 << 10];
        let Ok(count @ 1..) = self.reader.read(&mut buffer) else { return false };
        let room = self.most.saturating_sub(self.kept.len());
        self.is_over |= count > room;
        self.kept.extend_from_slice(&buffer[..count.min(room)]);
        !self.is_over
    }

    fn log(&self, program: &str) {
        for line in String::from_utf8_lossy(&self.kept).lines().filter(|line| !line.is_empty()) {
            let line: String = line.chars().take(500).collect();
            tracing::info!("{program}: {}", printable(&line));
        }
    }
}
