//! A Python environment of the run's own, over an interpreter that is here: `uv` makes it where there is `uv`, else the
//! interpreter itself does.

use super::program::found;
use super::{program, variable};
use std::ffi::CString;
use std::fs::DirBuilder;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;

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
        program::wait("uv", uv, None).and_then(|()| add_pip(&folder, environment))
    } else {
        let mut python = program::command(&interpreter, environment);
        python.args(["-m", "venv", &text]);
        program::wait(&interpreter, python, None)
    };
    made.map(|()| folder).map_err(|why| format!("no environment of {interpreter}: {why}"))
}

/// Puts `pip` into an environment that `uv` made, which has none: the next one on the run's path would be the node's, which
/// installs elsewhere. The interpreter brings one along; where it was taken out of it, `uv` fetches one.
fn add_pip(folder: &Path, environment: &[CString]) -> Result<(), String> {
    let python = folder.join("bin/python").display().to_string();
    let mut bundled = program::command(&python, environment);
    bundled.args(["-m", "ensurepip", "--default-pip"]);
    bundled.stdout(Stdio::null()).stderr(Stdio::null());
    if program::wait(&python, bundled, None).is_ok() {
        return Ok(());
    }
    let mut fetch = program::command("uv", environment);
    fetch.args(["pip", "install", "--quiet", "--python", &python, "pip"]);
    let fetched = program::wait("uv", fetch, None);
    fetched
        .map_err(|why| format!("the interpreter has no `ensurepip`, and no pip was fetched: {why}"))
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

    /// `uv` is played by a script that makes what `uv venv` makes: an environment without pip.
    #[test]
    fn environment_that_uv_made_has_a_pip_of_its_own() {
        let asked = std::process::Command::new("python3").args(["-c", "import ensurepip"]).status();
        if !asked.is_ok_and(|status| status.success()) {
            eprintln!("skipped: python3 has no ensurepip");
            return;
        }
        let folder = std::env::temp_dir().join(format!("python-test-{}", std::process::id()));
        std::fs::create_dir(&folder).expect("a folder");
        let uv = folder.join("uv");
        std::fs::write(&uv, "#!/bin/sh\nexec python3 -m venv --without-pip \"$5\"\n").expect("uv");
        let executable = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        std::fs::set_permissions(&uv, executable).expect("permissions");
        let path = std::env::var("PATH").expect("a path");
        let entry = |text: String| CString::new(text).expect("no NUL");
        let folder_name = folder.display();
        let environment = [
            entry(format!("PATH={folder_name}:{path}")),
            entry(format!("SLURM_TMPDIR={folder_name}")),
        ];
        let made = make("3", &environment);
        let has_own = made.as_ref().is_ok_and(|made| made.join("bin/pip").is_file());
        std::fs::remove_dir_all(&folder).expect("removed");
        assert!(has_own, "{made:?}");
    }
}
