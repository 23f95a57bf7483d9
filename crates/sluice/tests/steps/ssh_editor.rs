//! What editors do over SSH: `ssh -D`, and the commands that VS Code's remote extension is documented and logged to run. Its
//! server does not install here: a program that listens and answers stands for it.

use crate::harness::ssh_client::{Held, Ssh, free_port};
use crate::harness::{Cluster, TWO_NODES, until};
use crate::ssh_endpoint::running;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::Stdio;

/// A connection to a port in the job, through the SOCKS proxy of `ssh -D` (version 5, no authentication, by name).
fn through_socks(proxy: u16, host: &str, port: u16) -> Option<TcpStream> {
    let mut stream = TcpStream::connect(("127.0.0.1", proxy)).ok()?;
    stream.write_all(&[5, 1, 0]).ok()?;
    let mut chosen = [0; 2];
    stream.read_exact(&mut chosen).ok()?;
    assert_eq!(chosen, [5, 0]);
    let mut request = vec![5, 1, 0, 3, host.len() as u8];
    request.extend(host.bytes());
    request.extend(port.to_be_bytes());
    stream.write_all(&request).ok()?;
    let mut answer = [0; 10];
    stream.read_exact(&mut answer).ok()?;
    (answer[1] == 0).then_some(stream)
}

/// Answers each connection with what it sent, until that ends.
const SERVER: &str = r#"
import socketserver, sys
class Echo(socketserver.BaseRequestHandler):
    def handle(self):
        while data := self.request.recv(65536): self.request.sendall(data)
class Server(socketserver.ThreadingTCPServer): daemon_threads = True
with Server(("127.0.0.1", 0), Echo) as server:
    print(f"Extension host agent listening on {server.server_address[1]}", flush=True)
    server.serve_forever()
"#;

/// The steps of the extension's script: a folder of its own below the home folder, a lock, the server in the background with its
/// output in a file, and what it listens on between two marks. Then it waits for its input to end.
const INSTALL: &str = r#"
set -e
folder=$PWD/.vscode-server; mkdir -p $folder
echo "mark: running"
exec 8> $folder/lock
flock 8
python3 $PWD/editor.py --start-server --host=127.0.0.1 --port=0 --connection-token=secret > $folder/server.log 2>&1 < /dev/null 8>&- &
server=$!
flock -u 8
until port=$(sed -n 's/^Extension host agent listening on //p' $folder/server.log) && [ -n "$port" ]; do kill -0 $server; sleep 0.1; done
echo "mark: start"
echo "listeningOn==$port=="
echo "osReleaseId==debian=="
echo "arch==$(uname -m)=="
echo "job==$SLURM_JOB_ID=="
echo "mark: end"
wait $server
"#;

/// `ssh -T -D PORT HOST bash`, the script on its input; the editor then talks to the server through the SOCKS port.
#[test]
fn up_vs_codes_remote_extension_starts_its_server_and_reaches_it() {
    let cluster = Cluster::up(TWO_NODES);
    let Some(ssh) = Ssh::of_user(&cluster, "root") else { return };
    let job = running(&cluster, "-n1");
    cluster.write("editor.py", SERVER);
    // What it asks before: is there a shell, and which platform is it.
    let asked = ssh.run(job, &["-T", "echo isSupported && uname -sm && bash --version | head -n1"]);
    assert!(asked.ok().starts_with("isSupported\nLinux "));
    let proxy = free_port();
    let mut command = ssh.command("ssh");
    command.args(["-T", "-D", &proxy.to_string(), "-o", "ConnectTimeout=15"]);
    command.arg(format!("{job}@127.0.0.1")).arg("bash");
    command.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut editor = Held(command.spawn().expect("ssh runs"));
    // The extension leaves its input open: its connection lasts as long as the window.
    let mut input = editor.0.stdin.take().expect("a pipe");
    input.write_all(INSTALL.as_bytes()).expect("taken");
    input.flush().expect("sent");
    let mut said = BufReader::new(editor.0.stdout.take().expect("a pipe"));
    let mut lines = Vec::new();
    while lines.last().is_none_or(|line: &String| line != "mark: end") {
        let mut line = String::new();
        assert_ne!(said.read_line(&mut line).expect("read"), 0, "it ended: {lines:?}");
        lines.push(line.trim_end().to_owned());
    }
    let value = |name: &str| {
        let found = lines.iter().find_map(|line| line.strip_prefix(&format!("{name}==")));
        found.and_then(|line| line.strip_suffix("==")).expect("a value").to_owned()
    };
    assert_eq!(value("job"), job.to_string(), "it is in the job");
    let port: u16 = value("listeningOn").parse().expect("a port");
    // Several connections at once, as an editor has them, and each with its bytes whole.
    let mut open: Vec<TcpStream> = (0..8)
        .map(|_| until("the server is reached", || through_socks(proxy, "127.0.0.1", port)))
        .collect();
    for (number, stream) in open.iter_mut().enumerate() {
        let sent = vec![number as u8; 300_000];
        let (mut writer, bytes) = (stream.try_clone().expect("a handle"), sent.clone());
        let writing = std::thread::spawn(move || writer.write_all(&bytes));
        let mut back = vec![0; sent.len()];
        stream.read_exact(&mut back).expect("it answers");
        writing.join().expect("the writer").expect("sent");
        assert!(back == sent);
    }
    // A port that nobody listens at is refused, and so is the address of a cloud's metadata.
    assert!(through_socks(proxy, "localhost", free_port()).is_none());
    assert!(through_socks(proxy, "169.254.169.254", 80).is_none());
    // When the window is closed, the server goes with it: nothing of a session outlives it.
    drop((input, open, editor));
    let steps = || cluster.sluice(&["squeue", "-h", "-s", "-o", "%i %j"]).ok();
    until("the session has ended", || (!steps().contains(" ssh")).then_some(()));
    until("the server is gone", || TcpStream::connect(("127.0.0.1", port)).err());
}

#[test]
fn up_dynamic_forwarding_reaches_every_port_of_the_job_by_name_and_address() {
    let cluster = Cluster::up(TWO_NODES);
    let Some(ssh) = Ssh::of_user(&cluster, "root") else { return };
    let job = running(&cluster, "-n1");
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        while let Ok((mut stream, _)) = listener.accept() {
            let _ = stream.write_all(b"from the port");
        }
    });
    let proxy = free_port();
    let mut tunnel = ssh.command("ssh");
    tunnel.args(["-N", "-D", &proxy.to_string()]).arg(format!("{job}@127.0.0.1"));
    let _tunnel = Held(tunnel.spawn().expect("ssh runs"));
    for host in ["localhost", "127.0.0.1"] {
        let mut stream = until("it is reached", || through_socks(proxy, host, port));
        let mut text = String::new();
        stream.read_to_string(&mut text).expect("read");
        assert_eq!(text, "from the port", "{host}");
    }
}
