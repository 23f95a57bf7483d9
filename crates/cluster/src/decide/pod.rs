//! The pod that a new job would run in, where a source of the cluster makes pods.

use crate::state::State;
use model::container::{Container, ContainerUser};
use model::pod::{PodClaim, PodTemplate, PodUser};
use model::principal::Principal;
use model::reason::Refusal;
use model::run::{JobSpec, LaunchKind};
use model::site::{ContainerSite, TaskUser};
use std::sync::Arc;

impl State {
    /// Says of a new job which pod it would run in. What a client says of it does not count.
    pub(super) fn settle_pod(&self, spec: &mut JobSpec) -> Result<(), Refusal> {
        let sources = || self.sources().map(|source| source.reference());
        let makes_pods = sources().any(|of| of.makes_pods);
        let may_be_root = sources().any(|of| of.makes_root_pods);
        let claims = self.claims_of(spec)?;
        let needs_pod = !claims.is_empty();
        let site = &self.config.site.containers;
        let found = makes_pods.then(|| template(spec, site, claims, may_be_root)).flatten();
        if needs_pod && found.is_none() {
            return Err(Refusal::Other(
                "the job's volumes are claims of Kubernetes, and it needs what a pod does not have \
                 (docs/machines.md)"
                    .into(),
            ));
        }
        if found.as_ref() != spec.request().pod.as_deref() {
            let component = &mut Arc::make_mut(&mut spec.components)[0];
            Arc::make_mut(&mut component.request).pod = found.map(Box::new);
        }
        Ok(())
    }
}

/// The pod of a job; `None` for one that needs what a pod does not have: folders of a node, a container that is
/// kept or saved, rights over the machine, or the image's own command, in whose place the agent runs. `claims`: all of its
/// volumes that a pod can have. `may_be_root`: a source makes pods in which a job is root.
fn template(
    spec: &JobSpec,
    site: &ContainerSite,
    claims: Vec<PodClaim>,
    may_be_root: bool,
) -> Option<PodTemplate> {
    let launch = &spec.launch;
    if launch.volumes.len() != claims.len() {
        return None;
    }
    let own = PodTemplate { claims, ..as_owner(&spec.owner) };
    let Some(container) = &launch.container else {
        // They are for the image of a step, which needs a runtime.
        if launch.registry_auth.is_some() {
            return None;
        }
        let takes_one = launch.kind == LaunchKind::Task && !launch.without_container;
        return match site.default_image.as_deref().filter(|_| takes_one) {
            Some(image) => Some(PodTemplate { image: Some(registry_image(image)?), ..own }),
            None => Some(own),
        };
    };
    let may_be_other = may_be_root && own.uid != 0;
    let user = pod_user(&container.user, site.task_user, may_be_other)?;
    if !is_a_pods(container) {
        return None;
    }
    let image = Some(registry_image(container.image.as_deref()?)?);
    let has_registry_auth = launch.registry_auth.is_some();
    Some(PodTemplate { image, user, has_registry_auth, ..own })
}

fn as_owner(owner: &Principal) -> PodTemplate {
    PodTemplate {
        image: None,
        uid: owner.uid,
        gid: owner.gid,
        groups: owner.groups.clone(),
        user: PodUser::JobUser,
        has_registry_auth: false,
        claims: Vec::new(),
    }
}

/// Who the processes of a pod are for a container of this user; `None` where that is one whom a pod does not have. `may_be_other`: a
/// source makes pods in which a job is another than its own user.
fn pod_user(user: &ContainerUser, of_tasks: TaskUser, may_be_other: bool) -> Option<PodUser> {
    match user {
        user if may_be_other && asks_for_root(user) => Some(PodUser::Root),
        ContainerUser::OfImage if may_be_other && of_tasks == TaskUser::Image => {
            Some(PodUser::OfImage)
        }
        ContainerUser::JobUser | ContainerUser::Root | ContainerUser::OfImage => {
            Some(PodUser::JobUser)
        }
        ContainerUser::Named(_) => None,
    }
}

/// Whether the processes of the container are to be root inside it, by the name or the number of root and of its group.
fn asks_for_root(user: &ContainerUser) -> bool {
    match user {
        ContainerUser::Root => true,
        ContainerUser::Named(name) => {
            let mut parts = name.split(':');
            parts.next().is_some_and(|user| matches!(user, "root" | "0"))
                && parts.all(|group| matches!(group, "root" | "0"))
        }
        ContainerUser::JobUser | ContainerUser::OfImage => false,
    }
}

fn is_a_pods(container: &Container) -> bool {
    let needs_runtime = container.privileged
        || container.docker
        || container.own_command
        || container.entrypoint
        || container.read_only;
    let is_kept = container.name.is_some() || container.save.is_some();
    let is_mounted = container.mounts.iter().any(|mount| !mount.optional);
    !needs_runtime && !is_kept && !is_mounted && container.command.is_empty()
}

/// The image as Kubernetes names it; `None` for a file or a folder of a node. `docker://` is taken off, and
/// `nvcr.io#nvidia/cuda` is `nvcr.io/nvidia/cuda`.
fn registry_image(text: &str) -> Option<String> {
    let name = text.strip_prefix("docker://").unwrap_or(text);
    let is_plain = |b: u8| b.is_ascii_alphanumeric() || b"._-/:@#".contains(&b);
    let is_file = name.starts_with(['/', '.', '~']) || name.ends_with(".sif");
    let is_name = !name.is_empty() && !is_file && !name.contains("://");
    let is_name = is_name && name.bytes().all(is_plain);
    is_name.then(|| name.replacen('#', "/", 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn images_of_registries_are_named_as_kubernetes_does_and_files_are_none() {
        let table = [
            ("ubuntu:24.04", Some("ubuntu:24.04")),
            ("docker://ghcr.io/lab/tool@sha256:ab", Some("ghcr.io/lab/tool@sha256:ab")),
            ("nvcr.io#nvidia/cuda:12", Some("nvcr.io/nvidia/cuda:12")),
            ("/images/tool.sif", None),
            ("tool.sif", None),
            ("./bundle", None),
            ("oras://x/y", None),
            ("two words", None),
            ("", None),
        ];
        for (text, image) in table {
            assert_eq!(registry_image(text).as_deref(), image, "{text}");
        }
    }

    #[test]
    fn root_is_asked_for_by_name_and_by_number() {
        let named = |name: &str| asks_for_root(&ContainerUser::Named(name.to_owned()));
        assert!(["root", "0", "root:root", "0:0", "root:0"].into_iter().all(named));
        assert!(!["app", "1000", "root:app", "0:5", "", "rooty"].into_iter().any(named));
        assert!(asks_for_root(&ContainerUser::Root) && !asks_for_root(&ContainerUser::OfImage));
    }

    #[test]
    fn job_is_another_user_in_its_pod_only_where_the_site_lets_it() {
        let (root, app) = (ContainerUser::Named("root".into()), ContainerUser::Named("app".into()));
        let of = |user: &ContainerUser, may: bool| pod_user(user, TaskUser::Image, may);
        assert_eq!((of(&root, true), of(&root, false)), (Some(PodUser::Root), None));
        assert_eq!((of(&app, true), of(&app, false)), (None, None));
        let image = ContainerUser::OfImage;
        assert_eq!(of(&image, true), Some(PodUser::OfImage));
        assert_eq!(of(&image, false), Some(PodUser::JobUser));
        assert_eq!(pod_user(&image, TaskUser::Job, true), Some(PodUser::JobUser));
    }

    #[test]
    fn container_that_needs_its_node_is_no_pods() {
        let plain = Container { image: Some("ubuntu".into()), ..Container::default() };
        assert!(is_a_pods(&plain));
        for other in [
            Container { privileged: true, ..plain.clone() },
            Container { own_command: true, ..plain.clone() },
            Container { save: Some("/tmp/x".into()), ..plain.clone() },
            Container { command: vec!["run".into()], ..plain.clone() },
        ] {
            assert!(!is_a_pods(&other), "{other:?}");
        }
    }
}
