//! One rule of the devices that a group may open: a kind, a major number, and a minor number or all of them.

use std::fmt;

use nix::sys::stat::{FileStat, SFlag, major, minor};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeviceKind {
    Block,
    Char,
}

/// Devices that may be opened, and made by `mknod`: one device, or all of a major number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeviceRule {
    pub kind: DeviceKind,
    pub major: u32,
    /// `None` is every device of that major number.
    pub minor: Option<u32>,
}

impl DeviceRule {
    pub const fn char(major: u32, minor: Option<u32>) -> DeviceRule {
        DeviceRule { kind: DeviceKind::Char, major, minor }
    }

    pub const fn block(major: u32, minor: Option<u32>) -> DeviceRule {
        DeviceRule { kind: DeviceKind::Block, major, minor }
    }

    /// The device of a file; `None` for a file that is no device.
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

    /// Whether this rule includes every device of `other`.
    pub fn covers(&self, other: &DeviceRule) -> bool {
        self.kind == other.kind
            && self.major == other.major
            && (self.minor.is_none() || self.minor == other.minor)
    }
}

/// The form of the v1 controller's files.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rule_of_a_device_file_prints_as_the_v1_controller_reads_it() {
        let null = nix::sys::stat::stat("/dev/null").expect("there is one");
        let rule = DeviceRule::of_file(&null).expect("a device");
        assert_eq!(rule, DeviceRule::char(1, Some(3)));
        assert_eq!(rule.to_string(), "c 1:3");
        assert_eq!(DeviceRule::block(7, None).to_string(), "b 7:*");
        let folder = nix::sys::stat::stat("/").expect("there is one");
        assert_eq!(DeviceRule::of_file(&folder), None);
    }

    #[test]
    fn rule_of_a_major_number_covers_its_devices() {
        let all = DeviceRule::char(136, None);
        let one = DeviceRule::char(136, Some(4));
        assert!(all.covers(&one) && one.covers(&one) && !one.covers(&all));
        assert!(!all.covers(&DeviceRule::block(136, Some(4))));
    }
}
