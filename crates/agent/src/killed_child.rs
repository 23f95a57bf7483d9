//! Collects children that were killed: each would stay as a zombie of this process else.

use std::process::Child;
use std::time::{Duration, Instant};

const POLL_PAUSE: Duration = Duration::from_millis(20);

/// Waits for a killed child. One that the kernel holds, as in a driver that hangs, is given up after `timeout`.
pub(crate) fn reap(child: &mut Child, timeout: Duration) {
    let deadline = Instant::now() + timeout;
    while matches!(child.try_wait(), Ok(None)) && Instant::now() < deadline {
        std::thread::sleep(POLL_PAUSE);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    #[test]
    fn killed_child_is_collected_and_one_that_lives_is_given_up() {
        let mut child = Command::new("sleep").arg("600").spawn().expect("a child");
        reap(&mut child, Duration::ZERO);
        assert!(matches!(child.try_wait(), Ok(None)), "it lives");
        child.kill().expect("killed");
        reap(&mut child, Duration::from_secs(60));
        assert!(!std::path::Path::new("/proc").join(child.id().to_string()).exists());
    }
}
