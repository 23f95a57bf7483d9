//! Which devices a group may open: one allow-list, enforced by a kernel program on v2 and by the devices controller on v1.

use std::os::fd::AsFd;

use super::device_program::DeviceProgram;
use super::device_rule::DeviceRule;
use super::dir::GroupDir;
use super::error::CgroupError;
use super::mounts::Version;

/// Rules of one group: each is a few instructions of its program.
const RULES_MAX: usize = 1024;

/// Restricts a new group, which has no child yet, to `rules`. A group inside it can only have fewer devices.
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
            // The kernel refuses this once the group has children.
            dir.write("devices.deny", "a")?;
            // The runtime of a container allows making device files in the container's group, and the kernel refuses it
            // what the job's group does not have. To open a device is another right.
            ["c *:* m", "b *:* m"].iter().try_for_each(|rule| dir.write("devices.allow", rule))?;
            rules.iter().try_for_each(|rule| dir.write("devices.allow", &format!("{rule} rwm")))
        }
    }
}
