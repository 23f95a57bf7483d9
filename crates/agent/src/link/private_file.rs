//! Files of JSON that root alone reads: keys and certificates.

use crate::error::AgentError;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::fs::{self, File, OpenOptions};
use std::io::{ErrorKind, Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::Path;

/// The most that is read of such a file, or of a join file.
const FILE_BYTES_MAX: u64 = 4 << 20;

/// `None` where there is no such file.
pub(super) fn read_json<T: DeserializeOwned>(path: &Path) -> Result<Option<T>, AgentError> {
    let mut text = Vec::new();
    match File::open(path).and_then(|file| file.take(FILE_BYTES_MAX).read_to_end(&mut text)) {
        Ok(_) => {}
        Err(e) if e.kind() == ErrorKind::NotFound => return Ok(None),
        Err(e) => return Err(AgentError::file("read", path, e)),
    }
    serde_json::from_slice(&text).map(Some).map_err(|e| AgentError::Content {
        path: path.display().to_string(),
        reason: e.to_string(),
    })
}

/// Writes `NAME.json` in `folder`, mode 600, whole or not at all.
pub(super) fn write_json(
    folder: &Path,
    name: &str,
    content: &impl Serialize,
) -> Result<(), AgentError> {
    let path = folder.join(format!("{name}.json"));
    let fresh = folder.join(format!("{name}.new"));
    let json = serde_json::to_vec_pretty(content).map_err(|e| AgentError::Content {
        path: path.display().to_string(),
        reason: e.to_string(),
    })?;
    fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(folder)
        .map_err(|e| AgentError::file("make", folder, e))?;
    // A file of that name left by a crash may have another mode.
    let _ = fs::remove_file(&fresh);
    OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(&fresh)
        .and_then(|mut file| file.write_all(&json).and_then(|()| file.sync_all()))
        .and_then(|()| fs::rename(&fresh, &path))
        .map_err(|e| AgentError::file("write", &path, e))
}
