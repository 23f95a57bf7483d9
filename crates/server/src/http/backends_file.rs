//! dstack's `config.yml` in the folder of the configuration: its projects and their backends are made, or changed, at a start and by
//! `scontrol reconfigure`, and backends that it named before and does not name any more are removed. It is read as the calls about
//! backends are.

use crate::auth::principal::server_principal;
use crate::configure;
use crate::configure::projects_file::{FILE, ProjectOfFile, ProjectsFile, read};
use crate::http::backends;
use crate::shared::Shared;
use cluster::Command;
use cluster::rights::is_project;
use model::backend::BackendOrigin;
use model::reason::Refusal;
use std::collections::BTreeSet;
use std::sync::Arc;

/// What the file says, or what is wrong with it; `None` where there is no file. What has no effect is said in the log.
pub fn projects(shared: &Shared) -> Result<Option<ProjectsFile>, Refusal> {
    // A folder that the server's user may not read has its files sent by administrators, and this one is not among them.
    let dir = shared.setup.config_dir.as_deref().filter(|dir| configure::may_read(dir));
    let file = dir.map_or(Ok(None), read).map_err(Refusal::Other)?;
    for notice in file.iter().flat_map(|file| &file.notices) {
        tracing::info!("{notice}");
    }
    Ok(file)
}

/// Makes and changes what the file says, and removes backends that it named before. Those that calls have made stay, and so do all
/// where there is no file: one that is lost must not take the backends along. What is refused is told in one line, after the rest
/// was made.
pub async fn make(shared: &Arc<Shared>, file: Option<ProjectsFile>) -> Result<(), Refusal> {
    let Some(ProjectsFile { projects, mut refused, .. }) = file else { return Ok(()) };
    match make_all(shared, projects).await {
        Ok(()) => refused.extend(still_there(shared)),
        Err(why) => refused.push(why.to_string()),
    }
    if refused.is_empty() { Ok(()) } else { Err(Refusal::Other(refused.join("; "))) }
}

async fn make_all(shared: &Arc<Shared>, projects: Vec<ProjectOfFile>) -> Result<(), Refusal> {
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
            let source = given.source.name.clone();
            let set = backends::set_from(shared, by, name.clone(), given, origin).await;
            set.map_err(|why| Refusal::Other(format!("{FILE}: project {name}: {why}")))?;
            sources.insert(source);
        }
    }
    shared.writer.run(Command::RetainFileBackends { sources }, server_principal()).await?;
    Ok(())
}

/// What is said of backends that are to be removed and have machines or disks: they go with the last of those.
fn still_there(shared: &Shared) -> Option<String> {
    let state = shared.read();
    let lines = state.dropped_backends().filter_map(|(backend, held)| {
        let (name, project) = (backend.name(), &backend.project);
        Some(format!("backend {name} of project {project} has {}", held?))
    });
    let lines: Vec<String> = lines.collect();
    let told = lines.join("; ");
    (!lines.is_empty()).then(|| {
        format!(
            "{FILE}: {told}: it is not in the file any more, makes nothing new, and is removed when that is gone"
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::configure::projects_file::tests::folder;
    use crate::testing::TestServer;
    use serde_json::{Value, json};

    const TEXT: &str = "\
projects:
- name: main
  backends:
  - type: lambda
    regions: [us-west-1]
    ssh_key: lab
    endpoint: http://127.0.0.1:1
    prices: /etc/sluice/prices.json
    creds: {type: api_key, api_key: hush}
- name: vision
  backends:
  - type: kubernetes
    image: lab/base
    runner_image: lab/sluice
    kubeconfig: {filename: kubeconfig}
- name: empty
";

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
        // A call that sends back what is shown does not take the price file away.
        let lambda = shared.read().backends["lambda"].clone();
        let mut shown: Value = serde_json::from_str(&lambda.configuration).expect("JSON");
        assert_eq!(shown["prices"], Value::Null);
        shown["machines"] = json!(3);
        backends::set(shared, server_principal(), "main".into(), &shown).await.expect("by a call");
        let changed = shared.read().backends["lambda"].clone();
        assert_eq!((changed.source.machines_max, changed.origin), (3, BackendOrigin::File));
        assert_eq!(changed.source.kind, lambda.source.kind);
        let empty = tempfile::tempdir().expect("a folder");
        assert_eq!(read(empty.path()), Ok(None));
        // A backend that the file names no more is removed; one that a call has made stays, and all where there is no file.
        let pods = json!({"type": "kubernetes", "image": "lab/base", "runner_image": "lab/sluice"});
        backends::set(shared, server_principal(), "empty".into(), &pods).await.expect("by a call");
        make(shared, read(empty.path()).expect("no file")).await.expect("nothing");
        assert_eq!(shared.read().backends.len(), 3);
        // A type without a source is refused by its name, and the others are made all the same.
        let runpod =
            TEXT.replace("- name: empty\n", "- name: empty\n  backends: [{type: runpod}]\n");
        let dir = folder(&[(FILE, &runpod), ("kubeconfig", "hush")]);
        let said = make(shared, read(dir.path()).expect("it is read")).await.expect_err("runpod");
        let line = "config.yml: project empty: backend: type: \"runpod\": expected aws";
        assert!(said.to_string().starts_with(line), "{said}");
        assert_eq!(shared.read().backends["lambda"].source.machines_max, 8);
        assert_eq!(shared.read().backends.len(), 3);
        let dir = folder(&[(FILE, "projects: [{name: vision}]")]);
        make(shared, read(dir.path()).expect("it is good")).await.expect("removed");
        let state = shared.read();
        assert_eq!(state.backends.keys().collect::<Vec<_>>(), ["kubernetes-empty"]);
        assert!(is_project(&state, "main") && is_project(&state, "vision"), "projects stay");
    }
}
