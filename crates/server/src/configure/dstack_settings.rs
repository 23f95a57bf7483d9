//! The settings of dstack's own server that this process was started with.

use crate::error::ServerError;
use cluster::ClusterConfig;
use dstack::server_settings::{notices_of_file, of_variables};
use std::io::Read;
use std::path::PathBuf;

const FOLDER: &str = ".dstack/server";
const FILE: &str = "config.yml";
/// A file of this size is refused by the YAML parser.
const FILE_BYTES_MAX: u64 = 2 << 20;

/// Applies what acts. What sluice.toml says counts before it; what has no effect is said in the log.
pub fn apply(config: &mut ClusterConfig) -> Result<(), ServerError> {
    let settings =
        of_variables(variables()).map_err(|error| ServerError::Configuration(error.to_string()))?;
    config.open_metrics |= settings.open_metrics;
    config.upload_bytes_max = settings.upload_bytes;
    let containers = &mut config.site.containers;
    let usual = model::site::ContainerSite::default().docker_image;
    if let Some(image) = settings.docker_image.filter(|_| containers.docker_image == usual) {
        containers.docker_image = image;
    }
    for notice in settings.notices.into_iter().chain(of_file()) {
        tracing::info!("{notice}");
    }
    Ok(())
}

fn variables() -> impl Iterator<Item = (String, String)> {
    std::env::vars_os().filter_map(|(name, value)| {
        Some((name.into_string().ok()?, value.to_string_lossy().into_owned()))
    })
}

/// What is said of dstack's own file, where there is one.
fn of_file() -> Vec<String> {
    let folder = std::env::var_os("DSTACK_SERVER_DIR").map(PathBuf::from);
    let home = || Some(PathBuf::from(std::env::var_os("HOME")?).join(FOLDER));
    let Some(path) = folder.or_else(home).map(|folder| folder.join(FILE)) else {
        return Vec::new();
    };
    let mut bytes = Vec::new();
    let opened = std::fs::File::open(&path);
    match opened.and_then(|file| file.take(FILE_BYTES_MAX).read_to_end(&mut bytes)) {
        Ok(_) => notices_of_file(&path.display().to_string(), &bytes),
        Err(_) => Vec::new(),
    }
}
