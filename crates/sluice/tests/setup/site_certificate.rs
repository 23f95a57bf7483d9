//! The certificate of the clients' port that a site names in sluice.toml.

use crate::harness::{Cluster, TWO_NODES, until};
use std::os::unix::fs::PermissionsExt;
use std::process::Command;

const TOML: &str = "[server]\ncertificate = 'site.pem'\nkey = 'site.key'\n";

/// Writes a certificate for localhost, which is its own authority, and its key, as files that the server may read.
fn write_certificate(cluster: &Cluster) {
    let made = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
    for (name, text) in
        [("site.key", made.signing_key.serialize_pem()), ("site.pem", made.cert.pem())]
    {
        let fresh = cluster.path("conf").join(format!("{name}.new"));
        std::fs::write(&fresh, text).unwrap();
        std::fs::set_permissions(&fresh, std::fs::Permissions::from_mode(0o644)).unwrap();
        std::fs::rename(fresh, cluster.path("conf").join(name)).unwrap();
    }
}

/// Whether the port shows a certificate that this file vouches for.
fn is_shown(cluster: &Cluster, file: &str) -> bool {
    let ports = std::fs::read_to_string(cluster.state().join("ports.json")).unwrap();
    let ports: serde_json::Value = serde_json::from_str(&ports).unwrap();
    let port = ports["listen"].as_str().unwrap().rsplit(':').next().unwrap().to_owned();
    let mut curl = Command::new("curl");
    curl.args(["-sS", "--cacert"]).arg(cluster.path("conf").join(file));
    let said = curl.arg(format!("https://localhost:{port}/healthz")).output().unwrap();
    said.stdout == b"ok\n"
}

#[test]
fn up_certificate_of_the_site_is_shown_and_read_again_when_it_changes() {
    let cluster = Cluster::folder(TWO_NODES);
    cluster.write_conf("sluice.toml", TOML);
    write_certificate(&cluster);
    cluster.start();
    assert!(is_shown(&cluster, "site.pem"));
    std::fs::copy(cluster.path("conf/site.pem"), cluster.path("conf/former.pem")).unwrap();
    write_certificate(&cluster);
    until("the new certificate is shown", || is_shown(&cluster, "site.pem").then_some(()));
    assert!(!is_shown(&cluster, "former.pem"));
    // A file that cannot be used changes nothing but the log.
    std::fs::copy(cluster.path("conf/site.pem"), cluster.path("conf/former.pem")).unwrap();
    cluster.write_conf("site.pem", "torn");
    until("the log says why", || {
        assert!(is_shown(&cluster, "former.pem"));
        cluster.log("server").contains("the certificate stays as it was").then_some(())
    });
}

/// The socket, the loopback and the nodes are served without it.
#[test]
fn up_certificate_that_cannot_be_used_refuses_tls_alone_until_it_is_good() {
    let cluster = Cluster::folder(TWO_NODES);
    cluster.write_conf("sluice.toml", "[server]\ncertificate = 'site.pem'\n");
    let said = cluster.try_start();
    assert_ne!(said.code, 0);
    assert!(
        said.stderr.contains("sluice.toml: [server] certificate: its key is missing"),
        "{}",
        said.stderr
    );
    cluster.write_conf("sluice.toml", TOML);
    cluster.start();
    let refusal = "the clients' port refuses TLS until its certificate is good: ";
    let log = until("the log says why", || {
        let log = cluster.log("server");
        log.contains(refusal).then_some(log)
    });
    assert!(log.contains("conf/site.pem: No such file"), "{log}");
    assert_eq!(cluster.shell("srun echo served").ok(), "served\n");
    write_certificate(&cluster);
    until("the certificate is shown", || is_shown(&cluster, "site.pem").then_some(()));
    assert_eq!(cluster.log("server").matches(refusal).count(), 1);
}
