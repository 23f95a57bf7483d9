//! The job's owner by this node's own user database, through NSS: who the user id is here, whether the account may
//! still be used, and its groups. Every call may block for as long as the site's directory does.

use model::reason::UserFault;
use nix::errno::Errno;
use nix::unistd::{Gid, Uid, User, getgrouplist};
use serde::{Deserialize, Serialize};
use std::ffi::{CStr, CString};
use wire::order::UserIds;

/// Bytes of a shadow entry: the first try, and the most.
const SHADOW_BYTES: usize = 1 << 10;
const SHADOW_BYTES_MAX: usize = 1 << 20;

/// The answer of the user database.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum OwnerAnswer {
    /// The owner as their processes are to run on this node.
    Found(UserIds),
    Refused(UserFault),
    /// The user database did not answer.
    Failed(String),
}

/// A shadow entry, as far as it decides whether an account may be used.
struct Shadow {
    password: Vec<u8>,
    /// The day since 1970 on which the account expires; negative for never.
    expire_day: i64,
}

pub(crate) fn look_up(ordered: &UserIds, today: i64) -> OwnerAnswer {
    match find(ordered, today) {
        Ok(Ok(user)) => OwnerAnswer::Found(user),
        Ok(Err(fault)) => OwnerAnswer::Refused(fault),
        Err(errno) => OwnerAnswer::Failed(errno.desc().to_owned()),
    }
}

fn find(ordered: &UserIds, today: i64) -> Result<Result<UserIds, UserFault>, Errno> {
    let found = match User::from_uid(Uid::from_raw(ordered.uid)) {
        Err(errno) if is_absent(errno) => None,
        other => other?,
    };
    let Some(user) = found else { return Ok(Err(UserFault::Unknown)) };
    // A server that does not know the user's name calls them by their id.
    if user.name != ordered.name && ordered.name != ordered.uid.to_string() {
        return Ok(Err(UserFault::Renamed));
    }
    let name = CString::new(user.name.as_str()).map_err(|_| Errno::EINVAL)?;
    // Without a shadow entry the password stands in the user's own, and the account does not expire.
    let shadow = shadow_of(&name)?
        .unwrap_or_else(|| Shadow { password: user.passwd.as_bytes().to_vec(), expire_day: -1 });
    if let Some(fault) = fault_of(&shadow, today) {
        return Ok(Err(fault));
    }
    let groups = getgrouplist(&name, user.gid)?.into_iter().map(Gid::as_raw).collect();
    Ok(Ok(with_groups(ordered, user.gid.as_raw(), groups)))
}

/// The owner with the groups that they have here. The job keeps the group that it was submitted with if it is one of
/// them.
fn with_groups(ordered: &UserIds, primary: u32, groups: Vec<u32>) -> UserIds {
    let gid = if groups.contains(&ordered.gid) { ordered.gid } else { primary };
    UserIds { gid, groups, ..ordered.clone() }
}

/// What keeps the account from being used. An expired password does not: it asks for a new one at the next login.
fn fault_of(shadow: &Shadow, today: i64) -> Option<UserFault> {
    if shadow.expire_day >= 0 && today >= shadow.expire_day {
        return Some(UserFault::Expired);
    }
    is_locked(&shadow.password).then_some(UserFault::Locked)
}

/// Whether a password is locked as `usermod -L` and `passwd -l` do it: a `!` before its hash. A lone `!`, `!!` or `*` is
/// an account that never had a password, as one with SSH keys alone.
fn is_locked(password: &[u8]) -> bool {
    let Some(rest) = password.strip_prefix(b"!") else { return false };
    !rest.is_empty() && !matches!(rest[0], b'!' | b'*')
}

/// Whether an error only means that there is no such entry: databases differ in what they return.
fn is_absent(errno: Errno) -> bool {
    matches!(errno, Errno::ENOENT | Errno::ESRCH)
}

/// The shadow entry of a user; `None` if there is none, or if this process may not read it.
fn shadow_of(name: &CStr) -> Result<Option<Shadow>, Errno> {
    let mut size = SHADOW_BYTES;
    loop {
        let mut buffer: Vec<libc::c_char> = vec![0; size];
        // SAFETY: all fields are integers or pointers, for which zero is a valid value.
        let mut entry: libc::spwd = unsafe { std::mem::zeroed() };
        let mut found: *mut libc::spwd = std::ptr::null_mut();
        // SAFETY: the pointers outlive the call, and the buffer has the size that is said.
        let code = unsafe {
            libc::getspnam_r(name.as_ptr(), &mut entry, buffer.as_mut_ptr(), size, &mut found)
        };
        match Errno::from_raw(code) {
            Errno::ERANGE if size < SHADOW_BYTES_MAX => size *= 4,
            errno if code != 0 && !is_absent(errno) && errno != Errno::EACCES => return Err(errno),
            _ if code != 0 || found.is_null() || entry.sp_pwdp.is_null() => return Ok(None),
            _ => {
                // SAFETY: a found entry's password is a string inside the buffer.
                let password = unsafe { CStr::from_ptr(entry.sp_pwdp) }.to_bytes().to_vec();
                return Ok(Some(Shadow { password, expire_day: entry.sp_expire }));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shadow(password: &str, expire_day: i64) -> Shadow {
        Shadow { password: password.as_bytes().to_vec(), expire_day }
    }

    #[test]
    fn expired_and_locked_accounts_are_told_from_those_without_a_password() {
        let (today, hash) = (20_000, "$y$j9T$abc$def");
        let locked = format!("!{hash}");
        let table = [
            (hash, -1, None),
            (hash, today + 1, None),
            (hash, today, Some(UserFault::Expired)),
            (hash, 1, Some(UserFault::Expired)),
            (hash, 0, Some(UserFault::Expired)),
            (&locked, -1, Some(UserFault::Locked)),
            (&locked, 1, Some(UserFault::Expired)),
            ("!ab8RnaC4dwhYs", -1, Some(UserFault::Locked)),
            ("!", -1, None),
            ("!!", -1, None),
            ("*", -1, None),
            ("!*", -1, None),
            ("", -1, None),
        ];
        for (password, expire_day, fault) in table {
            let entry = shadow(password, expire_day);
            assert_eq!(fault_of(&entry, today), fault, "{password:?} until {expire_day}");
        }
    }

    fn ordered(name: &str, uid: u32) -> UserIds {
        UserIds { name: name.into(), uid, gid: 4242, groups: vec![4242] }
    }

    #[test]
    fn user_is_known_by_id_and_name_and_gets_the_groups_of_this_node() {
        let root = UserIds { name: "root".into(), uid: 0, gid: 0, groups: vec![] };
        assert_eq!(look_up(&ordered("admin", 0), 1), OwnerAnswer::Refused(UserFault::Renamed));
        let nobody_has = ordered("ann", 4_000_000_000);
        assert_eq!(look_up(&nobody_has, 1), OwnerAnswer::Refused(UserFault::Unknown));
        for name in ["root", "0"] {
            let OwnerAnswer::Found(user) = look_up(&ordered(name, 0), 1) else { panic!("{name}") };
            assert_eq!((user.gid, user.groups.contains(&4242)), (0, false), "{name}");
            assert!(user.groups.contains(&root.gid));
        }
    }

    #[test]
    fn job_keeps_the_group_of_its_submit_only_if_the_owner_still_has_it() {
        let user = ordered("ann", 1000);
        assert_eq!(with_groups(&user, 100, vec![100, 4242]).gid, 4242);
        assert_eq!(with_groups(&user, 100, vec![100, 7]).gid, 100);
    }
}
