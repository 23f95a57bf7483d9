//! Tasks without which the server cannot work. One that panics ends the server: its state is on disk, and its keeper or the
//! service manager starts it again, where a server without its timer or a listener would seem to work. A panic in one client's
//! request does not.

use std::future::Future;
use tokio::task::JoinHandle;

/// The exit code of a server that cannot go on.
pub const CANNOT_GO_ON: i32 = 70;

/// Runs the task beside the others; `name` is what the log calls it.
pub fn spawn<T: Send + 'static>(
    name: &'static str,
    task: impl Future<Output = T> + Send + 'static,
) {
    let task = tokio::spawn(task);
    tokio::spawn(async move {
        if panicked(task).await {
            end_process(name);
        }
    });
}

/// Ends the process because what has this name in the log panicked.
pub fn end_process(name: &str) -> ! {
    tracing::error!("{name} panicked: this process ends, to be started again");
    std::process::exit(CANNOT_GO_ON);
}

/// Waits for the end of a task; whether it was a panic.
async fn panicked<T>(task: JoinHandle<T>) -> bool {
    task.await.is_err_and(|error| error.is_panic())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    const PANICS: &str = "SLUICE_TEST_VITAL_TASK_PANICS";

    /// The server's end is this process's: the test runs itself as a process of its own.
    #[test]
    fn panic_of_a_vital_task_ends_the_server_and_its_return_does_not() {
        let run = |panics: &str| {
            let mut test = Command::new(std::env::current_exe().expect("this program"));
            test.args(["--exact", "vital_task::tests::vital_task_in_a_process_of_its_own"]);
            test.arg("--include-ignored").env(PANICS, panics).output().expect("it runs").status
        };
        assert_eq!(run("1").code(), Some(CANNOT_GO_ON));
        assert_eq!(run("0").code(), Some(0));
    }

    #[tokio::test]
    #[ignore = "run by the test above"]
    async fn vital_task_in_a_process_of_its_own() {
        let panics = std::env::var(PANICS).is_ok_and(|value| value == "1");
        let (ended, end) = tokio::sync::oneshot::channel::<()>();
        spawn("a task of a test", async move {
            let _ended = ended;
            assert!(!panics, "as a defect would");
        });
        let _ = end.await;
        if panics {
            // The process ends meanwhile.
            std::future::pending::<()>().await;
        }
    }
}
