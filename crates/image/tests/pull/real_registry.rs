//! Debian's `docker-registry` on loopback, with passwords: the real thing beside the played one.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use image::{Credentials, ErrorKind, Pull};

use super::made::{Made, Node, lower, source};

const AUTHORISATION: &str = "Basic bWU6c2VjcmV0";

struct Registry {
    process: Child,
    host: String,
    _folder: tempfile::TempDir,
}

impl Drop for Registry {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

impl Registry {
    fn start() -> Option<Self> {
        let folder = tempfile::tempdir().unwrap();
        let users = Command::new("htpasswd").args(["-Bbn", "me", "secret"]).output().ok()?;
        std::fs::write(folder.path().join("users"), users.stdout).unwrap();
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let at = folder.path().display();
        let config = format!(
            "version: 0.1\nstorage:\n  filesystem:\n    rootdirectory: {at}/data\nhttp:\n  addr: 127.0.0.1:{port}\nauth:\n  htpasswd:\n    realm: test\n    path: {at}/users\n"
        );
        std::fs::write(folder.path().join("config.yml"), config).unwrap();
        let process = Command::new("docker-registry")
            .arg("serve")
            .arg(folder.path().join("config.yml"))
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .ok()?;
        let registry = Self { process, host: format!("127.0.0.1:{port}"), _folder: folder };
        let start = Instant::now();
        while TcpStream::connect(&registry.host).is_err() {
            assert!(start.elapsed() < Duration::from_secs(30), "docker-registry did not come up");
            std::thread::sleep(Duration::from_millis(20));
        }
        Some(registry)
    }

    /// One request; returns the head of the answer.
    fn send(&self, method: &str, target: &str, kind: &str, body: &[u8]) -> String {
        let mut stream = TcpStream::connect(&self.host).unwrap();
        let head = format!(
            "{method} {target} HTTP/1.1\r\nHost: {}\r\nAuthorization: {AUTHORISATION}\r\nContent-Type: {kind}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
            self.host,
            body.len()
        );
        stream.write_all(head.as_bytes()).unwrap();
        stream.write_all(body).unwrap();
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).unwrap();
        String::from_utf8_lossy(&answer).into_owned()
    }

    fn push(&self, name: &str, tag: &str, made: &Made) {
        for (digest, blob) in &made.blobs {
            let answer = self.send(
                "POST",
                &format!("/v2/{name}/blobs/uploads/"),
                "application/octet-stream",
                b"",
            );
            let location = answer
                .lines()
                .find_map(|l| l.strip_prefix("Location: "))
                .unwrap_or_else(|| panic!("{answer}"));
            let target =
                location.trim().split_once(&self.host).map_or(location, |(_, target)| target);
            let target = format!("{}&digest={digest}", target.trim());
            let answer = self.send("PUT", &target, "application/octet-stream", blob);
            assert!(answer.starts_with("HTTP/1.1 201"), "{answer}");
        }
        let kind = "application/vnd.oci.image.manifest.v1+json";
        let answer = self.send("PUT", &format!("/v2/{name}/manifests/{tag}"), kind, &made.manifest);
        assert!(answer.starts_with("HTTP/1.1 201"), "{answer}");
    }
}

#[test]
fn root_a_real_registry_gives_its_images_to_who_knows_the_password() {
    let Some(registry) = Registry::start() else {
        println!(
            "skipped: docker-registry or htpasswd is not here (scripts/install test brings them)"
        );
        return;
    };
    let made = Made::small();
    registry.push("team/tool", "1", &made);
    let node = Node::new().knows(&registry.host);
    let name = format!("{}/team/tool:1", registry.host);
    let pull = |name: &str, password: Option<&str>| {
        let credentials =
            password.map(|p| Credentials { username: "me".into(), password: p.into() });
        node.store.pull(&source(name), Pull { credentials, ..Pull::new(&node.registries) })
    };
    assert_eq!(pull(&name, None).unwrap_err().kind(), ErrorKind::Unauthorised);
    assert_eq!(pull(&name, Some("wrong")).unwrap_err().kind(), ErrorKind::Unauthorised);
    let image = pull(&name, Some("secret")).unwrap();
    assert_eq!(std::fs::read(lower(&image)[0].join("hello")).unwrap(), b"world");
    assert_eq!(image.digest, Some(made.digest()));
    let absent = format!("{}/team/tool:2", registry.host);
    assert_eq!(pull(&absent, Some("secret")).unwrap_err().kind(), ErrorKind::NotFound);
}
