//! Containers that have a name, which steps of a job share, and containers that are saved.

use super::containers::{USER, assert_nothing_is_left, cluster};
use crate::harness::{Cluster, until};

/// The first lines of a script: `run NAME COMMAND…` is a step in the container of that name.
fn run_in_named(cluster: &Cluster) -> String {
    format!(
        "run() {{ name=$1; shift; srun --overlap -n1 --container={} --container-name=$name \"$@\"; }}\n",
        cluster.path("work/rootfs").display()
    )
}

/// Steps of a job find a container by its name, and the word after the name says what must be there.
#[test]
fn root_a_named_container_is_kept_joined_and_refused_as_its_word_says() {
    let cluster = cluster("");
    let script = run_in_named(&cluster)
        + r#"run n:create sh -c 'echo first > /kept'
run n sh -c 'cat /kept'
run n:create true; echo create $?
run n:exec true; echo exec $?
run n:no_exec sh -c 'cat /kept'
run n -n2 sh -c 'echo > /ready-$SLURM_PROCID; until [ -e /go ]; do sleep 0.05; done; echo waited' &
until run n:exec sh -c '[ -e /ready-0 ] && [ -e /ready-1 ]' 2>/dev/null; do sleep 0.1; done
run n:exec --container-mounts=/etc:/elsewhere sh -c '[ -e /elsewhere ] || echo as it was made'
run n:no_exec true; echo no_exec $?
run n:exec sh -c 'echo > /go'
wait"#;
    let text = cluster.run_script(&["-n4"], &script);
    let of_step = |line: &&str| !line.starts_with("srun: ") && !line.starts_with("sluice: ");
    let said: Vec<&str> = text.lines().filter(of_step).collect();
    let (mut expected, waited) = (
        vec!["first", "create 1", "exec 1", "first", "as it was made", "no_exec 1"],
        vec!["waited"; 2],
    );
    expected.extend(waited);
    assert_eq!(said, expected, "{text}");
    for why in [
        "container n is there already: expected none, because of :create",
        "container n does not run: expected a running one, because of :exec",
        "container n runs: expected one that does not, because of :no_exec",
        "sluice: container n runs already, without the mount /etc:/elsewhere",
    ] {
        assert!(text.contains(why), "{why}: {text}");
    }
    assert_nothing_is_left(&cluster);
}

/// A step that joined the container goes on, and others join it, when the step that made it has ended. It ends with its
/// last step; its files stay.
#[test]
fn root_a_named_container_outlives_the_step_that_made_it() {
    let cluster = cluster("");
    let script = run_in_named(&cluster)
        + r#"run n:create sh -c 'echo first > /kept; echo > /dev/shm/made; until [ -e /joined ]; do sleep 0.05; done' & maker=$!
until run n:exec sh -c true 2>/dev/null; do sleep 0.1; done
run n:exec sh -c 'echo > /joined; until [ -e /go ]; do sleep 0.05; done; ls /dev/shm; echo survived' & joined=$!
wait $maker; echo maker $?
run n:exec cat /kept
run n:exec sh -c 'echo > /go'
wait $joined; echo joined $?
run n:exec sh -c true 2>/dev/null || echo ended
srun --overlap -n1 --container-name=n cat /kept"#;
    let text = cluster.run_script(&["-n4"], &script);
    let expected =
        ["maker 0", "first", "made", "survived", "joined 0", "ended", "first"].join("\n") + "\n";
    assert_eq!(text, expected);
    assert_nothing_is_left(&cluster);
}

/// Root inside is the user outside, and the user inside is the same: a step that says another of both than the container has
/// would be somebody else.
#[test]
fn root_a_step_joins_a_running_container_as_the_user_that_it_has() {
    let cluster = cluster("");
    let script = run_in_named(&cluster)
        + r#"hold() { run $1:create $2 sh -c 'echo > /up; until [ -e /go ]; do sleep 0.05; done' & }
root=--container-remap-root
hold mapped $root; hold plain
until run mapped:exec $root sh -c '[ -e /up ]' 2>/dev/null; do sleep 0.1; done
until run plain:exec sh -c '[ -e /up ]' 2>/dev/null; do sleep 0.1; done
run mapped:exec $root sh -c 'echo mapped $(id -u)'
run mapped:exec sh -c 'echo mapped as $(id -u)'; echo refused $?
run plain:exec sh -c 'echo plain $(id -u)'
run plain:exec $root sh -c 'echo plain as $(id -u)'; echo refused $?
run mapped:exec $root sh -c 'echo > /go'; run plain:exec sh -c 'echo > /go'
wait
# When it does not run, it is made anew as the step says.
run mapped sh -c 'echo again $(id -u)'"#;
    cluster.write("job.sh", &format!("#!/bin/sh\n{script}\n"));
    let line = "sbatch --parsable -n4 -o out.txt job.sh";
    cluster.shell(&format!("chown {USER} .")).ok();
    let job = cluster.shell_as(USER, line).ok();
    assert_eq!(cluster.await_end(job.trim()), "COMPLETED|0:0", "{}", cluster.read("out.txt"));
    let text = cluster.read("out.txt");
    let uid = nix::unistd::User::from_name(USER).expect("users").expect("the user").uid;
    let said: Vec<&str> = text.lines().filter(|line| !line.starts_with("srun: ")).collect();
    let (plain, again) = (format!("plain {uid}"), format!("again {uid}"));
    assert_eq!(said, ["mapped 0", "refused 1", &plain, "refused 1", &again], "{text}");
    for why in [
        "container mapped runs with root inside: expected --container-remap-root of a step that joins it",
        "container plain runs without root inside: expected no --container-remap-root of a step that joins it",
    ] {
        assert!(text.contains(why), "{why}: {text}");
    }
    assert_nothing_is_left(&cluster);
}

/// The packer has more to do than it gets time for.
#[test]
fn root_a_save_that_is_killed_leaves_nothing_beside_its_place() {
    let cluster = cluster("");
    let work = cluster.path("work");
    let names = || {
        let read = std::fs::read_dir(&work).expect("a folder").flatten();
        read.map(|entry| entry.file_name().into_string().expect("utf-8")).collect::<Vec<_>>()
    };
    let line = format!(
        "srun -J saves --container={}/rootfs --container-save=killed.sqsh sh -c 'head -c 300M /dev/urandom > /opt/data/large'",
        work.display()
    );
    let before = names();
    let mut saves = cluster.spawn_shell(&line);
    until("it is being saved", || {
        names().iter().any(|name| name.contains("partial")).then_some(())
    });
    cluster.shell("scancel --signal=KILL -n saves").ok();
    saves.wait().expect("it ends");
    until("nothing is left", || (names() == before).then_some(()));
    assert_nothing_is_left(&cluster);
}

/// What a step wrote is in the image that it saved, as a squashfs and as a tarball, and nothing of the node is.
#[test]
fn root_a_container_is_saved_with_the_rights_of_its_user() {
    let cluster = cluster("");
    let work = cluster.path("work");
    let run = |image: &str, options: &str, command: &str| {
        let line = format!("srun --container={}/{image} {options} {command}", work.display());
        cluster.shell_as(USER, &line)
    };
    for (options, name) in [
        ("", "saved.sqsh"),
        ("--container-remap-root", "as-root.sqsh"),
        ("--container-name=n", "saved.tar"),
    ] {
        let save = format!("{options} -n2 --container-save={name}");
        run("rootfs", &save, "sh -c 'echo $SLURM_PROCID > /opt/data/$SLURM_PROCID'").ok();
        // The working directory was mounted while it was saved, and is not now.
        let look = format!("sh -c 'cat /opt/data/0 /opt/data/1; ls {}'", work.display());
        let said = run(name, "--container-workdir=/", &look);
        assert_eq!(said.stdout, "0\n1\n", "{name}: {}", said.stderr);
        let owner =
            std::fs::metadata(work.join(name)).map(|m| std::os::unix::fs::MetadataExt::uid(&m));
        let uid = nix::unistd::User::from_name(USER).expect("users").expect("the user").uid;
        assert_eq!(owner.expect("the image"), uid.as_raw(), "{name}");
    }
    let names = |folder: &std::path::Path| {
        let read = std::fs::read_dir(folder).expect("a folder").flatten();
        read.map(|entry| entry.file_name().into_string().expect("utf-8")).collect::<Vec<_>>()
    };
    let before = names(std::path::Path::new("/etc"));
    let said = run("rootfs", "--container-save=/etc/saved.sqsh", "sh -c true");
    assert_eq!(said.code, 1, "{}", said.stderr);
    let why = "cannot save the container to /etc/saved.sqsh: Permission denied";
    assert!(said.stderr.contains(why), "{}", said.stderr);
    assert_eq!(names(std::path::Path::new("/etc")), before);
    // The exit of a task that failed is its own.
    assert_eq!(run("rootfs", "--container-save=failed.tar", "sh -c 'exit 3'").code, 3);
    assert!(names(&work).iter().all(|name| !name.contains("partial")), "{:?}", names(&work));
    assert_nothing_is_left(&cluster);
}
