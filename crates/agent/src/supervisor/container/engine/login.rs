//! The user's login for a registry as Docker and Podman read it.

use image::{Credentials, Reference};
use std::fs;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// The file's name in the folder of a container. Names that begin with it are those of new versions.
pub(super) const LOGIN: &str = "config.json";

/// Writes the user's login for the image's registry, as engines read it.
pub(super) fn write_login(
    folder: &Path,
    process: u32,
    credentials: Option<&Credentials>,
    reference: &Reference,
) -> std::io::Result<()> {
    use base64::Engine as _;
    let auths = credentials.map(|login| {
        let text = format!("{}:{}", login.username, login.password);
        let auth = base64::engine::general_purpose::STANDARD.encode(text);
        let registry = match reference.registry.as_str() {
            "docker.io" => "https://index.docker.io/v1/",
            other => other,
        };
        serde_json::json!({ registry: { "auth": auth } })
    });
    let text = serde_json::json!({ "auths": auths.unwrap_or(serde_json::json!({})) }).to_string();
    // Another task of the step may read the file now, and writes the same.
    let new = folder.join(format!("{LOGIN}-{process}"));
    let mut file = fs::OpenOptions::new();
    file.write(true).create(true).truncate(true).mode(0o600);
    file.open(&new)?.write_all(text.as_bytes())?;
    fs::rename(new, folder.join(LOGIN))
}

#[cfg(test)]
mod tests {
    use super::*;
    use image::Source;
    use std::sync::atomic::{AtomicBool, Ordering};

    #[test]
    fn a_login_is_whole_while_other_tasks_of_the_step_write_it() {
        const ROUNDS: usize = 200;
        let dir = tempfile::tempdir().expect("scratch folder");
        let Ok(Source::Registry(reference)) = "docker://h.example/tools:1".parse() else {
            panic!("an image of a registry");
        };
        let login = Credentials { username: "kim".into(), password: "p".repeat(8000) };
        let write = |process| write_login(dir.path(), process, Some(&login), &reference);
        write(0).expect("written");
        let is_over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                (0..ROUNDS).for_each(|_| write(1).expect("written"));
                is_over.store(true, Ordering::Relaxed);
            });
            while !is_over.load(Ordering::Relaxed) {
                let text = fs::read(dir.path().join(LOGIN)).expect("it is there");
                serde_json::from_slice::<serde_json::Value>(&text).expect("it is whole");
            }
        });
    }
}
