//! The user that the server becomes when it gives up root.

use crate::command::verb::VerbError;
use nix::unistd::{Gid, Group, Uid, User};
use ring::digest::{SHA256, digest};
use std::ops::RangeInclusive;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// The account that the server runs as, if there is one.
pub const SERVER_ACCOUNT: &str = "sluice";

/// Without the account, the server takes a user id from the first range that has a free one. Never `nobody`: other programs of
/// that user could read the keys that sign orders. Accounts end at 60,000, systemd's users of homes, machines and services lie from
/// 60,001 to 60,705 and from 61,184 to 65,519, and subordinate ids begin at 100,000. The second range is for a user
/// namespace of 65,536 ids.
const SERVER_IDS: [RangeInclusive<u32>; 2] = [65_536..=99_999, 60_706..=61_183];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ServerUser {
    pub uid: Uid,
    pub gid: Gid,
}

impl ServerUser {
    fn of_id(id: u32) -> Self {
        Self { uid: Uid::from_raw(id), gid: Gid::from_raw(id) }
    }
}

/// The user to run as instead of root; `None` if this process is not root. Each state folder has its own, so that two
/// clusters on a machine do not read each other's keys; a folder keeps the one that `server_dir`, its server's part, has.
pub fn server_user(state: &Path, server_dir: &Path) -> Result<Option<ServerUser>, VerbError> {
    if !nix::unistd::geteuid().is_root() {
        return Ok(None);
    }
    let account = User::from_name(SERVER_ACCOUNT).ok().flatten();
    if let Some(account) = account {
        return Ok(Some(ServerUser { uid: account.uid, gid: account.gid }));
    }
    let in_range = |id: &u32| SERVER_IDS.iter().any(|range| range.contains(id));
    let owner = std::fs::metadata(server_dir).ok().map(|dir| dir.uid()).filter(in_range);
    let kept = owner.filter(|id| is_nobodys(*id));
    let found = kept.or_else(|| {
        let mut ids = candidates(state);
        let taken = processes_users();
        ids.find(|id| is_mapped(*id) && is_nobodys(*id) && !taken.contains(id))
    });
    let nobody_left = || {
        let (first, last) = SERVER_IDS[0].clone().into_inner();
        VerbError::Message(format!(
            "no user to give up root for: make an account {SERVER_ACCOUNT}, \
             or leave a user id from {first} to {last} free"
        ))
    };
    found.map(ServerUser::of_id).ok_or_else(nobody_left).map(Some)
}

/// All ids, beginning in each range at one that follows from the folder's path.
fn candidates(state: &Path) -> impl Iterator<Item = u32> {
    let hash = digest(&SHA256, state.as_os_str().as_bytes());
    let start = hash.as_ref().iter().take(4).fold(0, |sum: u32, byte| sum << 8 | u32::from(*byte));
    SERVER_IDS.into_iter().flat_map(move |range| {
        let (first, last) = range.into_inner();
        let count = last - first + 1;
        (0..count).map(move |n| first + (start % count + n) % count)
    })
}

/// Whether no account and no group has the id.
fn is_nobodys(id: u32) -> bool {
    matches!(User::from_uid(Uid::from_raw(id)), Ok(None))
        && matches!(Group::from_gid(Gid::from_raw(id)), Ok(None))
}

/// Whether the id exists in this process's user namespace.
fn is_mapped(id: u32) -> bool {
    ["uid_map", "gid_map"].iter().all(|map| {
        let text = std::fs::read_to_string(format!("/proc/self/{map}")).unwrap_or_default();
        text.lines().any(|line| {
            let fields: Vec<u64> = line.split_whitespace().flat_map(str::parse).collect();
            matches!(fields[..], [first, _, count] if (first..first + count).contains(&id.into()))
        })
    })
}

/// The users of all processes: an id without an account may still be in use, by a container or by another cluster.
fn processes_users() -> Vec<u32> {
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let status = entries.filter_map(|e| std::fs::read_to_string(e.path().join("status")).ok());
    // The owner of the folder would be root for a process that has given up root.
    let real = |text: String| {
        let ids = text.lines().find_map(|line| line.strip_prefix("Uid:"))?;
        ids.split_whitespace().next()?.parse().ok()
    };
    status.filter_map(real).collect()
}

/// Gives up root for good.
pub fn give_up_root(user: ServerUser) -> Result<(), VerbError> {
    let failed = |e: nix::Error| VerbError::Message(format!("root cannot be given up: {e}"));
    nix::unistd::setgroups(&[user.gid]).map_err(failed)?;
    nix::unistd::setresgid(user.gid, user.gid, user.gid).map_err(failed)?;
    nix::unistd::setresuid(user.uid, user.uid, user.uid).map_err(failed)?;
    super::core_dump::forbid()?;
    match nix::unistd::setuid(Uid::from_raw(0)) {
        Ok(()) => Err(VerbError::Message("root could be taken back after it was given up".into())),
        Err(_) => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_folder_begins_at_its_own_id_and_may_take_any() {
        let first = |path: &str| candidates(Path::new(path)).next().expect("an id");
        assert_eq!(first("/var/lib/sluice"), first("/var/lib/sluice"));
        assert_ne!(first("/var/lib/sluice"), first("/srv/other"));
        let mut all: Vec<u32> = candidates(Path::new("/srv/other")).collect();
        all.sort_unstable();
        let expected: Vec<u32> = (60_706..=61_183).chain(65_536..=99_999).collect();
        assert!(all == expected, "{} ids", all.len());
    }

    #[test]
    fn ids_of_services_homes_and_accounts_are_never_taken() {
        let ranges = [0..=60_705, 61_184..=65_535, 100_000..=u32::MAX];
        let taken = |id: u32| ranges.iter().any(|range| range.contains(&id));
        assert!(!candidates(Path::new("/srv/other")).any(taken));
        assert!(is_mapped(nix::unistd::getuid().as_raw()));
        assert!(processes_users().contains(&nix::unistd::getuid().as_raw()));
    }
}
