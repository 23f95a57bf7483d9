//! The sources that are in use, of sluice.toml and of backends. A source is kept between calls: connections, tokens of a cloud and
//! what it told of its types are good for longer than one call.

use super::cloud::ec2::Ec2Source;
use super::cloud::gcp::GcpSource;
use super::cloud::lambda::LambdaSource;
use super::cloud::secret::SecretText;
use super::kubernetes::KubernetesSource;
use super::program_source::ProgramSource;
use super::source::{MachineSource, SourceError};
use crate::secret::backend;
use crate::shared::Shared;
use model::cloud_source::SourceKind;
use model::machine::SourceConfig;
use std::collections::HashMap;
use std::sync::Arc;

struct Opened {
    config: SourceConfig,
    cluster: String,
    given: Option<SecretText>,
    source: Arc<dyn MachineSource>,
}

/// By name.
#[derive(Default)]
pub struct OpenSources(HashMap<String, Opened>);

impl OpenSources {
    /// The source, opened anew where its configuration, or what a backend's credentials are, is another.
    pub fn open(
        &mut self,
        shared: &Shared,
        config: &SourceConfig,
    ) -> Result<Arc<dyn MachineSource>, SourceError> {
        let given = backend::credentials(shared, &config.name)
            .map_err(|why| SourceError::refused(format!("credentials of the backend: {why}")))?;
        let given = given.map(|text| SecretText::new(text.0));
        let cluster = shared.read().config.name.clone();
        let is_same =
            |of: &&Opened| of.config == *config && of.cluster == cluster && of.given == given;
        if let Some(known) = self.0.get(&config.name).filter(is_same) {
            return Ok(known.source.clone());
        }
        let source = open(config, &cluster, given.as_ref());
        let (name, config) = (config.name.clone(), config.clone());
        self.0.insert(name, Opened { config, cluster, given, source: source.clone() });
        Ok(source)
    }
}

fn open(
    config: &SourceConfig,
    cluster: &str,
    given: Option<&SecretText>,
) -> Arc<dyn MachineSource> {
    match &config.kind {
        SourceKind::Program(program) => Arc::new(ProgramSource {
            config: config.clone(),
            program: program.clone(),
            cluster: cluster.to_owned(),
        }),
        SourceKind::Aws(cloud) => Arc::new(Ec2Source::new(config, cloud, cluster, given)),
        SourceKind::Gcp(cloud) => Arc::new(GcpSource::new(config, cloud, cluster, given)),
        SourceKind::Lambda(cloud) => Arc::new(LambdaSource::new(config, cloud, cluster, given)),
        SourceKind::Kubernetes(pods) => {
            Arc::new(KubernetesSource::new(config, pods, cluster, given))
        }
    }
}
