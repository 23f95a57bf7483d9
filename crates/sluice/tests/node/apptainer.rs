//! Apptainer as runtime, by the command lines that it gets: a program that plays it records them, and runs what it is to run on
//! the node itself.

use super::containers::{USER, assert_nothing_is_left, make_rootfs};
use crate::harness::Cluster;
use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;

/// `FOLDER` is that of its record.
const PLAYED: &str = r#"#!/bin/bash
say() { (IFS=' '; echo "$*" >> FOLDER/record); }
say "called $*"
say "as $(id -u) $(ulimit -f) greeting=$APPTAINERENV_GREETING binds=$APPTAINER_BIND path=$APPTAINERENV_APPEND_PATH state=$SLUICE_STATE"
shift 2
script=
while [[ $1 == --* ]]; do
    case $1 in
    --pwd) cd "$2"; shift ;;
    --bind) case $2 in *:/run/sluice/script:ro) script=${2%%:*} ;; esac; shift ;;
    esac
    shift
done
[ -e "$1" ] || { echo "FATAL: could not open image $1" >&2; exit 255; }
export APPTAINER_CONTAINER=$1 APPTAINER_BIND=/run/sluice/script
shift
words=()
for word in "$@"; do [ "$word" = /run/sluice/script ] && word=$script; words+=("$word"); done
exec "${words[@]}"
"#;

fn played() -> Cluster {
    let cluster = Cluster::folder(
        "ClusterName=test\nSlurmdParameters=config_overrides\nDefMemPerCPU=200\nAuthInfo=cred_expire=0\n\
         NodeName=node1 CPUs=4 RealMemory=2000\nPartitionName=main Nodes=node1 Default=YES State=UP\n",
    );
    let folder = cluster.path("apptainer");
    std::fs::create_dir_all(&folder).expect("made");
    // The program's name says what it is.
    let program = folder.join("apptainer");
    let text = PLAYED.replace("FOLDER", &folder.display().to_string());
    std::fs::write(&program, text).expect("written");
    for (path, mode) in [(&folder, 0o777), (&program, 0o755)] {
        std::fs::set_permissions(path, Permissions::from_mode(mode)).expect("a mode");
    }
    let toml = format!("[containers]\nruntime = '{}'\nmounts = ['/nowhere']\n", program.display());
    cluster.write_conf("sluice.toml", &toml);
    make_rootfs(&cluster.path("work/rootfs"));
    cluster.write("tool.sif", "");
    cluster.start();
    cluster
}

/// The lines of the record since the last call that begin so, without the beginning.
fn take_record(cluster: &Cluster) -> (Vec<String>, Vec<String>) {
    let record = cluster.path("apptainer/record");
    let text = std::fs::read_to_string(&record).unwrap_or_default();
    let _ = std::fs::remove_file(record);
    let lines = |beginning: &str| {
        let lines = text.lines().filter_map(|line| line.strip_prefix(beginning));
        lines.map(str::to_owned).collect::<Vec<String>>()
    };
    (lines("called "), lines("as "))
}

#[test]
fn root_apptainer_gets_the_command_line_that_the_flags_mean() {
    let cluster = played();
    let (work, state) = (cluster.path("work").display().to_string(), cluster.state());
    let uid = nix::unistd::User::from_name(USER).expect("users").expect("the user").uid;
    let line = "ulimit -f 1000; GREETING=hi srun -n2 --container=./tool.sif --container-mounts=/etc/hostname:/host:ro \
                --container-env=GREETING sh -c 'pwd; exit 4'";
    let said = cluster.shell_as(USER, line);
    assert_eq!((said.code, said.stdout), (4, format!("{work}\n{work}\n")), "{}", said.stderr);
    let (called, settings) = take_record(&cluster);
    assert_eq!(called.len(), 2, "a call for each task: {called:?}");
    let start = format!("--quiet exec --writable-tmpfs --pwd {work} --bind ");
    assert!(called[0].starts_with(&start), "{}", called[0]);
    for words in [
        " --bind /etc/hostname:/host:ro ",
        &format!(" --bind {work}:{work} "),
        &format!(" --bind {0}/socket:{0}/socket ", state.display()),
        &format!(" {work}/./tool.sif sh -c pwd; exit 4"),
    ] {
        assert!(called[0].contains(words), "{words}: {}", called[0]);
    }
    assert!(!called[0].contains("/nowhere"), "what the site names and the node lacks");
    let state = format!("state={}/socket", state.display());
    let own = format!("{uid} 500 greeting=hi binds= path=/run/sluice/bin {state}");
    assert_eq!(settings, [own.clone(), own]);

    let line = "APPTAINER_BIND=/mine srun --container=./tool.sif --container-remap-root --no-container-mount-home --container-readonly \
                --container-entrypoint --container-workdir=/tmp pwd";
    assert_eq!(cluster.shell_as(USER, line).ok(), "/tmp\n");
    let (called, settings) = take_record(&cluster);
    let start = "--quiet run --no-home --fakeroot --pwd /tmp --bind ";
    assert!(called.len() == 1 && called[0].starts_with(start), "{called:?}");
    assert!(settings[0].contains(" greeting= binds=/mine "), "{settings:?}");
    assert_nothing_is_left(&cluster);
}

#[test]
fn root_apptainer_runs_a_batch_script_and_what_it_cannot_do_is_an_oci_runtimes() {
    let cluster = played();
    cluster.shell(&format!("chown {USER} .")).ok();
    let job =
        cluster.submit_as(USER, "-o out --container=./tool.sif --wrap 'echo ran; srun echo step'");
    assert_eq!(cluster.await_end(job), "COMPLETED|0:0", "{}", cluster.read("out"));
    assert_eq!(cluster.read("out"), "ran\nstep\n");
    let (called, settings) = take_record(&cluster);
    assert_eq!(called.len(), 2, "the script and its step: {called:?}");
    // What is mounted for the script has places that the node does not have.
    assert!(settings.iter().all(|one| one.contains(" binds= ")), "{settings:?}");
    let missing = cluster.shell_as(USER, "srun --container=./missing.sif true");
    assert!(
        missing.code != 0 && missing.stderr.contains("could not open image"),
        "{}",
        missing.stderr
    );
    take_record(&cluster);
    // A folder, and a file that is to have a name among the job's containers.
    let rootfs = cluster.path("work/rootfs");
    let line = format!("srun --container={} cat /etc/release", rootfs.display());
    assert_eq!(cluster.shell_as(USER, &line).ok(), "made on the spot\n");
    let sif = cluster.path("work/real.sif");
    std::fs::write(&sif, include_bytes!("data/apptainer.sif")).expect("written");
    let line = format!("srun --container={} --container-name=n hello 3", sif.display());
    let said = cluster.shell_as(USER, &line);
    assert_eq!((said.code, said.stdout.as_str()), (3, "made by Apptainer\n"), "{}", said.stderr);
    assert_eq!(take_record(&cluster).0, Vec::<String>::new());
    assert_nothing_is_left(&cluster);
}

#[test]
fn root_apptainer_that_is_not_there_is_one_line() {
    if std::process::Command::new("apptainer").arg("version").output().is_ok() {
        crate::harness::skip("a node without Apptainer", "it has one");
        return;
    }
    let cluster = Cluster::up(
        "ClusterName=test\nContainerType=apptainer\nNodeName=node1 CPUs=2 RealMemory=1000\nPartitionName=main Nodes=node1 Default=YES State=UP\n",
    );
    let said = cluster.shell("srun --container=/images/tool.sif true");
    assert_ne!(said.code, 0);
    let why = "container runtime apptainer is not on this node";
    assert!(said.stderr.contains(why), "{}", said.stderr);
}
