//! The configuration that an OCI runtime gets for one process of a container: ours alone, whatever a bundle of a user
//! says.

use super::holder::{Holder, IdMap, MappedIds};
use crate::cgroup::{DeviceKind, DeviceRule};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::sys::stat::FileStat;
use serde_json::{Value, json};

/// What root of a user namespace may do inside: as container engines give it by default, but for raw sockets.
const CAPABILITIES: [&str; 13] = [
    "CAP_AUDIT_WRITE",
    "CAP_CHOWN",
    "CAP_DAC_OVERRIDE",
    "CAP_FOWNER",
    "CAP_FSETID",
    "CAP_KILL",
    "CAP_MKNOD",
    "CAP_NET_BIND_SERVICE",
    "CAP_SETFCAP",
    "CAP_SETGID",
    "CAP_SETPCAP",
    "CAP_SETUID",
    "CAP_SYS_CHROOT",
];
/// What root of a privileged container may do beside: all that there is. Each holds over the container's own namespaces
/// alone, which are its user namespace's.
const PRIVILEGED: [&str; 28] = [
    "CAP_AUDIT_CONTROL",
    "CAP_AUDIT_READ",
    "CAP_BLOCK_SUSPEND",
    "CAP_BPF",
    "CAP_CHECKPOINT_RESTORE",
    "CAP_DAC_READ_SEARCH",
    "CAP_IPC_LOCK",
    "CAP_IPC_OWNER",
    "CAP_LEASE",
    "CAP_LINUX_IMMUTABLE",
    "CAP_MAC_ADMIN",
    "CAP_MAC_OVERRIDE",
    "CAP_NET_ADMIN",
    "CAP_NET_BROADCAST",
    "CAP_NET_RAW",
    "CAP_PERFMON",
    "CAP_SYSLOG",
    "CAP_SYS_ADMIN",
    "CAP_SYS_BOOT",
    "CAP_SYS_MODULE",
    "CAP_SYS_NICE",
    "CAP_SYS_PACCT",
    "CAP_SYS_PTRACE",
    "CAP_SYS_RAWIO",
    "CAP_SYS_RESOURCE",
    "CAP_SYS_TIME",
    "CAP_SYS_TTY_CONFIG",
    "CAP_WAKE_ALARM",
];
/// Parts of `/proc` and `/sys` that show or change the machine.
const MASKED: [&str; 9] = [
    "/proc/acpi",
    "/proc/kcore",
    "/proc/keys",
    "/proc/latency_stats",
    "/proc/sched_debug",
    "/proc/scsi",
    "/proc/timer_list",
    "/proc/timer_stats",
    "/sys/firmware",
];
const READ_ONLY: [&str; 5] =
    ["/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger"];

pub(super) struct RuntimeConfig<'a> {
    /// The root file system, in the holder's mount namespace.
    pub root: &'a str,
    pub read_only: bool,
    /// The folder that becomes `/dev/shm`.
    pub shared_memory: &'a str,
    pub holder: &'a Holder,
    /// There if the container has a user namespace.
    pub map: Option<&'a IdMap>,
    /// Counts only with a user namespace.
    pub privileged: bool,
    pub user: ProcessUser,
    pub umask: u32,
    pub arguments: &'a [String],
    pub environment: &'a [String],
    pub terminal: bool,
    pub rlimits: &'a [(String, u64, u64)],
    /// Below the process's own group, in every tree.
    pub group: &'a str,
    /// Device files of the node that the job may open, beside those that every container has.
    pub devices: &'a [DeviceFile],
}

/// Whom the process is, as numbers inside the container.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ProcessUser {
    pub uid: u32,
    pub gid: u32,
    pub groups: Vec<u32>,
}

/// A device file with the rule that opens it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct DeviceFile {
    /// On the node.
    pub source: String,
    /// In the container.
    pub path: String,
    pub rule: DeviceRule,
    pub mode: u32,
    pub uid: u32,
    pub gid: u32,
}

impl DeviceFile {
    pub fn of(source: String, path: String, rule: DeviceRule, status: &FileStat) -> DeviceFile {
        let (mode, uid, gid) = (status.st_mode, status.st_uid, status.st_gid);
        DeviceFile { source, path, rule, mode, uid, gid }
    }
}

impl RuntimeConfig<'_> {
    pub fn to_json(&self) -> Value {
        let is_privileged = self.privileged && self.map.is_some();
        let capabilities = match self.map {
            Some(_) => {
                let more: &[&str] = if is_privileged { &PRIVILEGED } else { &[] };
                let all = json!(CAPABILITIES.iter().chain(more).collect::<Vec<_>>());
                json!({"bounding": all, "effective": all, "permitted": all})
            }
            None => json!({}),
        };
        // The kernel lets a user namespace mount a new /proc only where it sees the whole of one.
        let (masked, read_only): (&[&str], &[&str]) =
            if is_privileged { (&[], &[]) } else { (&MASKED, &READ_ONLY) };
        let limit = |(name, soft, hard): &(String, u64, u64)| json!({"type": name, "soft": soft, "hard": hard});
        let mut config = json!({
            "ociVersion": "1.0.2",
            "process": {
                "terminal": self.terminal,
                "user": {
                    "uid": self.user.uid,
                    "gid": self.user.gid,
                    "additionalGids": self.user.groups,
                    "umask": self.umask,
                },
                "args": self.arguments,
                "env": self.environment,
                // As root: the working directory is entered inside.
                "cwd": "/",
                "capabilities": capabilities,
                // Files of the image are the user's own making: a set-user-ID program among them must not be root's.
                "noNewPrivileges": self.map.is_none(),
                "rlimits": self.rlimits.iter().map(limit).collect::<Vec<_>>(),
            },
            "root": {"path": self.root, "readonly": self.read_only},
            "mounts": self.mounts(),
            "linux": {
                "cgroupsPath": self.group,
                "namespaces": self.namespaces(),
                "devices": self.devices.iter().map(device).collect::<Vec<_>>(),
                "resources": {"devices": self.device_rules()},
                "maskedPaths": masked,
                "readonlyPaths": read_only,
            },
        });
        if let Some(map) = self.map {
            let lines = |ids: [MappedIds; 2]| {
                let line = |ids: MappedIds| json!({"containerID": ids.inside, "hostID": ids.outside, "size": ids.count});
                json!(ids.map(line))
            };
            config["linux"]["uidMappings"] = lines(map.uids());
            config["linux"]["gidMappings"] = lines(map.gids());
        }
        config
    }

    fn namespaces(&self) -> Value {
        let of_holder =
            |kind: &str, short: &str| json!({"type": kind, "path": self.holder.namespace(short)});
        let mut all =
            vec![json!({"type": "mount"}), of_holder("pid", "pid"), of_holder("ipc", "ipc")];
        if self.map.is_some() {
            all.push(of_holder("user", "user"));
        }
        Value::Array(all)
    }

    fn mounts(&self) -> Value {
        json!([
            {"destination": "/proc", "type": "proc", "source": "proc",
             "options": ["nosuid", "noexec", "nodev"]},
            {"destination": "/dev", "type": "tmpfs", "source": "tmpfs",
             "options": ["nosuid", "strictatime", "mode=755", "size=65536k"]},
            {"destination": "/dev/pts", "type": "devpts", "source": "devpts",
             "options": ["nosuid", "noexec", "newinstance", "ptmxmode=0666", "mode=0620"]},
            {"destination": "/dev/shm", "type": "bind", "source": self.shared_memory,
             "options": ["rbind", "nosuid", "nodev"]},
            // MPI, NCCL and the like read the machine's topology there.
            {"destination": "/sys", "type": "bind", "source": "/sys",
             "options": ["rbind", "ro", "nosuid", "noexec", "nodev"]},
        ])
    }

    /// All closed but what the job may open. The group above closes the rest as well.
    fn device_rules(&self) -> Value {
        let mut rules = vec![json!({"allow": false, "access": "rwm"})];
        rules.extend(self.devices.iter().map(|file| {
            let mut rule = json!({"allow": true, "type": kind(&file.rule), "access": "rwm"});
            rule["major"] = json!(file.rule.major);
            if let Some(minor) = file.rule.minor {
                rule["minor"] = json!(minor);
            }
            rule
        }));
        Value::Array(rules)
    }
}

fn kind(rule: &DeviceRule) -> &'static str {
    match rule.kind {
        DeviceKind::Block => "b",
        DeviceKind::Char => "c",
    }
}

fn device(file: &DeviceFile) -> Value {
    json!({
        "path": file.path,
        "type": kind(&file.rule),
        "major": file.rule.major,
        "minor": file.rule.minor.unwrap_or(0),
        "fileMode": file.mode & 0o777,
        "uid": file.uid,
        "gid": file.gid,
    })
}

const LIMITS: [(Resource, &str); 9] = [
    (Resource::RLIMIT_AS, "AS"),
    (Resource::RLIMIT_CORE, "CORE"),
    (Resource::RLIMIT_CPU, "CPU"),
    (Resource::RLIMIT_DATA, "DATA"),
    (Resource::RLIMIT_FSIZE, "FSIZE"),
    (Resource::RLIMIT_MEMLOCK, "MEMLOCK"),
    (Resource::RLIMIT_NOFILE, "NOFILE"),
    (Resource::RLIMIT_NPROC, "NPROC"),
    (Resource::RLIMIT_STACK, "STACK"),
];

/// The limits of this process, as the runtime's own would replace them.
pub(super) fn own_rlimits() -> Vec<(String, u64, u64)> {
    let limit = |(resource, name): (Resource, &str)| {
        let (soft, hard) = getrlimit(resource).ok()?;
        Some((format!("RLIMIT_{name}"), soft, hard))
    };
    LIMITS.into_iter().filter_map(limit).collect()
}

/// Sets a limit of this process by its OCI name. A hard limit is not raised; what is not known is left out.
pub(super) fn set_rlimit(name: &str, soft: u64, hard: u64) {
    let known = LIMITS.iter().find(|(_, one)| name.strip_prefix("RLIMIT_") == Some(one));
    let Some((resource, _)) = known else { return };
    let most = getrlimit(*resource).map_or(hard, |(_, most)| most.min(hard));
    let _ = setrlimit(*resource, soft.min(most), most);
}

/// Raises the limits that a user may have lowered: what root does for a container must not fail half-way by them.
pub(super) fn raise_own_limits() {
    for (resource, _) in LIMITS {
        if let Ok((_, hard)) = getrlimit(resource) {
            let _ = setrlimit(resource, hard, hard);
        }
    }
}
