//! A planned restart of the server under load: the service manager keeps the listening sockets, requests that are under way are
//! answered, and those that come meanwhile wait for the next server. None is lost.

use crate::harness::{Cluster, TWO_NODES, program};
use crate::load::under_load;
use crate::services::{PAGE, answered, serve, serving};
use crate::web_pages::address;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

/// Plays the part of systemd: keeps the descriptors that a server stores, and passes them on to the next. A line `restart` stops the
/// server and starts another; the end of the input stops it.
const MANAGER: &str = r#"
import fcntl, os, signal, socket, subprocess, sys
program, state, conf = sys.argv[1:4]
path = os.path.join(os.getcwd(), "notify")
manager = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
manager.bind(path)
os.chmod(path, 0o777)
kept = {}
def start():
    names, fds = list(kept), list(kept.values())
    def place():
        copies = [fcntl.fcntl(fd, fcntl.F_DUPFD, 100) for fd in fds]
        for at, copy in enumerate(copies):
            os.dup2(copy, 3 + at)
            os.close(copy)
    env = dict(os.environ, NOTIFY_SOCKET=path, LISTEN_FDS=str(len(fds)), LISTEN_FDNAMES=":".join(names))
    line = ["sh", "-c", 'LISTEN_PID=$$; export LISTEN_PID; exec "$@"', "sh", program, "server", "--state", state, "--config", conf]
    with open(os.path.join(state, "server.log"), "ab") as log:
        child = subprocess.Popen(line, env=env, preexec_fn=place, close_fds=False, stdin=subprocess.DEVNULL,
                                 stdout=subprocess.DEVNULL, stderr=log)
    while True:
        data, got, _, _ = socket.recv_fds(manager, 4096, 8)
        fields = dict(one.split("=", 1) for one in data.decode().splitlines())
        if "FDSTORE" in fields:
            before = kept.get(fields["FDNAME"])
            kept[fields["FDNAME"]] = got[0]
            if before is not None:
                os.close(before)
        if "READY" in fields:
            return child
def stop(child):
    child.send_signal(signal.SIGTERM)
    child.wait()
child = start()
print(*sorted(kept), flush=True)
for line in sys.stdin:
    stop(child)
    child = start()
    print("again", flush=True)
stop(child)
"#;

struct Manager {
    process: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
}

impl Manager {
    fn start(cluster: &Cluster) -> Self {
        let script = cluster.write("manager.py", MANAGER);
        let mut command = Command::new("python3");
        cluster.set_up(&mut command);
        command.arg(script).arg(program()).arg(cluster.state()).arg(cluster.path("conf"));
        let piped = command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut process = piped.spawn().expect("python3 runs");
        let input = process.stdin.take();
        let output = BufReader::new(process.stdout.take().expect("its output"));
        Self { process, input, output }
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.output.read_line(&mut line).expect("a line");
        line.trim().to_owned()
    }

    fn restart(&mut self) {
        let input = self.input.as_mut().expect("its input");
        input.write_all(b"restart\n").expect("told");
        assert_eq!(self.line(), "again");
    }
}

impl Drop for Manager {
    fn drop(&mut self) {
        drop(self.input.take());
        let _ = self.process.wait();
    }
}

#[test]
fn up_planned_restart_of_the_server_loses_no_request() {
    let (cluster, token) = serving("");
    cluster.kill("server");
    let mut manager = Manager::start(&cluster);
    let kept = manager.line();
    for name in ["sluice-agents", "sluice-clients", "sluice-proxy", "sluice-socket"] {
        assert!(kept.contains(name), "{kept}: {}", cluster.log("server"));
    }
    answered(&cluster, PAGE, &[&token]);
    let (address, slow) = (address(&cluster), format!("{PAGE}slow"));
    let targets = [(&*address, PAGE), (&*address, PAGE), (&*address, PAGE), (&*address, &*slow)];
    under_load(&targets, &token, |more| {
        for _ in 0..2 {
            manager.restart();
            more(100);
        }
    });
}

/// The probes take longer than requests wait for a server's nodes.
#[test]
fn up_planned_restart_loses_no_request_of_a_service_whose_probes_are_patient() {
    let cluster = Cluster::up(TWO_NODES);
    cluster.write("healthy", "");
    let probe = "{type: http, url: /health, interval: 6s, ready_after: 5}";
    let token = serve(&cluster, &format!("probes: [{probe}]"));
    cluster.kill("server");
    let mut manager = Manager::start(&cluster);
    manager.line();
    let address = address(&cluster);
    under_load(&[(&*address, PAGE)], &token, |more| {
        manager.restart();
        more(100);
    });
}
