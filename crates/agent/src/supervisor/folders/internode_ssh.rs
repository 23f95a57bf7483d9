//! The files by which `ssh HOST` in a run of several nodes gets into the run's job on that host: a configuration for OpenSSH's
//! client with the run's own key, and programs that call the client with it. Nothing of the user's own files changes.
//!
//! The connection goes to the node's own socket and from there to the server's SSH endpoint: no node needs an `sshd`, and no
//! node needs to reach another's port for it.

use model::shell::quoted;
use std::path::Path;
use wire::ssh::InternodeSsh;

/// The programs of OpenSSH that take a configuration file.
const CLIENTS: [&str; 3] = ["ssh", "scp", "sftp"];
const CONFIGURATION: &str = "ssh_config";
const KEY: &str = "id_ed25519";
const KNOWN_HOSTS: &str = "known_hosts";
/// What the endpoint is called in the file of known hosts, whatever host is meant.
const HOST_KEY_ALIAS: &str = "sluice";

#[derive(Debug, PartialEq, Eq)]
pub(crate) struct RunFile {
    pub name: &'static str,
    pub text: String,
    pub mode: u32,
}

/// The files for a folder that processes of the run see at this path. `relay` are the words of the program that carries a
/// connection to the socket.
pub(crate) fn files(ssh: &InternodeSsh, folder: &Path, relay: &[String]) -> Vec<RunFile> {
    let file = |name, text, mode| RunFile { name, text, mode };
    let mut all = vec![
        file(KEY, ssh.private_key.0.clone(), 0o600),
        file(KNOWN_HOSTS, format!("{HOST_KEY_ALIAS} {}\n", ssh.host_key.trim()), 0o644),
        file(CONFIGURATION, configuration(ssh, folder, relay), 0o644),
    ];
    all.extend(CLIENTS.map(|name| file(name, client(name, folder), 0o755)));
    all
}

/// The blocks of the run's hosts come first, and the first value of an option counts: the user's own configuration and that of
/// the machine are for all other hosts.
fn configuration(ssh: &InternodeSsh, folder: &Path, relay: &[String]) -> String {
    let path = |name: &str| format!("\"{}\"", folder.join(name).display()).replace('%', "%%");
    let relay = relay.iter().map(|word| quoted(word)).collect::<Vec<_>>().join(" ");
    let relay = relay.replace('%', "%%");
    let (key, known) = (path(KEY), path(KNOWN_HOSTS));
    let block = |names: &[String], login: &str| {
        format!(
            "Host {}\n  ProxyCommand {relay} {}\n  IdentityFile {key}\n  IdentitiesOnly yes\n  IdentityAgent none\n  \
             UserKnownHostsFile {known}\n  GlobalKnownHostsFile /dev/null\n  HostKeyAlias {HOST_KEY_ALIAS}\n  \
             StrictHostKeyChecking yes\n  UpdateHostKeys no\n  CheckHostIP no\n  PreferredAuthentications publickey\n  \
             ControlMaster no\n  ControlPath none\n  LogLevel ERROR\n",
            names.join(" "),
            quoted(login),
        )
    };
    let hosts = ssh.hosts.iter().filter(|host| !host.names.is_empty());
    let blocks: String = hosts.map(|host| block(&host.names, &host.login)).collect();
    format!("{blocks}Host *\n  Include ~/.ssh/config\n  Include /etc/ssh/ssh_config\n")
}

/// A program that runs the next one of this name in `PATH` with the run's configuration.
fn client(name: &str, folder: &Path) -> String {
    let (own, configuration) = (folder.display().to_string(), folder.join(CONFIGURATION));
    let (own, configuration) = (quoted(&own), quoted(&configuration.display().to_string()));
    format!(
        "#!/bin/sh\nIFS=:\nfor folder in $PATH; do\n  \
           if [ \"$folder\" != {own} ] && [ -x \"$folder/{name}\" ]; then\n    \
             exec \"$folder/{name}\" -F {configuration} \"$@\"\n  \
           fi\n\
         done\n\
         echo \"{name}: this node or image has no OpenSSH client\" >&2\nexit 127\n"
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::secret::SecretValue;
    use wire::ssh::InternodeHost;

    #[test]
    fn configuration_leads_each_host_to_its_job_and_leaves_others_to_the_user() {
        let host = |names: &[&str], login: &str| InternodeHost {
            names: names.iter().map(|name| (*name).to_owned()).collect(),
            login: login.to_owned(),
        };
        let ssh = InternodeSsh {
            private_key: SecretValue("KEY\n".into()),
            host_key: "ssh-ed25519 AAAA".into(),
            hosts: vec![host(&["10.0.0.1", "n1"], "7.0"), host(&[], "7.1")],
        };
        let relay = ["/opt/it's 100%/sluice".to_owned(), "ssh-relay".to_owned()];
        let made = files(&ssh, Path::new("/run files"), &relay);
        let text = |name: &str| &made.iter().find(|file| file.name == name).expect("made").text;
        let found = text(CONFIGURATION);
        assert!(found.starts_with(
            "Host 10.0.0.1 n1\n  ProxyCommand '/opt/it'\\''s 100%%/sluice' 'ssh-relay' '7.0'\n  \
             IdentityFile \"/run files/id_ed25519\"\n"
        ));
        assert!(!found.contains("7.1"), "a host without a name has no block");
        assert!(
            found.ends_with("Host *\n  Include ~/.ssh/config\n  Include /etc/ssh/ssh_config\n")
        );
        assert_eq!(text(KNOWN_HOSTS), "sluice ssh-ed25519 AAAA\n");
        assert!(text("scp").contains("exec \"$folder/scp\" -F '/run files/ssh_config' \"$@\""));
        let key = made.iter().find(|file| file.name == KEY).expect("made");
        assert_eq!((key.text.as_str(), key.mode), ("KEY\n", 0o600));
    }
}
