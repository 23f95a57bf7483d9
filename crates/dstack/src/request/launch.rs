//! What a run starts with: its script, its environment, its container and what it brings along.

use super::{RequestError, Submitter};
use crate::configuration::env::{ResolvedVariable, fill_variables};
use crate::configuration::policy::StopCriteria;
use crate::configuration::task::{self, Port, Task};
use crate::script;
use model::container::{Container, ContainerPorts, ContainerUser, Mount, Variables};
use model::interpolation::{self, Piece, Place, Reference};
use model::os_text;
use model::port_forward::{PortForward, PortForwards};
use model::replica_group::GroupRole;
use model::run::{Launch, LaunchKind};
use model::secret::{RegistryAuth, SecretValue};
use model::service::Service;
use model::volume::VolumeUse;
use std::sync::Arc;
use std::time::Duration;
use wire::workspace::Workspace;

/// The variables of the submitting client that a run gets; dstack passes no others on.
const FROM_CLIENT: [&str; 5] = ["HOME", "PATH", "USER", "SHELL", "LANG"];

/// The commands as one script. References to nodes of groups become references to ranks, as nodes of the first group: an
/// address is filled in when the nodes are known.
pub(super) fn script(task: &Task) -> Result<String, RequestError> {
    let mut ends: Vec<u32> = Vec::new();
    for group in &task.groups {
        ends.push(ends.last().unwrap_or(&0).saturating_add(group.nodes));
    }
    let rank = |group: u32, node: u32| {
        let named = task.groups.get(group as usize).filter(|named| node < named.nodes)?;
        Some(ends[group as usize] - named.nodes + node)
    };
    let text = if let Some(words) = entrypoint(task) {
        script::of_words(&words)
    } else if task.groups.is_empty() {
        let docker = task.container.docker.then(|| script::START_DOCKER.to_owned());
        let commands: Vec<String> = docker.into_iter().chain(task.commands.clone()).collect();
        script::script(&task.shell, &commands)
    } else {
        if !script::is_posix(&task.shell) {
            return Err(RequestError::ShellOfGroups(task.shell.0.clone()));
        }
        let docker = task.container.docker.then(|| script::START_DOCKER.to_owned());
        let own = task.groups.iter().map(|group| match &group.commands[..] {
            [] => &task.commands[..],
            own => own,
        });
        let own: Vec<Vec<String>> =
            own.map(|own| docker.iter().chain(own).cloned().collect()).collect();
        let groups: Vec<(u32, &[String])> =
            ends.iter().copied().zip(own.iter().map(Vec::as_slice)).collect();
        script::of_groups(&task.shell, &groups)
    };
    let pieces = interpolation::parse(&text, Place::Command);
    let pieces = pieces.map_err(|error| RequestError::Reference(error.to_string()))?;
    let mut written = String::new();
    for piece in pieces {
        match piece {
            // What is no reference stays none.
            Piece::Text(text) => written.push_str(&text.replace("${{", "$${{")),
            Piece::Reference(Reference::NodeAddress { group, node }) => {
                let unknown = || Reference::NodeAddress { group, node }.text();
                let rank = rank(group, node).ok_or_else(|| {
                    RequestError::Reference(format!("{}: there is no such node", unknown()))
                })?;
                written.push_str(&Reference::NodeAddress { group: 0, node: rank }.text());
            }
            Piece::Reference(other) => written.push_str(&other.text()),
        }
    }
    Ok(written)
}

pub(super) fn launch(
    task: &Task,
    own: &[ResolvedVariable],
    submitter: &Submitter<'_>,
) -> Result<Launch, RequestError> {
    let with_secrets = own.iter().filter(|variable| variable.has_secrets);
    let work_dir = task.working_dir.as_deref().unwrap_or(submitter.work_dir).to_owned();
    Ok(Launch {
        secret_variables: with_secrets.map(|variable| variable.name.clone()).collect(),
        has_project_secrets: false,
        registry_auth: None,
        workspace: None,
        git_credentials: None,
        kind: LaunchKind::Task,
        script: None,
        environment: None,
        arguments: Vec::new(),
        work_dir: os_text::from_text(work_dir).into(),
        command: submitter.file.as_deref().map(Into::into),
        stdin: None,
        stdout: None,
        stderr: None,
        first_step: None,
        configuration: None,
        blob_bytes: Default::default(),
        volumes: task.volumes.iter().filter_map(volume_use).collect::<Result<_, _>>()?,
        without_container: task.container.is_refused,
        shared_memory: task.resources.shm_size.filter(|_| !task.container.is_named()),
        startup_order: task.startup_order,
        ends_with_first_node: task.stop_criteria == StopCriteria::MasterDone,
        limit_s: task.max_duration.and_then(|length| u32::try_from(length.as_secs()).ok()),
        stop_s: task.stop_duration.map(stop_s),
        login_environment: None,
        unattended: false,
        append_output: false,
        umask: submitter.umask,
        rlimits: Arc::default(),
        rlimits_asked: false,
        sample_s: None,
        container: container(task)?.map(Box::new),
        service: service(task, own)?.map(Box::new),
        port_forwards: port_forwards(task)?.map(Box::new),
    })
}

/// `off` lets a run take as long as it wants to stop.
fn stop_s(length: Option<Duration>) -> u32 {
    length.and_then(|length| u32::try_from(length.as_secs()).ok()).unwrap_or(u32::MAX)
}

/// What runs in place of a shell: dstack's `entrypoint` with the commands as its arguments.
fn entrypoint(task: &Task) -> Option<Vec<String>> {
    let own = &task.container.entrypoint;
    (!own.is_empty()).then(|| own.iter().chain(&task.commands).cloned().collect())
}

/// The container of a task with an image: its own files and variables, with what the task names besides.
fn container(task: &Task) -> Result<Option<Container>, RequestError> {
    let asked = &task.container;
    if !asked.is_named() {
        return Ok(None);
    }
    Ok(Some(Container {
        // Docker's image is the site's to choose.
        image: asked.image.clone(),
        docker: asked.docker,
        privileged: asked.privileged || asked.docker,
        mounts: task.volumes.iter().filter_map(mount).collect(),
        user: match &asked.user {
            Some(user) => ContainerUser::Named(user.clone()),
            None => ContainerUser::OfImage,
        },
        command: entrypoint(task).unwrap_or_default(),
        work_dir: task.working_dir.clone(),
        variables: Variables::All,
        shared_memory: task.resources.shm_size,
        ports: ports(task)?,
        own_command: asked.entrypoint.is_empty()
            && task.commands.is_empty()
            && task.groups.is_empty(),
        isolated: true,
        ..Container::default()
    }))
}

/// The ports that a client which is attached to the run brings to its machine.
fn port_forwards(task: &Task) -> Result<Option<PortForwards>, RequestError> {
    if task.ports.is_empty() {
        return Ok(None);
    }
    let forward = |port: &Port| PortForward { of_run: port.of_run, local: port.local };
    Ok(Some(PortForwards::new(task.ports.iter().map(forward).collect())?))
}

/// The ports of the run; those that its groups name are of runs on several nodes, which have their nodes' network. A router connects to
/// its workers from another node: a port of the node leads to each.
fn ports(task: &Task) -> Result<ContainerPorts, RequestError> {
    let worker = task.service.as_ref().filter(|service| service.role() == GroupRole::Worker);
    let named = task.ports.iter().map(|port| port.of_run);
    Ok(ContainerPorts::new(named.chain(worker.map(|service| service.port)).collect())?)
}

/// What is prepared on the node for a run. Whoever submits it fills in the files and the repository that it brings along.
/// Without a `working_dir` such a run starts in a folder of its own, so that what it brings replaces nothing of its user's.
pub(super) fn workspace(task: &Task) -> Option<Workspace> {
    let own_folder = brings_files(task) && task.working_dir.is_none() && !task.container.is_named();
    let (python, nvcc) = (task.python.clone(), task.container.nvcc);
    let is_needed = brings_files(task) || python.is_some() || nvcc;
    let single_branch = task.single_branch;
    is_needed.then(|| Workspace { own_folder, single_branch, python, nvcc, ..Workspace::default() })
}

fn brings_files(task: &Task) -> bool {
    !task.files.is_empty() || !task.repos.is_empty()
}

/// The credentials for the image, with the values of the run's variables. References to secrets stay, also those in a variable; the
/// `$` of any other value is the value's own.
pub(super) fn registry_auth(
    task: &Task,
    own: &[ResolvedVariable],
) -> Result<Option<RegistryAuth>, RequestError> {
    let Some((username, password)) =
        task.container.registry_auth.as_ref().filter(|_| task.container.image.is_some())
    else {
        return Ok(None);
    };
    let value = |name: &str| {
        let ResolvedVariable { value, has_secrets, .. } = variable(own, name)?;
        Some(if *has_secrets { value.clone() } else { value.replace('$', "$$") })
    };
    let filled = |text: &str| {
        let filled = fill_variables(text, &value).map(SecretValue);
        filled.map_err(|name| RequestError::Variable { property: "registry_auth", name })
    };
    Ok(Some(RegistryAuth { username: filled(username)?, password: filled(password)? }))
}

/// What requests are passed on to, with the values of the run's variables in its probes. A probe is made by the server, which
/// gives secrets to runs alone.
fn service(task: &Task, own: &[ResolvedVariable]) -> Result<Option<Service>, RequestError> {
    let Some(mut service) = task.service.clone() else { return Ok(None) };
    let value = |name: &str| {
        let variable = variable(own, name).filter(|variable| !variable.has_secrets)?;
        Some(variable.value.clone())
    };
    let fill = |text: &mut String| {
        *text = fill_variables(text, &value)
            .map_err(|name| RequestError::Variable { property: "probes", name })?;
        Ok::<(), RequestError>(())
    };
    for probe in &mut service.probes {
        fill(&mut probe.url)?;
        for (_, value) in &mut probe.headers {
            fill(value)?;
        }
        if let Some(body) = &mut probe.body {
            fill(body)?;
        }
    }
    service.check().map_err(RequestError::Service)?;
    Ok(Some(service))
}

fn variable<'a>(own: &'a [ResolvedVariable], name: &str) -> Option<&'a ResolvedVariable> {
    own.iter().find(|variable| variable.name == name)
}

/// A volume that has a name: one that was created, or with `instance: true` a folder of each node.
fn volume_use(volume: &task::Mount) -> Option<Result<VolumeUse, RequestError>> {
    let (used, instance) = match volume {
        task::Mount::Volume { names, path } => (VolumeUse::one_of(names, path), false),
        task::Mount::Named { name, path } => (VolumeUse::new(name, path), true),
        task::Mount::Instance { .. } => return None,
    };
    Some(used.map(|used| VolumeUse { instance, ..used }).map_err(Into::into))
}

/// A folder of the node, opened with the rights of the run's user.
fn mount(volume: &task::Mount) -> Option<Mount> {
    let task::Mount::Instance { instance_path, path, optional } = volume else { return None };
    let (source, target) = (instance_path.clone(), path.clone());
    Some(Mount { source, target, read_only: false, optional: *optional })
}

pub(super) fn environment(
    task: &Task,
    own: &[ResolvedVariable],
    submitter: &Submitter<'_>,
) -> String {
    let is_own = |name: &str| own.iter().any(|variable| variable.name == name);
    // An image has its own home and paths.
    let from_client: &[&str] = if task.container.is_named() { &[] } else { &FROM_CLIENT };
    let inherited = from_client.iter().filter(|name| !is_own(name));
    let mut text = String::new();
    for name in inherited {
        if let Some(value) = (submitter.variable)(name) {
            text.push_str(&format!("{name}={value}\0"));
        }
    }
    for ResolvedVariable { name, value, .. } in own {
        text.push_str(&format!("{name}={value}\0"));
    }
    os_text::from_text(text)
}
