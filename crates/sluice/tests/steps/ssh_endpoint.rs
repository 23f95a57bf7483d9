//! The SSH endpoint, by OpenSSH's own clients: shells, commands, files and ports inside a job, and who is kept out.

use crate::harness::ssh_client::{Held, Ssh, free_port};
use crate::harness::{Cluster, CommandOutput, TWO_NODES, program, until};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Stdio};

/// Accounts of every Debian system that are not root.
pub const USER: &str = "games";
pub const STRANGER: &str = "news";

pub fn running(cluster: &Cluster, args: &str) -> u32 {
    let job = cluster.submit_sleeper(args);
    cluster.await_state(job, "RUNNING");
    job
}

/// Bytes that no compression or repetition makes right by chance.
fn noise(length: u32) -> Vec<u8> {
    (0..length).map(|n| (n.wrapping_mul(2_654_435_761) >> 13) as u8).collect()
}

#[test]
fn up_ssh_runs_commands_in_the_job_with_their_input_output_and_exit_code() {
    let cluster = Cluster::up(TWO_NODES);
    let Some(ssh) = Ssh::of_user(&cluster, "root") else { return };
    let job = running(&cluster, "-n1");
    let said = ssh.run(job, &["echo $SLURM_JOB_ID $SLURM_STEP_ID; echo oh >&2; exit 3"]);
    assert_eq!((said.code, said.stdout), (3, format!("{job} 0\n")), "{}", said.stderr);
    assert_eq!(said.stderr, "oh\n");
    let name = format!("sleeper-{job}");
    assert_eq!(ssh.run(&name, &["echo by name"]).ok(), "by name\n");
    let killed = ssh.run(job, &["kill -9 $$"]);
    assert_eq!(killed.code, 255, "a signal is no exit code: {killed:?}");
    // More than every window in both directions, and more output than input.
    let there = noise(24 << 20);
    let back = ssh.run_with_input(job, &["cat"], there.clone());
    assert!(back == there, "{} bytes came of {}", back.len(), there.len());
    let grown = ssh.run_with_input(job, &["sed s/./abcdefghij/g"], b"yyyyyyy\n".repeat(1 << 19));
    assert_eq!(grown.len(), 71 << 19);
    let books = ["sacct", "-n", "-P", "-j", &job.to_string(), "-o", "JobID,JobName,State,ExitCode"];
    until("the sessions are steps in the books", || {
        let text = cluster.sluice(&books).ok();
        text.contains(&format!("{job}.0|ssh|FAILED|3:0")).then_some(())
    });
    // It is gone with its client, also with input on the way that it never reads.
    let mut held = ssh.ssh(job, &["echo $$; sleep 3600"]);
    held.stdin(std::fs::File::open("/dev/zero").unwrap());
    let mut held = held.stdout(Stdio::piped()).spawn().expect("ssh runs");
    let mut first = [0; 1];
    held.stdout.as_mut().unwrap().read_exact(&mut first).unwrap();
    let open = || cluster.sluice(&["squeue", "-h", "-s", "-o", "%i %j"]).ok();
    assert!(open().contains(" ssh"), "{}", open());
    held.kill().unwrap();
    held.wait().unwrap();
    until("the session ends with its client", || (!open().contains(" ssh")).then_some(()));
    cluster.sluice(&["scancel", &job.to_string()]).ok();
    cluster.await_end(job);
    let over = ssh.run(job, &["true"]);
    assert!(over.code == 255 && over.stderr.contains("sluice: "), "{over:?}");
}

#[test]
fn up_ssh_has_a_terminal_and_the_jobs_variables() {
    let cluster = Cluster::up(TWO_NODES);
    let Some(ssh) = Ssh::of_user(&cluster, "root") else { return };
    let job = running(&cluster, "-n1 --export=ALL,OWN=of-the-job");
    let said = ssh.run(job, &["-tt", "tty; echo $TERM $OWN"]);
    let wanted = |text: &str| said.stdout.contains(text);
    assert!(wanted("/dev/pts/") && wanted("of-the-job"), "{said:?}");
    // A login shell reads its commands; its terminal shows them too.
    let mut shell = ssh.ssh(job, &["-tt"]);
    shell.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut shell = shell.spawn().expect("ssh runs");
    shell.stdin.as_mut().unwrap().write_all(b"echo $((20 + 22)); exit 7\n").unwrap();
    let said: CommandOutput = shell.wait_with_output().unwrap().into();
    assert!(said.code == 7 && said.stdout.contains("42"), "{said:?}");
}

#[test]
fn root_ssh_lets_in_the_jobs_owner_and_root_and_nobody_else() {
    let cluster = Cluster::up(TWO_NODES);
    let Some(owner) = Ssh::of_user(&cluster, USER) else { return };
    let (stranger, root) = (Ssh::of_user(&cluster, STRANGER), Ssh::of_user(&cluster, "root"));
    let (Some(stranger), Some(root)) = (stranger, root) else { return };
    let nobody = Ssh::new(&cluster, "key-of-nobody").expect("a key");
    let job = cluster.submit_as(USER, "-o /dev/null --wrap 'sleep 600'");
    cluster.await_state(job, "RUNNING");
    assert_eq!(owner.run(job, &["id -un"]).ok().trim(), USER);
    assert_eq!(root.run(job, &["id -un"]).ok().trim(), USER, "a session is the owner's");
    for (who, ssh) in [("a stranger", &stranger), ("nobody", &nobody)] {
        for login in [job.to_string(), format!("{job:08x}{:024x}", 0), format!("wrap-{job}")] {
            let said = ssh.run(&login, &["id"]);
            assert_eq!(said.code, 255, "{who} as {login}");
            assert!(said.stderr.contains("Permission denied"), "{who} as {login}: {said:?}");
        }
    }
    for login in ["0", "99999", "no-such-run", "root", ""] {
        assert_eq!(root.run(login, &["id"]).code, 255, "{login}");
    }
    // A Diffie-Hellman exchange would cost the server half a second before any key is proved: it is not offered.
    for (exchange, code) in [("curve25519-sha256", 0), ("diffie-hellman-group14-sha256", 255)] {
        let said = owner.run(job, &[&format!("-oKexAlgorithms={exchange}"), "true"]);
        assert_eq!(said.code, code, "{exchange}: {said:?}");
    }
    // A connection that stays open, by which further sessions are asked for.
    let shared = cluster.path("ctl");
    let path = format!("-S{}", shared.display());
    let _master = Held(owner.ssh(job, &["-M", "-N", &path]).spawn().expect("ssh runs"));
    until("the connection is shared", || shared.exists().then_some(()));
    assert_eq!(owner.run(job, &[&path, "id -un"]).ok().trim(), USER);
    // A key that was removed opens nothing; neither does one that another user removes.
    let denied = cluster
        .shell_as(STRANGER, &format!("{} key --user {USER} remove key-of-{USER}", program()));
    assert_ne!(denied.code, 0);
    assert_eq!(owner.run(job, &["true"]).code, 0);
    cluster.shell_as(USER, &format!("{} key remove key-of-{USER}", program())).ok();
    assert_eq!(owner.run(job, &["true"]).code, 255);
    assert_eq!(owner.run(job, &[&path, "true"]).code, 255, "nor on the connection that it opened");
    assert_eq!(cluster.shell_as(USER, &format!("{} key list", program())).ok(), "");
    // By the key that the server holds, without any of one's own.
    let said = cluster
        .shell_as(USER, &format!("{} attach {job} -- echo '$SLURM_JOB_ID'; echo $?", program()));
    assert_eq!(said.stdout, format!("{job}\n0\n"), "{said:?}");
    let by_root = cluster.sluice(&["attach", &job.to_string(), "exit 255"]);
    assert_eq!((by_root.code, by_root.stderr.as_str()), (255, ""), "as the command ended");
    // A stranger is told by one line of our own, and `ssh` is not started.
    for line in [format!("attach {job} -- id"), format!("port {job} 80")] {
        let said = cluster.shell_as(STRANGER, &format!("{} {line}", program()));
        let whose = format!("sluice: error: run {job} is {USER}'s: only its owner gets in\n");
        assert_eq!((said.code, said.stderr), (1, whose), "{line}");
    }
    let wrong = cluster.shell(&format!("echo no-key | {} key add -", program()));
    assert!(wrong.code != 0 && wrong.stderr.lines().count() == 1, "{wrong:?}");
}

/// What a key opened while it was good ends when it is removed: a command that runs, and a port in the job.
#[test]
fn up_open_session_and_listener_end_when_their_key_is_removed() {
    let cluster = Cluster::up(TWO_NODES);
    let Some(ssh) = Ssh::of_user(&cluster, "root") else { return };
    let job = running(&cluster, "-n1");
    let mut session = ssh.ssh(job, &["echo here; sleep 3600"]);
    session.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut session = Held(session.spawn().expect("ssh runs"));
    session.0.stdout.as_mut().unwrap().read_exact(&mut [0; 5]).expect("it runs");
    let remote = free_port();
    let mut tunnel = ssh.command("ssh");
    tunnel.args(["-N", "-o", "ExitOnForwardFailure=yes", "-R", &format!("{remote}:127.0.0.1:1")]);
    let mut tunnel = Held(tunnel.arg(format!("{job}@127.0.0.1")).spawn().expect("ssh runs"));
    until("the job's port is open", || TcpStream::connect(("127.0.0.1", remote)).ok());
    cluster.shell(&format!("{} key remove key-of-root", program())).ok();
    until("the session ends", || session.0.try_wait().expect("its state"));
    until("the tunnel ends", || tunnel.0.try_wait().expect("its state"));
    until("its listener is closed", || TcpStream::connect(("127.0.0.1", remote)).err());
    let open = || cluster.sluice(&["squeue", "-h", "-s", "-o", "%i %j"]).ok();
    until("its step ends", || (!open().contains(" ssh")).then_some(()));
    assert_eq!(cluster.sluice(&["squeue", "-h", "-o", "%T"]).ok().trim(), "RUNNING", "the job");
}

#[test]
fn up_files_go_in_and_out_by_scp_and_sftp() {
    let cluster = Cluster::up(TWO_NODES);
    let Some(ssh) = Ssh::of_user(&cluster, "root") else { return };
    let job = running(&cluster, "-n1");
    let there = noise(9 << 20);
    std::fs::write(cluster.path("work").join("there"), &there).unwrap();
    let remote = |path: &str| format!("{job}@127.0.0.1:{path}");
    let copy = |from: &str, to: &str| -> CommandOutput {
        ssh.command("scp").args(["-p", from, to]).output().expect("scp runs").into()
    };
    copy("there", &remote("inside")).ok();
    assert!(std::fs::read(cluster.path("work").join("inside")).unwrap() == there);
    copy(&remote("inside"), "back").ok();
    assert!(std::fs::read(cluster.path("work").join("back")).unwrap() == there);
    let missing = copy(&remote("no-such-file"), "x");
    assert!(missing.stderr.contains("No such file"), "{missing:?}");
    let batch = cluster.write(
        "batch",
        "mkdir made\nput there made/a\nrename made/a made/b\nchmod 600 made/b\nls -l made\nrm made/b\nrmdir made\n",
    );
    let mut sftp = ssh.command("sftp");
    let said: CommandOutput =
        sftp.arg("-b").arg(batch).arg(format!("{job}@127.0.0.1")).output().unwrap().into();
    let text = said.ok();
    assert!(text.contains("-rw-------") && text.contains("made/b"), "{text}");
    assert!(!cluster.path("work").join("made").exists());
}

#[test]
fn root_paths_over_sftp_lead_no_further_than_the_rights_of_the_jobs_user() {
    let cluster = Cluster::up(TWO_NODES);
    let Some(ssh) = Ssh::of_user(&cluster, USER) else { return };
    let job = cluster.submit_as(USER, "-o /dev/null --wrap 'sleep 600'");
    cluster.await_state(job, "RUNNING");
    let remote = |path: &str| format!("{job}@127.0.0.1:{path}");
    let copy = |from: &str, to: &str| -> CommandOutput {
        ssh.command("scp").args([from, to]).output().expect("scp runs").into()
    };
    let (work, up) = (cluster.path("work"), "../".repeat(30));
    copy(&remote(&format!("{up}etc/passwd")), "passwd").ok();
    let read = |path: &std::path::Path| std::fs::read(path).expect("a file");
    assert!(read(&work.join("passwd")) == read("/etc/passwd".as_ref()), "what everybody may read");
    for path in [format!("{up}etc/shadow"), "/etc/shadow".to_owned()] {
        let said = copy(&remote(&path), "stolen");
        assert!(said.code != 0 && said.stderr.contains("Permission denied"), "{path}: {said:?}");
        assert!(!work.join("stolen").exists(), "{path}");
    }
    let said = copy("passwd", &remote(&format!("{up}etc/planted-by-sftp")));
    assert!(said.code != 0 && said.stderr.contains("Permission denied"), "{said:?}");
    assert!(!std::path::Path::new("/etc/planted-by-sftp").exists());
}

#[test]
fn up_ports_are_forwarded_both_ways_and_not_to_metadata() {
    let cluster = Cluster::up(TWO_NODES);
    let Some(ssh) = Ssh::of_user(&cluster, "root") else { return };
    let job = running(&cluster, "-n1");
    // What is sent to the first port comes back by it.
    let echo = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let echo_port = echo.local_addr().unwrap().port();
    std::thread::spawn(move || {
        while let Ok((stream, _)) = echo.accept() {
            std::thread::spawn(move || {
                let mut reader = stream.try_clone().unwrap();
                let _ = std::io::copy(&mut reader, &mut &stream);
                let _ = stream.shutdown(std::net::Shutdown::Write);
            });
        }
    });
    let (local, remote, refused, closed) = (free_port(), free_port(), free_port(), free_port());
    let mut command = ssh.command("ssh");
    command.args(["-N", "-o", "ExitOnForwardFailure=yes"]);
    command.args(["-L", &format!("127.0.0.1:{local}:localhost:{echo_port}")]);
    command.args(["-R", &format!("{remote}:127.0.0.1:{echo_port}")]);
    command.args(["-L", &format!("127.0.0.1:{refused}:localhost:{closed}")]);
    let _tunnel = Held(command.arg(format!("{job}@127.0.0.1")).spawn().expect("ssh runs"));
    until("the port is forwarded", || TcpStream::connect(("127.0.0.1", refused)).ok());
    // More than a connection has channels: those that came to nothing do not count.
    for _ in 0..80 {
        let mut stream = TcpStream::connect(("127.0.0.1", refused)).expect("ssh listens");
        assert_eq!(stream.read(&mut [0; 1]).unwrap_or(0), 0, "nothing listens there");
    }
    let own = free_port();
    let mut command = Command::new(program());
    command.args(["port", &job.to_string(), &format!("{own}:{echo_port}")]);
    cluster.set_up(&mut command);
    let mut ported = Held(command.stdout(Stdio::piped()).spawn().expect("it runs"));
    let mut said = vec![0; format!("127.0.0.1:{own} leads to port {echo_port} of {job}\n").len()];
    ported.0.stdout.as_mut().expect("a pipe").read_exact(&mut said).expect("it says where");
    let said = String::from_utf8_lossy(&said);
    assert_eq!(said, format!("127.0.0.1:{own} leads to port {echo_port} of {job}\n"));
    for port in [local, remote, own] {
        let there = noise(5 << 20);
        let mut stream =
            until("the port is forwarded", || TcpStream::connect(("127.0.0.1", port)).ok());
        let (mut writer, sent) = (stream.try_clone().unwrap(), there.clone());
        let writing = std::thread::spawn(move || {
            writer.write_all(&sent).unwrap();
            writer.shutdown(std::net::Shutdown::Write).unwrap();
        });
        let mut back = Vec::new();
        stream.read_to_end(&mut back).unwrap();
        writing.join().unwrap();
        assert!(back == there, "{} bytes came of {}", back.len(), there.len());
    }
    for refused in ["169.254.169.254:80", "[fe80::1]:80", "0.0.0.0:80"] {
        let said = ssh.run(job, &[&format!("-W{refused}")]);
        assert_eq!(said.code, 255, "{refused}: {said:?}");
    }
}

#[test]
fn root_key_that_a_token_was_given_ends_with_the_token() {
    let cluster = Cluster::up(TWO_NODES);
    let Some(mut ssh) = Ssh::new(&cluster, "key-of-a-token") else { return };
    let job = cluster.submit_as(USER, "-o /dev/null --wrap 'sleep 600'");
    cluster.await_state(job, "RUNNING");
    let token =
        cluster.shell_as(USER, &format!("{} token user {USER} --name leaked", program())).ok();
    let token = token.split_whitespace().last().expect("a token").to_owned();
    let ports = std::fs::read_to_string(cluster.state().join("ports.json")).unwrap();
    let ports: serde_json::Value = serde_json::from_str(&ports).unwrap();
    let url = format!("http://{}/api/users/get_my_user", ports["listen"].as_str().unwrap());
    let ask = format!("curl -sS -X POST -H 'Authorization: Bearer {token}' {url}");
    let user: serde_json::Value = serde_json::from_str(&cluster.shell(&ask).ok()).expect("JSON");
    let private = user["ssh_private_key"].as_str().expect("a key");
    ssh.key = cluster.path("given");
    std::fs::write(&ssh.key, private).unwrap();
    std::fs::set_permissions(&ssh.key, std::fs::Permissions::from_mode(0o600)).unwrap();
    assert_eq!(ssh.run(job, &["id -un"]).ok().trim(), USER);
    cluster.shell_as(USER, &format!("{} token revoke leaked", program())).ok();
    assert_eq!(ssh.run(job, &["true"]).code, 255);
    // The owner's own way in is not shut.
    let said = cluster.shell_as(USER, &format!("{} attach {job} -- id -un", program()));
    assert_eq!(said.ok().trim(), USER);
}
