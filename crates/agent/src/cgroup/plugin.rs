//! Which kinds of control-group trees may be used.

use std::fmt;
use std::str::FromStr;

use super::mounts::Version;

/// Which trees may be used: Slurm's `CgroupPlugin`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Plugin {
    #[default]
    Auto,
    V1,
    V2,
    Disabled,
}

const PLUGINS: [(Plugin, &str); 4] = [
    (Plugin::Auto, "autodetect"),
    (Plugin::V1, "cgroup/v1"),
    (Plugin::V2, "cgroup/v2"),
    (Plugin::Disabled, "disabled"),
];

impl Plugin {
    pub fn as_str(self) -> &'static str {
        PLUGINS[self as usize].1
    }

    pub(super) fn takes(self, version: Version) -> bool {
        match self {
            Plugin::Auto => true,
            Plugin::V1 => version == Version::V1,
            Plugin::V2 => version == Version::V2,
            Plugin::Disabled => false,
        }
    }
}

impl FromStr for Plugin {
    type Err = String;

    fn from_str(text: &str) -> Result<Plugin, String> {
        PLUGINS
            .into_iter()
            .find(|(_, word)| word.eq_ignore_ascii_case(text))
            .map(|(plugin, _)| plugin)
            .ok_or_else(|| {
                format!("CgroupPlugin={text}: use autodetect, cgroup/v1, cgroup/v2 or disabled")
            })
    }
}

impl fmt::Display for Plugin {
    fn fmt(&self, out: &mut fmt::Formatter) -> fmt::Result {
        out.write_str(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plugin_names_are_slurms() {
        for (plugin, word) in PLUGINS {
            assert_eq!(word.parse(), Ok(plugin));
            assert_eq!(plugin.as_str(), word);
        }
        assert!("cgroup/v3".parse::<Plugin>().expect_err("unknown").contains("cgroup/v3"));
    }
}
