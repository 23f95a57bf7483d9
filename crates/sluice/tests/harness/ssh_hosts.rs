//! Hosts that are reached by SSH: network namespaces with an `sshd`, an `/etc` and a `/var/lib` of their own.

use super::hosts::Hosts;
use super::{Cluster, CommandOutput, program, signal, until};
use std::path::{Path, PathBuf};
use std::process::Command;

const SSHD: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../scripts/sshd");

/// Where the installer puts everything.
pub const INSTALLED: &str = "/var/lib/sluice-fleet";

/// A configuration whose own node never comes: all work is for fleets.
const CONF: &str = "\
ClusterName=fleets
SlurmdTimeout=300
KillWait=1
DefMemPerCPU=64
NodeName=own CPUs=1 RealMemory=1000
PartitionName=main Nodes=own Default=YES State=UP
";

/// A server in the hub, and hosts with an `sshd` at port 22.
pub struct SshHosts {
    /// Before the cluster's folder, which their file systems are in.
    pub hosts: Hosts,
    pub cluster: Cluster,
    count: u32,
    sshd: String,
    program: PathBuf,
}

impl SshHosts {
    /// `None` if this machine has no `sshd`.
    pub fn up(count: u32) -> Option<Self> {
        let said: CommandOutput = Command::new(SSHD).output().expect("the script runs").into();
        if said.code != 0 {
            super::skip("ssh", &format!("no sshd: {}", said.stderr.trim()));
            return None;
        }
        let cluster = Cluster::folder(CONF);
        // Without what debuggers read it is a third as large: it goes to every host.
        let stripped = cluster.path("sluice");
        let made = Command::new("strip").arg("-o").args([&stripped, Path::new(program())]).status();
        if !made.is_ok_and(|status| status.success()) {
            std::fs::copy(program(), &stripped).expect("a copy of the program");
        }
        let (hosts, sshd) = (Hosts::up(count), said.stdout.trim().to_owned());
        let mut made = Self { cluster, hosts, count, sshd, program: stripped };
        for key in ["key", "other-key"] {
            made.make_key(&made.path(key));
        }
        for host in 1..=count {
            made.prepare(host);
            made.start_sshd(host, "");
        }
        made.start_server();
        Some(made)
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.cluster.path(name)
    }

    fn make_key(&self, path: &Path) {
        let mut command = Command::new("ssh-keygen");
        command.args(["-q", "-t", "ed25519", "-N", "", "-f"]).arg(path);
        assert!(command.status().expect("ssh-keygen runs").success());
    }

    /// Runs a line on a host, as root.
    pub fn on(&self, host: u32, line: &str) -> CommandOutput {
        self.hosts.tool(&["exec", &host.to_string(), "sh", "-c", line])
    }

    /// Runs a command of the cluster where the server is.
    pub fn hub(&self, line: &str) -> CommandOutput {
        self.hosts.in_hub(&self.cluster, line)
    }

    /// An `/etc` with an account for `sshd`, and an empty `/var/lib`: what is written there is the host's own.
    fn prepare(&self, host: u32) {
        let dir = self.path(&format!("host{host}"));
        std::fs::create_dir_all(dir.join("lib")).expect("a folder");
        self.make_key(&dir.join("hostkey"));
        let dir = dir.display();
        let line = format!(
            "cp -a /etc {dir}/etc && sed -i 's|/usr/sbin/nologin|/bin/sh|' {dir}/etc/passwd && \
             {{ grep -q ^sshd: {dir}/etc/passwd || echo sshd:x:65533:65534::/run/sshd:/bin/false >> {dir}/etc/passwd; }} && \
             mkdir -p /run/sshd && mount --bind {dir}/etc /etc && mount --bind {dir}/lib /var/lib"
        );
        let said = self.on(host, &line);
        assert_eq!(said.code, 0, "{}", said.stderr);
    }

    /// Starts the `sshd` of a host, with further lines of its configuration.
    pub fn start_sshd(&self, host: u32, lines: &str) {
        let dir = self.path(&format!("host{host}"));
        let config = format!(
            "Port 22\nHostKey {dir}/hostkey\nAuthorizedKeysFile {key}\nStrictModes no\nUsePAM no\n\
             PasswordAuthentication no\nKbdInteractiveAuthentication no\nPermitRootLogin yes\n\
             PidFile {dir}/sshd.pid\nUseDNS no\n{lines}\n",
            dir = dir.display(),
            key = self.path("key.pub").display()
        );
        std::fs::write(dir.join("sshd.conf"), config).expect("written");
        let said = self.on(
            host,
            &format!("{} -E {dir}/sshd.log -f {dir}/sshd.conf", self.sshd, dir = dir.display()),
        );
        assert_eq!(said.code, 0, "{}", said.stderr);
    }

    pub fn stop_sshd(&self, host: u32) {
        let file = self.path(&format!("host{host}/sshd.pid"));
        let pid = until("sshd has written its pid", || {
            std::fs::read_to_string(&file).ok()?.trim().parse::<i32>().ok()
        });
        signal(pid, "TERM");
        until("sshd stops", || (!super::is_alive(pid)).then_some(()));
        let _ = std::fs::remove_file(file);
    }

    /// Gives a host another host key.
    pub fn change_host_key(&self, host: u32) {
        let key = self.path(&format!("host{host}/hostkey"));
        std::fs::remove_file(&key).expect("the key");
        let _ = std::fs::remove_file(key.with_extension("pub"));
        self.make_key(&key);
    }

    pub fn start_server(&mut self) {
        let at = self.program.clone();
        self.hosts.start_program(&self.cluster, &at, "127.0.0.1:6830");
    }

    /// A fleet's file with these lines below `ssh_config`.
    pub fn write_fleet(&self, name: &str, top: &str, ssh: &str) -> String {
        let text = format!(
            "type: fleet\nname: {name}\n{top}ssh_config:\n  user: root\n  identity_file: {}\n{ssh}",
            self.path("key").display()
        );
        let file = self.path("work").join(format!("{name}.dstack.yml"));
        std::fs::write(&file, text).expect("written");
        file.display().to_string()
    }

    /// `sluice apply` of a fleet.
    pub fn apply(&self, file: &str) -> CommandOutput {
        self.hub(&format!("{} apply -y -f {file}", program()))
    }

    /// Each node of a fleet with its state, as `sinfo` shows them.
    pub fn states(&self, fleet: &str) -> String {
        let said = self.hub(&format!("sinfo -h -N -p {fleet} -o '%N %t'")).stdout;
        said.lines().map(str::trim).collect::<Vec<_>>().join(",")
    }

    pub fn await_states(&self, fleet: &str, wanted: &str) {
        until(&format!("{fleet} is {wanted}"), || (self.states(fleet) == wanted).then_some(()));
    }

    /// The processes of what was installed on a host.
    pub fn agents(&self, host: u32) -> String {
        let of = self.hosts.namespace(host);
        let of = of.file_name().and_then(|name| name.to_str()).expect("a name");
        let said = self.cluster.shell(&format!(
            "for p in $(ip netns pids {of}); do \
               case $(readlink /proc/$p/exe) in {INSTALLED}/*|*/lib/sluice-fleet/*) echo $p;; esac; done"
        ));
        said.stdout.split_whitespace().collect::<Vec<_>>().join(" ")
    }
}

impl Drop for SshHosts {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let log = std::fs::read_to_string(self.path("server.out")).unwrap_or_default();
            eprintln!("the server:\n{log}");
            for host in 1..=self.count {
                let dir = self.path(&format!("host{host}"));
                for file in ["sshd.log", "lib/sluice-fleet/state/agent.log"] {
                    let log = std::fs::read_to_string(dir.join(file)).unwrap_or_default();
                    eprintln!("{file} of host {host}:\n{log}");
                }
            }
        }
        // A clean stop removes the control groups.
        for host in 1..=self.count {
            self.on(host, &format!("{INSTALLED}/sluice down --state {INSTALLED}/state"));
        }
    }
}
