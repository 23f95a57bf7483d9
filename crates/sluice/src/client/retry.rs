//! Trying again while a server restarts.

use std::thread::sleep;
use std::time::{Duration, Instant};

/// A server that is restarting is waited for this long before the command gives up.
const RETRY_TIMEOUT: Duration = Duration::from_secs(10);
const RETRY_PAUSE: Duration = Duration::from_millis(50);

/// Repeats `attempt` while it fails with an error that may pass.
pub fn retry<T, E>(
    may_pass: impl Fn(&E) -> bool,
    mut attempt: impl FnMut() -> Result<T, E>,
) -> Result<T, E> {
    let deadline = Instant::now() + RETRY_TIMEOUT;
    loop {
        match attempt() {
            Err(error) if may_pass(&error) && Instant::now() < deadline => sleep(RETRY_PAUSE),
            result => return result,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_an_error_that_may_pass_is_tried_again() {
        let tries = |fails_with: &'static str| {
            let mut count = 0;
            let result = retry(
                |error: &&str| *error == "refused",
                || {
                    count += 1;
                    if count < 3 { Err(fails_with) } else { Ok(()) }
                },
            );
            (result, count)
        };
        assert_eq!(tries("refused"), (Ok(()), 3));
        assert_eq!(tries("not found"), (Err("not found"), 1));
    }
}
