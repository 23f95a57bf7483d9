//! Enroot as runtime, by the command lines that it gets: a program that plays it records them, keeps its containers as folders, and
//! runs what it is to run on the node itself.

use super::containers::{USER, assert_nothing_is_left, make_rootfs};
use crate::harness::{Cluster, until};
use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;

/// `FOLDER` is that of its containers and of its record.
const PLAYED: &str = r#"#!/bin/bash
folder=FOLDER
say() { (IFS=' '; echo "$*" >> "$folder/record"); }
verb=$1
say "$*"
shift
case $verb in
import)
    say "login $(cat "$ENROOT_CONFIG_PATH/.credentials" 2> /dev/null)"
    case $3 in *missing*) echo "[INFO] Querying registry" >&2; echo "[ERROR] no such image" >&2; exit 1 ;; esac
    echo image > "$2" ;;
create)
    [ -e "$3" ] || { echo "[ERROR] No such file or directory: $3" >&2; exit 1; }
    mkdir "$folder/data/$2" ;;
start)
    script=
    while [[ $1 == --* ]]; do
        case $2 in *:/run/sluice/script:*) script=${2%%:*} ;; esac
        case $1 in --conf) say "conf $(grep -c '^rc()' "$2")" ;; esac
        shift 2
    done
    [ -d "$folder/data/$1" ] || { echo "[ERROR] No such file or directory: $1" >&2; exit 1; }
    say "settings home=$ENROOT_MOUNT_HOME root=$ENROOT_REMAP_ROOT writable=$ENROOT_ROOTFS_WRITABLE $(id -u) $(ulimit -f)"
    echo $$ > "$folder/data/$1/pid"
    shift
    words=()
    for word in "$@"; do [ "$word" = /run/sluice/script ] && word=$script; words+=("$word"); done
    exec "${words[@]}" ;;
exec)
    while [[ $1 == --* ]]; do shift 2; done
    shift
    exec "$@" ;;
list)
    echo "NAME  PID"
    for pid in "$folder"/data/*/pid; do
        [ -e /proc/$(cat "$pid") ] && echo "$(basename "$(dirname "$pid")") $(cat "$pid")"
    done
    true ;;
export) echo saved > "$2" ;;
remove) rm -r "$folder/data/$2" ;;
esac
"#;

struct Played {
    cluster: Cluster,
    folder: std::path::PathBuf,
}

impl Played {
    fn start() -> Played {
        let cluster = cluster_with_folder();
        let folder = cluster.path("enroot");
        Played { cluster, folder }
    }

    /// The lines of the record that begin so, without the beginning.
    fn said(&self, beginning: &str) -> Vec<String> {
        let text = std::fs::read_to_string(self.folder.join("record")).unwrap_or_default();
        text.lines().filter_map(|line| line.strip_prefix(beginning)).map(str::to_owned).collect()
    }

    fn forget(&self) {
        let _ = std::fs::remove_file(self.folder.join("record"));
    }

    fn containers(&self) -> usize {
        std::fs::read_dir(self.folder.join("data")).expect("a folder").count()
    }
}

fn cluster_with_folder() -> Cluster {
    // The program's name says what it is.
    let cluster = Cluster::folder(
        "ClusterName=test\nSlurmdParameters=config_overrides\nDefMemPerCPU=200\nAuthInfo=cred_expire=0\n\
         NodeName=node1 CPUs=4 RealMemory=2000\nPartitionName=main Nodes=node1 Default=YES State=UP\n",
    );
    let folder = cluster.path("enroot");
    std::fs::create_dir_all(folder.join("data")).expect("made");
    std::fs::create_dir_all(folder.join("bin")).expect("made");
    let program = folder.join("bin/enroot");
    std::fs::write(&program, PLAYED.replace("FOLDER", &folder.display().to_string()))
        .expect("written");
    for (path, mode) in [(&folder, 0o777), (&folder.join("data"), 0o777), (&program, 0o755)] {
        std::fs::set_permissions(path, Permissions::from_mode(mode)).expect("a mode");
    }
    cluster.write_conf(
        "sluice.toml",
        &format!("[containers]\nruntime = '{}'\nmounts = ['/nowhere']\n", program.display()),
    );
    make_rootfs(&cluster.path("work/rootfs"));
    cluster.start();
    cluster
}

/// Every flag of Pyxis becomes a word or a setting of Enroot's.
#[test]
fn root_enroot_gets_the_command_lines_that_pyxis_would_give_it() {
    let played = Played::start();
    let cluster = &played.cluster;
    let (work, state) = (cluster.path("work"), cluster.state());
    let work = work.display();
    let uid = nix::unistd::User::from_name(USER).expect("users").expect("the user").uid;
    let line = "ulimit -f 1000; GREETING=hi srun -n2 --container-image=nvcr.io#nvidia/pytorch:24.01-py3 \
                --container-mounts=/etc/hostname:/host:ro+rprivate --container-mounts=/etc/hosts --container-env=GREETING \
                sh -c 'pwd; exit 4'";
    let said = cluster.shell_as(USER, line);
    assert_eq!((said.code, said.stdout), (4, format!("{work}\n{work}\n")), "{}", said.stderr);
    // Two tasks, one container.
    let imports = played.said("import --output ");
    assert_eq!(imports.len(), 1, "{imports:?}");
    let (file, uri) = imports[0].split_once(' ').expect("two words");
    assert_eq!(uri, "docker://nvcr.io#nvidia/pytorch:24.01-py3");
    assert_eq!(played.said("create --name "), [format!("pyxis_1.0 {file}")]);
    assert_eq!(played.said("login"), [" "], "nobody's");
    assert_eq!(played.said("settings "), vec![format!("home=y root=n writable=y {uid} 500"); 2]);
    assert_eq!(played.said("conf "), ["1", "1"], "the entrypoint is not run");
    let starts = played.said("start --conf ");
    assert_eq!(starts.len(), 2);
    for words in [
        " --mount /etc/hostname:/host:none:x-create=auto,rbind,ro ",
        " --mount /etc/hosts:/etc/hosts:none:x-create=auto,rbind ",
        &format!(" --mount {0}:{0}:none:x-create=auto,rbind ", work),
        &format!(" --mount {0}/socket:{0}/socket:none:x-create=auto,rbind ", state.display()),
        " --env GREETING pyxis_1.0 sh -c ",
        &format!(" {work} sh -c pwd; exit 4"),
    ] {
        assert!(starts[0].contains(words), "{words}: {}", starts[0]);
    }
    assert!(!starts[0].contains("/nowhere"), "what the site names and the node lacks");
    until("it is removed", || (played.said("remove --force ") == ["pyxis_1.0"]).then_some(()));
    until("none is left", || (played.containers() == 0).then_some(()));

    played.forget();
    let line = "srun --container-image=alpine --container-remap-root --no-container-mount-home --container-readonly \
                --container-entrypoint --container-entrypoint-log --container-workdir=/tmp pwd";
    assert_eq!(cluster.shell_as(USER, line).ok(), "/tmp\n");
    assert_eq!(played.said("settings "), [format!("home=n root=y writable=n {uid} unlimited")]);
    assert_eq!(played.said("conf "), ["0"], "the entrypoint is run");

    // A squashfs is not imported.
    played.forget();
    cluster.write("made.sqsh", "");
    cluster.shell_as(USER, "srun --container-image=./made.sqsh true").ok();
    assert_eq!(played.said("create --name "), [format!("pyxis_3.0 {work}/./made.sqsh")]);
    assert!(played.said("import").is_empty());
    assert_nothing_is_left(cluster);
}

#[test]
fn root_enroots_containers_are_kept_by_name_joined_saved_and_removed() {
    let played = Played::start();
    let cluster = &played.cluster;
    let script = "#!/bin/sh\n#SBATCH -n2 -o out\n\
        run() { srun --overlap -n1 \"$@\"; }\n\
        run --container-image=alpine --container-name=n:create sh -c 'echo first'\n\
        run --container-name=n sh -c 'echo again; echo > started; until [ -e go ]; do sleep 0.05; done' &\n\
        until [ -e started ]; do sleep 0.05; done\n\
        run --container-name=n:exec --container-mounts=/etc:/x sh -c 'echo joined $SLURM_STEP_ID > joined'; echo > go; wait\n\
        run --container-image=alpine --container-name=n:create true; echo create $?\n\
        run --container-name=n:exec true; echo exec $?\n\
        run --container-name=n --container-save=saved.sqsh true\n\
        srun -n1 --container-image=docker://h.example/missing true; echo missing $?\n";
    cluster.write("job.sh", script);
    let chown = format!("chown {USER} .");
    cluster.shell(&chown).ok();
    let job = cluster.submit_as(USER, "job.sh");
    assert_eq!(cluster.await_end(job), "COMPLETED|0:0", "{}", cluster.read("out"));
    let text = cluster.read("out");
    let said: Vec<&str> = text
        .lines()
        .filter(|line| !line.starts_with("srun: ") && !line.starts_with("sluice: "))
        .collect();
    assert_eq!(said, ["first", "again", "create 1", "exec 1", "missing 1"], "{text}");
    let without = "sluice: container n runs already, without the mount /etc:/x\n";
    assert!(text.contains(without), "{text}");
    assert!(text.contains("enroot import: [ERROR] no such image"), "{text}");
    let name = format!("pyxis_{job}_n");
    assert_eq!(
        played.said("import --output ").len(),
        2,
        "of the named one, and of the missing one"
    );
    assert_eq!(played.said("create --name ").len(), 1);
    let joins = played.said("exec ");
    assert_eq!(joins.len(), 1, "{joins:?}");
    assert!(joins[0].contains("--env SLURM_STEP_ID "), "{joins:?}");
    assert_eq!(cluster.read("joined"), "joined 2\n");
    assert_eq!(cluster.read("saved.sqsh"), "saved\n");
    let saves = played.said("export --output ");
    assert!(saves.len() == 1 && saves[0].ends_with(&format!(" {name}")), "{saves:?}");
    until("it is removed", || played.said("remove --force ").contains(&name).then_some(()));
    until("none is left", || (played.containers() == 0).then_some(()));
    assert_nothing_is_left(cluster);
}

#[test]
fn root_enroot_gets_the_login_of_the_import_alone_and_a_batch_script() {
    let played = Played::start();
    let cluster = &played.cluster;
    std::fs::create_dir_all(cluster.path("work/config")).expect("made");
    cluster.write("config/.credentials", "machine h.example login ann password hush\n");
    cluster.shell("chmod -R a+rX config").ok();
    let line = "ENROOT_CONFIG_PATH=$PWD/config sbatch --parsable -o out --container-image=ann@h.example#tools:1 --wrap 'echo ran; \
                find . -name .credentials; srun echo step'";
    let job = cluster.shell_as(USER, line).ok();
    assert_eq!(cluster.await_end(job.trim()), "COMPLETED|0:0", "{}", cluster.read("out"));
    let told = "sluice: image h.example/tools:1: importing\n";
    assert_eq!(cluster.read("out"), format!("{told}ran\n./config/.credentials\n{told}step\n"));
    let login = " machine h.example login ann password hush";
    assert_eq!(played.said("login"), [login, login], "the script's container, and its step's");
    let uris = played.said("import --output ");
    assert!(uris.iter().all(|uri| uri.ends_with(" docker://ann@h.example#tools:1")), "{uris:?}");
    assert!(!played.said("start").iter().any(|line| line.contains("hush")));
    // What Enroot cannot do is an OCI runtime's.
    played.forget();
    let rootfs = cluster.path("work/rootfs");
    let line = format!("srun --container={} cat /etc/release", rootfs.display());
    assert_eq!(cluster.shell_as(USER, &line).ok(), "made on the spot\n");
    assert!(played.said("").is_empty());
    assert_nothing_is_left(cluster);
}

#[test]
fn root_container_type_names_the_runtime_and_one_that_is_not_there_is_one_line() {
    if std::process::Command::new("enroot").arg("version").output().is_ok() {
        crate::harness::skip("a node without Enroot", "it has one");
        return;
    }
    let cluster = Cluster::up(
        "ClusterName=test\nContainerType=enroot\nNodeName=node1 CPUs=2 RealMemory=1000\nPartitionName=main Nodes=node1 Default=YES State=UP\n",
    );
    let said = cluster.shell("srun --container-image=alpine true");
    assert_ne!(said.code, 0);
    assert!(
        said.stderr.contains("container runtime enroot is not on this node"),
        "{}",
        said.stderr
    );
}
