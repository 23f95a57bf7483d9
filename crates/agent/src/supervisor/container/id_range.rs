//! The ids that users of an image have on the node, beside its root: 65,535 that no account has, for each account the same
//! in all its containers and on every node. A container may write files with these ids to a folder that nodes share; they
//! are nobody else's there.
//!
//! The server gives each account a range, or they are those that the site gives to accounts in `/etc/subuid` and `/etc/subgid`.

use super::holder::{IDS, IdMap};
use model::site::{ID_RANGE_FIRST, ID_RANGES, IdRanges};
use nix::fcntl::{Flock, FlockArg, OFlag, openat};
use nix::sys::stat::Mode;
use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::path::Path;
use wire::order::{IdRange, UserIds};

/// The numbers that a range has to have: the ids of an image without its root.
const RANGE_IDS: u32 = IDS - 1;
const SUBORDINATE: [&str; 2] = ["/etc/subuid", "/etc/subgid"];
const FILE_BYTES_MAX: u64 = 64 << 20;

/// How ids of the user's containers are those of the node. `folder` has the node's record of accounts and their ranges.
/// `given` is the server's word on the account's range.
pub(super) fn map_for(
    folder: &OwnedFd,
    user: &UserIds,
    ranges: IdRanges,
    given: IdRange,
) -> Result<IdMap, String> {
    let UserIds { uid, gid, .. } = *user;
    match ranges {
        IdRanges::Uid => {
            let range = claim(folder, uid, given)?;
            Ok(IdMap { uid, gid, range, gid_range: None })
        }
        IdRanges::Subuid => {
            let [uids, gids] = SUBORDINATE;
            let range = subordinate_range(uids, user, uid)?;
            let gid_range = subordinate_range(gids, user, gid)?;
            Ok(IdMap { uid, gid, range, gid_range: Some(gid_range) })
        }
    }
}

/// The range of an account. The node keeps on record whose a range is, so that it is never also that of another account,
/// whatever a server says that was restored from a backup.
fn claim(folder: &OwnedFd, uid: u32, given: IdRange) -> Result<u32, String> {
    let failed = |why: String| format!("cannot reserve ids for the container: {why}");
    let expected = || {
        let files = SUBORDINATE.join(" and ");
        format!("expected ids = \"subuid\" in sluice.toml, and a range for each in {files}")
    };
    let number = match given {
        IdRange::OfUid => uid % ID_RANGES,
        IdRange::Number(number) if number < ID_RANGES => number,
        IdRange::Number(_) | IdRange::Exhausted => {
            let why = format!("{ID_RANGES} other accounts have all of them");
            return Err(format!(
                "no ids are left for containers of account {uid}: {why}: {}",
                expected()
            ));
        }
    };
    let flags = OFlag::O_RDWR | OFlag::O_CREAT | OFlag::O_CLOEXEC | OFlag::O_NOFOLLOW;
    let name = format!("ids-of-account-{number}");
    let file = openat(folder, name.as_str(), flags, Mode::from_bits_truncate(0o600));
    let file = File::from(file.map_err(|e| failed(e.desc().to_owned()))?);
    let file = Flock::lock(file, FlockArg::LockExclusive)
        .map_err(|(_, errno)| failed(errno.desc().to_owned()))?;
    let (mut owner, mut opened) = (String::new(), &*file);
    opened.take(16).read_to_string(&mut owner).map_err(|e| failed(e.to_string()))?;
    if owner.is_empty() {
        opened.write_all(uid.to_string().as_bytes()).map_err(|e| failed(e.to_string()))?;
    } else if owner != uid.to_string() {
        return Err(format!(
            "the ids for containers of account {uid} are those of account {owner} on this node: {}",
            expected()
        ));
    }
    Ok(ID_RANGE_FIRST + number * IDS)
}

fn subordinate_range(file: &str, user: &UserIds, own: u32) -> Result<u32, String> {
    let mut text = String::new();
    let read = File::open(Path::new(file))
        .and_then(|opened| opened.take(FILE_BYTES_MAX).read_to_string(&mut text));
    read.map_err(|e| format!("cannot read the ids for containers: {file}: {e}"))?;
    range_in(&text, user, own).ok_or_else(|| {
        format!(
            "{file} has no {RANGE_IDS} ids for containers of {}: expected a line NAME:FIRST:COUNT",
            user.name
        )
    })
}

/// The first range of these lines that is the user's and large enough, and that his `own` number is not in.
fn range_in(text: &str, user: &UserIds, own: u32) -> Option<u32> {
    let number = user.uid.to_string();
    let range = |line: &str| {
        let mut fields = line.trim().split(':');
        let owner = fields.next().filter(|name| *name == user.name || *name == number);
        let (first, count): (u32, u32) =
            (owner.and(fields.next())?.parse().ok()?, fields.next()?.parse().ok()?);
        let last = first.checked_add(RANGE_IDS - 1)?;
        // The user's own number is that of root inside, and the last one is nobody's.
        let is_good = count >= RANGE_IDS && first > 0 && last < u32::MAX;
        (is_good && !(first..=last).contains(&own)).then_some(first)
    };
    text.lines().find_map(range)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn user(uid: u32) -> UserIds {
        UserIds { name: "kim".into(), uid, gid: 100, groups: Vec::new() }
    }

    fn node() -> (tempfile::TempDir, OwnedFd) {
        let dir = tempfile::tempdir().expect("scratch folder");
        let folder = OwnedFd::from(File::open(dir.path()).expect("opened"));
        (dir, folder)
    }

    #[test]
    fn account_has_the_same_range_on_every_node_and_no_other_account_has_it() {
        let nodes = [node(), node()];
        let given = |node: usize, uid: u32, given: IdRange| {
            map_for(&nodes[node].1, &user(uid), IdRanges::Uid, given).map(|map| map.range)
        };
        let range = |node: usize, uid: u32| given(node, uid, IdRange::OfUid);
        let of_kim = range(0, 1000).expect("a range");
        assert_eq!(range(0, 1000), Ok(of_kim), "another container");
        assert_eq!(range(1, 1000), Ok(of_kim), "another node");
        let of_next = range(0, 1001).expect("a range");
        assert!(of_next >= of_kim + RANGE_IDS, "they do not meet");
        let why = range(0, 1000 + ID_RANGES).expect_err("refused");
        let start =
            "the ids for containers of account 33000 are those of account 1000 on this node";
        assert!(why.starts_with(start) && !why.contains('\n'), "{why}");
        let highest = range(0, ID_RANGES - 1).expect("a range");
        assert!(highest.checked_add(IDS).is_some(), "ids end below the last one");
        assert!(range(1, u32::MAX - 1).is_ok());
        // The server has given the second of them another.
        let others = given(1, 1000 + ID_RANGES, IdRange::Number(31_998)).expect("a range");
        assert_eq!(others, ID_RANGE_FIRST + 31_998 * IDS);
        for bad in [IdRange::Number(ID_RANGES), IdRange::Exhausted] {
            let why = given(1, 5, bad).expect_err("refused");
            let start = "no ids are left for containers of account 5: 32000 other accounts";
            assert!(why.starts_with(start) && why.contains("subuid"), "{why}");
        }
    }

    #[test]
    fn range_of_a_file_is_the_users_own_and_large_enough() {
        let text =
            "ann:100000:65536\nkim:7:10\nkim:950:65536\n# no line\nkim:x:65536\nkim:165536:65536\n";
        assert_eq!(
            range_in(text, &user(1000), 1000),
            Some(165_536),
            "its own number is in the second"
        );
        assert_eq!(range_in("1000:300000:65535\n", &user(1000), 1000), Some(300_000), "by number");
        for none in ["", "kim:0:65536\n", "kim:4294967000:65536\n", "kim:300000:65534\n", "kim:1\n"]
        {
            assert_eq!(range_in(none, &user(1000), 1000), None, "{none}");
        }
        let why = subordinate_range("/not/there", &user(1000), 1000).expect_err("refused");
        assert!(why.starts_with("cannot read the ids for containers: /not/there: "), "{why}");
    }
}
