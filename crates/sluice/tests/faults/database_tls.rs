//! TLS to the database: its certificate and the name in it are checked, and a server does not start with one that is not accepted.

use crate::database::TestDatabase;
use crate::harness::{Cluster, TWO_NODES};
use crate::servers::{Server, server_command};
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};

/// Whoever vouches for certificates.
struct Authority {
    params: CertificateParams,
    key: KeyPair,
}

impl Authority {
    fn new() -> Self {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        Self { params, key: KeyPair::generate().expect("a key") }
    }

    fn pem(&self) -> String {
        self.params.self_signed(&self.key).expect("a certificate").pem()
    }

    /// A certificate for this name, and its key.
    fn certify(&self, name: &str) -> (String, String) {
        let issuer = Issuer::from_params(&self.params, &self.key);
        let key = KeyPair::generate().expect("a key");
        let params = CertificateParams::new(vec![name.to_owned()]).expect("a name");
        let certificate = params.signed_by(&key, &issuer).expect("a certificate");
        (certificate.pem(), key.serialize_pem())
    }
}

/// Starts the database again at this address, with a certificate for this name.
fn serve(database: &mut TestDatabase, address: &str, authority: &Authority, name: &str) {
    let (certificate, key) = authority.certify(name);
    let certificate = database.private_file("server.crt", &certificate);
    let key = database.private_file("server.key", &key);
    let settings = [
        format!("listen_addresses={address}"),
        "ssl=on".to_owned(),
        format!("ssl_cert_file={certificate}"),
        format!("ssl_key_file={key}"),
    ];
    database.serve_with(&settings.each_ref().map(String::as_str), None);
}

#[test]
fn up_certificate_of_the_database_and_its_name_are_checked() {
    let mut database = TestDatabase::start();
    let process = std::process::id();
    // An address of the loopback that no other test has.
    let address = format!("127.77.{}.{}", process / 250 % 250 + 1, process % 250 + 1);
    let (authority, other) = (Authority::new(), Authority::new());
    serve(&mut database, &address, &authority, &address);
    let cluster = Cluster::folder(TWO_NODES);
    let url = |roots: &str, authority: &Authority| {
        let file = cluster.write(roots, &authority.pem());
        format!("postgres://sluice@{address}/sluice?sslrootcert={}", file.display())
    };
    let (good, bad) = (url("good.pem", &authority), url("bad.pem", &other));
    let refusal = |store: &str| {
        let said = server_command(&cluster, store).output().expect("the program runs");
        assert_ne!(said.status.code(), Some(0));
        let text = String::from_utf8_lossy(&said.stderr).into_owned();
        let errors = text.lines().filter(|line| line.starts_with("sluice: error: "));
        assert_eq!(errors.count(), 1, "{text}");
        text
    };
    let said = refusal(&bad);
    assert!(said.contains("the certificate of the database: "), "{said}");

    let mut server = Server::spawn(&mut server_command(&cluster, &good));
    server.await_line("sluice is up");
    cluster.submit(&["-H", "--wrap", "true"]);
    let is_encrypted = "DO $$ BEGIN IF EXISTS (
            SELECT 1 FROM pg_stat_activity a LEFT JOIN pg_stat_ssl s USING (pid)
            WHERE a.application_name = 'sluice' AND s.ssl IS NOT TRUE)
        THEN RAISE 'a session of the server has no TLS'; END IF; END $$";
    database.execute("postgres", is_encrypted);
    server.end("TERM");

    serve(&mut database, &address, &authority, "db.example");
    let said = refusal(&good);
    assert!(said.contains("the certificate of the database: "), "{said}");
}
