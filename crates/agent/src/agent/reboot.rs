//! The reboot of the machine, by the site's program. It is run once: the server tells an agent again that it does not know to
//! have been told.

use super::Agent;
use crate::supervisor::prolog_epilog::programs;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};

const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

impl Agent {
    /// Runs the program beside the agent. A failure is logged, and the program may be run again.
    pub(super) fn reboot(&mut self, node: &str, program: &str) {
        if let Some(child) = &mut self.rebooting {
            match child.try_wait() {
                Ok(Some(status)) if !status.success() => {}
                _ => {
                    tracing::info!(node, "the reboot was ordered before");
                    return;
                }
            }
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
        command.env_clear().env("PATH", PATH).env("SLURMD_NODENAME", node).current_dir("/");
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).process_group(0);
        match command.spawn() {
            Ok(child) => {
                tracing::info!(node, program, "the machine is rebooted");
                self.rebooting = Some(child);
            }
            Err(error) => tracing::error!(node, program, %error, "RebootProgram cannot be run"),
        }
    }
}
