//! OpenSSH's own clients, against the SSH endpoint of a cluster.

use super::{Cluster, CommandOutput, program, skip};
use std::io::{Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

/// A key and options for OpenSSH's clients.
pub struct Ssh<'c> {
    cluster: &'c Cluster,
    pub key: PathBuf,
    port: String,
}

impl<'c> Ssh<'c> {
    /// With a new key, which nobody has registered. `None` where there are no clients.
    pub fn new(cluster: &'c Cluster, name: &str) -> Option<Self> {
        let key = cluster.path(name);
        let made = Command::new("ssh-keygen")
            .args(["-q", "-t", "ed25519", "-N", "", "-C", name, "-f"])
            .arg(&key)
            .status();
        if !made.is_ok_and(|made| made.success()) {
            skip("ssh-client", "no ssh-keygen");
            return None;
        }
        let public = key.with_extension("pub");
        std::fs::set_permissions(public, std::fs::Permissions::from_mode(0o644)).unwrap();
        let address = cluster.address_of("ssh");
        let port = address.rsplit(':').next().unwrap().to_owned();
        Some(Self { cluster, key, port })
    }

    /// With a key that this user has registered.
    pub fn of_user(cluster: &'c Cluster, user: &str) -> Option<Self> {
        let ssh = Self::new(cluster, &format!("key-of-{user}"))?;
        if user == "root" {
            cluster.shell(&ssh.registration()).ok()
        } else {
            ssh.give_to(user);
            cluster.shell_as(user, &ssh.registration()).ok()
        };
        Some(ssh)
    }

    /// The line that registers the key.
    pub fn registration(&self) -> String {
        format!("{} key add {}.pub", program(), self.key.display())
    }

    /// Makes the private key this user's, who proves with it that it is his.
    pub fn give_to(&self, user: &str) {
        let uid = nix::unistd::User::from_name(user).expect("users").expect("the user").uid;
        nix::unistd::chown(&self.key, Some(uid), None).expect("given");
    }

    pub fn command(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        let port = if program == "ssh" { "-p" } else { "-P" };
        command.args(["-F", "none", "-i"]).arg(&self.key).args([port, &self.port]);
        for option in [
            "IdentitiesOnly=yes",
            "StrictHostKeyChecking=no",
            "UserKnownHostsFile=/dev/null",
            "LogLevel=ERROR",
            "BatchMode=yes",
        ] {
            command.args(["-o", option]);
        }
        self.cluster.set_up(&mut command);
        command
    }

    pub fn port(&self) -> u16 {
        self.port.parse().expect("a port")
    }

    pub fn key(&self) -> &std::path::Path {
        &self.key
    }

    pub fn ssh(&self, job: impl ToString, args: &[&str]) -> Command {
        let mut command = self.command("ssh");
        let (options, words): (Vec<&str>, Vec<&str>) =
            args.iter().partition(|word| word.starts_with('-'));
        command.args(options).arg(format!("{}@127.0.0.1", job.to_string())).args(words);
        command
    }

    pub fn run(&self, job: impl ToString, args: &[&str]) -> CommandOutput {
        self.ssh(job, args).stdin(Stdio::null()).output().expect("ssh runs").into()
    }

    pub fn run_with_input(&self, job: impl ToString, args: &[&str], input: Vec<u8>) -> Vec<u8> {
        let mut command = self.ssh(job, args);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("ssh");
        let mut pipe = child.stdin.take().unwrap();
        let writer = std::thread::spawn(move || pipe.write_all(&input));
        let mut output = Vec::new();
        child.stdout.take().unwrap().read_to_end(&mut output).unwrap();
        writer.join().unwrap().expect("all input is taken");
        assert!(child.wait().unwrap().success());
        output
    }
}

/// Ends its process with the test.
pub struct Held(pub Child);

impl Drop for Held {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A port that nobody listens at.
pub fn free_port() -> u16 {
    std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}
