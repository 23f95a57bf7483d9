//! Every file that a root process of a cluster makes, opens for writing or removes, as the kernel was asked for it: under
//! `strace`, from `up` over jobs with all their folders to `down`.

use crate::harness::{Cluster, TWO_NODES, program, skip, until};
use std::collections::{HashMap, HashSet};
use std::io::{BufRead, BufReader};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The calls that change names or files, and those that say which process is whose.
const CALLS: &str = "trace=open,openat,creat,mkdir,mkdirat,mknod,mknodat,rename,renameat,renameat2,link,linkat,symlink,\
                     symlinkat,unlink,unlinkat,rmdir,chmod,fchmodat,chown,lchown,fchownat,truncate,\
                     setresuid,setuid,clone,clone3,fork,vfork";
const USER: &str = "games";

/// One call of a root process that changes a name or a file.
#[derive(Debug)]
struct Change {
    path: PathBuf,
    /// The call does not follow a link at the end of the path: nobody gains by planting one.
    is_exclusive: bool,
    /// The file is named by one word below a folder's handle.
    has_handle: bool,
    line: String,
}

/// Calls that never follow a link at the end of their path.
const EXCLUSIVE_CALLS: [&str; 7] =
    ["unlink", "rmdir", "mkdir", "mknod", "rename", "symlink", "lchown"];
const EXCLUSIVE_FLAGS: [&str; 3] = ["O_NOFOLLOW", "O_EXCL", "AT_SYMLINK_NOFOLLOW"];
const WRITING_FLAGS: [&str; 4] = ["O_CREAT", "O_WRONLY", "O_RDWR", "O_TRUNC"];

/// The last word in quotes, and the folder before it: `AT_FDCWD</a>, "b"` is `/a` and `b`.
fn named(line: &str) -> Option<(Option<PathBuf>, &str)> {
    let (before, _) = line.rsplit_once('"')?;
    let (before, name) = before.rsplit_once('"')?;
    let argument = before.strip_suffix(">, ").and_then(|rest| rest.rsplit_once('<'));
    Some((argument.map(|(_, folder)| PathBuf::from(folder)), name))
}

fn change(line: &str) -> Option<Change> {
    let (call, _) = line.split_once('(')?;
    if call.starts_with("open") && !WRITING_FLAGS.iter().any(|flag| line.contains(flag)) {
        return None;
    }
    let (folder, name) = named(line)?;
    let has_handle = folder.is_some() && !line.contains("AT_FDCWD") && !name.contains('/');
    let is_exclusive = EXCLUSIVE_CALLS.iter().any(|one| call.starts_with(one))
        || EXCLUSIVE_FLAGS.iter().any(|flag| line.contains(flag));
    let path = folder.unwrap_or_default().join(name);
    Some(Change { path, is_exclusive, has_handle, line: line.to_owned() })
}

impl Change {
    /// A folder in which another user could put something else in the place of what the call means.
    fn open_folder(&self) -> Option<PathBuf> {
        let is_kernels = ["/proc", "/sys"].iter().any(|top| self.path.starts_with(top));
        match (self.is_exclusive, self.has_handle) {
            _ if is_kernels => None,
            (true, true) => None,
            (true, false) => open_folder(self.path.parent()?),
            (false, _) => open_folder(&self.path),
        }
    }
}

/// The calls of each process that succeeded, in their order.
type Traces = HashMap<String, Vec<String>>;

fn read_traces(log: &Path) -> Traces {
    let (folder, name) = (log.parent().unwrap(), log.file_name().unwrap().to_str().unwrap());
    let files = std::fs::read_dir(folder).unwrap().flatten();
    let of_process = |entry: std::fs::DirEntry| {
        let file = entry.file_name().into_string().ok()?;
        let pid = file.strip_prefix(name)?.strip_prefix('.')?.to_owned();
        let text = String::from_utf8_lossy(&std::fs::read(entry.path()).ok()?).into_owned();
        let worked = |line: &&str| {
            let result = line.rsplit_once(" = ").map(|(_, result)| result);
            result.is_some_and(|result| !result.starts_with(['-', '?']))
        };
        Some((pid, text.lines().filter(worked).map(str::to_owned).collect()))
    };
    files.filter_map(of_process).collect()
}

fn becomes_user(line: &str) -> bool {
    (line.starts_with("setresuid(") || line.starts_with("setuid(")) && !line.contains("(0")
}

fn is_fork(line: &str) -> bool {
    ["clone", "fork", "vfork"].iter().any(|call| line.starts_with(call))
}

/// The processes that a process of a user has started.
fn born_to_users(traces: &Traces) -> HashSet<String> {
    let mut found = HashSet::new();
    loop {
        let before = found.len();
        for (pid, lines) in traces {
            let mut is_users = found.contains(pid);
            for line in lines {
                is_users |= becomes_user(line);
                if let Some((_, child)) =
                    line.rsplit_once(" = ").filter(|_| is_users && is_fork(line))
                {
                    found.insert(child.trim().to_owned());
                }
            }
        }
        if found.len() == before {
            return found;
        }
    }
}

/// The changes of processes that are root. A process that has become a user, and all that it starts, is the user's.
fn changes_of_root(traces: &Traces) -> Vec<Change> {
    let of_users = born_to_users(traces);
    let of_root = traces.iter().filter(|(pid, _)| !of_users.contains(*pid));
    let calls = of_root.flat_map(|(_, lines)| lines.iter().take_while(|line| !becomes_user(line)));
    calls.filter_map(|line| change(line)).collect()
}

/// The first folder above the path whose names another user could change.
fn open_folder(path: &Path) -> Option<PathBuf> {
    let mut below = path.to_path_buf();
    while let Some(folder) = below.parent().map(Path::to_path_buf) {
        if let Ok(found) = std::fs::metadata(&folder) {
            let shared = found.mode() & 0o022 != 0;
            // Where the sticky bit is set, the owner of a name alone changes it.
            let kept = found.mode() & 0o1000 != 0
                && std::fs::symlink_metadata(&below).is_ok_and(|one| one.uid() == 0);
            if found.uid() != 0 || (shared && !kept) {
                return Some(folder);
            }
        }
        below = folder;
    }
    None
}

#[test]
fn root_processes_make_files_only_where_nobody_else_changes_names() {
    if Command::new("strace").arg("-V").output().is_err() {
        return skip("strace", "it is not installed");
    }
    let scratch = "TmpFS=@scratch\nJobContainerType=job_container/tmpfs\nPrologFlags=Contain\n";
    let cluster = Cluster::folder(TWO_NODES);
    let open = cluster.path("scratch");
    std::fs::create_dir(&open).unwrap();
    std::fs::set_permissions(&open, std::fs::Permissions::from_mode(0o1777)).unwrap();
    let conf = format!("{}{TWO_NODES}", scratch.replace("@scratch", open.to_str().unwrap()));
    cluster.write_conf("slurm.conf", &conf);
    let base = cluster.path("private");
    let container =
        format!("AutoBasePath=true\nBasePath={}\nDirs=/var/tmp,/dev/shm\n", base.display());
    cluster.write_conf("job_container.conf", &container);
    let (log, state, conf) = (cluster.path("trace"), cluster.state(), cluster.path("conf"));
    let mut command = Command::new("strace");
    command.args(["-ff", "-y", "-qq", "-s", "4096", "-e", CALLS, "-e", "signal=none", "-o"]);
    command.arg(&log).arg(program()).args(["up", "--detach"]);
    command.args(["--listen", "127.0.0.1:0", "--agents", "127.0.0.1:0"]);
    command.arg("--state").arg(&state).arg("--config").arg(conf).stdin(Stdio::null());
    cluster.set_up(&mut command);
    let mut traced = command.stdout(Stdio::piped()).spawn().expect("strace runs");
    let mut said = String::new();
    BufReader::new(traced.stdout.take().unwrap()).read_line(&mut said).unwrap();
    assert!(said.starts_with("sluice is up"), "{said}{}", cluster.log("server"));
    let script = "#!/bin/bash\nmkdir -p $SLURM_TMPDIR/a/b; ln -s /etc $SLURM_TMPDIR/a/link\n\
                  echo > /var/tmp/own; srun true\n";
    cluster.write("job.sh", script);
    let job = cluster.submit_as(USER, "-o out job.sh");
    assert_eq!(cluster.await_end(job), "COMPLETED|0:0", "{}", cluster.read("out"));
    cluster.sluice(&["down", "--jobs"]).ok();
    until("all of it has ended", || traced.try_wait().unwrap());
    let changes = changes_of_root(&read_traces(&log));
    let names: HashSet<_> = changes.iter().filter_map(|c| c.path.file_name()).collect();
    for wanted in ["launch.json", "agent.log", "server.pid.new"] {
        let seen = names.iter().any(|name| name.to_str() == Some(wanted));
        assert!(seen, "{wanted} is not among the {} that were seen", changes.len());
    }
    let bad: Vec<_> =
        changes.iter().filter_map(|one| Some((one.open_folder()?, &one.line))).collect();
    assert_eq!(bad, [], "root names a file in a folder whose names others change");
}
