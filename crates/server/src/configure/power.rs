//! Power saving, from slurm.conf: whether what it names is there.

use crate::error::ServerError;
use model::power::{PowerPolicy, PowerProgram};
use slurm::conf::slurm_conf::SlurmConf;
use std::os::unix::fs::PermissionsExt;

/// The policy, if its programs are programs of this machine and its nodes and partitions are those of the file.
pub(super) fn policy(slurm: &SlurmConf) -> Result<PowerPolicy, ServerError> {
    let policy = &slurm.globals.power;
    let wrong = |key: &str, value: &str, why: &str| {
        ServerError::Configuration(format!("slurm.conf: {key}={value}: {why}"))
    };
    for program in PowerProgram::ALL {
        let Some(path) = policy.program(program) else { continue };
        let is_program =
            |file: std::fs::Metadata| file.is_file() && file.permissions().mode() & 0o111 != 0;
        match std::fs::metadata(path).map(is_program) {
            Ok(true) => {}
            Ok(false) => return Err(wrong(program.key(), path, "not an executable file")),
            // Its folder may be closed to the server's user for now; the call says so where it stays.
            Err(error) if error.kind() == std::io::ErrorKind::PermissionDenied => {}
            Err(error) => return Err(wrong(program.key(), path, &error.to_string())),
        }
    }
    let names = policy.exempt_nodes.iter().flat_map(|set| &set.nodes);
    if let Some(name) = names.into_iter().find(|name| slurm.node(name).is_none()) {
        return Err(wrong("SuspendExcNodes", name, "no NodeName line declares this"));
    }
    let mut partitions = policy.exempt_partitions.iter();
    if let Some(name) = partitions.find(|name| slurm.partition(name).is_none()) {
        return Err(wrong("SuspendExcParts", name, "no PartitionName line declares this"));
    }
    let only_one = policy.suspend_program.is_some() != policy.resume_program.is_some();
    if only_one {
        tracing::warn!("power saving is off: it needs both SuspendProgram and ResumeProgram");
    }
    Ok(policy.clone())
}
