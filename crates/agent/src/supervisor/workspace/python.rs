//! A Python environment of the run's own, over an interpreter that is here: `uv` makes it where there is `uv`, else the
//! interpreter itself does.

use super::program::{Program, found};
use super::variable;
use std::ffi::CString;
use std::path::{Path, PathBuf};

/// Makes the environment in the run's scratch folder. Returns its folder.
pub(super) fn make(version: &str, environment: &[CString]) -> Result<PathBuf, String> {
    let scratch = variable(environment, "SLURM_TMPDIR").or(variable(environment, "TMPDIR"));
    let scratch = scratch.unwrap_or(Path::new("/tmp"));
    let folder = scratch.join(format!(".python-{version}-{}", std::process::id()));
    let text = folder.display().to_string();
    let interpreter = format!("python{version}");
    let made = if found("uv", environment).is_some() {
        // What is here is used; nothing is fetched.
        let uv = Program { name: "uv", variables: &[("UV_PYTHON_DOWNLOADS", "never")] };
        uv.run(&["venv", "--quiet", "--python", version, &text], environment)
    } else if found(&interpreter, environment).is_some() {
        let python = Program { name: &interpreter, variables: &[] };
        python.run(&["-m", "venv", &text], environment)
    } else {
        let text = format!("there is no {interpreter} here: name an `image`, or another version");
        return Err(text);
    };
    made.map(|()| folder).map_err(|why| format!("no environment of {interpreter}: {why}"))
}
