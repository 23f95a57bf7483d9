//! Fleets over SSH: hosts with a real `sshd` become nodes, run work, and are clean again afterwards.

use crate::harness::program;
use crate::harness::ssh_hosts::{INSTALLED, SshHosts};
use crate::harness::{skip, sorted_lines, until};

const ONE_HOST: &str = "  hosts: [10.77.0.1]\n";

const FAKE_NVML: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/node/fake_nvml/nvml.c");

fn task(fleets: &str, name: &str, command: &str) -> String {
    format!(
        "type: task\nname: {name}\nfleets: {fleets}\ncommands: [\"{command}\"]\nresources: {{cpu: 1, memory: 64MB.., disk: 1MB..}}\n"
    )
}

/// The size of what has arrived of the program on the first host, while it is on its way.
fn arriving(hosts: &SshHosts) -> Option<u64> {
    let found = std::fs::read_dir(hosts.path("host1/lib/sluice-fleet")).ok()?;
    let is_part = |e: &std::fs::DirEntry| e.file_name().to_string_lossy().starts_with("sluice.new");
    found.flatten().filter(is_part).find_map(|entry| Some(entry.metadata().ok()?.len()))
}

fn run_task(hosts: &SshHosts, fleets: &str, name: &str) -> String {
    let file = hosts.path("work").join(format!("{name}.dstack.yml"));
    std::fs::write(&file, task(fleets, name, "hostname")).expect("written");
    let said = hosts.hub(&format!("{} apply -y -f {}", program(), file.display()));
    assert_eq!(said.code, 0, "{}{}", said.stdout, said.stderr);
    said.stdout
}

#[test]
fn root_fleet_host_is_installed_runs_a_task_and_is_clean_after_delete() {
    let Some(hosts) = SshHosts::up(1) else { return };
    let file = hosts.write_fleet("lab", "", ONE_HOST);
    let said = hosts.apply(&file);
    assert_eq!(said.code, 0, "{}{}", said.stdout, said.stderr);
    assert!(said.stdout.contains("lab-0 10.77.0.1 idle"), "{}", said.stdout);
    hosts.await_states("lab", "lab-0 idle");
    let shown = hosts.hub(&format!("{} fleet", program())).ok();
    assert!(shown.contains("lab-0"), "{shown}");
    let cpus = hosts.hub("sinfo -h -p lab -o %c").ok();
    let found = std::thread::available_parallelism().expect("CPUs").get();
    assert_eq!(cpus.trim(), found.to_string(), "the node is as large as its machine");
    assert!(run_task(&hosts, "[lab]", "first").contains("node01"));
    // A run that names no fleet may go to any of its project's.
    assert!(run_task(&hosts, "null", "anywhere").contains("node01"));
    let said = hosts.hub("sbatch --wait -p lab -o batch.out --wrap hostname");
    assert_eq!(said.code, 0, "{}", said.stderr);
    assert_eq!(hosts.cluster.read("batch.out"), "node01\n");
    // The private key is nowhere in the server's files.
    let key = std::fs::read_to_string(hosts.path("key")).expect("the key");
    let line = key.lines().nth(3).expect("a line of the key");
    let state = hosts.cluster.state();
    let found = hosts.cluster.shell(&format!(
        "grep -rlF -- '{line}' {} {}",
        state.display(),
        hosts.path("server.out").display()
    ));
    assert_eq!(found.stdout, "", "{}", found.stderr);
    hosts.await_states("lab", "lab-0 idle");
    let said = hosts.hub(&format!("{} fleet delete lab -y", program()));
    assert_eq!((said.code, said.stdout.as_str()), (0, "Fleet lab deleted\n"), "{}", said.stderr);
    assert_eq!(hosts.states("lab"), "");
    assert_eq!(hosts.on(1, &format!("ls {INSTALLED} 2>/dev/null")).stdout, "");
    until("its processes are gone", || hosts.agents(1).is_empty().then_some(()));
    let log = std::fs::read_to_string(hosts.path("server.out")).expect("the server's log");
    assert!(!log.contains("hello is refused"), "its agent may come once more: {log}");
}

/// The states that a host's GPUs give it, by a library that plays NVML.
#[test]
fn root_host_whose_gpu_warns_says_so_and_runs_tasks_and_one_whose_gpu_fails_does_not() {
    let Some(hosts) = SshHosts::up(1) else { return };
    let library = hosts.path("libfake-nvml.so");
    let mut cc = std::process::Command::new("cc");
    cc.args(["-shared", "-fPIC", "-o"]).arg(&library).arg(FAKE_NVML);
    assert!(cc.status().expect("a C compiler").success());
    let says = |text: &str| {
        std::fs::write(hosts.path("nvml.new"), text).expect("written");
        std::fs::rename(hosts.path("nvml.new"), hosts.path("nvml")).expect("renamed");
    };
    says("temp.1 92\n");
    // The agent has the environment of the session that starts it.
    hosts.stop_sshd(1);
    let (library, read) = (library.display(), hosts.path("nvml"));
    hosts.start_sshd(1, &format!("SetEnv SLUICE_NVML={library} FAKE_NVML={}", read.display()));
    let said = hosts.apply(&hosts.write_fleet("lab", "", ONE_HOST));
    assert_eq!(said.code, 0, "{}{}", said.stdout, said.stderr);
    let listed = |words: &[&str]| {
        until(&format!("the fleet's host is {words:?}"), || {
            let shown = hosts.hub(&format!("{} fleet lab -v", program())).ok();
            let host = shown.lines().find(|line| line.contains("lab-0"))?.to_owned();
            words.iter().all(|word| host.contains(word)).then_some(())
        });
    };
    listed(&["(warning)", "GPU 1: too hot"]);
    assert_eq!(hosts.states("lab"), "lab-0 idle");
    let shown = hosts.hub("scontrol show node lab-0").ok();
    assert!(shown.contains("Reason=warning: GPU 1: too hot [slurm@"), "{shown}");
    assert!(run_task(&hosts, "[lab]", "warned").contains("node01"));
    says("temp.1 101\n");
    listed(&["(drained)", "GPU 1: too hot"]);
    hosts.await_states("lab", "lab-0 drain");
    says("temp.1 40\n");
    hosts.await_states("lab", "lab-0 idle");
    until("nothing ails it", || {
        let shown = hosts.hub(&format!("{} fleet lab -v", program())).ok();
        (!shown.contains("too hot")).then_some(())
    });
}

#[test]
fn root_three_hosts_come_up_by_one_apply_and_one_through_another() {
    let Some(hosts) = SshHosts::up(3) else { return };
    // The third lets in who comes from the first alone.
    hosts.stop_sshd(3);
    hosts.start_sshd(3, "AllowUsers root@10.77.0.1");
    // The second has another address, at which the others are to reach it.
    hosts.on(2, "ip addr add 10.88.0.2/24 dev eth0").ok();
    let key = hosts.path("key").display().to_string();
    let ssh = format!(
        "  hosts:\n    - 10.77.0.1\n    - {{hostname: 10.77.0.2, internal_ip: 10.88.0.2, blocks: auto}}\n    \
         - hostname: 10.77.0.3\n      blocks: auto\n      proxy_jump: {{hostname: 10.77.0.1, user: root, identity_file: {key}}}\n"
    );
    let file = hosts.write_fleet("lab", "placement: cluster\n", &ssh);
    let said = hosts.apply(&file);
    assert_eq!(said.code, 0, "{}{}", said.stdout, said.stderr);
    hosts.await_states("lab", "lab-0 idle,lab-1 idle,lab-2 idle");
    let text = "type: task\nname: wide\nfleets: [lab]\nnodes: 3\ncommands: ['echo at $(hostname) of $DSTACK_NODES_IPS']\n\
                resources: {cpu: 1.., memory: 64MB.., disk: 1MB..}\n";
    let file = hosts.path("work").join("wide.dstack.yml");
    std::fs::write(&file, text).expect("written");
    let said = hosts.hub(&format!("{} apply -y -f {}", program(), file.display()));
    assert_eq!(said.code, 0, "{}{}", said.stdout, said.stderr);
    let told = "at node01 of 10.77.0.1 10.88.0.2 10.77.0.3";
    assert!(said.stdout.contains(told), "{}{}", said.stdout, said.stderr);
    let said = hosts.hub("srun -p lab -N3 hostname").ok();
    assert_eq!(sorted_lines(&said), ["node01", "node02", "node03"]);
    // A step's end is told before its node is free.
    hosts.await_states("lab", "lab-0 idle,lab-1 idle,lab-2 idle");
    let said = hosts.hub(&format!("{} fleet delete lab -y", program()));
    assert_eq!(said.code, 0, "{}", said.stderr);
    for host in 1..=3 {
        assert_eq!(hosts.on(host, &format!("ls {INSTALLED} 2>/dev/null")).stdout, "");
    }
}

#[test]
fn root_host_that_lacks_something_is_told_by_name_and_recovers() {
    let Some(hosts) = SshHosts::up(3) else { return };
    // The second host has no room; the third one's sudo asks for a password.
    hosts.on(2, "mount -t tmpfs -o size=20m small /var/lib").ok();
    let bin = hosts.path("host3/bin");
    std::fs::create_dir(&bin).expect("a folder");
    hosts.on(
        3,
        &format!(
            "printf '#!/bin/sh\\necho sudo: a password is required >&2; exit 1\\n' > {0}/sudo; chmod 755 {0}/sudo; \
             mount --bind {0} /usr/local/bin",
            bin.display()
        ),
    ).ok();
    let key = hosts.path("other-key").display().to_string();
    let ssh = format!(
        "  hosts:\n    - {{hostname: 10.77.0.1, identity_file: {key}}}\n    - 10.77.0.2\n    - {{hostname: 10.77.0.3, user: games}}\n"
    );
    let file = hosts.write_fleet("lab", "", &ssh);
    let said = hosts.apply(&file);
    assert_eq!(said.code, 1, "{}{}", said.stdout, said.stderr);
    let listed = hosts.hub(&format!("{} fleet lab -v", program())).ok();
    let reasons = hosts.hub("sinfo -h -R -p lab -o '%N %E'").ok();
    let expected = [
        ("lab-0", "root@10.77.0.1:22 refuses the key SHA256:"),
        ("lab-1", "no space left in /var/lib"),
        ("lab-2", "sudo: a password is required"),
    ];
    for (node, why) in expected {
        assert!(listed.lines().any(|l| l.contains(node) && l.contains(why)), "{node}: {listed}");
        assert!(reasons.lines().any(|l| l.contains(node) && l.contains(why)), "{reasons}");
    }
    // Put right, each comes up by itself; the first with the right key.
    hosts.on(2, "umount /var/lib").ok();
    hosts.write_fleet("lab", "", "  hosts: [10.77.0.1, 10.77.0.2]\n");
    let said = hosts.apply(&file);
    assert!(said.stdout.contains("lab-2 10.77.0.3 terminating"), "{}", said.stdout);
    hosts.await_states("lab", "lab-0 idle,lab-1 idle");
    assert_eq!(hosts.hub("sinfo -h -R -p lab -o %E").ok(), "");
}

/// The host before the host: its key is asked for, pinned and compared as the host's own is.
#[test]
fn root_jump_host_that_refuses_the_key_is_told_and_one_with_another_host_key_is_refused() {
    let Some(hosts) = SshHosts::up(2) else { return };
    let through = |key: &str| {
        let key = hosts.path(key).display().to_string();
        format!(
            "  hosts:\n    - hostname: 10.77.0.2\n      proxy_jump: {{hostname: 10.77.0.1, user: root, identity_file: {key}}}\n"
        )
    };
    let file = hosts.write_fleet("lab", "", &through("other-key"));
    let said = hosts.apply(&file);
    assert_eq!(said.code, 1, "{}{}", said.stdout, said.stderr);
    let failure = || hosts.hub(&format!("{} fleet lab -v", program())).ok();
    assert!(failure().contains("root@10.77.0.1:22 refuses the key SHA256:"), "{}", failure());
    hosts.write_fleet("lab", "", &through("key"));
    assert_eq!(hosts.apply(&file).code, 0, "{}", failure());
    hosts.await_states("lab", "lab-0 idle");
    hosts.stop_sshd(1);
    hosts.change_host_key(1);
    hosts.start_sshd(1, "");
    let agents = hosts.agents(2);
    assert!(!agents.is_empty());
    hosts.cluster.shell(&format!("kill -9 {agents}")).ok();
    until("the changed key is said", || {
        failure().contains("the host key of 10.77.0.1 changed").then_some(())
    });
    let log = std::fs::read_to_string(hosts.path("host1/sshd.log")).expect("the log");
    let last = log.rsplit("Server listening").next().expect("the last start");
    assert!(!last.contains("Accepted"), "nobody logs in there: {last}");
}

#[test]
fn root_host_that_refuses_the_login_is_let_go_once_that_is_said() {
    let Some(hosts) = SshHosts::up(1) else { return };
    let delete = |why: &str| {
        // The ten minutes of a host that is not reached are longer.
        let said = hosts.hub(&format!("timeout 120 {} fleet delete lab -y", program()));
        assert_eq!(
            (said.code, said.stdout.as_str()),
            (0, "Fleet lab deleted\n"),
            "{}",
            said.stderr
        );
        assert!(said.stderr.contains(why), "{}", said.stderr);
    };
    let key = hosts.path("other-key").display().to_string();
    let ssh = format!("  hosts: [{{hostname: 10.77.0.1, identity_file: {key}}}]\n");
    let said = hosts.apply(&hosts.write_fleet("lab", "", &ssh));
    assert_eq!(said.code, 1, "{}{}", said.stdout, said.stderr);
    delete("lab-0: root@10.77.0.1:22 refuses the key SHA256:");
    let file = hosts.write_fleet("lab", "", ONE_HOST);
    hosts.apply(&file).ok();
    hosts.stop_sshd(1);
    hosts.change_host_key(1);
    hosts.start_sshd(1, "");
    delete("lab-0: the host key of 10.77.0.1 changed");
    // The host is the next fleet's, with what was left there.
    hosts.apply(&file).ok();
    hosts.await_states("lab", "lab-0 idle");
    delete("");
    assert_eq!(hosts.on(1, &format!("ls {INSTALLED} 2>/dev/null")).stdout, "");
}

/// Debian's own sudo, for a user of the host who may become root without a password.
#[test]
fn root_ordinary_user_with_sudo_installs_and_removes_the_agent() {
    if !std::path::Path::new("/usr/bin/sudo").exists() {
        return skip("sudo", "no sudo");
    }
    let Some(hosts) = SshHosts::up(1) else { return };
    let allowed = "games ALL=(ALL) NOPASSWD: ALL";
    hosts
        .on(1, &format!("mkdir -p /etc/sudoers.d && echo '{allowed}' > /etc/sudoers.d/games && chmod 440 /etc/sudoers.d/games"))
        .ok();
    let ssh = "  hosts: [{hostname: 10.77.0.1, user: games}]\n";
    let file = hosts.write_fleet("lab", "", ssh);
    let said = hosts.apply(&file);
    assert_eq!(said.code, 0, "{}{}", said.stdout, said.stderr);
    hosts.await_states("lab", "lab-0 idle");
    let owner = hosts.on(1, &format!("stat -c %U {INSTALLED}/sluice")).ok();
    assert_eq!(owner.trim(), "root", "the agent is root's");
    let log = hosts.on(1, "cat /var/log/auth.log 2>/dev/null || true").ok();
    assert!(!log.contains("PRIVATE KEY"), "{log}");
    let deleted = hosts.hub(&format!("{} fleet delete lab -y", program()));
    assert_eq!(deleted.code, 0, "{}{}", deleted.stdout, deleted.stderr);
    assert_eq!(hosts.on(1, &format!("ls {INSTALLED} 2>/dev/null || true")).ok(), "");
}

#[test]
fn root_hosts_are_added_changed_and_removed_in_place_under_a_running_job() {
    let Some(hosts) = SshHosts::up(2) else { return };
    let file = hosts.write_fleet("lab", "blocks: auto\n", ONE_HOST);
    hosts.apply(&file).ok();
    let job = hosts.hub("sbatch --parsable -p lab -o none --wrap 'sleep 600'").ok();
    until("the job runs", || {
        let queue = hosts.hub("squeue -h -o '%T %N'").stdout;
        (queue.trim() == "RUNNING lab-0").then_some(())
    });
    hosts.write_fleet("lab", "blocks: auto\n", "  hosts: [10.77.0.1, 10.77.0.2]\n");
    let said = hosts.apply(&file);
    assert_eq!(said.code, 0, "{}{}", said.stdout, said.stderr);
    hosts.await_states("lab", "lab-0 mix,lab-1 idle");
    // A host is changed under its job.
    let changed = "  hosts: [{hostname: 10.77.0.1, internal_ip: 10.88.0.1}, 10.77.0.2]\n";
    hosts.write_fleet("lab", "blocks: auto\n", changed);
    let said = hosts.apply(&file);
    assert_eq!(said.code, 0, "{}{}", said.stdout, said.stderr);
    let shown = hosts.hub("scontrol show node lab-0").ok();
    assert!(shown.contains("NodeAddr=10.88.0.1 "), "{shown}");
    assert_eq!(hosts.states("lab"), "lab-0 mix,lab-1 idle");
    // A busy host stays.
    hosts.write_fleet("lab", "blocks: auto\n", "  hosts: [10.77.0.2]\n");
    let said = hosts.apply(&file);
    assert_ne!(said.code, 0);
    assert!(said.stderr.contains("instance lab-0 is busy"), "{}", said.stderr);
    let said = hosts.hub(&format!("{} fleet delete lab -i 1 -y", program()));
    assert_eq!(said.code, 0, "{}", said.stderr);
    assert_eq!(hosts.on(2, &format!("ls {INSTALLED} 2>/dev/null")).stdout, "");
    assert_eq!(hosts.hub("squeue -h -o '%T %N'").ok().trim(), "RUNNING lab-0");
    hosts.hub(&format!("scancel {}", job.trim())).ok();
    hosts.await_states("lab", "lab-0 idle");
    // Two fleets that name one host: by its address, and by another form of it.
    for (address, why) in [
        ("10.77.0.1", "it is in fleet lab already"),
        ("::ffff:10.77.0.1", "is instance lab-0 already"),
    ] {
        let second = hosts.write_fleet("second", "", &format!("  hosts: ['{address}']\n"));
        let said = hosts.apply(&second);
        assert_ne!(said.code, 0);
        let said = format!("{}{}", said.stdout, said.stderr);
        assert!(said.contains(why), "{said}");
    }
    hosts.hub(&format!("{} fleet delete second -y", program())).ok();
    hosts.await_states("lab", "lab-0 idle");
    hosts.hub(&format!("{} fleet delete lab -y", program())).ok();
}

#[test]
fn root_host_that_dies_recovers_and_one_with_another_key_is_refused() {
    let Some(hosts) = SshHosts::up(1) else { return };
    let file = hosts.write_fleet("lab", "", ONE_HOST);
    hosts.apply(&file).ok();
    let kill = |hosts: &SshHosts| {
        let of = hosts.agents(1);
        assert!(!of.is_empty());
        hosts.cluster.shell(&format!("kill -9 {of}")).ok();
    };
    let failure = |hosts: &SshHosts| hosts.hub(&format!("{} fleet lab -v", program())).stdout;
    hosts.stop_sshd(1);
    kill(&hosts);
    until("it is said to be unreachable", || {
        failure(&hosts).contains("10.77.0.1:22 is not reached").then_some(())
    });
    hosts.start_sshd(1, "");
    hosts.await_states("lab", "lab-0 idle");
    assert!(!failure(&hosts).contains("not reached"));
    hosts.stop_sshd(1);
    hosts.change_host_key(1);
    hosts.start_sshd(1, "");
    kill(&hosts);
    until("the changed key is said", || {
        failure(&hosts).contains("the host key of 10.77.0.1 changed").then_some(())
    });
    let log = std::fs::read_to_string(hosts.path("host1/sshd.log")).expect("the log");
    let last = log.rsplit("Server listening").next().expect("the last start");
    assert!(!last.contains("Accepted"), "nobody logs in there: {last}");
}

#[test]
fn root_server_that_is_killed_amid_an_installation_goes_on_with_it() {
    let Some(mut hosts) = SshHosts::up(2) else { return };
    let file = hosts.write_fleet("lab", "", "  hosts: [10.77.0.1, 10.77.0.2]\n");
    hosts.hub(&format!("{} apply -y -d -f {file}", program())).ok();
    until("the program is on its way", || arriving(&hosts));
    hosts.cluster.kill("server");
    hosts.start_server();
    hosts.await_states("lab", "lab-0 idle,lab-1 idle");
    assert!(run_task(&hosts, "[lab]", "after").contains("node0"));
    // A restart of a server leaves the agents alone.
    let before = hosts.agents(1);
    hosts.cluster.kill("server");
    hosts.start_server();
    hosts.await_states("lab", "lab-0 idle,lab-1 idle");
    assert_eq!(hosts.agents(1), before);
    hosts.hub(&format!("{} fleet delete lab -y", program())).ok();
}

/// The program takes seconds on its way: the host dies meanwhile.
#[test]
fn root_host_that_dies_amid_its_upload_over_a_slow_link_recovers() {
    let Some(hosts) = SshHosts::up(1) else { return };
    let namespace = hosts.hosts.namespace(1);
    let namespace = namespace.file_name().and_then(|name| name.to_str()).expect("a name");
    let device = format!("{}v1", namespace.strip_suffix('1').expect("host 1"));
    let link = |change: &str| {
        let line = format!("tc qdisc {change} dev {device} root");
        let rate = if change == "add" { " tbf rate 60mbit burst 256kb latency 50ms" } else { "" };
        hosts.hosts.tool(&["ctl", "sh", "-c", &format!("{line}{rate}")]).ok();
    };
    link("add");
    let file = hosts.write_fleet("lab", "", ONE_HOST);
    hosts.hub(&format!("{} apply -y -d -f {file}", program())).ok();
    until("a part of the program is there", || (arriving(&hosts)? > 1 << 20).then_some(()));
    let killed = hosts.cluster.shell(&format!(
        "for p in $(ip netns pids {namespace}); do case $(cat /proc/$p/comm) in sshd*) kill -9 $p;; esac; done"
    ));
    assert_eq!(killed.code, 0, "{}", killed.stderr);
    until("that is said", || {
        let said = hosts.hub(&format!("{} fleet lab -v", program())).stdout;
        (said.contains("the connection broke") || said.contains("is not reached")).then_some(())
    });
    link("del");
    hosts.start_sshd(1, "");
    hosts.await_states("lab", "lab-0 idle");
    assert_eq!(arriving(&hosts), None, "nothing of the broken upload is left");
    hosts.hub(&format!("{} fleet delete lab -y", program())).ok();
}

/// The time is printed, not judged: it is this machine's, where one disk and its processors are all fifty hosts.
#[test]
#[ignore = "a long run: make soak"]
fn root_soak_fifty_hosts_of_a_fleet_come_up_by_one_apply() {
    const HOSTS: u32 = 50;
    let Some(hosts) = SshHosts::up(HOSTS) else { return };
    let addresses: Vec<String> = (1..=HOSTS).map(|host| format!("10.77.0.{host}")).collect();
    let file = hosts.write_fleet("lab", "", &format!("  hosts: [{}]\n", addresses.join(", ")));
    let begun = std::time::Instant::now();
    let said = hosts.apply(&file);
    assert_eq!(said.code, 0, "{}{}", said.stdout, said.stderr);
    println!("{HOSTS} hosts were up after {:.1} s", begun.elapsed().as_secs_f64());
    let states = hosts.hub("sinfo -h -p lab -o '%D %t'").ok();
    assert_eq!(states.trim(), format!("{HOSTS} idle"));
    hosts.hub(&format!("{} fleet delete lab -y", program())).ok();
    for host in 1..=HOSTS {
        assert_eq!(hosts.on(host, &format!("ls {INSTALLED} 2>/dev/null")).stdout, "");
    }
}
