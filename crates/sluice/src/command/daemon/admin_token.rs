//! The administrator's token: a file of the state folder that only who started the server can read. The server knows its hash.

use super::state_dir::StateDir;
use crate::client::{Client, ServerLocation};
use crate::command::verb::VerbError;
use ::server::token;
use model::secret::SecretValue;
use std::path::{Path, PathBuf};
use wire::client::{Answer, Call};

const NAME: &str = "admin.token";
const MODE: u32 = 0o600;

pub fn path(state: &StateDir) -> PathBuf {
    state.path.join(NAME)
}

/// The token, which is made at the first start. `of_cluster` is that of several servers, which the file gets where it has another.
pub fn read_or_make(state: &StateDir, of_cluster: Option<String>) -> Result<String, VerbError> {
    let own = read(state);
    if own.is_some() && (of_cluster.is_none() || own == of_cluster) {
        return Ok(own.unwrap_or_default());
    }
    let token = of_cluster.unwrap_or_else(token::generate);
    write(state, &token)?;
    Ok(token)
}

/// Replaces the token by a new one; the file's path. The file comes first: if this process dies before the server knows,
/// the server's next start takes the file's.
pub fn rotate(state: &Path) -> Result<PathBuf, VerbError> {
    let state = StateDir::open(state);
    let former = read(&state);
    let next = token::generate();
    write(&state, &next)?;
    let mut client = Client::at(ServerLocation::in_state(&state.path));
    let (hash, token) = (token::hash(&next), Some(SecretValue(next)));
    let failed = match client.call(Call::RotateAdminToken { hash, token }) {
        Ok(Answer::Done) => return Ok(path(&state)),
        Ok(Answer::Refused(why)) => why.into(),
        Ok(other) => VerbError::Message(format!("the server answered {other:?}")),
        // The server may have taken the new one before the connection broke.
        Err(error) => {
            let text = format!(
                "{error}; {NAME} has a new token, which the server takes at its next start"
            );
            return Err(VerbError::Message(text));
        }
    };
    if let Some(former) = former {
        write(&state, &former)?;
    }
    Err(failed)
}

fn read(state: &StateDir) -> Option<String> {
    let text = std::fs::read_to_string(path(state)).ok()?;
    Some(text.trim().to_string()).filter(|token| !token.is_empty())
}

fn write(state: &StateDir, token: &str) -> Result<(), VerbError> {
    let written = state.trusted()?.replace(NAME, MODE, format!("{token}\n").as_bytes());
    written.map_err(VerbError::file(path(state)))
}
