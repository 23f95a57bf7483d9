//! The soft limits that a job brings along from where it was submitted.

use nix::errno::Errno;
use nix::sys::resource::{Resource, getrlimit, setrlimit};

const NAMES: [(&str, Resource); 15] = [
    ("AS", Resource::RLIMIT_AS),
    ("CORE", Resource::RLIMIT_CORE),
    ("CPU", Resource::RLIMIT_CPU),
    ("DATA", Resource::RLIMIT_DATA),
    ("FSIZE", Resource::RLIMIT_FSIZE),
    ("LOCKS", Resource::RLIMIT_LOCKS),
    ("MEMLOCK", Resource::RLIMIT_MEMLOCK),
    ("MSGQUEUE", Resource::RLIMIT_MSGQUEUE),
    ("NICE", Resource::RLIMIT_NICE),
    ("NOFILE", Resource::RLIMIT_NOFILE),
    ("NPROC", Resource::RLIMIT_NPROC),
    ("RSS", Resource::RLIMIT_RSS),
    ("RTPRIO", Resource::RLIMIT_RTPRIO),
    ("SIGPENDING", Resource::RLIMIT_SIGPENDING),
    ("STACK", Resource::RLIMIT_STACK),
];

/// Sets each soft limit, at most to the hard one of this node. Gives back those that were refused.
pub(super) fn apply(limits: &[(String, u64)]) -> Vec<(String, Errno)> {
    let mut refused = Vec::new();
    for (name, value) in limits {
        let result = resource(name).ok_or(Errno::EINVAL).and_then(|resource| {
            let (_, hard) = getrlimit(resource)?;
            setrlimit(resource, (*value).min(hard), hard)
        });
        if let Err(errno) = result {
            refused.push((format!("{name}={value}"), errno));
        }
    }
    refused
}

fn resource(name: &str) -> Option<Resource> {
    let bare = name.strip_prefix("RLIMIT_").unwrap_or(name);
    NAMES.iter().find(|(known, _)| *known == bare).map(|(_, resource)| *resource)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_known_with_and_without_their_prefix() {
        assert_eq!(resource("NOFILE"), Some(Resource::RLIMIT_NOFILE));
        assert_eq!(resource("RLIMIT_STACK"), Some(Resource::RLIMIT_STACK));
        let refused = apply(&[("NONSENSE".into(), 1)]);
        assert_eq!(refused, [("NONSENSE=1".to_owned(), Errno::EINVAL)]);
    }
}
