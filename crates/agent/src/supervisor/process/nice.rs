//! The nice value of a process (`PropagatePrioProcess`).

use nix::errno::Errno;
use wire::order::Niceness;

/// Sets the nice value. Called after the process has become its user, so that the kernel refuses values below the
/// user's limit. Returns a refused value.
pub(crate) fn apply(nice: Niceness) -> Result<(), (i32, Errno)> {
    let own = own();
    let wanted = allowed_nice(nice, own);
    if wanted == own {
        return Ok(());
    }
    // SAFETY: takes and returns numbers.
    let result = unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, wanted) };
    Errno::result(result).map(drop).map_err(|errno| (wanted, errno))
}

fn own() -> i32 {
    // SAFETY: takes and returns numbers; for the calling process it cannot fail.
    unsafe { libc::getpriority(libc::PRIO_PROCESS, 0) }
}

fn allowed_nice(nice: Niceness, own: i32) -> i32 {
    let least = if nice.below_daemon { own + 1 } else { i32::MIN };
    nice.value.max(least).clamp(-20, 19)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nice_value_is_as_asked_or_below_the_daemon() {
        let nice = |value, below_daemon| allowed_nice(Niceness { value, below_daemon }, 2);
        assert_eq!([nice(7, false), nice(0, false), nice(-5, false)], [7, 0, -5]);
        assert_eq!([nice(7, true), nice(0, true), nice(-5, true)], [7, 3, 3]);
        assert_eq!(nice(i32::MAX, true), 19);
    }
}
