//! The caller's own credentials for the registry of an image, as Docker and Enroot keep them. The files are read by the
//! command itself, with the rights of its user; what is found goes to the server with the job.

use super::messages::print_line;
use ::slurm::option::Command;
use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use image::{Reference, Source};
use model::container::Container;
use model::secret::{RegistryAuth, SecretValue};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{ErrorKind, Read};
use std::path::{Path, PathBuf};

const FILE_BYTES_MAX: u64 = 1 << 20;

/// Docker Hub, and the names under which both programs keep its credentials.
const DOCKER_HUB: &str = "docker.io";
const DOCKER_HUB_NAMES: [&str; 4] =
    [DOCKER_HUB, "https://index.docker.io/v1/", "index.docker.io", "auth.docker.io"];

/// The credentials for the image of a container; `None` for a path, and where none are kept. A file that is
/// garbled is reported, and the image is asked for without credentials.
pub fn of_container(command: Command, container: Option<&Container>) -> Option<RegistryAuth> {
    let image = container?.image.as_deref()?;
    let Ok(Source::Registry(reference)) = image.parse() else { return None };
    let found = [of_enroot(&reference), of_docker(&reference)].into_iter().find_map(|found| {
        found.unwrap_or_else(|why| {
            print_line(command, &format!("warning: {why}"));
            None
        })
    });
    found.map(|(username, password)| RegistryAuth {
        username: literal(&username),
        password: literal(&password),
    })
}

/// A text that refers to nothing, whatever is in it.
fn literal(text: &str) -> SecretValue {
    SecretValue(text.replace('$', "$$"))
}

type Login = (String, String);

fn variable_or_home(variable: &str, below_home: &str) -> Option<PathBuf> {
    let set = |name| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    set(variable).or_else(|| Some(set("HOME")?.join(below_home)))
}

fn read(path: &Path) -> Result<Option<String>, String> {
    let failed = |error: std::io::Error| format!("{}: {error}", path.display());
    let mut text = String::new();
    match File::open(path) {
        Ok(file) => file.take(FILE_BYTES_MAX).read_to_string(&mut text).map_err(failed)?,
        // `HOME` may be another user's, under `su` and the like.
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::PermissionDenied) => {
            return Ok(None);
        }
        Err(error) => return Err(failed(error)),
    };
    Ok(Some(text))
}

/// The names under which a registry's credentials may be kept.
fn names(reference: &Reference) -> Vec<&str> {
    match reference.registry.as_str() {
        DOCKER_HUB => DOCKER_HUB_NAMES.to_vec(),
        registry => vec![registry],
    }
}

fn of_docker(reference: &Reference) -> Result<Option<Login>, String> {
    let Some(folder) = variable_or_home("DOCKER_CONFIG", ".docker") else { return Ok(None) };
    let path = folder.join("config.json");
    let Some(text) = read(&path)? else { return Ok(None) };
    docker_login(&text, &names(reference)).map_err(|why| format!("{}: {why}", path.display()))
}

#[derive(Deserialize)]
struct DockerConfig {
    #[serde(default)]
    auths: BTreeMap<String, DockerAuth>,
}

#[derive(Deserialize)]
struct DockerAuth {
    /// `user:password` in base 64; absent where a helper program keeps it.
    #[serde(default)]
    auth: String,
}

fn docker_login(text: &str, names: &[&str]) -> Result<Option<Login>, String> {
    // Serde's own words may quote the file.
    let config: DockerConfig = serde_json::from_str(text)
        .map_err(|e| format!("line {}: expected the JSON of docker login", e.line()))?;
    let bare = |name: &str| name.trim_start_matches("https://").trim_end_matches('/').to_owned();
    let mut auths = config.auths.into_iter().filter(|(_, found)| !found.auth.is_empty());
    let found = auths.find(|(host, _)| names.iter().any(|name| bare(name) == bare(host)));
    let Some((host, found)) = found else { return Ok(None) };
    let wrong = || format!("auths: {host}: expected user:password in base 64");
    let bytes = BASE64.decode(found.auth.trim()).map_err(|_| wrong())?;
    let login = String::from_utf8(bytes).map_err(|_| wrong())?;
    let (user, password) = login.split_once(':').ok_or_else(wrong)?;
    Ok(Some((user.to_owned(), password.to_owned())))
}

fn of_enroot(reference: &Reference) -> Result<Option<Login>, String> {
    let Some(folder) = variable_or_home("ENROOT_CONFIG_PATH", ".config/enroot") else {
        return Ok(None);
    };
    let Some(text) = read(&folder.join(".credentials"))? else { return Ok(None) };
    Ok(enroot_login(&text, &names(reference), reference.user.as_deref()))
}

/// `machine HOST login USER password PASSWORD`, as in `.netrc`; of several entries the first that fits.
fn enroot_login(text: &str, names: &[&str], user: Option<&str>) -> Option<Login> {
    let lines = text.lines().filter(|line| !line.trim_start().starts_with('#'));
    let words: Vec<&str> = lines.flat_map(str::split_whitespace).collect();
    let entries = words.split(|word| *word == "machine" || *word == "default").skip(1);
    let mut logins = entries.filter_map(|entry| {
        let (host, rest) = entry.split_first()?;
        let value = |key: &str| {
            let mut pairs = rest.chunks_exact(2);
            pairs.find(|pair| pair[0] == key).map(|pair| pair[1].to_owned())
        };
        let fits = names.contains(host);
        fits.then(|| Some((value("login")?, value("password")?))).flatten()
    });
    logins.find(|(login, _)| user.is_none_or(|user| user == login))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn login(user: &str, password: &str) -> Option<Login> {
        Some((user.to_owned(), password.to_owned()))
    }

    #[test]
    fn docker_keeps_logins_by_host() {
        let auth = BASE64.encode("ann:a:b$");
        let text = format!(
            r#"{{"auths": {{"lab:5000": {{"auth": "{auth}"}}, "https://index.docker.io/v1/": {{"auth": "{auth}"}},
                "helped": {{}}, "bad": {{"auth": "!"}}}}, "credsStore": "desktop"}}"#
        );
        assert_eq!(docker_login(&text, &["lab:5000"]), Ok(login("ann", "a:b$")));
        assert_eq!(docker_login(&text, &DOCKER_HUB_NAMES), Ok(login("ann", "a:b$")));
        assert_eq!(docker_login(&text, &["lab"]), Ok(None));
        assert_eq!(docker_login(&text, &["helped"]), Ok(None));
        assert!(docker_login(&text, &["bad"]).is_err());
        let garbled = docker_login("{\"auths\": {\"a\": \"hush\"}}", &["a"]).unwrap_err();
        assert!(!garbled.contains("hush"), "{garbled}");
    }

    #[test]
    fn enroot_keeps_logins_as_netrc_does() {
        let text = "# lab\nmachine lab:5000 login ann password one\nmachine lab:5000\n  login bob\n  password two\n\
                    machine auth.docker.io login cat password three\n";
        assert_eq!(enroot_login(text, &["lab:5000"], None), login("ann", "one"));
        assert_eq!(enroot_login(text, &["lab:5000"], Some("bob")), login("bob", "two"));
        assert_eq!(enroot_login(text, &["lab:5000"], Some("eve")), None);
        assert_eq!(enroot_login(text, &DOCKER_HUB_NAMES, None), login("cat", "three"));
        assert_eq!(enroot_login("machine", &["lab"], None), None);
    }

    #[test]
    fn kept_login_refers_to_nothing() {
        assert_eq!(literal("a${{ secrets.x }}").0, "a$${{ secrets.x }}");
    }
}
