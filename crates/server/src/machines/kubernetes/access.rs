//! Where the API of a Kubernetes cluster is and who calls it: by a kubeconfig, or by the files of the server's own pod. Both are
//! read anew for each call, because tokens in them are replaced while the server runs.

use super::exec_plugin::{ExecPlugin, IssuedCredential};
use crate::configure::is_safe_address;
use crate::machines::cloud::rest::word;
use crate::machines::cloud::secret::{self, CredentialText, SecretText};
use crate::machines::source::SourceError;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use model::pod_source::KubernetesConfig;
use serde_json::Value;
use std::path::Path;
use std::time::Duration;

/// Where a pod finds what it calls the API with.
const POD_FILES: &str = "/var/run/secrets/kubernetes.io/serviceaccount";

/// The largest file of a certificate, a key or a token.
const FILE_BYTES_MAX: u64 = 1 << 20;

pub struct Access {
    /// `https://HOST:PORT`, without a slash at its end.
    pub server: String,
    pub namespace: String,
    /// Certificates, as PEM; `None` for those of the machine.
    pub authorities: Option<Vec<u8>>,
    pub skips_verification: bool,
    /// Certificate and key, as PEM.
    pub identity: Option<(Vec<u8>, SecretText)>,
    pub bearer: Option<SecretText>,
}

impl Access {
    /// Reads it as the site says. `plugin` keeps what a credential plugin gave before.
    pub fn read(
        config: &KubernetesConfig,
        kubeconfig: Option<&CredentialText>,
        plugin: &ExecPlugin,
        limit: Duration,
    ) -> Result<Self, SourceError> {
        let mut access = match kubeconfig {
            Some(text) => Self::of_kubeconfig(text, config, plugin, limit)?,
            None => Self::of_pod()?,
        };
        if let Some(namespace) = &config.namespace {
            access.namespace = namespace.clone();
        }
        Ok(access)
    }

    /// The access that the server's own pod has.
    fn of_pod() -> Result<Self, SourceError> {
        let variable = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
        let host = variable("KUBERNETES_SERVICE_HOST");
        let port = variable("KUBERNETES_SERVICE_PORT").unwrap_or_else(|| "443".to_owned());
        let Some(host) = host else {
            let why = "kubeconfig: missing, and the server is in no pod of Kubernetes";
            return Err(SourceError::refused(why));
        };
        let host = if host.contains(':') { format!("[{host}]") } else { host };
        let folder = Path::new(POD_FILES);
        let text = |name: &str| Ok::<_, SourceError>(text_of(read(&folder.join(name))?));
        Ok(Self {
            server: format!("https://{host}:{port}"),
            namespace: text("namespace")?.trim().to_owned(),
            authorities: Some(read(&folder.join("ca.crt"))?),
            skips_verification: false,
            identity: None,
            bearer: Some(SecretText::new(text("token")?.trim())),
        })
    }

    fn of_kubeconfig(
        given: &CredentialText,
        config: &KubernetesConfig,
        plugin: &ExecPlugin,
        limit: Duration,
    ) -> Result<Self, SourceError> {
        let place = given.place();
        let wrong = |why: String| SourceError::refused(format!("kubeconfig: {place}: {why}"));
        // One that came by a call names no file and no program of the server's machine.
        let (text, folder) = match given {
            CredentialText::File(path) => {
                let folder = Path::new(path).parent().unwrap_or(Path::new("/"));
                (secret::read_own_file(path)?, Some(folder))
            }
            CredentialText::Given(text) => (text.clone(), None),
        };
        let file = dstack::yaml_file::values(text.expose().as_bytes());
        let file = file.map_err(|fault| wrong(fault.to_string()))?;
        let context = config.context.as_deref().unwrap_or_else(|| word(&file, "/current-context"));
        let find = |list: &str, name: &str, key: &str| {
            let missing = || wrong(format!("{list}: expected one with the name {name:?}"));
            named(&file, list, name).map(|of| of[key].clone()).ok_or_else(missing)
        };
        let context = find("contexts", context, "context")?;
        let cluster = find("clusters", word(&context, "/cluster"), "cluster")?;
        let user = match word(&context, "/user") {
            "" => Value::Null,
            name => find("users", name, "user")?,
        };
        let server = word(&cluster, "/server").trim_end_matches('/');
        // What is sent there is good for whoever reads it on the way: tokens, and join files.
        if !is_safe_address(server) {
            let expected = "expected https://HOST…, or http:// on this machine";
            return Err(wrong(format!("server: {server:?}: {expected}")));
        }
        if !word(&cluster, "/tls-server-name").is_empty() {
            return Err(wrong("tls-server-name: not supported".to_owned()));
        }
        let namespace = match word(&context, "/namespace") {
            "" => "default",
            namespace => namespace,
        };
        let mut access = Self {
            server: server.to_owned(),
            namespace: namespace.to_owned(),
            authorities: material(&cluster, "certificate-authority", folder).map_err(&wrong)?,
            skips_verification: cluster["insecure-skip-tls-verify"] == true,
            identity: None,
            bearer: None,
        };
        let certificate = material(&user, "client-certificate", folder).map_err(&wrong)?;
        let key = material(&user, "client-key", folder).map_err(&wrong)?;
        if let (Some(certificate), Some(key)) = (certificate, key) {
            access.identity = Some((certificate, SecretText::new(text_of(key))));
        }
        if let Some(token) = token(&user, folder).map_err(&wrong)? {
            access.bearer = Some(token);
        } else if user["exec"].is_object() {
            if folder.is_none() {
                return Err(wrong("exec: expected a token, or a client certificate".to_owned()));
            }
            access.take(plugin.credential(&user["exec"], limit).map_err(&wrong)?);
        }
        Ok(access)
    }

    fn take(&mut self, issued: IssuedCredential) {
        self.bearer = issued.token.or(self.bearer.take());
        self.identity = issued.identity.or(self.identity.take());
    }
}

fn named<'a>(file: &'a Value, list: &str, name: &str) -> Option<&'a Value> {
    let mut all = file[list].as_array()?.iter();
    all.find(|of| text_value(&of["name"]) == name)
}

/// A name of digits alone is read as a number.
fn text_value(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

/// The token of a user, written in the file or in one of its own.
fn token(user: &Value, folder: Option<&Path>) -> Result<Option<SecretText>, String> {
    let path = word(user, "/tokenFile");
    if !path.is_empty() {
        let text = text_of(named_file("tokenFile", folder, path)?);
        return Ok(Some(SecretText::new(text.trim())));
    }
    let given = Some(&user["token"]).filter(|token| !token.is_null());
    Ok(given.map(|token| SecretText::new(text_value(token))))
}

/// What `KEY-data` has in base 64, or else the file that `KEY` names.
fn material(of: &Value, key: &str, folder: Option<&Path>) -> Result<Option<Vec<u8>>, String> {
    let data = of[format!("{key}-data")].as_str().unwrap_or_default();
    if !data.is_empty() {
        let bytes = STANDARD.decode(data.trim()).map_err(|_| format!("{key}-data: no base 64"))?;
        return Ok(Some(bytes));
    }
    match of[key].as_str().unwrap_or_default() {
        "" => Ok(None),
        path => named_file(key, folder, path).map(Some),
    }
}

/// What is in a file that a kubeconfig names, beside its own folder.
fn named_file(key: &str, folder: Option<&Path>, path: &str) -> Result<Vec<u8>, String> {
    let folder = folder.ok_or_else(|| format!("{key}: expected its text, and not a file"))?;
    read(&folder.join(path)).map_err(|error| error.text)
}

fn read(path: &Path) -> Result<Vec<u8>, SourceError> {
    let wrong = |why: String| SourceError::refused(format!("{}: {why}", path.display()));
    let size = std::fs::metadata(path).map_err(|e| wrong(e.to_string()))?.len();
    if size > FILE_BYTES_MAX {
        return Err(wrong(format!("expected at most {FILE_BYTES_MAX} bytes")));
    }
    std::fs::read(path).map_err(|e| wrong(e.to_string()))
}

fn text_of(bytes: Vec<u8>) -> String {
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    const LIMIT: Duration = Duration::from_secs(10);

    const FILE: &str = "\
apiVersion: v1
kind: Config
current-context: lab
clusters:
- name: one
  cluster: {server: 'https://one:6443/', certificate-authority-data: UEVN}
- name: open
  cluster: {server: 'http://one:8080'}
contexts:
- name: lab
  context: {cluster: one, user: key, namespace: jobs}
- name: other
  context: {cluster: one, user: card}
- name: program
  context: {cluster: one, user: program}
- name: lost
  context: {cluster: two, user: key}
- name: open
  context: {cluster: open, user: key}
users:
- name: key
  user: {token: hush}
- name: card
  user: {client-certificate: card.pem, client-key-data: S0VZ}
- name: program
  user:
    exec:
      apiVersion: client.authentication.k8s.io/v1
      command: PROGRAM
      env: [{name: WHO, value: me}]
";

    fn access(context: &str) -> Result<Access, SourceError> {
        let dir = tempfile::tempdir().expect("a folder");
        std::fs::write(dir.path().join("card.pem"), "CARD").expect("a file");
        let program = dir.path().join("give");
        let answer = r#"{"status":{"token":"given-to-'$WHO'"}}"#;
        std::fs::write(&program, format!("#!/bin/sh\necho '{answer}'\n")).expect("a program");
        let path = dir.path().join("config");
        let text = FILE.replace("PROGRAM", &program.display().to_string());
        std::fs::write(&path, text).expect("a file");
        for (path, mode) in [(&program, 0o755), (&path, 0o600)] {
            let mode = std::fs::Permissions::from_mode(mode);
            std::fs::set_permissions(path, mode).expect("a mode");
        }
        let text = CredentialText::File(path.display().to_string());
        read_context(&text, context)
    }

    fn read_context(text: &CredentialText, context: &str) -> Result<Access, SourceError> {
        let context = Some(context.to_owned()).filter(|name| !name.is_empty());
        let config = KubernetesConfig { context, ..KubernetesConfig::default() };
        Access::read(&config, Some(text), &ExecPlugin::default(), LIMIT)
    }

    #[test]
    fn kubeconfig_tells_the_address_and_who_calls_in_each_of_its_forms() {
        let bearer = |access: &Access| access.bearer.as_ref().map(|of| of.expose().to_owned());
        let usual = access("").expect("it is good");
        assert_eq!((usual.server.as_str(), usual.namespace.as_str()), ("https://one:6443", "jobs"));
        assert_eq!(usual.authorities.as_deref(), Some(&b"PEM"[..]));
        assert_eq!(bearer(&usual).as_deref(), Some("hush"));
        let other = access("other").expect("it is good");
        assert_eq!((other.namespace.as_str(), bearer(&other)), ("default", None));
        let (certificate, key) = other.identity.expect("a certificate");
        assert_eq!((&certificate[..], key.expose()), (&b"CARD"[..], "KEY"));
        let program = access("program").expect("it is good");
        assert_eq!(bearer(&program).as_deref(), Some("given-to-me"));
    }

    #[test]
    fn kubeconfig_of_a_backend_names_no_file_and_no_program_of_the_server() {
        let given = CredentialText::Given(SecretText::new(FILE));
        let usual = read_context(&given, "").expect("it is good");
        assert_eq!(usual.bearer.as_ref().map(SecretText::expose), Some("hush"));
        for (context, words) in [
            ("other", "client-certificate: expected its text, and not a file"),
            ("program", "exec: expected a token, or a client certificate"),
        ] {
            let said = read_context(&given, context).err().expect(context).text;
            assert!(said.contains("of the backend") && said.contains(words), "{said}");
        }
    }

    #[test]
    fn faults_of_a_kubeconfig_are_one_line_without_its_secrets() {
        for (context, words) in [
            ("nowhere", "contexts: expected one with the name \"nowhere\""),
            ("lost", "clusters:"),
            ("open", "server: \"http://one:8080\": expected https://"),
        ] {
            let said = access(context).err().expect(context).text;
            assert!(said.contains(words) && !said.contains("hush"), "{said}");
            assert_eq!(said.lines().count(), 1, "{said}");
        }
    }
}
