//! dstack's `config.yml` in the folder of the configuration: its projects and their backends are made, or changed, at a start and by
//! `scontrol reconfigure`, and backends that it named before and does not name any more are removed. It is read as the calls about
//! backends are; credentials may be in files that it names.

use crate::auth::principal::server_principal;
use crate::configure::{self, backend};
use crate::http::backends;
use crate::shared::Shared;
use cluster::Command;
use cluster::rights::is_project;
use model::backend::{BackendOrigin, source_name};
use model::reason::Refusal;
use serde_json::Value;
use std::collections::BTreeSet;
use std::fs::File;
use std::io::{ErrorKind, Read};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;

const FILE: &str = "config.yml";

/// The largest of these files.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// A project of the file, with its backends.
#[derive(Debug, PartialEq)]
pub struct ProjectOfFile {
    name: String,
    backends: Vec<Value>,
}

/// What the file says, or what is wrong with it; `None` where there is no file.
pub fn projects(shared: &Shared) -> Result<Option<Vec<ProjectOfFile>>, Refusal> {
    // A folder that the server's user may not read has its files sent by administrators, and this one is not among them.
    let dir = shared.setup.config_dir.as_deref().filter(|dir| configure::may_read(dir));
    dir.map_or(Ok(None), read).map_err(Refusal::Other)
}

/// Makes and changes what the file says, and removes backends that it named before. Those that calls have made stay, and so do all
/// where there is no file: one that is lost must not take the backends along.
pub async fn make(
    shared: &Arc<Shared>,
    projects: Option<Vec<ProjectOfFile>>,
) -> Result<(), Refusal> {
    let Some(projects) = projects else { return Ok(()) };
    let mut sources = BTreeSet::new();
    for ProjectOfFile { name, backends } in projects {
        let is_known = is_project(&shared.read(), &name);
        if !is_known {
            let create = Command::CreateProject { name: name.clone() };
            let made = shared.writer.run(create, server_principal()).await;
            made.map_err(|why| Refusal::Other(format!("{FILE}: project {name}: {why}")))?;
        }
        for given in backends {
            let (by, origin) = (server_principal(), BackendOrigin::File);
            let set = backends::set_from(shared, by, name.clone(), &given, origin).await;
            set.map_err(|why| Refusal::Other(format!("{FILE}: project {name}: {why}")))?;
            sources.insert(source_name(given["type"].as_str().unwrap_or_default(), &name));
        }
    }
    shared.writer.run(Command::RetainFileBackends { sources }, server_principal()).await?;
    still_there(shared)
}

/// Refuses, in one line, to remove backends that have machines or disks: they go with the last of those.
fn still_there(shared: &Shared) -> Result<(), Refusal> {
    let state = shared.read();
    let lines = state.dropped_backends().filter_map(|(backend, held)| {
        let (name, project) = (backend.name(), &backend.project);
        Some(format!("backend {name} of project {project} has {}", held?))
    });
    let lines: Vec<String> = lines.collect();
    if lines.is_empty() {
        return Ok(());
    }
    Err(Refusal::Other(format!(
        "{FILE}: {}: it is not in the file any more, makes nothing new, and is removed when that is gone",
        lines.join("; ")
    )))
}

/// The projects of the file, where there is one, each backend with the text of the files that it names.
fn read(dir: &Path) -> Result<Option<Vec<ProjectOfFile>>, String> {
    let wrong = |why: String| format!("{FILE}: {why}");
    let Some(text) = read_secret(&dir.join(FILE)).map_err(wrong)? else { return Ok(None) };
    let file = dstack::yaml_file::values(text.as_bytes());
    let file = file.map_err(|fault| wrong(fault.to_string()))?;
    let mut found = Vec::new();
    for project in list(&file, "projects").map_err(wrong)? {
        let Some(name) = project["name"].as_str() else {
            return Err(wrong("projects: expected a `name` of each".into()));
        };
        let of_project = |why: String| wrong(format!("project {name}: {why}"));
        let mut backends = Vec::new();
        for given in list(project, "backends").map_err(of_project)? {
            let given = with_texts(given, dir).map_err(of_project)?;
            backend::read(&given, name).map_err(|why| of_project(format!("backend: {why}")))?;
            backends.push(given);
        }
        found.push(ProjectOfFile { name: name.to_owned(), backends });
    }
    Ok(Some(found))
}

/// A list, which may be missing or empty.
fn list<'v>(of: &'v Value, key: &str) -> Result<&'v [Value], String> {
    match &of[key] {
        Value::Null => Ok(&[]),
        Value::Array(items) => Ok(items),
        _ => Err(format!("{key}: expected a list")),
    }
}

/// The backend with `data` in the place of `filename`, of its `creds` or its `kubeconfig`.
fn with_texts(given: &Value, dir: &Path) -> Result<Value, String> {
    let mut given = given.clone();
    for key in ["creds", "kubeconfig"] {
        let Some(of) = given.get_mut(key).and_then(Value::as_object_mut) else { continue };
        let Some(Value::String(file)) = of.remove("filename") else { continue };
        if file.is_empty() {
            continue;
        }
        let wrong = |why: &str| format!("{key}.filename: {file}: {why}");
        let text = read_secret(&dir.join(&file)).map_err(|why| wrong(&why))?;
        let text = text.ok_or_else(|| wrong("there is no such file"))?;
        of.insert("data".to_owned(), text.into());
    }
    Ok(given)
}

/// The text of a file that others may not read; `None` where there is none.
fn read_secret(path: &Path) -> Result<Option<String>, String> {
    let file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(error) if error.kind() == ErrorKind::PermissionDenied => {
            return Err("the server's user may not read it: make that user its owner".into());
        }
        Err(error) => return Err(error.to_string()),
    };
    let facts = file.metadata().map_err(|e| e.to_string())?;
    if facts.mode() & 0o007 != 0 {
        return Err("others may read or change it: chmod o-rwx".into());
    }
    if facts.len() > FILE_BYTES_MAX {
        return Err(format!("{} bytes: expected at most {FILE_BYTES_MAX}", facts.len()));
    }
    let mut text = String::new();
    file.take(FILE_BYTES_MAX).read_to_string(&mut text).map_err(|e| e.to_string())?;
    Ok(Some(text))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::TestServer;
    use serde_json::json;
    use std::os::unix::fs::PermissionsExt;

    const TEXT: &str = "\
projects:
- name: main
  backends:
  - type: lambda
    regions: [us-west-1]
    ssh_key: lab
    endpoint: http://127.0.0.1:1
    creds: {type: api_key, api_key: hush}
- name: vision
  backends:
  - type: kubernetes
    image: lab/base
    runner_image: lab/sluice
    kubeconfig: {filename: kubeconfig}
- name: empty
";

    /// A folder with these files, which nobody else reads.
    fn folder(files: &[(&str, &str)]) -> tempfile::TempDir {
        let dir = tempfile::tempdir().expect("a folder");
        for (name, text) in files {
            let path = dir.path().join(name);
            std::fs::write(&path, text).expect("a file");
            let mode = std::fs::Permissions::from_mode(0o600);
            std::fs::set_permissions(&path, mode).expect("a mode");
        }
        dir
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn projects_and_backends_of_the_file_are_made_and_changed() {
        let server = TestServer::start().await;
        let shared = &server.shared;
        let dir = folder(&[(FILE, TEXT), ("kubeconfig", "hush")]);
        make(shared, read(dir.path()).expect("it is good")).await.expect("made");
        {
            let state = shared.read();
            let names: Vec<&String> = state.backends.keys().collect();
            assert_eq!(names, ["kubernetes-vision", "lambda"]);
            assert_eq!(state.backends["kubernetes-vision"].project, "vision");
            assert!(is_project(&state, "empty"));
        }
        let before = shared.read().backends.clone();
        make(shared, read(dir.path()).expect("it is good")).await.expect("the same");
        assert_eq!(shared.read().backends, before, "nothing is changed by the same file");
        let changed = TEXT.replace("ssh_key: lab", "ssh_key: lab\n    machines: 2");
        let dir = folder(&[(FILE, &changed), ("kubeconfig", "hush")]);
        make(shared, read(dir.path()).expect("it is good")).await.expect("changed");
        assert_eq!(shared.read().backends["lambda"].source.machines_max, 2);
        let mode = std::fs::Permissions::from_mode(0o644);
        std::fs::set_permissions(dir.path().join("kubeconfig"), mode).expect("a mode");
        let said = read(dir.path()).expect_err("others read it");
        assert!(said.contains("kubeconfig.filename: kubeconfig: others may read"), "{said}");
        let long = "#".repeat(FILE_BYTES_MAX as usize + 1);
        let said = read(folder(&[(FILE, &long)]).path()).expect_err("too long");
        assert!(said.contains("config.yml: 1048577 bytes: expected at most 1048576"), "{said}");
        let empty = tempfile::tempdir().expect("a folder");
        assert_eq!(read(empty.path()), Ok(None));
        // A backend that the file names no more is removed; one that a call has made stays, and all where there is no file.
        let pods = json!({"type": "kubernetes", "image": "lab/base", "runner_image": "lab/sluice"});
        backends::set(shared, server_principal(), "empty".into(), &pods).await.expect("by a call");
        make(shared, read(empty.path()).expect("no file")).await.expect("nothing");
        assert_eq!(shared.read().backends.len(), 3);
        let dir = folder(&[(FILE, "projects: [{name: vision}]")]);
        make(shared, read(dir.path()).expect("it is good")).await.expect("removed");
        let state = shared.read();
        assert_eq!(state.backends.keys().collect::<Vec<_>>(), ["kubernetes-empty"]);
        assert!(is_project(&state, "main") && is_project(&state, "vision"), "projects stay");
    }

    #[test]
    fn faults_of_config_yml_are_one_line_with_its_project() {
        for (text, words) in [
            ("projects: 3", "config.yml: projects: expected a list"),
            ("projects: [{backends: []}]", "config.yml: projects: expected a `name` of each"),
            ("projects: [{name: a, backends: {}}]", "project a: backends: expected a list"),
            (
                "projects: [{name: a, backends: [{type: aws, creds: {access_key: hush}}]}]",
                "project a: backend: creds.type: expected access_key or default",
            ),
            (
                "projects: [{name: a, backends: [{type: gcp, creds: {filename: none}}]}]",
                "project a: creds.filename: none: there is no such file",
            ),
        ] {
            let said = read(folder(&[(FILE, text)]).path()).expect_err(text);
            assert!(said.contains(words) && !said.contains("hush"), "{words}: {said}");
        }
    }
}
