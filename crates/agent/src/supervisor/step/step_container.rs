//! The container of a step's processes: its job's, or its own.

use crate::spool::LaunchRecord;
use model::container::{Container, NO_CONTAINER};
use model::secret::RegistryAuth;
use std::borrow::Cow;
use wire::step::StepLaunch;

pub(super) struct StepContainer<'a> {
    pub request: Cow<'a, Container>,
    /// For the registry of its image.
    pub auth: Option<&'a RegistryAuth>,
    /// The folder in which its image was named.
    pub image_dir: &'a str,
}

/// Who named the image.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum NamedBy {
    Job,
    Step,
}

impl<'a> StepContainer<'a> {
    /// `None` for a step on the node itself.
    pub fn of(record: &'a LaunchRecord, launch: &'a StepLaunch) -> Option<StepContainer<'a>> {
        let of_job = &record.launch;
        let (request, named_by) = choose(launch.container.as_deref(), of_job.container.as_deref())?;
        let (auth, image_dir) = match named_by {
            NamedBy::Job => (&of_job.registry_auth, &of_job.work_dir),
            NamedBy::Step => (&launch.registry_auth, &launch.work_dir),
        };
        Some(StepContainer { request, auth: auth.as_ref(), image_dir })
    }
}

/// The step's own container, else its job's. One that names neither an image nor a container that is there has its job's image,
/// and nothing else of its job's.
fn choose<'a>(
    own: Option<&'a Container>,
    of_job: Option<&'a Container>,
) -> Option<(Cow<'a, Container>, NamedBy)> {
    let (request, named_by) = match (own, of_job) {
        (None, of_job) => (Cow::Borrowed(of_job?), NamedBy::Job),
        (Some(own), Some(job)) if own.has_image_of_job() => {
            let with_image = Container { image: job.image.clone(), ..own.clone() };
            (Cow::Owned(with_image), NamedBy::Job)
        }
        (Some(own), _) => (Cow::Borrowed(own), NamedBy::Step),
    };
    let is_container = request.image.as_deref() != Some(NO_CONTAINER);
    is_container.then_some((request, named_by))
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::container::ContainerName;

    #[test]
    fn step_has_its_own_container_or_its_jobs_or_its_jobs_image() {
        let image = |image: &str| Container { image: Some(image.into()), ..Container::default() };
        let job = Container { read_only: true, ..image("./job.sif") };
        let chosen = |own: Option<&Container>, job: Option<&Container>| {
            choose(own, job).map(|(request, named_by)| (request.into_owned(), named_by))
        };
        assert_eq!(chosen(None, None), None);
        assert_eq!(chosen(None, Some(&job)), Some((job.clone(), NamedBy::Job)));
        let own = image("alpine");
        assert_eq!(chosen(Some(&own), Some(&job)), Some((own.clone(), NamedBy::Step)));
        assert_eq!(chosen(Some(&image("none")), Some(&job)), None);
        let flags = Container { work_dir: Some("/opt".into()), ..Container::default() };
        let with_image = Container { work_dir: Some("/opt".into()), ..image("./job.sif") };
        assert_eq!(chosen(Some(&flags), Some(&job)), Some((with_image, NamedBy::Job)));
        assert_eq!(chosen(Some(&flags), None), Some((flags.clone(), NamedBy::Step)));
        let name = ContainerName::parse("n").ok();
        let named = Container { name, ..Container::default() };
        assert_eq!(chosen(Some(&named), Some(&job)), Some((named.clone(), NamedBy::Step)));
    }
}
