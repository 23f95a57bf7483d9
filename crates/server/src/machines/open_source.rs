//! The sources that are in use, as sluice.toml names them. A source is kept between calls: connections, tokens of a cloud and
//! what it told of its types are good for longer than one call.

use super::cloud::ec2::Ec2Source;
use super::cloud::gcp::GcpSource;
use super::cloud::lambda::LambdaSource;
use super::kubernetes::KubernetesSource;
use super::program_source::ProgramSource;
use super::source::MachineSource;
use model::cloud_source::SourceKind;
use model::machine::SourceConfig;
use std::collections::HashMap;
use std::sync::Arc;

struct Opened {
    config: SourceConfig,
    cluster: String,
    source: Arc<dyn MachineSource>,
}

/// By name.
#[derive(Default)]
pub struct OpenSources(HashMap<String, Opened>);

impl OpenSources {
    /// The source, opened anew where its configuration is another.
    pub fn open(&mut self, config: &SourceConfig, cluster: &str) -> Arc<dyn MachineSource> {
        let known = self.0.get(&config.name);
        if let Some(known) = known.filter(|of| of.config == *config && of.cluster == cluster) {
            return known.source.clone();
        }
        let source = open(config, cluster);
        let (config, cluster) = (config.clone(), cluster.to_owned());
        let name = config.name.clone();
        self.0.insert(name, Opened { config, cluster, source: source.clone() });
        source
    }
}

fn open(config: &SourceConfig, cluster: &str) -> Arc<dyn MachineSource> {
    match &config.kind {
        SourceKind::Program(program) => Arc::new(ProgramSource {
            config: config.clone(),
            program: program.clone(),
            cluster: cluster.to_owned(),
        }),
        SourceKind::Aws(cloud) => Arc::new(Ec2Source::new(config, cloud, cluster)),
        SourceKind::Gcp(cloud) => Arc::new(GcpSource::new(config, cloud, cluster)),
        SourceKind::Lambda(cloud) => Arc::new(LambdaSource::new(config, cloud, cluster)),
        SourceKind::Kubernetes(pods) => Arc::new(KubernetesSource::new(config, pods, cluster)),
    }
}
