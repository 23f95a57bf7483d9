//! Which devices a group may open: one allow-list, as a program of the kernel's on v2, as lines of the controller on v1.

use std::fmt;
use std::os::fd::AsFd;

use nix::sys::stat::{FileStat, SFlag, major, minor};

use super::device_program::DeviceProgram;
use super::dir::GroupDir;
use super::error::CgroupError;
use super::mounts::Version;

/// Rules of one group: each is a few instructions of its program.
pub const RULES_MAX: usize = 1024;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeviceKind {
    Block,
    Char,
}

/// Devices that may be opened, and made by `mknod`: one, or all of a driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeviceRule {
    pub kind: DeviceKind,
    pub major: u32,
    /// None: every device of that major number.
    pub minor: Option<u32>,
}

impl DeviceRule {
    pub const fn char(major: u32, minor: Option<u32>) -> DeviceRule {
        DeviceRule { kind: DeviceKind::Char, major, minor }
    }

    pub const fn block(major: u32, minor: Option<u32>) -> DeviceRule {
        DeviceRule { kind: DeviceKind::Block, major, minor }
    }

    /// The device that a file is; `None` for a file that is none.
    pub fn of_file(status: &FileStat) -> Option<DeviceRule> {
        let kind = match SFlag::from_bits_truncate(status.st_mode & SFlag::S_IFMT.bits()) {
            SFlag::S_IFCHR => DeviceKind::Char,
            SFlag::S_IFBLK => DeviceKind::Block,
            _ => return None,
        };
        let number = |part: u64| u32::try_from(part).ok();
        let minor = number(minor(status.st_rdev))?;
        Some(DeviceRule { kind, major: number(major(status.st_rdev))?, minor: Some(minor) })
    }

    /// Whether every device of `other` is one of ours.
    pub fn covers(&self, other: &DeviceRule) -> bool {
        self.kind == other.kind
            && self.major == other.major
            && (self.minor.is_none() || self.minor == other.minor)
    }
}

/// As the v1 controller reads it.
impl fmt::Display for DeviceRule {
    fn fmt(&self, out: &mut fmt::Formatter) -> fmt::Result {
        let kind = match self.kind {
            DeviceKind::Block => 'b',
            DeviceKind::Char => 'c',
        };
        match self.minor {
            Some(minor) => write!(out, "{kind} {}:{minor}", self.major),
            None => write!(out, "{kind} {}:*", self.major),
        }
    }
}

/// Holds the new, childless group to `rules`. A group inside it can only have fewer.
pub(super) fn restrict(
    dir: &GroupDir,
    version: Version,
    rules: &[DeviceRule],
) -> Result<(), CgroupError> {
    if rules.len() > RULES_MAX {
        let reason = format!("{} rules, and a group takes {RULES_MAX}", rules.len());
        return Err(CgroupError::CannotEnforce { what: "devices", reason });
    }
    match version {
        Version::V2 => DeviceProgram::load(rules)
            .and_then(|program| program.attach(dir.fd().as_fd()))
            .map_err(|errno| CgroupError::io("restrict the devices of", dir.path(), errno)),
        Version::V1 => {
            // The kernel refuses this once the group has children: it is the first thing done to it.
            dir.write("devices.deny", "a")?;
            rules.iter().try_for_each(|rule| dir.write("devices.allow", &format!("{rule} rwm")))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_are_read_from_files_and_written_for_the_controller() {
        let null = nix::sys::stat::stat("/dev/null").expect("there is one");
        let rule = DeviceRule::of_file(&null).expect("a device");
        assert_eq!(rule, DeviceRule::char(1, Some(3)));
        assert_eq!(rule.to_string(), "c 1:3");
        assert_eq!(DeviceRule::block(7, None).to_string(), "b 7:*");
        let folder = nix::sys::stat::stat("/").expect("there is one");
        assert_eq!(DeviceRule::of_file(&folder), None);
    }

    #[test]
    fn a_driver_covers_its_devices() {
        let all = DeviceRule::char(136, None);
        let one = DeviceRule::char(136, Some(4));
        assert!(all.covers(&one) && one.covers(&one) && !one.covers(&all));
        assert!(!all.covers(&DeviceRule::block(136, Some(4))));
    }
}
