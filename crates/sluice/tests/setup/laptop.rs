//! Commands from a laptop behind NAT: over HTTPS, by a token, with the server's authority remembered at the login.

use crate::harness::hosts::Hosts;
use crate::harness::laptop::{LOCAL_USER, Laptop, URL};
use crate::harness::relay::Interceptor;
use crate::harness::{Cluster, CommandOutput, program, sorted_lines, until};
use nix::unistd::User;
use std::process::{Command, Stdio};

const CONF: &str = "\
ClusterName=hosts
DefMemPerCPU=64
MaxArraySize=10001
NodeName=node[01-02] CPUs=2 CoresPerSocket=2 RealMemory=1000
PartitionName=main Nodes=node[01-02] Default=YES State=UP
";
/// The host through which the laptop reaches the server.
const ROUTER: u32 = 3;
/// The account that the laptop's token stands for.
const USER: &str = "games";

/// A server whose port other machines reach, two nodes, and a laptop.
struct Site {
    laptop: Laptop,
    hosts: Hosts,
    cluster: Cluster,
}

impl Site {
    fn up() -> Self {
        let cluster = Cluster::folder(CONF);
        let mut hosts = Hosts::up(3);
        hosts.start_at(&cluster, "0.0.0.0:6830");
        for host in [1, 2] {
            hosts.join(&cluster, host);
        }
        until("both nodes are idle", || {
            let states = hosts.in_hub(&cluster, "sinfo -h -o '%D %t'").stdout;
            (states.trim() == "2 idle").then_some(())
        });
        let laptop = Laptop::up(&cluster, &hosts, ROUTER);
        Self { laptop, hosts, cluster }
    }

    /// With a laptop that has logged in by the token `good`.
    fn logged_in() -> Self {
        let site = Self::up();
        site.token("good");
        site.log_in("good").ok();
        site
    }

    /// A new token of the user, in a file of the laptop.
    fn token(&self, name: &str) -> String {
        let options = format!("--unix-user {USER} --name {name}");
        let line = format!("{} token user {USER} {options}", program());
        let said = self.hosts.in_hub(&self.cluster, &line);
        let hint = format!("sluice login {URL} --fingerprint {}", self.fingerprint());
        assert!(said.stderr.contains(&hint), "{}", said.stderr);
        let token = said.ok();
        std::fs::write(self.laptop.home().join(name), &token).unwrap();
        token.trim().to_owned()
    }

    /// The fingerprint of the authority, as the administrator reads it in the log.
    fn fingerprint(&self) -> String {
        let log = std::fs::read_to_string(self.cluster.path("server.out")).unwrap();
        let found = log.split("the authority is ").nth(1).expect("the log has it");
        found.split_whitespace().next().unwrap().to_owned()
    }

    /// Logs in on a terminal, where a person answers the question and types the token.
    fn log_in_by_hand(&self, answers: &str) -> CommandOutput {
        let line =
            format!("printf '{answers}' | script -qec '{} login {URL}' /dev/null", program());
        self.run(&line)
    }

    fn run(&self, line: &str) -> CommandOutput {
        self.laptop.run(&self.cluster, line)
    }

    fn log_in(&self, token: &str) -> CommandOutput {
        let fingerprint = self.fingerprint();
        self.run(&format!("{} login {URL} --fingerprint {fingerprint} < {token}", program()))
    }
}

#[test]
fn root_laptop_logs_in_and_its_commands_work_over_tls() {
    let site = Site::up();
    let token = site.token("good");
    let said = site.log_in("good");
    assert_eq!(said.code, 0, "{}", said.stderr);
    assert!(said.stdout.contains(&format!("logged in at {URL} as {USER}")), "{}", said.stdout);
    assert!(!said.stdout.contains(&token) && !said.stderr.contains(&token));
    let file = site.laptop.home().join(".config/sluice/login.toml");
    use std::os::unix::fs::MetadataExt;
    assert_eq!(std::fs::metadata(&file).unwrap().mode() & 0o777, 0o600);

    assert_eq!(site.run("squeue -h").ok(), "");
    site.run(&format!("{} logout", program())).ok();
    assert!(!file.exists());
    assert_ne!(site.run("squeue -h").code, 0, "without a login there is no server");

    // Without a fingerprint a person is shown it, and asked.
    let said = site.log_in_by_hand("no\\n");
    assert!(said.stdout.contains(&site.fingerprint()), "{}", said.stdout);
    assert!(said.stdout.contains("not logged in") && !file.exists(), "{}", said.stdout);
    let said = site.log_in_by_hand(&format!("yes\\n{token}\\n"));
    assert!(said.stdout.contains(&format!("as {USER}")), "{}", said.stdout);
    site.run("squeue -h").ok();

    // Who tries tokens is told to wait, and the right one is taken all the same.
    std::fs::write(site.laptop.home().join("wrong"), "0".repeat(64)).unwrap();
    until("a wrong token is told to wait", || {
        let said = site.log_in("wrong");
        assert_ne!(said.code, 0, "{}", said.stdout);
        said.stderr.contains("429: too many sign-ins have failed").then_some(())
    });
    site.log_in("good").ok();
}

/// Jobs, their listings and their records. The script is a file of the laptop alone.
#[test]
fn root_batch_jobs_are_submitted_listed_and_cancelled_from_a_laptop() {
    let site = Site::logged_in();
    let work = site.cluster.path("work");
    let script = "#!/bin/sh\n#SBATCH -J from-laptop\nid -un\nhostname\nsleep 600\n";
    std::fs::write(site.laptop.home().join("job.sh"), script).unwrap();
    let line = format!("sbatch --parsable -D {} -o out -w node02 job.sh", work.display());
    let id = site.run(&line).ok().trim().to_owned();
    site.cluster.await_file("out", |text| text == format!("{USER}\nnode02\n"));
    let own = site.run("squeue --me -h -o '%i %j %u %T'").ok();
    assert_eq!(own.trim(), format!("{id} from-laptop {USER} RUNNING"));
    assert_eq!(site.run("sinfo -h -n node02 -o %t").ok().trim(), "mix");
    let shown = site.run(&format!("scontrol show job {id}")).ok();
    assert!(shown.contains(&format!("UserId={USER}(")), "{shown}");
    site.run(&format!("scancel {id}")).ok();
    until("the books have it", || {
        let said = site.run("sacct -n -X -P -o JobID,User,State").ok();
        said.contains(&format!("{id}|{USER}|CANCELLED")).then_some(())
    });
    // The laptop's way to the server does not go along: the job has its node's own.
    let inside = "env | grep -c -e SLUICE_TOKEN -e SLUICE_SERVER; srun hostname";
    let named = format!("SLUICE_SERVER={URL} SLUICE_TOKEN=$(cat good)");
    let line =
        format!("{named} sbatch -D {} -o inside -w node01 --wrap '{inside}'", work.display());
    site.run(&line).ok();
    site.cluster.await_file("inside", |text| text == "0\nnode01\n");
    // A run of dstack's language, and its log as it is written.
    let run = "type: task\nname: hello\ncommands: ['for i in 1 2 3; do echo line $i; done']\n\
               resources: {cpu: 1, memory: 64MB.., disk: 0GB..}\n";
    std::fs::write(site.laptop.home().join("hello.dstack.yml"), run).unwrap();
    let apply = format!("{} apply -f hello.dstack.yml -y -d", program());
    site.run(&apply).ok();
    let log = site.run(&format!("{} logs -f hello", program())).ok();
    assert_eq!(log, "line 1\nline 2\nline 3\n");
    let listed = site.run(&format!("{} ps -a", program())).ok();
    assert!(listed.contains("hello"), "{listed}");
}

#[test]
fn root_bytes_of_a_step_go_both_ways_between_the_nodes_and_a_laptop() {
    let site = Site::logged_in();
    let said = site.run("echo typed | srun -N2 -n2 sh -c 'read x; echo $x on $(hostname)'");
    let lines = sorted_lines(&said.stdout);
    assert_eq!(lines, ["typed on node01", "typed on node02"], "{}", said.stderr);
    assert_eq!(site.run("srun sh -c 'echo wrong >&2; exit 7'").code, 7);
    let there_and_back =
        "head -c 3000000 /dev/urandom > sent; srun cat < sent > back; cmp sent back";
    let said = site.run(there_and_back);
    assert_eq!(said.code, 0, "{} {}", said.stdout, said.stderr);
    let terminal = "stty rows 44 cols 77; srun --pty sh -c 'tty; stty size'";
    let said = site.run(&format!("script -qec \"{terminal}\" /dev/null"));
    assert!(said.stdout.contains("/dev/pts/") && said.stdout.contains("44 77"), "{}", said.stdout);
    let inside = "salloc -n1 sh -c 'srun hostname'";
    let said = site.run(inside);
    assert!(said.stdout.starts_with("node0"), "{} {}", said.stdout, said.stderr);
}

/// A long line costs a round trip for each time that both sides have spoken.
#[test]
fn root_ten_thousand_jobs_are_listed_in_one_exchange() {
    let site = Site::logged_in();
    let traffic = &site.laptop.relay.traffic;
    site.laptop.relay.delay_ms.store(25, std::sync::atomic::Ordering::SeqCst);
    traffic.reset();
    site.run("sbatch -H --array=0-9999 -o /dev/null --wrap true").ok();
    let (connections, turns, _) = traffic.get();
    assert_eq!(connections, 1, "a submit");
    assert!(turns < 4, "the handshake, the call, and the end of TLS: {turns}");
    traffic.reset();
    let listed = site.run("squeue -h -r").ok();
    assert_eq!(listed.lines().count(), 10_000);
    let (connections, turns, bytes) = traffic.get();
    assert_eq!(connections, 1);
    // The first round trip is that of TCP.
    assert!(turns < 6, "{turns} round trips and that of TCP");
    assert!(bytes < listed.len() as u64 / 4, "{bytes} bytes for a list of {}", listed.len());

    // A user whom the laptop does not know, as on most: that there are jobs of that name says enough.
    let local = User::from_name(LOCAL_USER).expect("users").expect("every system has it");
    let ids = format!("--reuid={} --regid={} --clear-groups", local.uid, local.gid);
    let line = format!("mount --bind /dev/null /etc/passwd && setpriv {ids} squeue -h -u {USER}");
    let mut squeue = Command::new("nsenter");
    squeue.arg(format!("--net={}", site.laptop.namespace().display()));
    squeue.args(["unshare", "-m", "sh", "-c", &line]);
    let path = format!("{}:/usr/sbin:/usr/bin:/sbin:/bin", site.cluster.path("bin").display());
    squeue.env_clear().env("PATH", path).env("HOME", site.laptop.home()).env("TZ", "UTC");
    traffic.reset();
    let said: CommandOutput = squeue.stdin(Stdio::null()).output().expect("it runs").into();
    assert_eq!(said.ok().lines().count(), 1, "the array");
    let (_, turns, _) = traffic.get();
    assert!(turns < 4, "the handshake, the call, and the end of TLS: {turns}");
}

#[test]
fn root_stolen_expired_and_revoked_tokens_and_bad_addresses_are_refused_in_a_line() {
    let site = Site::logged_in();
    let sluice = program();
    let refused = |line: &str, expected: &str| {
        let said = site.run(line);
        assert_ne!(said.code, 0, "{line}: {}", said.stdout);
        assert!(said.stderr.contains(expected), "{line}: {}", said.stderr);
    };
    site.hosts.in_hub(&site.cluster, &format!("{sluice} token revoke good --user {USER}")).ok();
    refused("squeue", "this token was revoked");
    std::fs::write(site.laptop.home().join("guess"), "0123456789abcdef\n").unwrap();
    let said = site.log_in("guess");
    assert!(said.stderr.contains("this needs a valid token"), "{}", said.stderr);
    std::fs::write(site.laptop.home().join("empty"), "").unwrap();
    assert!(site.log_in("empty").stderr.contains("this is no token"));
    refused("squeue", "this token was revoked");

    for (url, expected) in [
        ("http://10.77.0.254:6830", "expected https://HOST:PORT"),
        ("10.77.0.254:6830", "expected https://HOST:PORT"),
        ("https://10.77.0.254:6830/path", "expected https://HOST:PORT"),
        ("https://10.77.0.254:1", "refused"),
    ] {
        refused(&format!("{sluice} login {url} < guess"), expected);
    }
    let over = "SLUICE_SERVER=http://10.77.0.254:6830 SLUICE_TOKEN=x";
    refused(&format!("{over} squeue"), "is asked over https: https://HOST:PORT");
    // A client that speaks plain HTTP all the same is told so, whatever it asks for.
    for path in ["", "metrics", "api/v1/call"] {
        let said = site
            .run(&format!("curl -sS -H 'Authorization: Bearer x' http://10.77.0.254:6830/{path}"));
        assert!(
            said.stdout.starts_with("this port speaks TLS to other machines: use https://"),
            "{said:?}"
        );
    }

    let line = format!("{sluice} token user {USER} --unix-user {USER} --name short --expires 1s");
    let short = site.hosts.in_hub(&site.cluster, &line).ok();
    std::fs::write(site.laptop.home().join("short"), short).unwrap();
    until("the token has expired", || {
        let said = site.log_in("short");
        said.stderr.contains("this token has expired").then_some(())
    });
}

/// Somebody between the laptop and the server has a certificate for the right name, of another authority.
#[test]
fn root_man_in_the_middle_is_refused_and_gets_no_token() {
    let site = Site::logged_in();
    let sluice = program();
    let interceptor = Interceptor::new(&["10.77.0.254"]);
    site.laptop.relay.intercept(&interceptor);
    let said = site.run("squeue");
    assert_ne!(said.code, 0);
    assert!(said.stderr.contains("not of the authority of this login"), "{}", said.stderr);
    assert_ne!(site.run("srun hostname").code, 0);
    let said = site.log_in("good");
    assert!(said.stderr.contains("not the one with this fingerprint"), "{}", said.stderr);
    // Nobody is there to compare the fingerprint.
    let said = site.run(&format!("{sluice} login {URL} < good"));
    assert!(said.stderr.contains("nobody can be asked"), "{}", said.stderr);
    let server_authority = site.cluster.state().join("server/keys/authority.pem");
    std::fs::copy(server_authority, site.laptop.home().join("authority.pem")).unwrap();
    std::fs::set_permissions(
        site.laptop.home().join("authority.pem"),
        std::os::unix::fs::PermissionsExt::from_mode(0o644),
    )
    .unwrap();
    let said = site.run(&format!("{sluice} login {URL} --ca authority.pem < good"));
    assert_ne!(said.code, 0);
    let (connections, bytes) = interceptor.seen.lock().unwrap().clone();
    assert!(connections >= 5, "{connections}");
    assert_eq!(String::from_utf8_lossy(&bytes), "", "nothing was sent to him");
    // A client that trusts the interceptor's authority sends it the token: the interception itself works.
    std::fs::write(site.laptop.home().join("his.pem"), &interceptor.authority).unwrap();
    let line =
        format!("SLUICE_SERVER={URL} SLUICE_TOKEN=gullible SLUICE_CA=his.pem timeout 5 squeue");
    assert_ne!(site.run(&line).code, 0);
    let (_, bytes) = interceptor.seen.lock().unwrap().clone();
    assert!(String::from_utf8_lossy(&bytes).contains("Bearer gullible"));
}
