//! sluice.toml: what slurm.conf has no words for. The file may be absent; an unknown key is an error.

use super::budget::{self, BudgetToml};
use super::machine_source::{self, SourceToml};
use super::oidc::OidcToml;
use super::toml_value::{
    CertificateLife, DiskSize, FolderText, HostPort, Hosts, MountText, SharedFolder, Size,
};
use super::type_error;
use crate::error::ServerError;
use crate::http::trusted_proxy::TRUSTED_PROXIES_MAX;
use cluster::config::{CERTIFICATE_LIFE, OidcConfig};
use cluster::{CertificateFiles, ClusterConfig, ProxyConfig, ProxyListen};
use model::budget::Budget;
use model::gpu_series::ExporterAddress;
use model::hostlist;
use model::ip_network::IpNetwork;
use model::machine::SourceConfig;
use model::price::Price;
use model::publication::check_gateway_name;
use model::site::{
    AddressRange, ContainerSite, EngineKind, IdRanges, ImagePull, NetworkPolicy, PortRange,
    RuntimeKind, TaskUser,
};
use serde::Deserialize;
use slurm::conf::Files;
use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

const FILE: &str = "sluice.toml";

#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct SluiceToml {
    budget: Vec<BudgetToml>,
    containers: Containers,
    metrics: Metrics,
    nodes: Nodes,
    oidc: Option<OidcToml>,
    proxy: Proxy,
    server: Server,
    source: Vec<SourceToml>,
    store: Store,
    volumes: Volumes,
    web: Web,
    #[serde(skip)]
    certificate_files: Option<CertificateFiles>,
    #[serde(skip)]
    shared_folders: BTreeMap<String, Option<Vec<String>>>,
    #[serde(skip)]
    prices: BTreeMap<String, Price>,
    #[serde(skip)]
    sources: Vec<SourceConfig>,
    #[serde(skip)]
    sign_on: Option<OidcConfig>,
    #[serde(skip)]
    budgets: Vec<Budget>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Server {
    /// Where the nodes find the agents' port. Their hosts are names in the certificate of the clients' port.
    addresses: Vec<HostPort>,
    /// The certificate of the clients' port with its chain, and its key, as PEM files.
    certificate: Option<String>,
    key: Option<String>,
}

impl Server {
    /// The files, whose paths begin at the folder of the configuration.
    fn certificate_files(&self, dir: &Path) -> Result<Option<CertificateFiles>, String> {
        let path = |given: &str| dir.join(given).display().to_string();
        match (&self.certificate, &self.key) {
            (Some(certificate), Some(key)) => {
                Ok(Some(CertificateFiles { certificate: path(certificate), key: path(key) }))
            }
            (None, None) => Ok(None),
            (Some(_), None) => {
                Err(": [server] certificate: its key is missing (key = 'FILE')".into())
            }
            (None, Some(_)) => {
                Err(": [server] key: its certificate is missing (certificate = 'FILE')".into())
            }
        }
    }
}

#[derive(Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Web {
    /// Web pages of jobs are shown.
    job_pages: bool,
}

impl Default for Web {
    fn default() -> Self {
        Self { job_pages: true }
    }
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Proxy {
    /// The port of services and web pages of jobs, or `off`. A start reads it; `scontrol reconfigure` does not move the port.
    listen: Option<ProxyListenText>,
    /// The domain below which each service has a host name.
    domain: Option<Domain>,
    /// Each request to a service has a line in `access.log`.
    access_log: bool,
    /// The gateway of services that name none.
    default_gateway: Option<GatewayName>,
    /// The addresses of proxies before this one.
    trusted_proxies: Vec<IpNetwork>,
}

impl Proxy {
    /// The clients' port has no host names of services: a request for one would be taken for a call of the server's own API.
    fn check(&self) -> Result<(), String> {
        let is_off = matches!(self.listen, Some(ProxyListenText(ProxyListen::Off)));
        if is_off && self.domain.is_some() {
            return Err(
                ": [proxy] domain: services have host names at a port of their own alone: \
                        not with listen = \"off\""
                    .into(),
            );
        }
        let networks = self.trusted_proxies.len();
        if networks > TRUSTED_PROXIES_MAX {
            return Err(format!(
                ": [proxy] trusted_proxies: {networks} networks: expected at most {TRUSTED_PROXIES_MAX}"
            ));
        }
        Ok(())
    }
}

/// `0.0.0.0:6823`, or `off`.
#[derive(Debug, Deserialize)]
#[serde(try_from = "String")]
struct ProxyListenText(ProxyListen);

impl TryFrom<String> for ProxyListenText {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        if text == "off" {
            return Ok(Self(ProxyListen::Off));
        }
        let address = text.parse().map(ProxyListen::At).map(Self);
        address.map_err(|_| format!("{text:?}: expected ADDR:PORT, as in 0.0.0.0:6823, or off"))
    }
}

/// `apps.example.org`, or with a port that is not the usual one, `apps.example.org:6823`. In small letters.
#[derive(Debug, Deserialize)]
#[serde(try_from = "String")]
struct Domain(String);

impl TryFrom<String> for Domain {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let (name, port) = text.split_once(':').unwrap_or((text.as_str(), "443"));
        let is_label = |label: &str| {
            let is_good = |b: u8| b.is_ascii_alphanumeric() || b == b'-';
            !label.is_empty() && label.len() <= 63 && label.bytes().all(is_good)
        };
        let is_port = port.parse::<u16>().is_ok_and(|port| port > 0);
        if name.split('.').all(is_label) && is_port {
            return Ok(Self(text.to_ascii_lowercase()));
        }
        Err(format!("{text:?}: expected a domain, as in apps.example.org"))
    }
}

#[derive(Debug, Deserialize)]
#[serde(try_from = "String")]
struct GatewayName(String);

impl TryFrom<String> for GatewayName {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        check_gateway_name(&text)?;
        Ok(Self(text))
    }
}

/// The database that several servers share. A start reads it; `scontrol reconfigure` does not move the state.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Store {
    url: Option<String>,
    password_file: Option<String>,
    key_file: Option<String>,
}

/// Of `[store]`, with the paths as the server opens them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoreSettings {
    pub url: String,
    pub password_file: Option<PathBuf>,
    /// The key that the servers' own keys are sealed under.
    pub key_file: Option<PathBuf>,
}

impl Store {
    fn check(&self) -> Result<(), String> {
        let given = [("password_file", &self.password_file), ("key_file", &self.key_file)];
        match given.into_iter().find(|(_, file)| file.is_some()) {
            Some((key, _)) if self.url.is_none() => {
                Err(format!(": [store] {key}: its url is missing (url = 'postgres://…')"))
            }
            _ => Ok(()),
        }
    }
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Nodes {
    login: Option<Hosts>,
    dcgm_exporter: Option<ExporterAddress>,
    certificate_life: Option<CertificateLife>,
    /// Dollars an hour of each node of a host list.
    prices: BTreeMap<String, f64>,
}

impl Nodes {
    fn prices(&self) -> Result<BTreeMap<String, Price>, String> {
        let mut found = BTreeMap::new();
        for (nodes, dollars) in &self.prices {
            let wrong = |why: String| format!(": [nodes.prices] {nodes}: {why}");
            let price = Price::from_dollars(*dollars);
            let expected = || format!("{dollars}: expected dollars an hour, from 0 to 1000000");
            let price = price.ok_or_else(|| wrong(expected()))?;
            for node in hostlist::expand(nodes).map_err(|e| wrong(e.to_string()))? {
                if found.insert(node.clone(), price).is_some() {
                    return Err(wrong(format!("{node} has a price already")));
                }
            }
        }
        Ok(found)
    }
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Volumes {
    /// Folders that nodes share, each with the nodes that have it: a host list, or `ALL`.
    shared: BTreeMap<SharedFolder, String>,
}

impl Volumes {
    const ALL: &str = "ALL";

    fn folders(&self) -> Result<BTreeMap<String, Option<Vec<String>>>, String> {
        let each = self.shared.iter().map(|(SharedFolder(folder), nodes)| {
            if nodes.eq_ignore_ascii_case(Self::ALL) {
                return Ok((folder.clone(), None));
            }
            let nodes = hostlist::expand(nodes);
            let nodes = nodes.map_err(|e| format!(": [volumes.shared] {folder}: {e}"))?;
            Ok((folder.clone(), Some(nodes)))
        });
        each.collect()
    }
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Metrics {
    /// `/metrics` is given without a token.
    open: bool,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Containers {
    runtime: Option<String>,
    default_image: Option<String>,
    privileged: bool,
    docker_image: Option<String>,
    store: Option<String>,
    store_size: Option<Size>,
    disk: Option<DiskSize>,
    pulls: Option<u32>,
    pull: Option<ImagePull>,
    mount_home: Option<bool>,
    mounts: Vec<MountText>,
    mirrors: BTreeMap<String, Vec<String>>,
    insecure_registries: Vec<String>,
    authorities: Option<String>,
    task_user: TaskUser,
    network: NetworkPolicy,
    addresses: Option<AddressRange>,
    ports: Option<PortRange>,
    cdi: Option<Vec<FolderText>>,
    ids: IdRanges,
}

pub(super) fn read(files: &dyn Files, dir: &Path) -> Result<SluiceToml, ServerError> {
    let path = dir.join(FILE);
    let wrong = |why: String| ServerError::Configuration(format!("{}{why}", path.display()));
    let text = match files.read(&path) {
        Ok(text) => text,
        Err(e) if e.kind() == ErrorKind::NotFound => return Ok(SluiceToml::default()),
        Err(e) => return Err(wrong(format!(": {e}"))),
    };
    let parsed: SluiceToml = toml::from_str(&text).map_err(|error| {
        let before = error.span().map(|span| text[..span.start].matches('\n').count());
        let place = before.map(|before| format!(":{}", before + 1)).unwrap_or_default();
        let line = before.and_then(|before| text.lines().nth(before)).unwrap_or_default();
        let message = error.message().lines().collect::<Vec<_>>().join(", ");
        wrong(format!("{place}: {}", type_error::of_line(&message, line)))
    })?;
    parsed.store.check().map_err(wrong)?;
    parsed.proxy.check().map_err(wrong)?;
    let certificate_files = parsed.server.certificate_files(dir).map_err(wrong)?;
    let shared_folders = parsed.volumes.folders().map_err(wrong)?;
    let prices = parsed.nodes.prices().map_err(wrong)?;
    let sources = machine_source::sources(&parsed.source).map_err(wrong)?;
    let sign_on = parsed.oidc.as_ref().map(|oidc| oidc.config(dir)).transpose().map_err(wrong)?;
    let budgets = budget::budgets(&parsed.budget).map_err(wrong)?;
    Ok(SluiceToml {
        certificate_files,
        shared_folders,
        prices,
        sources,
        sign_on,
        budgets,
        ..parsed
    })
}

impl SluiceToml {
    /// The database of the state; the paths of its files begin at the folder of the configuration.
    pub fn store(self, dir: &Path) -> Option<StoreSettings> {
        let Store { url, password_file, key_file } = self.store;
        let [password_file, key_file] =
            [password_file, key_file].map(|file| file.map(|path| dir.join(path)));
        Some(StoreSettings { url: url?, password_file, key_file })
    }

    /// What is configured and has no effect everywhere, a line each.
    pub fn notices(&self) -> Vec<String> {
        let given = &self.containers;
        let Some(runtime) = &given.runtime else { return Vec::new() };
        let kind = RuntimeKind::of(runtime);
        if matches!(kind, RuntimeKind::Oci | RuntimeKind::Apptainer) {
            // Neither pulls images.
            return Vec::new();
        }
        let keys = [
            ("store", given.store.is_some()),
            ("store_size", given.store_size.is_some()),
            ("pulls", given.pulls.is_some()),
            ("pull", given.pull.is_some()),
            ("mirrors", !given.mirrors.is_empty()),
            ("authorities", given.authorities.is_some()),
            // Podman is told them at each pull.
            (
                "insecure_registries",
                kind != RuntimeKind::Engine(EngineKind::Podman)
                    && !given.insecure_registries.is_empty(),
            ),
        ];
        let given: Vec<&str> =
            keys.iter().filter(|(_, is_given)| *is_given).map(|key| key.0).collect();
        if given.is_empty() {
            return Vec::new();
        }
        vec![format!(
            "{FILE}: {}: not for images that {runtime} pulls, which has settings of its own",
            given.join(", ")
        )]
    }

    pub fn apply(self, config: &mut ClusterConfig) {
        config.open_metrics = self.metrics.open;
        config.job_pages = self.web.job_pages;
        config.proxy = ProxyConfig {
            listen: self.proxy.listen.map(|listen| listen.0),
            domain: self.proxy.domain.map(|domain| domain.0),
            access_log: self.proxy.access_log,
            default_gateway: self.proxy.default_gateway.map(|name| name.0),
            trusted_proxies: self.proxy.trusted_proxies,
        };
        config.server_addresses = self.server.addresses.into_iter().map(|one| one.0).collect();
        config.server_certificate = self.certificate_files;
        config.shared_folders = self.shared_folders;
        config.prices = self.prices;
        config.sources = self.sources;
        config.oidc = self.sign_on;
        config.budgets = self.budgets;
        config.login_nodes = self.nodes.login.map(|hosts| hosts.0).unwrap_or_default();
        let life = self.nodes.certificate_life.map(|life| life.0);
        config.certificate_life = life.unwrap_or(CERTIFICATE_LIFE);
        config.site.dcgm_exporter = self.nodes.dcgm_exporter;
        let given = self.containers;
        let usual = ContainerSite::default();
        config.site.containers = ContainerSite {
            // Else as slurm.conf has it (`ContainerType`).
            runtime: given.runtime.or(config.site.containers.runtime.take()),
            default_image: given.default_image,
            privileged: given.privileged,
            docker_image: given.docker_image.unwrap_or(usual.docker_image),
            store: given.store,
            store_size: given.store_size.map_or(usual.store_size, |size| size.0),
            disk: given.disk.map(|size| size.0),
            pulls: given.pulls.unwrap_or(usual.pulls).max(1),
            pull: given.pull.unwrap_or_default(),
            mount_home: given.mount_home.unwrap_or(usual.mount_home),
            mounts: given.mounts.into_iter().map(|mount| mount.0).collect(),
            mirrors: given.mirrors,
            insecure: given.insecure_registries,
            authorities: given.authorities,
            task_user: given.task_user,
            network: given.network,
            addresses: given.addresses.unwrap_or(usual.addresses),
            ports: given.ports.unwrap_or(usual.ports),
            cdi: match given.cdi {
                Some(folders) => folders.into_iter().map(|folder| folder.0).collect(),
                None => usual.cdi,
            },
            ids: given.ids,
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::amount::Bytes;
    use slurm::conf::MemoryFiles;
    use std::time::Duration;

    fn site(text: &str) -> Result<ContainerSite, String> {
        let files = MemoryFiles::default().with("/etc/sluice/sluice.toml", text);
        let found = read(&files, Path::new("/etc/sluice")).map_err(|e| e.to_string())?;
        let mut config = ClusterConfig::default();
        found.apply(&mut config);
        Ok(config.site.containers)
    }

    #[test]
    fn keys_of_containers_act_and_absent_ones_have_defaults() {
        assert_eq!(site(""), Ok(ContainerSite::default()));
        let text = "[containers]\ndisk = '3GB'\ntask_user = 'job'\nstore_size = '2GB'\nmounts = ['/data::ro']\nmount_home = false\n\
                    insecure_registries = ['localhost:5000']\nnetwork = 'bridge'\naddresses = '192.168.0.0/24'\n\
                    ports = '5000-5001'\ncdi = ['/opt/cdi']\nids = 'subuid'\nprivileged = true\n\
                    docker_image = 'lab/dind'\npull = 'missing'\n[containers.mirrors]\n\
                    'docker.io' = ['mirror.example:5000']\n";
        let found = site(text).expect("it is good");
        assert_eq!((found.store_size, found.mount_home), (Bytes(2 << 30), false));
        assert_eq!((found.disk, found.task_user), (Some(Bytes(3 << 30)), TaskUser::Job));
        assert!(found.mounts[0].read_only && found.mounts[0].optional);
        assert_eq!(found.mirrors["docker.io"], ["mirror.example:5000"]);
        assert_eq!(found.insecure, ["localhost:5000"]);
        assert_eq!(found.network, NetworkPolicy::Bridge);
        assert_eq!(found.ports, PortRange { first: 5000, last: 5001 });
        assert_eq!(found.cdi, ["/opt/cdi"]);
        assert_eq!((found.ids, found.pull), (IdRanges::Subuid, ImagePull::Missing));
        assert!(site("[containers]\npull = 'never'\n").is_err_and(|why| why.contains("missing")));
        assert_eq!((found.privileged, &*found.docker_image), (true, "lab/dind"));
        let link =
            |number| found.addresses.link(number).map(|(node, inside)| format!("{node} {inside}"));
        assert_eq!(link(63).as_deref(), Some("192.168.0.253 192.168.0.254"));
        assert_eq!(link(64), None);
    }

    #[test]
    fn settings_that_an_engine_does_not_follow_are_said() {
        let said = |text: &str| {
            let files = MemoryFiles::default().with("/etc/sluice/sluice.toml", text);
            read(&files, Path::new("/etc/sluice")).expect("it is good").notices()
        };
        let keys = "pulls = 2\ninsecure_registries = ['h:5000']\n[containers.mirrors]\nh = ['m']\n";
        let with = |runtime: &str| said(&format!("[containers]\nruntime = '{runtime}'\n{keys}"));
        let line = |keys: &str, runtime: &str| {
            vec![format!(
                "sluice.toml: {keys}: not for images that {runtime} pulls, which has settings of its own"
            )]
        };
        assert_eq!(
            with("/usr/bin/docker"),
            line("pulls, mirrors, insecure_registries", "/usr/bin/docker")
        );
        assert_eq!(with("podman"), line("pulls, mirrors", "podman"));
        let none: [String; 0] = [];
        assert_eq!(with("runc"), none);
        assert_eq!(said("[containers]\nruntime = 'docker'\n"), none);
    }

    #[test]
    fn store_is_a_database_with_a_password_in_a_file() {
        let store = |text: &str| {
            let files = MemoryFiles::default().with("/etc/sluice/sluice.toml", text);
            let dir = Path::new("/etc/sluice");
            read(&files, dir).map(|found| found.store(dir)).map_err(|e| e.to_string())
        };
        assert_eq!(store(""), Ok(None));
        let url = "postgres://sluice@db.example/sluice";
        let found = store(&format!("[store]\nurl = '{url}'\npassword_file = 'db-password'\n"));
        let password_file = Some("/etc/sluice/db-password".into());
        let key_file = None;
        assert_eq!(found, Ok(Some(StoreSettings { url: url.into(), password_file, key_file })));
        let found = store(&format!("[store]\nurl = '{url}'\nkey_file = 'store.key'\n"));
        let key_file = found.map(|found| found.and_then(|settings| settings.key_file));
        assert_eq!(key_file, Ok(Some("/etc/sluice/store.key".into())));
        let wrong = store("[store]\npassword_file = 'db-password'\n").expect_err("no address");
        assert!(wrong.contains("[store] password_file: its url is missing"), "{wrong}");
    }

    #[test]
    fn metrics_are_open_only_if_the_site_says_so() {
        for (text, expected) in [("", false), ("[metrics]\nopen = true\n", true)] {
            let files = MemoryFiles::default().with("/etc/sluice/sluice.toml", text);
            let mut config = ClusterConfig::default();
            read(&files, Path::new("/etc/sluice")).expect("it is good").apply(&mut config);
            assert_eq!(config.open_metrics, expected, "{text}");
        }
    }

    #[test]
    fn pages_of_jobs_are_shown_unless_the_site_says_otherwise() {
        for (text, expected) in
            [("", true), ("[web]\n", true), ("[web]\njob_pages = false\n", false)]
        {
            let files = MemoryFiles::default().with("/etc/sluice/sluice.toml", text);
            let mut config = ClusterConfig::default();
            read(&files, Path::new("/etc/sluice")).expect("it is good").apply(&mut config);
            assert_eq!(config.job_pages, expected, "{text}");
        }
    }

    #[test]
    fn proxy_has_a_port_and_a_domain_where_the_site_says_so() {
        let proxy = |text: &str| {
            let files = MemoryFiles::default().with("/etc/sluice/sluice.toml", text);
            let mut config = ClusterConfig::default();
            read(&files, Path::new("/etc/sluice")).expect("it is good").apply(&mut config);
            config.proxy
        };
        assert_eq!(proxy(""), ProxyConfig::default());
        let at = ProxyListen::At("0.0.0.0:6823".parse().expect("an address"));
        let text = "[proxy]\nlisten = '0.0.0.0:6823'\ndomain = 'Apps.example.org:6823'\n\
                    access_log = true\ndefault_gateway = 'edge1'\ntrusted_proxies = ['10.0.0.0/8']\n";
        let domain = Some("apps.example.org:6823".to_owned());
        let default_gateway = Some("edge1".to_owned());
        let trusted_proxies = vec!["10.0.0.0/8".parse().expect("a network")];
        let listen = Some(at);
        let access_log = true;
        let expected = ProxyConfig { listen, domain, access_log, default_gateway, trusted_proxies };
        assert_eq!(proxy(text), expected);
        assert_eq!(proxy("[proxy]\nlisten = 'off'\n").listen, Some(ProxyListen::Off));
        let both = "[proxy]\nlisten = 'off'\ndomain = 'apps.example.org'\n";
        let files = MemoryFiles::default().with("/etc/sluice/sluice.toml", both);
        let error = read(&files, Path::new("/etc/sluice")).expect_err("no host names there");
        assert!(error.to_string().contains("[proxy] domain"), "{error}");
        let bad = "[proxy]\ndefault_gateway = 'a b'\n";
        let files = MemoryFiles::default().with("/etc/sluice/sluice.toml", bad);
        let error = read(&files, Path::new("/etc/sluice")).expect_err("no name of a gateway");
        assert!(error.to_string().contains("edge1"), "{error}");
        let many = vec!["'10.0.0.1'"; TRUSTED_PROXIES_MAX + 1].join(",");
        for (bad, named) in [("'10.0.0.0/33'".to_owned(), "10.0.0.0/33"), (many, "at most 64")] {
            let bad = format!("[proxy]\ntrusted_proxies = [{bad}]\n");
            let files = MemoryFiles::default().with("/etc/sluice/sluice.toml", &bad);
            let error = read(&files, Path::new("/etc/sluice")).expect_err("no such networks");
            assert!(error.to_string().contains(named), "{error}");
        }
    }

    #[test]
    fn login_nodes_are_a_host_list() {
        for (text, expected) in
            [("", &[][..]), ("[nodes]\nlogin = 'login[1-2]'\n", &["login1", "login2"])]
        {
            let files = MemoryFiles::default().with("/etc/sluice/sluice.toml", text);
            let mut config = ClusterConfig::default();
            read(&files, Path::new("/etc/sluice")).expect("it is good").apply(&mut config);
            assert_eq!(config.login_nodes, expected, "{text}");
        }
    }

    #[test]
    fn certificates_of_agents_have_a_bounded_life() {
        let life = |text: &str| {
            let text = format!("[nodes]\ncertificate_life = '{text}'\n");
            let files = MemoryFiles::default().with("/etc/sluice/sluice.toml", text);
            let mut config = ClusterConfig::default();
            read(&files, Path::new("/etc/sluice")).ok()?.apply(&mut config);
            Some(config.certificate_life)
        };
        assert_eq!(life("30d"), Some(Duration::from_secs(30 * 24 * 3600)));
        assert_eq!(life("10s"), Some(Duration::from_secs(10)));
        for wrong in ["9s", "3651d", "never", "", "-1d"] {
            assert_eq!(life(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn shared_folders_have_their_nodes() {
        let text = "[volumes.shared]\n'/mnt/a' = 'ALL'\n'/mnt/b' = 'n[1-2]'\n";
        let files = MemoryFiles::default().with("/etc/sluice/sluice.toml", text);
        let mut config = ClusterConfig::default();
        read(&files, Path::new("/etc/sluice")).expect("it is good").apply(&mut config);
        let nodes = Some(vec!["n1".to_owned(), "n2".to_owned()]);
        assert_eq!(
            config.shared_folders,
            [("/mnt/a".to_owned(), None), ("/mnt/b".to_owned(), nodes)].into()
        );
    }

    #[test]
    fn wrong_keys_and_values_are_refused_with_their_line() {
        let table = [
            ("[containers]\nstroe = '/x'\n", "/etc/sluice/sluice.toml:2: unknown field `stroe`"),
            ("[containers]\n\nstore_size = 'much'\n", "/etc/sluice/sluice.toml:3: "),
            ("[containers]\nmounts = ['data']\n", "expected absolute paths"),
            ("[containers]\ndisk = '1MB'\n", "sluice.toml:2: \"1MB\": expected at least 16MB"),
            ("[containers]\ntask_user = 'me'\n", "sluice.toml:2: unknown variant `me`"),
            ("[containers]\nnetwork = 'own'\n", "sluice.toml:2: unknown variant `own`"),
            ("[containers]\nids = 'any'\n", "sluice.toml:2: unknown variant `any`"),
            ("[containers]\naddresses = '8.8.0.0/16'\n", "expected private addresses"),
            ("[containers]\naddresses = '10.0.0.1/16'\n", "expected private addresses"),
            ("[containers]\naddresses = '10.0.0.0/30'\n", "expected private addresses"),
            ("[containers]\nports = '80-90'\n", "expected ports such as 20000-29999"),
            ("[containers]\nports = '9000-8000'\n", "expected ports such as 20000-29999"),
            ("[containers]\ncdi = ['cdi']\n", "expected the absolute path of a folder"),
            (
                "[containers]\npulls = 'two'\n",
                "sluice.toml:2: pulls: \"two\": expected a whole number",
            ),
            ("[containers]\ncdi = 'cdi'\n", "sluice.toml:2: cdi: \"cdi\": expected a list, as in"),
            ("[containers\n", "/etc/sluice/sluice.toml:1: "),
            ("[nodes]\nlogin = 'login[1-'\n", "/etc/sluice/sluice.toml:2: "),
            (
                "[nodes]\ndcgm_exporter = 'http://10.0.0.1:9400/metrics'\n",
                "sluice.toml:2: \"http://10.0.0.1:9400/metrics\": expected a loopback address",
            ),
            ("[server]\naddresses = ['head']\n", "expected HOST:PORT"),
            ("[proxy]\nlisten = '6823'\n", "sluice.toml:2: \"6823\": expected ADDR:PORT"),
            ("[proxy]\ndomain = '*.example'\n", "sluice.toml:2: \"*.example\": expected a domain"),
            ("[proxy]\ndomain = 'apps.example:x'\n", "expected a domain"),
            ("[volumes.shared]\n'mnt' = 'ALL'\n", "as in /mnt/data"),
            ("[volumes.shared]\n'/' = 'ALL'\n", "as in /mnt/data"),
            ("[volumes.shared]\n'/mnt' = 'n[1-'\n", "[volumes.shared] /mnt: "),
        ];
        for (text, expected) in table {
            let error = site(text).expect_err(text);
            assert!(error.contains(expected), "{text}: {error}");
        }
    }
}
