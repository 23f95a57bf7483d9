//! The reboot of the machine, by the site's program. It is run once for each time that it was decided: the server tells an agent
//! again that it does not know to have been told.

use super::Agent;
use crate::supervisor::prolog_epilog::programs;
use model::search_path::SYSTEM_PATH;
use model::time::Timestamp;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// A reboot whose program was started.
pub(super) struct Reboot {
    since: Option<Timestamp>,
    /// The program ended with an error: it may be run again.
    has_failed: Arc<AtomicBool>,
}

impl Agent {
    /// Runs the program beside the agent. How it ends is logged; the machine may be gone before.
    pub(super) fn reboot(&mut self, node: &str, program: &str, since: Option<Timestamp>) {
        let is_done =
            |last: &Reboot| last.since == since && !last.has_failed.load(Ordering::Relaxed);
        if self.last_reboot.as_ref().is_some_and(is_done) {
            tracing::info!(node, "the reboot was ordered before");
            return;
        }
        let path = match programs::find(&[program.to_owned()]).as_deref() {
            Ok([path]) => path.clone(),
            Ok(_) => {
                tracing::error!(node, program, "RebootProgram is not one program");
                return;
            }
            Err(why) => {
                tracing::error!(node, why, "RebootProgram cannot be run");
                return;
            }
        };
        let mut command = Command::new(&path);
        command.env_clear().env("PATH", SYSTEM_PATH).env("SLURMD_NODENAME", node).current_dir("/");
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).process_group(0);
        let mut child = match command.spawn() {
            Ok(child) => child,
            Err(error) => {
                tracing::error!(node, program, %error, "RebootProgram cannot be run");
                return;
            }
        };
        tracing::info!(node, program, "the machine is rebooted");
        let has_failed = Arc::new(AtomicBool::new(false));
        self.last_reboot = Some(Reboot { since, has_failed: has_failed.clone() });
        let (node, program) = (node.to_owned(), program.to_owned());
        std::thread::spawn(move || match child.wait() {
            Ok(status) if status.success() => {
                tracing::info!(node, program, "RebootProgram ended");
            }
            ended => {
                has_failed.store(true, Ordering::Relaxed);
                let how = ended.map_or_else(|error| error.to_string(), |status| status.to_string());
                tracing::error!(node, program, how, "RebootProgram failed");
            }
        });
    }
}
