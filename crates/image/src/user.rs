//! The users of an image: names of its own `/etc/passwd` and `/etc/group`, read by handle and bounded.

use std::os::fd::{AsFd, OwnedFd};

use nix::errno::Errno;
use nix::fcntl::OFlag;

use crate::error::{Error, Result, shown};
use crate::image::Image;
use crate::unpack::{Found, find, read_bounded};

const FILE_BYTES_MAX: u64 = 1 << 20;
/// Linux takes at most 65536 groups of a process.
const GROUPS_MAX: usize = 1024;

/// As whom a container's process runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ImageUser {
    pub uid: u32,
    pub gid: u32,
    /// Further groups of the user's name.
    pub groups: Vec<u32>,
    pub name: Option<String>,
    /// From passwd; `/` where it says nothing.
    pub home: String,
    pub shell: Option<String>,
}

struct Account<'a> {
    name: &'a str,
    uid: u32,
    gid: u32,
    home: &'a str,
    shell: &'a str,
}

impl Image {
    /// Whom `NAME`, `UID`, `NAME:GROUP` or `UID:GID` means in this image; without one, its own setting, and without that, root.
    pub fn resolve_user(&self, asked: Option<&str>) -> Result<ImageUser> {
        let asked = asked.unwrap_or(&self.config.user);
        let folders = self.folders()?;
        let passwd = self.text(&folders, "etc/passwd")?;
        let group = self.text(&folders, "etc/group")?;
        let (user, of_group) = match asked.split_once(':') {
            Some((user, of_group)) => (user, Some(of_group).filter(|g| !g.is_empty())),
            None => (asked, None),
        };
        let user = if user.is_empty() { "0" } else { user };
        let missing = |user: &str, file| Error::NoSuchUser {
            image: self.name.clone(),
            user: shown(user.as_bytes()),
            file,
        };
        let number = user.parse::<u32>().ok();
        let account = accounts(&passwd)
            .find(|a| a.name == user)
            .or_else(|| accounts(&passwd).find(|a| Some(a.uid) == number));
        let uid = account
            .as_ref()
            .map(|a| a.uid)
            .or(number)
            .ok_or_else(|| missing(user, "/etc/passwd"))?;
        let gid = match of_group {
            None => account.as_ref().map_or(0, |a| a.gid),
            Some(name) => {
                let found = groups(&group).find(|(n, ..)| *n == name).map(|(_, gid, _)| gid);
                found.or_else(|| name.parse().ok()).ok_or_else(|| missing(name, "/etc/group"))?
            }
        };
        // As Docker does: who names a group gets that one alone.
        let member = |members: &str| {
            account.as_ref().is_some_and(|a| members.split(',').any(|m| m == a.name))
        };
        let further = groups(&group).filter(|(.., members)| of_group.is_none() && member(members));
        Ok(ImageUser {
            uid,
            gid,
            groups: further.map(|(_, gid, _)| gid).filter(|g| *g != gid).take(GROUPS_MAX).collect(),
            name: account.as_ref().map(|a| a.name.to_owned()),
            home: account
                .as_ref()
                .map(|a| a.home)
                .filter(|h| h.starts_with('/'))
                .unwrap_or("/")
                .to_owned(),
            shell: account.as_ref().map(|a| a.shell.to_owned()).filter(|s| !s.is_empty()),
        })
    }

    /// A file of the image as text; empty when the image has none.
    fn text(&self, folders: &[OwnedFd], path: &str) -> Result<String> {
        let what = || format!("/{path} of {}", self.name);
        let io = |e: Errno| Error::Io { what: what(), source: e.into() };
        for folder in folders {
            let flags = OFlag::O_RDONLY | OFlag::O_NONBLOCK | OFlag::O_NOCTTY;
            match find(folder.as_fd(), path.as_bytes(), flags).map_err(io)? {
                Found::Here(file) => {
                    let bytes = read_bounded(file, FILE_BYTES_MAX).map_err(Error::io(what()))?;
                    return Ok(String::from_utf8_lossy(&bytes).into_owned());
                }
                Found::HiddenBelow => break,
                Found::NotHere => {}
            }
        }
        Ok(String::new())
    }
}

fn accounts(text: &str) -> impl Iterator<Item = Account<'_>> {
    text.lines().filter_map(|line| {
        let mut fields = line.split(':');
        let (name, _password) = (fields.next()?, fields.next()?);
        let (uid, gid) = (fields.next()?.parse().ok()?, fields.next()?.parse().ok()?);
        let (_comment, home) = (fields.next(), fields.next().unwrap_or_default());
        Some(Account { name, uid, gid, home, shell: fields.next().unwrap_or_default() })
    })
}

fn groups(text: &str) -> impl Iterator<Item = (&str, u32, &str)> {
    text.lines().filter_map(|line| {
        let mut fields = line.split(':');
        let (name, _password, gid) = (fields.next()?, fields.next()?, fields.next()?.parse().ok()?);
        Some((name, gid, fields.next().unwrap_or_default()))
    })
}
