//! The users of a container: of its image, by name or number, and the user namespace by which owners are mapped.

use super::files::read_in_root;
use super::holder::{IDS, IdMap, MappedIds};
use crate::supervisor::mount_calls::Rights;
use nix::errno::Errno;
use nix::fcntl::{OFlag, open};
use nix::sys::prctl;
use nix::sys::signal::{Signal, kill};
use nix::sys::stat::Mode;
use nix::sys::wait::waitpid;
use nix::unistd::{ForkResult, Pid, fork, pause, pipe2, read, write};
use std::fs;
use std::os::fd::OwnedFd;

/// The stack of a child that only waits, in parts that are aligned as a stack has to be.
const STACK_PARTS: usize = 1024;

/// A user namespace with this map, held by descriptor.
pub(super) fn namespace(map: &IdMap) -> nix::Result<OwnedFd> {
    // It is dropped after the child that uses it has ended.
    let mut stack = vec![0_u128; STACK_PARTS];
    // In this process's own memory: a copy of it would take longer than the namespace.
    let flags = libc::CLONE_VM | libc::CLONE_NEWUSER | libc::SIGCHLD;
    // SAFETY: the pointer is to the end of the stack, which grows downwards. The child has that stack alone, and makes system
    // calls that touch no memory.
    let child = unsafe {
        let top = stack.as_mut_ptr().add(STACK_PARTS);
        libc::clone(wait_for_kill, top.cast(), flags, std::ptr::null_mut())
    };
    let held = NamespaceChild(Pid::from_raw(Errno::result(child)?));
    map.write_for(held.0.as_raw())?;
    held.open("user")
}

extern "C" fn wait_for_kill(_: *mut libc::c_void) -> libc::c_int {
    let _ = prctl::set_pdeathsig(Signal::SIGKILL);
    loop {
        pause();
    }
}

/// A child that holds the namespaces it has entered, and is killed with this value.
pub(super) struct NamespaceChild(Pid);

impl NamespaceChild {
    /// One of its namespaces: `user`, `net`.
    pub fn open(&self, kind: &str) -> nix::Result<OwnedFd> {
        let path = format!("/proc/{}/ns/{kind}", self.0);
        open(path.as_str(), OFlag::O_RDONLY | OFlag::O_CLOEXEC, Mode::empty())
    }
}

impl Drop for NamespaceChild {
    fn drop(&mut self) {
        let _ = kill(self.0, Signal::SIGKILL);
        let _ = waitpid(self.0, None);
    }
}

/// Starts a child that enters namespaces by `enter`.
pub(super) fn held_in_child(
    enter: impl FnOnce() -> nix::Result<()>,
) -> nix::Result<NamespaceChild> {
    let (said, say) = pipe2(OFlag::O_CLOEXEC)?;
    // SAFETY: this process has one thread, and the child never returns from here.
    match unsafe { fork() }? {
        ForkResult::Child => {
            let _ = prctl::set_pdeathsig(Signal::SIGKILL);
            let errno = enter().err().map_or(0, |errno| errno as i32);
            let _ = write(&say, &errno.to_ne_bytes());
            loop {
                pause();
            }
        }
        ForkResult::Parent { child } => {
            let held = NamespaceChild(child);
            drop(say);
            let mut errno = [0; 4];
            match read(&said, &mut errno) {
                Ok(4) if errno == [0; 4] => Ok(held),
                Ok(4) => Err(Errno::from_raw(i32::from_ne_bytes(errno))),
                _ => Err(Errno::ECHILD),
            }
        }
    }
}

/// The numbers of `NAME`, `UID`, `NAME:GROUP` or `UID:GID` in the container, whose files are read with `rights`; nothing is root.
pub(super) fn resolve(root: &OwnedFd, text: &str, rights: Rights) -> Result<(u32, u32), String> {
    let (user, group) =
        text.split_once(':').map_or((text, None), |(user, group)| (user, Some(group)));
    let field = |file: &str, wanted: &str, by: usize| -> Option<Vec<String>> {
        let lines = read_in_root(root, file, rights)?;
        let fields =
            lines.lines().map(|line| line.split(':').map(str::to_owned).collect::<Vec<_>>());
        fields.into_iter().find(|fields| fields.get(by).is_some_and(|field| field == wanted))
    };
    let (uid, usual_gid) = match user.parse::<u32>() {
        _ if user.is_empty() => (0, 0),
        Ok(uid) => {
            let gid = field("/etc/passwd", user, 2).and_then(|fields| fields.get(3)?.parse().ok());
            (uid, gid.unwrap_or(0))
        }
        Err(_) => {
            let line = field("/etc/passwd", user, 0);
            let number = |at: usize| line.as_ref().and_then(|fields| fields.get(at)?.parse().ok());
            let missing = || format!("user {user} does not exist in the image");
            (number(2).ok_or_else(missing)?, number(3).unwrap_or(0))
        }
    };
    let gid = match group {
        None | Some("") => usual_gid,
        Some(group) => match group.parse() {
            Ok(gid) => gid,
            Err(_) => field("/etc/group", group, 0)
                .and_then(|fields| fields.get(2)?.parse().ok())
                .ok_or_else(|| format!("group {group} does not exist in the image"))?,
        },
    };
    if uid >= IDS || gid >= IDS {
        return Err(format!("user {text} of the image: expected numbers below {IDS}"));
    }
    Ok((uid, gid))
}

impl IdMap {
    pub(super) fn write_for(&self, pid: i32) -> nix::Result<()> {
        for (file, ids) in [("uid_map", self.uids()), ("gid_map", self.gids())] {
            let line = |ids: &MappedIds| format!("{} {} {}\n", ids.inside, ids.outside, ids.count);
            let text: String = ids.iter().map(line).collect();
            fs::write(format!("/proc/{pid}/{file}"), text)
                .map_err(|e| Errno::from_raw(e.raw_os_error().unwrap_or(libc::EIO)))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;
    use wire::order::UserIds;

    #[test]
    fn users_of_an_image_are_found_by_name_and_number() {
        let root = tempfile::tempdir().expect("scratch folder");
        fs::create_dir(root.path().join("etc")).expect("made");
        let write =
            |file: &str, text: &str| fs::write(root.path().join(file), text).expect("written");
        write("etc/passwd", "root:x:0:0::/root:/bin/sh\napp:x:100:101::/app:/bin/sh\n");
        write("etc/group", "root:x:0:\nweb:x:33:app\n");
        let fd =
            open(root.path(), OFlag::O_PATH | OFlag::O_CLOEXEC, Mode::empty()).expect("opened");
        let good = [
            ("", (0, 0)),
            ("app", (100, 101)),
            ("100", (100, 101)),
            ("app:web", (100, 33)),
            ("1234:5", (1234, 5)),
            ("1234", (1234, 0)),
        ];
        for (text, expected) in good {
            assert_eq!(resolve(&fd, text, Rights::Root), Ok(expected), "{text}");
        }
        let missing = Err("user kim does not exist in the image".into());
        assert_eq!(resolve(&fd, "kim", Rights::Root), missing);
        assert!(resolve(&fd, "app:no", Rights::Root).is_err());
        // The container's user namespace has no others.
        for text in ["65536", "0:65536", "4294967295"] {
            let refused = resolve(&fd, text, Rights::Root).expect_err(text);
            let expected = format!("user {text} of the image: expected numbers below 65536");
            assert_eq!(refused, expected);
        }
    }

    /// A folder as an image may name a file of the node as its list of users.
    #[test]
    fn root_users_are_read_from_no_file_that_the_jobs_user_could_not_read() {
        if !nix::unistd::Uid::effective().is_root() {
            return;
        }
        let root = tempfile::tempdir().expect("scratch folder");
        let mode = |path: &str, mode: u32| {
            let mode = fs::Permissions::from_mode(mode);
            fs::set_permissions(root.path().join(path), mode).expect("a mode");
        };
        fs::create_dir(root.path().join("etc")).expect("made");
        let passwd = root.path().join("etc/passwd");
        fs::write(&passwd, "app:x:100:101::/app:/bin/sh\n").expect("written");
        for folder in ["", "etc"] {
            mode(folder, 0o755);
        }
        mode("etc/passwd", 0o644);
        let fd =
            open(root.path(), OFlag::O_PATH | OFlag::O_CLOEXEC, Mode::empty()).expect("opened");
        let kim = UserIds { name: "kim".into(), uid: 12_345, gid: 12_345, groups: Vec::new() };
        let rights = Rights::before_mounts(&kim, true);
        assert_eq!(resolve(&fd, "app", rights), Ok((100, 101)));
        mode("etc/passwd", 0o600);
        let missing = Err("user app does not exist in the image".into());
        assert_eq!(resolve(&fd, "app", rights), missing);
        assert_eq!(resolve(&fd, "app", Rights::before_mounts(&kim, false)), Ok((100, 101)));
    }
}
