//! A real registry on loopback, and an image pushed to it that was made on the spot.

use crate::harness::until;
use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};

/// The user and password without which a registry answers nothing.
#[derive(Clone, Copy)]
pub struct Login<'a> {
    pub user: &'a str,
    pub password: &'a str,
}

impl Login<'_> {
    /// `user:password` in base 64.
    pub fn encoded(self) -> String {
        BASE64.encode(format!("{}:{}", self.user, self.password))
    }
}

pub struct Registry {
    child: Child,
    /// The header of every request.
    authorization: String,
    pub address: String,
    dir: tempfile::TempDir,
}

impl Drop for Registry {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Registry {
    pub fn start() -> Registry {
        Self::configured("", tempfile::tempdir().expect("a folder"), String::new())
    }

    /// A registry that wants to see this login.
    pub fn start_with(login: Login) -> Registry {
        let dir = tempfile::tempdir().expect("a folder");
        let line = Command::new("htpasswd").args(["-Bbn", login.user, login.password]).output();
        let file = dir.path().join("htpasswd");
        std::fs::write(&file, line.expect("htpasswd, which scripts/install brings").stdout)
            .expect("written");
        let auth = format!("auth: {{htpasswd: {{realm: lab, path: {}}}}}\n", file.display());
        let header = format!("Authorization: Basic {}\r\n", login.encoded());
        Self::configured(&auth, dir, header)
    }

    fn configured(more: &str, dir: tempfile::TempDir, authorization: String) -> Registry {
        let free =
            std::net::TcpListener::bind("127.0.0.1:0").and_then(|socket| socket.local_addr());
        let address = free.expect("a free port").to_string();
        let config = dir.path().join("config.yml");
        let text = format!(
            "version: 0.1\nstorage: {{filesystem: {{rootdirectory: {}}}}}\nhttp: {{addr: '{address}'}}\n{more}",
            dir.path().join("data").display()
        );
        std::fs::write(&config, text).expect("written");
        let child = Command::new("docker-registry")
            .arg("serve")
            .arg(&config)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("docker-registry, which scripts/install brings");
        let registry = Registry { child, authorization, address, dir };
        until("the registry answers", || TcpStream::connect(&registry.address).ok());
        registry
    }

    /// Pushes a root file system as an image of one layer.
    pub fn push(&self, name: &str, tag: &str, rootfs: &Path, settings: &str) {
        let architecture = if cfg!(target_arch = "aarch64") { "arm64" } else { "amd64" };
        self.push_for(architecture, name, tag, rootfs, settings);
    }

    /// The same, as an image for machines of this architecture.
    pub fn push_for(
        &self,
        architecture: &str,
        name: &str,
        tag: &str,
        rootfs: &Path,
        settings: &str,
    ) {
        let dir = tempfile::tempdir().expect("a folder");
        let (plain, packed) = (dir.path().join("layer.tar"), dir.path().join("layer.tar.gz"));
        let run = |program: &str, args: &[&str]| {
            let out = Command::new(program).args(args).output().expect(program);
            assert!(
                out.status.success(),
                "{program} {args:?}: {}",
                String::from_utf8_lossy(&out.stderr)
            );
            out.stdout
        };
        let text = |path: &Path| path.to_str().expect("utf-8").to_owned();
        let sum = |path: &Path| {
            let out = run("sha256sum", &[&text(path)]);
            format!("sha256:{}", String::from_utf8_lossy(&out[..64]))
        };
        run(
            "tar",
            &[
                "-C",
                &text(rootfs),
                "--numeric-owner",
                "--owner=0",
                "--group=0",
                "-cf",
                &text(&plain),
                ".",
            ],
        );
        std::fs::write(&packed, run("gzip", &["-c", &text(&plain)])).expect("written");
        let config = dir.path().join("config.json");
        let described = format!(
            r#"{{"architecture":"{architecture}","os":"linux","config":{settings},"rootfs":{{"type":"layers","diff_ids":["{}"]}}}}"#,
            sum(&plain)
        );
        std::fs::write(&config, described).expect("written");
        let part = |path: &Path, kind: &str| {
            self.put_blob(name, &sum(path), &std::fs::read(path).expect("read"));
            let size = std::fs::metadata(path).expect("a file").len();
            format!(r#"{{"mediaType":"{kind}","digest":"{}","size":{size}}}"#, sum(path))
        };
        let config = part(&config, "application/vnd.oci.image.config.v1+json");
        let layer = part(&packed, "application/vnd.oci.image.layer.v1.tar+gzip");
        let kind = "application/vnd.oci.image.manifest.v1+json";
        let manifest = format!(
            r#"{{"schemaVersion":2,"mediaType":"{kind}","config":{config},"layers":[{layer}]}}"#
        );
        let path = format!("/v2/{name}/manifests/{tag}");
        let answer = self.ask("PUT", &path, kind, manifest.as_bytes());
        assert!(answer.starts_with("HTTP/1.1 201"), "{answer}");
    }

    /// Changes a byte of the largest part of all images, on the registry's own disk.
    pub fn spoil_largest_blob(&self) {
        let blobs = self.dir.path().join("data/docker/registry/v2/blobs/sha256");
        let folders = |path: &Path| {
            let entries = std::fs::read_dir(path).expect("a folder").flatten();
            entries.map(|entry| entry.path()).collect::<Vec<_>>()
        };
        let blobs = folders(&blobs).iter().flat_map(|prefix| folders(prefix)).collect::<Vec<_>>();
        let size = |blob: &&std::path::PathBuf| {
            std::fs::metadata(blob.join("data")).map_or(0, |data| data.len())
        };
        let largest = blobs.iter().max_by_key(size).expect("a blob").join("data");
        let mut bytes = std::fs::read(&largest).expect("read");
        let middle = bytes.len() / 2;
        bytes[middle] ^= 1;
        std::fs::write(largest, bytes).expect("written");
    }

    fn put_blob(&self, name: &str, digest: &str, bytes: &[u8]) {
        let begun = self.ask("POST", &format!("/v2/{name}/blobs/uploads/"), "", b"");
        let location =
            begun.lines().find_map(|line| line.strip_prefix("Location: ")).expect("a place");
        let path = location.trim().split_once(&self.address).map_or(location, |(_, path)| path);
        let joint = if path.contains('?') { '&' } else { '?' };
        let kind = "application/octet-stream";
        let answer =
            self.ask("PUT", &format!("{}{joint}digest={digest}", path.trim()), kind, bytes);
        assert!(answer.starts_with("HTTP/1.1 201"), "{answer}");
    }

    fn ask(&self, method: &str, path: &str, kind: &str, body: &[u8]) -> String {
        let mut stream = TcpStream::connect(&self.address).expect("the registry");
        let head = format!(
            "{method} {path} HTTP/1.1\r\nHost: {}\r\nConnection: close\r\nContent-Type: {kind}\r\n{}Content-Length: {}\r\n\r\n",
            self.address,
            self.authorization,
            body.len()
        );
        stream.write_all(head.as_bytes()).and_then(|()| stream.write_all(body)).expect("sent");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("an answer");
        answer
    }
}
