//! What a container may write to its own files, and what its commands reach when the server was started anew.

use super::containers::{USER, assert_nothing_is_left, cluster, make_rootfs};
use crate::harness::{Cluster, program, until};

/// Writes more than there is place for, and says what became of it.
const FILL: &str = "head -c 200m /dev/zero | cat > /large; echo $?; stat -c %s /large";

/// The devices of containers of this cluster.
fn devices(cluster: &Cluster) -> Vec<String> {
    let read = |entry: std::fs::DirEntry| {
        std::fs::read_to_string(entry.path().join("loop/backing_file")).ok()
    };
    let entries = std::fs::read_dir("/sys/block").into_iter().flatten().flatten();
    let own = cluster.state().display().to_string();
    entries.filter_map(read).filter(|file| file.starts_with(&own)).collect()
}

/// The size that a file came to before there was no place left.
fn filled_size(output: &str) -> u64 {
    let lines: Vec<&str> = output.lines().collect();
    assert_eq!(lines.len(), 2, "{output}");
    assert_ne!(lines[0], "0", "{output}");
    lines[1].parse().expect("a size")
}

#[test]
fn root_a_container_that_has_written_its_share_finds_no_space_and_nobody_else_does() {
    let cluster = cluster("[containers]\ndisk = '64MB'\n");
    let rootfs = cluster.path("work/rootfs").display().to_string();
    let run = |options: &str, script: &str| {
        cluster.shell_as(USER, &format!("srun {options} --container={rootfs} sh -c '{script}'"))
    };
    for options in ["", "--container-remap-root"] {
        let said = run(options, FILL);
        assert!(said.stderr.contains("No space left on device"), "{options}: {}", said.stderr);
        let size = filled_size(&said.stdout);
        assert!((40 << 20..=64 << 20).contains(&size), "{options}: {size}");
    }
    // What is removed can be written again, and a mounted folder of the user's is not the container's.
    let again = "head -c 40m /dev/zero > /tmp/a && rm /tmp/a && head -c 40m /dev/zero > /tmp/b && echo again";
    assert_eq!(run("", again).ok(), "again\n");
    // Later steps find what earlier ones wrote to a container with a name, and its bound.
    let script = format!(
        "run() {{ srun --overlap -n1 --container={rootfs} --container-name=n \"$@\"; }}\n\
         run sh -c 'head -c 40m /dev/zero > /kept'\nrun sh -c '{FILL}'\nrun stat -c %s /kept\n"
    );
    let text = cluster.run_script(&["-n2"], &script);
    let said: Vec<&str> = text.lines().filter(|line| !line.contains(": ")).collect();
    let said = said.join("\n");
    let (filled, kept) = said.rsplit_once('\n').expect("three lines");
    assert!(filled_size(filled) < 24 << 20, "{text}");
    assert_eq!(kept, (40 << 20).to_string());
    until("the devices are free", || devices(&cluster).is_empty().then_some(()));
    assert_nothing_is_left(&cluster);
}

#[test]
fn root_the_disk_that_a_task_asks_for_is_what_its_container_may_write() {
    let cluster = Cluster::folder(
        "ClusterName=test\nSlurmdParameters=config_overrides\nDefMemPerCPU=200\n\
         NodeName=node1 CPUs=4 RealMemory=2000 TmpDisk=2000\nPartitionName=main Nodes=node1 Default=YES State=UP\n",
    );
    make_rootfs(&cluster.path("work/rootfs"));
    cluster.start();
    let task = |disk: &str| {
        cluster.write(
            "task.dstack.yml",
            &format!(
                "type: task\nname: fills\nimage: {}\ncommands:\n  - {FILL}\nresources: {{cpu: 1, memory: 100MB{disk}}}\n",
                cluster.path("work/rootfs").display()
            ),
        );
        cluster.sluice(&["apply", "-y", "-f", "task.dstack.yml"]).stdout
    };
    let said = task(", disk: 100MB");
    assert!(said.contains("No space left on device"), "{said}");
    let said = task("");
    assert!(said.contains(&(200 << 20).to_string()), "{said}");
    assert_nothing_is_left(&cluster);
}

/// A run without an image has its own `/dev/shm`, which is memory of its own.
#[test]
fn root_shared_memory_has_the_size_that_is_asked_for_without_a_container_too() {
    let cluster = cluster("");
    let path = std::path::PathBuf::from(format!("/dev/shm/sluice-test-{}", std::process::id()));
    let task = |more: &str| {
        let file = path.display();
        let command = format!("(head -c 20m /dev/zero | cat > {file}) 2>&1; stat -c %s {file}");
        let text = format!(
            "type: task\nname: bare\ncommands: ['{command}; grep -o size=[0-9]*k /proc/mounts | sort -u']\nresources: {{cpu: 1, memory: 100MB{more}}}\n"
        );
        cluster.write("task.dstack.yml", &text);
        cluster.sluice(&["apply", "-y", "-f", "task.dstack.yml"]).stdout
    };
    let said = task(", shm_size: 10MB");
    assert!(said.contains("No space left on device") && said.contains("size=10240k"), "{said}");
    assert!(!path.exists(), "it is the run's own");
    let said = task("");
    assert!(said.contains(&format!("\n{}\n", 20 << 20)), "{said}");
    assert!(!path.exists(), "it is the run's own where no size is asked for, too");
    let text = format!(
        "type: task\nname: inside\nimage: {}\ncommands: ['grep \" /dev/shm \" /proc/mounts']\n\
         resources: {{cpu: 1, memory: 100MB, shm_size: 10MB}}\n",
        cluster.path("work/rootfs").display()
    );
    cluster.write("task.dstack.yml", &text);
    let said = cluster.sluice(&["apply", "-y", "-f", "task.dstack.yml"]).stdout;
    assert!(said.contains("size=10240k"), "in a container: {said}");
}

/// A server that is started anew has a new socket.
#[test]
fn root_commands_in_a_container_reach_a_server_that_was_started_since() {
    let cluster = cluster("");
    let rootfs = cluster.path("work/rootfs");
    let script = format!(
        "#!/bin/sh\nsqueue -h -o before-%A; until [ -e go ]; do sleep 0.05; done; squeue -h -o after-%A\n\
         srun --container=none {} squeue -h -o outside-%A\n",
        program()
    );
    cluster.write("job.sh", &script);
    let job =
        cluster.submit(&["-o", "out", "--container", rootfs.to_str().expect("utf-8"), "job.sh"]);
    cluster.await_file("out", |text| text == format!("before-{job}\n"));
    cluster.kill("server");
    cluster.start();
    cluster.write("go", "");
    assert_eq!(cluster.await_end(job), "COMPLETED|0:0", "{}", cluster.read("out"));
    assert_eq!(cluster.read("out"), format!("before-{job}\nafter-{job}\noutside-{job}\n"));
    assert_nothing_is_left(&cluster);
}
