//! The settings of dstack's own server: `DSTACK_*` variables and `~/.dstack/server/config.yml`. Few of them mean something
//! here; the others are named once, so that nobody believes they act.

use crate::configuration::field::Field;
use crate::configuration::tree::yaml;

/// What of them acts.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ServerSettings {
    /// `/metrics` is shown without a token.
    pub open_metrics: bool,
    /// The most bytes of one upload of files or of changes to a repository.
    pub upload_bytes: Option<u64>,
    /// The image of runs with `docker: true`.
    pub docker_image: Option<String>,
    /// A line for what has no effect.
    pub notices: Vec<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{name}={value}: expected a number of bytes, or 0 for no limit of its own")]
pub struct BadSetting {
    name: &'static str,
    value: String,
}

const UPLOAD_LIMIT: &str = "DSTACK_SERVER_CODE_UPLOAD_LIMIT";
const METRICS: &str = "DSTACK_ENABLE_PROMETHEUS_METRICS";
const METRICS_TOKEN: &str = "DSTACK_PROMETHEUS_AUTH_TOKEN";
const DOCKER_IMAGE: &str = "DSTACK_DIND_IMAGE";

/// Beginnings of the names of variables that dstack's server reads and that have no effect here.
const WITHOUT_EFFECT: &[&str] = &[
    "DSTACK_ACME_",
    "DSTACK_DATABASE_URL",
    "DSTACK_DB_",
    "DSTACK_DEFAULT_CREDS_DISABLED",
    "DSTACK_DEFAULT_SERVICE_CLIENT_MAX_BODY_SIZE",
    "DSTACK_DOCKER_BASE_IMAGE",
    "DSTACK_FORBID_",
    "DSTACK_GATEWAY_",
    "DSTACK_OTEL_",
    "DSTACK_PROMETHEUS_",
    "DSTACK_RUNNER_",
    "DSTACK_SENTRY_",
    "DSTACK_SERVER_",
    "DSTACK_SHIM_",
    "DSTACK_SKIP_GATEWAY_UPDATE",
    "DSTACK_SQL_ECHO_ENABLED",
    "DSTACK_SSHPROXY_",
    "DSTACK_USER_PROJECT_DEFAULT_QUOTA",
    "DSTACK_VM_",
];

const PROJECTS: &str = "projects";

/// The keys of `config.yml`, each with what has its place here.
const FILE_KEYS: &[(&str, &str)] = &[
    (
        PROJECTS,
        "beside slurm.conf the file has its projects and backends made, and `sluice convert` writes backends as sources of machines",
    ),
    ("encryption", "secrets have a key of the server's own, `sluice secret rotate-key`"),
    ("default_permissions", "rights are those of docs/security.md"),
    ("plugins", "there are none"),
];

/// The settings of these variables.
pub fn of_variables(
    variables: impl Iterator<Item = (String, String)>,
) -> Result<ServerSettings, BadSetting> {
    let mut settings = ServerSettings::default();
    let mut ignored: Vec<String> = Vec::new();
    let mut has_token = false;
    for (name, value) in variables {
        match name.as_str() {
            UPLOAD_LIMIT => {
                let bytes = value.trim().parse::<u64>();
                let bytes = bytes.map_err(|_| BadSetting { name: UPLOAD_LIMIT, value })?;
                settings.upload_bytes = Some(bytes).filter(|bytes| *bytes > 0);
            }
            METRICS => settings.open_metrics = true,
            DOCKER_IMAGE => settings.docker_image = Some(value),
            other => {
                has_token |= other == METRICS_TOKEN;
                if WITHOUT_EFFECT.iter().any(|begin| other.starts_with(begin)) {
                    ignored.push(name);
                }
            }
        }
    }
    // Who wants a token for it is not served without one: those of the cluster open it.
    settings.open_metrics &= !has_token;
    ignored.sort();
    if !ignored.is_empty() {
        let names = ignored.join(", ");
        settings.notices.push(format!("settings of dstack's server without effect here: {names}"));
    }
    Ok(settings)
}

/// Whether it is dstack's `config.yml`, which has projects where a configuration has its type.
pub fn is_file(bytes: &[u8]) -> bool {
    let Ok(tree) = yaml::parse(bytes) else { return false };
    let top = Field::top(&tree);
    let entries = top.entries("a mapping").unwrap_or_default();
    let has = |wanted: &str| entries.iter().any(|(key, ..)| *key == wanted);
    has(PROJECTS) && !has("type")
}

/// A line for each key of dstack's `config.yml`, and for one that is not good YAML.
pub fn notices_of_file(path: &str, bytes: &[u8]) -> Vec<String> {
    notices(path, bytes, |_| true)
}

/// The same of a file beside slurm.conf, whose projects act.
pub fn notices_beside_slurm_conf(path: &str, bytes: &[u8]) -> Vec<String> {
    notices(path, bytes, |key| key != PROJECTS)
}

fn notices(path: &str, bytes: &[u8], is_told: impl Fn(&str) -> bool) -> Vec<String> {
    let tree = match yaml::parse(bytes) {
        Ok(tree) => tree,
        Err(fault) => return vec![format!("{path}:{fault}")],
    };
    let top = Field::top(&tree);
    let Ok(entries) = top.entries("a mapping") else {
        return vec![format!("{path}: expected a mapping of settings")];
    };
    let said = entries.iter().filter(|(key, _, value)| !value.is_nothing() && is_told(key));
    let line = |(key, ..): &(&str, _, Field<'_>)| match FILE_KEYS.iter().find(|(k, _)| k == key) {
        Some((_, instead)) => format!("{path}: `{key}` has no effect here: {instead}"),
        None => format!("{path}: `{key}` is no setting of dstack's server"),
    };
    said.map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(variables: &[(&str, &str)]) -> Result<ServerSettings, BadSetting> {
        of_variables(variables.iter().map(|(name, value)| (name.to_string(), value.to_string())))
    }

    #[test]
    fn settings_act_or_are_named_once() {
        let found = of(&[
            ("DSTACK_SERVER_CODE_UPLOAD_LIMIT", "1024"),
            ("DSTACK_ENABLE_PROMETHEUS_METRICS", "1"),
            ("DSTACK_DIND_IMAGE", "lab/dind"),
            ("DSTACK_SERVER_S3_BUCKET", "b"),
            ("DSTACK_DATABASE_URL", "postgresql://x"),
            ("DSTACK_PROJECT", "main"),
            ("HOME", "/root"),
        ])
        .expect("good");
        assert_eq!((found.upload_bytes, found.open_metrics), (Some(1024), true));
        assert_eq!(found.docker_image.as_deref(), Some("lab/dind"));
        let line = "settings of dstack's server without effect here: DSTACK_DATABASE_URL, DSTACK_SERVER_S3_BUCKET";
        assert_eq!(found.notices, [line]);
        assert_eq!(of(&[("DSTACK_SERVER_CODE_UPLOAD_LIMIT", "0")]), of(&[]));
        let with_token =
            [("DSTACK_ENABLE_PROMETHEUS_METRICS", "1"), ("DSTACK_PROMETHEUS_AUTH_TOKEN", "x")];
        assert!(!of(&with_token).expect("good").open_metrics);
        let bad = of(&[("DSTACK_SERVER_CODE_UPLOAD_LIMIT", "2MB")]).expect_err("no number");
        assert!(bad.to_string().starts_with("DSTACK_SERVER_CODE_UPLOAD_LIMIT=2MB: expected"));
    }

    #[test]
    fn keys_of_the_file_are_named_with_what_has_their_place() {
        let text =
            b"projects:\n- name: main\nencryption:\n  keys: [{type: identity}]\nplugins:\nx: 1\n";
        let found = notices_of_file("config.yml", text);
        assert_eq!(found.len(), 3, "{found:?}");
        assert!(found[0].starts_with("config.yml: `projects` has no effect here"), "{found:?}");
        assert_eq!(found[2], "config.yml: `x` is no setting of dstack's server");
        assert_eq!(notices_of_file("c", b"- a").len(), 1);
        assert_eq!(notices_of_file("c", b"a: [").len(), 1);
    }
}
