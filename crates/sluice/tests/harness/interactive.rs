//! A command that a test interacts with: output is read as it comes, and input is typed.

use crate::harness::{Cluster, CommandOutput, signal};
use std::io::{Read, Write};
use std::process::{Child, ChildStderr, ChildStdout, Stdio};

/// A running `srun`, `salloc` or `sattach` that a test interacts with.
pub struct Running {
    pub child: Child,
    stdout: ChildStdout,
    stderr: ChildStderr,
    /// The output so far.
    pub out: String,
    pub err: String,
}

impl Running {
    pub fn start(cluster: &Cluster, args: &[&str]) -> Self {
        let mut command = cluster.command(args);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("the program runs");
        let (stdout, stderr) = (child.stdout.take().unwrap(), child.stderr.take().unwrap());
        Self { child, stdout, stderr, out: String::new(), err: String::new() }
    }

    /// Reads until the output satisfies `good`.
    pub fn await_output(&mut self, good: impl Fn(&str) -> bool) {
        read_until(&mut self.stdout, &mut self.out, good);
    }

    pub fn await_error(&mut self, good: impl Fn(&str) -> bool) {
        read_until(&mut self.stderr, &mut self.err, good);
    }

    pub fn type_in(&mut self, text: &str) {
        self.child.stdin.as_mut().unwrap().write_all(text.as_bytes()).unwrap();
    }

    pub fn signal(&self, name: &str) {
        signal(self.child.id() as i32, name);
    }

    /// Closes its input, and waits for its end.
    pub fn end(mut self) -> CommandOutput {
        drop(self.child.stdin.take());
        let mut errors = self.stderr;
        let rest = std::thread::spawn(move || {
            let mut text = String::new();
            errors.read_to_string(&mut text).map(|_| text)
        });
        self.stdout.read_to_string(&mut self.out).expect("text");
        let mut said = CommandOutput::from(self.child.wait_with_output().expect("it ends"));
        said.stdout = self.out;
        said.stderr = self.err + &rest.join().unwrap().expect("text");
        said
    }
}

pub fn read_until(from: &mut impl Read, seen: &mut String, good: impl Fn(&str) -> bool) {
    let mut buffer = [0; 4096];
    while !good(seen) {
        let length = from.read(&mut buffer).expect("readable");
        assert!(length > 0, "it ended after {seen:?}");
        seen.push_str(&String::from_utf8_lossy(&buffer[..length]));
    }
}
