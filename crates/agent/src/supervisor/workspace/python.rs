//! A Python environment of the run's own, over an interpreter that is here: `uv` makes it where there is `uv`, else the
//! interpreter itself does.

use super::program::found;
use super::{program, variable};
use std::ffi::CString;
use std::fs::DirBuilder;
use std::os::unix::fs::DirBuilderExt;
use std::path::PathBuf;

/// Makes the environment in the run's scratch folder, which goes with the run. Returns its folder.
pub(super) fn make(version: &str, environment: &[CString]) -> Result<PathBuf, String> {
    let scratch = variable(environment, "SLURM_TMPDIR").ok_or("the run has no scratch folder")?;
    let folder = scratch.join(format!(".python-{version}-{}", std::process::id()));
    let text = folder.display().to_string();
    let interpreter = format!("python{version}");
    let with_uv = found("uv", environment).is_some();
    if !with_uv && found(&interpreter, environment).is_none() {
        let text = format!("there is no {interpreter} here: name an `image`, or another version");
        return Err(text);
    }
    // A new one: nobody else has anything in it.
    let made = DirBuilder::new().mode(0o700).create(&folder);
    made.map_err(|error| format!("cannot make {text}: {error}"))?;
    let made = if with_uv {
        // What is here is used; nothing is fetched.
        let mut uv = program::command("uv", environment);
        uv.args(["venv", "--quiet", "--python", version, &text])
            .env("UV_PYTHON_DOWNLOADS", "never");
        program::wait("uv", uv, None)
    } else {
        let mut python = program::command(&interpreter, environment);
        python.args(["-m", "venv", &text]);
        program::wait(&interpreter, python, None)
    };
    made.map(|()| folder).map_err(|why| format!("no environment of {interpreter}: {why}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn environment_is_made_in_the_scratch_folder_or_nowhere() {
        let tmp = CString::new("TMPDIR=/tmp").expect("no NUL");
        let said = make("3.12", &[tmp]);
        assert_eq!(said, Err("the run has no scratch folder".into()));
    }
}
