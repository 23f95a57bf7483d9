//! Links and folders that a user plants where a root process will make its files.

use crate::harness::{Cluster, CommandOutput, TWO_NODES};
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, lchown, symlink};
use std::path::{Path, PathBuf};

/// The attacker's user id: `games` of every Debian system.
const ATTACKER: u32 = 5;
/// How many process ids ahead the attacker guesses.
const GUESSES: u32 = 1_500;

/// A folder that everybody may write to, as `/tmp` is, and a file of root's.
struct OpenFolder {
    cluster: Cluster,
    path: PathBuf,
    target: PathBuf,
}

impl OpenFolder {
    fn of(cluster: Cluster) -> Self {
        let (path, secret) = (cluster.path("open"), cluster.path("secret"));
        for (dir, mode) in [(&path, 0o1777), (&secret, 0o700)] {
            std::fs::create_dir(dir).unwrap();
            std::fs::set_permissions(dir, std::fs::Permissions::from_mode(mode)).unwrap();
        }
        let target = secret.join("target");
        std::fs::write(&target, "root's own").unwrap();
        Self { cluster, path, target }
    }

    fn plant_folder(&self, name: &str) -> PathBuf {
        let dir = self.path.join(name);
        std::fs::create_dir(&dir).unwrap();
        chown(&dir, Some(ATTACKER), Some(ATTACKER)).unwrap();
        dir
    }

    fn plant_link(&self, link: &Path, target: &Path) {
        symlink(target, link).unwrap();
        lchown(link, Some(ATTACKER), Some(ATTACKER)).unwrap();
    }

    fn assert_untouched(&self, what: &str) {
        assert_eq!(std::fs::read_to_string(&self.target).unwrap(), "root's own", "{what}");
        let target = std::fs::metadata(&self.target).unwrap();
        assert_eq!((target.uid(), target.mode() & 0o777), (0, 0o644), "{what}");
        let beside = std::fs::read_dir(self.target.parent().unwrap()).unwrap().count();
        assert_eq!(beside, 1, "{what} made a file beside it");
    }

    fn run(&self, args: &[&str]) -> CommandOutput {
        let mut command = self.cluster.command(args);
        command.env("TMPDIR", &self.path).env_remove("SLUICE_STATE");
        command.stdin(std::process::Stdio::null()).output().expect("the program runs").into()
    }
}

#[test]
fn root_demo_does_not_follow_the_links_of_a_user_who_guesses_its_folder() {
    let open = OpenFolder::of(Cluster::folder(TWO_NODES));
    let next = std::process::id() + 1;
    for pid in next..next + GUESSES {
        let conf = open.plant_folder(&format!("sluice-demo-{pid}")).join("conf");
        std::fs::create_dir(&conf).unwrap();
        open.plant_link(&conf.join("slurm.conf"), &open.target);
    }
    let out = open.cluster.path("evidence").display().to_string();
    let said = open.run(&["demo", "--out", &out]).ok();
    open.assert_untouched("the demo");
    assert!(said.contains("\nevidence: "), "{said}");
    assert!(open.cluster.path("evidence").join("sacct.txt").exists(), "{said}");
    let names = std::fs::read_dir(&open.path).unwrap().flatten().map(|entry| entry.file_name());
    let left = names.filter(|name| name.to_string_lossy().starts_with("sluice-demo-")).count();
    assert_eq!(left, GUESSES as usize, "the demo's own folder is gone, and no other");
}

/// The names under which root's processes keep files in a state folder, or make them beside their own.
const NAMES: &[&str] = &[
    "admin.token",
    "admin.token.new",
    "agent",
    "agent.lock",
    "agent.log",
    "agent.log.1",
    "agent.pid",
    "agent.pid.new",
    "folder.json",
    "folder.json.new",
    "keeper.lock",
    "keeper.pid",
    "keeper.pid.new",
    "nodes",
    "ports.json",
    "ports.json.new",
    "server",
    "server-keeper.pid",
    "server-keeper.pid.new",
    "server.log",
    "server.log.1",
    "server.pid",
    "server.pid.new",
    "sluice.sock",
    "socket",
    "start.json",
    "start.json.new",
    "qos.txt",
    "sbatch",
    "slurm.conf",
    "utilisation.svg",
    "utilisation.svg.new",
    "queue.svg",
];

/// Every command that makes files in a folder that it is told; `$DIR` is that folder, `$TRACE` a trace of one job.
const COMMANDS: &[&[&str]] = &[
    &["up", "--detach", "--state", "$DIR", "--listen", "127.0.0.1:0", "--agents", "127.0.0.1:0"],
    &["server", "--state", "$DIR", "--listen", "127.0.0.1:0", "--agents", "127.0.0.1:0"],
    &["agent", "--state", "$DIR"],
    &["agent", "--keep", "--state", "$DIR"],
    &["down", "--state", "$DIR"],
    &["demo", "--out", "$DIR"],
    &["links", "$DIR"],
    &["sim", "$TRACE", "--charts", "$DIR"],
];

#[test]
fn root_no_command_makes_its_files_in_a_folder_that_another_user_controls() {
    let open = OpenFolder::of(Cluster::folder(TWO_NODES));
    let theirs = open.plant_folder("theirs");
    for name in NAMES {
        open.plant_link(&theirs.join(name), &open.target);
    }
    let link = open.path.join("link");
    open.plant_link(&link, open.target.parent().unwrap());
    let shared = open.path.join("shared");
    std::fs::create_dir(&shared).unwrap();
    std::fs::set_permissions(&shared, std::fs::Permissions::from_mode(0o777)).unwrap();
    open.plant_link(&shared.join("server.log"), &open.target);
    let job = "; MaxProcs: 4\n1 0 0 10 1 -1 -1 1 10 -1 1 1 1 1 1 1 -1 -1\n";
    let trace = open.cluster.write("one.swf", job);
    let trace = trace.to_str().unwrap();
    let places =
        [&theirs, &theirs.join("below"), &link, &shared, &shared.join("below"), &open.path];
    for command in COMMANDS {
        // To stop what was never there makes nothing.
        let places = places.iter().filter(|place| command[0] != "down" || place.exists());
        for place in places {
            let place = place.to_str().unwrap();
            let filled = |word: &&'static str| match *word {
                "$DIR" => place,
                "$TRACE" => trace,
                word => word,
            };
            let args: Vec<&str> = command.iter().map(filled).collect();
            let said = open.run(&args);
            let line = args.join(" ");
            assert_eq!(said.code, 1, "{line}: {said:?}");
            let wanted =
                "; expected a folder that only root and the user of this process can change\n";
            assert!(
                said.stderr.ends_with(wanted) && said.stderr.lines().count() == 1,
                "{line}: {said:?}"
            );
            open.assert_untouched(&line);
        }
    }
    assert_eq!(std::fs::read_dir(&shared).unwrap().count(), 1);
}

#[test]
fn root_script_of_a_job_is_not_written_through_a_planted_link() {
    let open = OpenFolder::of(Cluster::up(TWO_NODES));
    let id = open.cluster.submit(&["-H", "--wrap", "true"]);
    let link = open.cluster.path("work").join(format!("slurm-{id}.sh"));
    open.plant_link(&link, &open.target);
    let said = open.cluster.shell(&format!("scontrol write batch_script {id}"));
    assert!(said.code == 1 && said.stderr.starts_with("failed to write file `slurm-"), "{said:?}");
    open.assert_untouched("scontrol");
    std::fs::remove_file(&link).unwrap();
    open.cluster.shell(&format!("scontrol write batch_script {id}")).ok();
    assert!(open.cluster.read(&format!("slurm-{id}.sh")).ends_with("true\n"));
}

#[test]
fn root_link_in_the_servers_own_folder_gives_nothing_away_at_the_next_start() {
    let open = OpenFolder::of(Cluster::up(TWO_NODES));
    open.cluster.sluice(&["down"]).ok();
    let server = open.cluster.state().join("server");
    symlink(&open.target, server.join("link")).unwrap();
    symlink(open.target.parent().unwrap(), server.join("folder")).unwrap();
    std::fs::hard_link(&open.target, server.join("second")).unwrap();
    open.cluster.start();
    open.assert_untouched("the start");
}

#[test]
fn root_check_before_a_start_follows_no_link_in_the_servers_own_folder() {
    let open = OpenFolder::of(Cluster::up(TWO_NODES));
    open.cluster.sluice(&["down"]).ok();
    let server = open.cluster.state().join("server");
    std::fs::rename(server.join("journal"), server.join("aside")).unwrap();
    symlink(open.target.parent().unwrap(), server.join("journal")).unwrap();
    // With a node less than at the last start the state is read before anything is started.
    open.cluster.write_conf("slurm.conf", &TWO_NODES.replace("node[1-2]", "node1"));
    let said = open.cluster.try_start();
    assert_eq!(said.code, 1, "{said:?}");
    open.assert_untouched("the check");
}
