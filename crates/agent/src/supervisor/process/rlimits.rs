//! The soft resource limits that a job brings from where it was submitted (`PropagateResourceLimits`).

use model::run::Rlimits;
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

/// Sets each soft limit, at most to this node's hard limit. Returns the limits that were asked for by name and could
/// not be set as asked.
pub(crate) fn apply(limits: &Rlimits) -> Vec<(String, Errno)> {
    let mut refused = Vec::new();
    for (name, value) in &limits.soft {
        let result = resource(name).ok_or(Errno::EINVAL).and_then(|resource| {
            let (soft, hard) = getrlimit(resource)?;
            let wanted = (*value).min(hard);
            if soft != wanted {
                setrlimit(resource, wanted, hard)?;
            }
            if *value > hard { Err(Errno::EINVAL) } else { Ok(()) }
        });
        if let Err(errno) = result.or_else(|errno| if limits.asked { Err(errno) } else { Ok(()) }) {
            refused.push((describe(name, *value), errno));
        }
    }
    refused
}

/// Lowers the hard and the soft limit of open files to `most`, where they are higher.
pub(crate) fn cap_open_files(most: u64) -> Result<(), Errno> {
    let resource = Resource::RLIMIT_NOFILE;
    let (soft, hard) = getrlimit(resource)?;
    setrlimit(resource, soft.min(most), hard.min(most))
}

/// Raises the limit of locked memory: to unlimited, or else to the hard limit.
pub(crate) fn unlock_memory() {
    let resource = Resource::RLIMIT_MEMLOCK;
    if setrlimit(resource, libc::RLIM_INFINITY, libc::RLIM_INFINITY).is_err()
        && let Ok((_, hard)) = getrlimit(resource)
    {
        // If even this fails, the job keeps the limit that it had.
        let _ = setrlimit(resource, hard, hard);
    }
}

/// `RLIMIT_NOFILE of 20000`.
fn describe(name: &str, value: u64) -> String {
    let bare = name.strip_prefix("RLIMIT_").unwrap_or(name);
    match value {
        u64::MAX => format!("RLIMIT_{bare} of unlimited"),
        value => format!("RLIMIT_{bare} of {value}"),
    }
}

fn resource(name: &str) -> Option<Resource> {
    let bare = name.strip_prefix("RLIMIT_").unwrap_or(name);
    NAMES.iter().find(|(known, _)| *known == bare).map(|(_, resource)| *resource)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memlock_is_raised_to_the_hard_limit() {
        let resource = Resource::RLIMIT_MEMLOCK;
        let (_, hard) = getrlimit(resource).expect("a limit");
        setrlimit(resource, 0, hard).expect("less");
        unlock_memory();
        let (soft, hard) = getrlimit(resource).expect("a limit");
        assert_eq!(soft, hard, "all of it, or all that the node's own limit leaves");
    }

    #[test]
    fn limit_names_are_known_with_and_without_their_prefix() {
        assert_eq!(resource("NOFILE"), Some(Resource::RLIMIT_NOFILE));
        assert_eq!(resource("RLIMIT_STACK"), Some(Resource::RLIMIT_STACK));
        let mut odd = Rlimits { soft: vec![("NONSENSE".into(), 1)], asked: true };
        assert_eq!(apply(&odd), [("RLIMIT_NONSENSE of 1".to_owned(), Errno::EINVAL)]);
        odd.asked = false;
        assert_eq!(apply(&odd), [], "nobody asked for it");
    }
}
