//! Images in files and folders of the node.

use std::fs;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};

use image::{Digest, ErrorKind, FileUser, Image, Pull, Root};

use super::made::{Made, Node, gzip, layer, lower, source};

impl Node {
    fn file(&self, name: &str, bytes: &[u8]) -> PathBuf {
        let path = self.folder.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, bytes).unwrap();
        path
    }

    fn import(&self, path: &Path) -> image::Result<Image> {
        self.pull(path.to_str().unwrap())
    }

    fn refused(&self, name: &str, bytes: &[u8]) -> String {
        let error = self.import(&self.file(name, bytes)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NotAnImage, "{error}");
        assert!(self.names("tmp").is_empty() && self.names("layers/sha256").is_empty());
        error.to_string()
    }
}

/// The parts of an OCI image layout.
fn layout(made: &Made) -> Vec<(String, Vec<u8>)> {
    let index = serde_json::json!({"schemaVersion": 2, "manifests": [{"mediaType": "application/vnd.oci.image.manifest.v1+json",
        "digest": made.digest(), "size": made.manifest.len(), "annotations": {"org.opencontainers.image.ref.name": "v1"}}]});
    let part = |digest: &str| format!("blobs/sha256/{}", digest.trim_start_matches("sha256:"));
    let mut parts = vec![("oci-layout".into(), br#"{"imageLayoutVersion":"1.0.0"}"#.to_vec())];
    parts.push((part(made.digest().as_str()), made.manifest.clone()));
    parts.extend(made.blobs.iter().map(|(digest, blob)| (part(digest), blob.clone())));
    parts.push(("index.json".into(), index.to_string().into_bytes()));
    parts
}

fn tarball(parts: &[(String, Vec<u8>)]) -> Vec<u8> {
    layer(&parts.iter().map(|(name, data)| (name.as_str(), data.as_slice())).collect::<Vec<_>>())
}

/// What `docker save` writes, in its older form.
fn saved(layers: &[Vec<u8>]) -> Vec<(String, Vec<u8>)> {
    let diff_ids: Vec<_> = layers.iter().map(|l| Digest::of(l)).collect();
    let config = serde_json::json!({"architecture": image::Platform::here().architecture, "os": "linux",
        "config": {"Cmd": ["sh"]}, "rootfs": {"type": "layers", "diff_ids": diff_ids}});
    let config = config.to_string().into_bytes();
    let name = format!("{}.json", Digest::of(&config).hex());
    let layer_name =
        |l: &Vec<u8>| format!("{}/layer.tar", Digest::of(&[l.as_slice(), b"id"].concat()).hex());
    let names: Vec<_> = layers.iter().map(layer_name).collect();
    let manifest = serde_json::json!([{"Config": name, "RepoTags": ["tool:1"], "Layers": names}]);
    let mut parts: Vec<_> = names.into_iter().zip(layers.iter().cloned()).collect();
    parts.push((name, config));
    parts.push(("manifest.json".into(), manifest.to_string().into_bytes()));
    parts
}

fn is_small(image: &Image) {
    assert_eq!(fs::read(lower(image)[0].join("hello")).unwrap(), b"world");
    assert_eq!(image.config.user, "me");
}

#[test]
fn an_oci_layout_is_an_image_as_a_folder_and_as_an_archive() {
    let (node, made) = (Node::new(), Made::small());
    let parts = layout(&made);
    for (name, data) in &parts {
        node.file(&format!("layout/{name}"), data);
    }
    let folder = node.folder.path().join("layout");
    is_small(&node.import(&folder).unwrap());
    is_small(&node.pull(&format!("oci:{}:v1", folder.display())).unwrap());
    let error = node.pull(&format!("oci:{}:v2", folder.display())).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFound, "{error}");
    is_small(&node.import(&node.file("plain.tar", &tarball(&parts))).unwrap());
    let packed = Node::new();
    is_small(&packed.import(&packed.file("packed.tar.gz", &gzip(&tarball(&parts)))).unwrap());
}

#[test]
fn a_part_that_is_changed_or_missing_is_said() {
    let mut parts = layout(&Made::small());
    parts[1].1.push(b' ');
    let node = Node::new();
    let error = node.import(&node.file("a.tar", &tarball(&parts))).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::DigestMismatch, "{error}");
    let mut parts = layout(&Made::small());
    parts.remove(1);
    assert!(node.refused("b.tar", &tarball(&parts)).contains("is missing"));
}

/// Who has read a file of his own has its layers; who names them only has not.
#[test]
fn a_layer_of_another_users_file_is_for_who_has_it_too() {
    let secret = layer(&[("secret", b"of a lab")]);
    let node = Node::new();
    let archive = tarball(&layout(&Made::new(std::slice::from_ref(&secret))));
    let claiming = Made::claiming(&secret, &layer(&[("other", b"1")]));
    let claiming = node.file("claiming.tar", &tarball(&layout(&claiming)));
    let import = |path: &Path, user: u32| {
        let file_user = Some(FileUser { uid: user, gid: user, groups: Vec::new() });
        let pull = Pull { file_user, ..Pull::new(&node.registries) };
        node.store.pull(&source(path.to_str().unwrap()), pull)
    };
    import(&node.file("own.tar", &archive), 1000).unwrap();
    let error = import(&claiming, 1001).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::DigestMismatch, "{error}");
    let image = import(&node.file("copy.tar", &archive), 1001).unwrap();
    assert_eq!(fs::read(lower(&image)[0].join("secret")).unwrap(), b"of a lab");
    assert!(import(&claiming, 1001).is_ok(), "he has shown that he has it");
    assert_eq!(import(&claiming, 1002).unwrap_err().kind(), ErrorKind::DigestMismatch);
    assert_eq!(node.names("layers/sha256").len(), 1, "it is shared");
}

#[test]
fn a_docker_archive_is_an_image() {
    let node = Node::new();
    let parts = saved(&[layer(&[("a", b"1")]), layer(&[("b", b"2")])]);
    let image = node.import(&node.file("saved.tar", &tarball(&parts))).unwrap();
    assert_eq!(fs::read(lower(&image)[0].join("b")).unwrap(), b"2");
    assert_eq!(image.config.cmd, ["sh"]);
}

#[test]
fn a_tarball_of_a_root_file_system_is_unpacked_once() {
    let node = Node::new();
    let path = node
        .file("root.tar.gz", &gzip(&layer(&[("etc/passwd", b"me:x:7:8::/h:\n"), ("bin/sh", b"")])));
    let image = node.import(&path).unwrap();
    assert!(lower(&image)[0].join("etc/passwd").exists());
    let unpacked = fs::metadata(&lower(&image)[0]).unwrap().modified().unwrap();
    let again = node.import(&path).unwrap();
    assert_eq!(
        (&again.digest, fs::metadata(&lower(&again)[0]).unwrap().modified().unwrap()),
        (&image.digest, unpacked)
    );
    // Another content under the same name is another image.
    node.file("root.tar.gz", &gzip(&layer(&[("bin/sh", b"new")])));
    assert_ne!(node.import(&path).unwrap().digest, image.digest);
}

#[test]
fn an_archive_that_was_taken_in_waits_for_no_turn() {
    let node = Node::new();
    let path = node.file("root.tar", &layer(&[("bin/sh", b"")]));
    let pull = || {
        let opened = fs::File::open(&path).unwrap();
        let pull = Pull { opened: Some(opened.into()), ..Pull::new(&node.registries) };
        node.store.pull(&source(path.to_str().unwrap()), pull).unwrap()
    };
    let image = pull();
    // Somebody else has the turn: who needed one would wait for ever.
    let locks = node.store.dir().join("locks");
    let mut held = Vec::new();
    for name in node.names("locks").iter().filter(|name| name.starts_with("pull-")) {
        let lock = fs::File::open(locks.join(name)).unwrap();
        lock.lock().unwrap();
        held.push(lock);
    }
    assert_eq!(held.len(), 1);
    assert_eq!(pull().digest, image.digest);
    assert!(node.names("progress").is_empty(), "nothing is told of it");
}

#[test]
fn a_folder_is_used_in_place_by_the_handle_that_its_user_opened() {
    let node = Node::new();
    node.file("root/etc/passwd", b"me:x:7:8::/h:\n");
    let path = node.folder.path().join("root");
    let opened = fs::File::open(&path).unwrap();
    // The name leads elsewhere by the time it is used.
    fs::rename(&path, node.folder.path().join("moved")).unwrap();
    node.file("root/etc/passwd", b"me:x:0:0::/:\n");
    let pull = Pull { opened: Some(opened.into()), ..Pull::new(&node.registries) };
    let image = node.store.pull(&super::made::source(path.to_str().unwrap()), pull).unwrap();
    let Root::Folder { handle, .. } = &image.root else { panic!("{image:?}") };
    let passwd = format!("/proc/self/fd/{}/etc/passwd", handle.as_raw_fd());
    assert_eq!(fs::read(passwd).unwrap(), b"me:x:7:8::/h:\n");
    let empty = node.folder.path().join("empty");
    fs::create_dir(&empty).unwrap();
    assert_eq!(node.import(&empty).unwrap_err().kind(), ErrorKind::NotAnImage);
}

#[test]
fn what_is_no_image_is_said_and_nothing_is_waited_for() {
    let node = Node::new();
    assert!(
        node.refused("text", b"just a text that is longer than a block? no.")
            .contains("no sound tarball")
    );
    node.refused("noise.tar", &super::made::noise(5000));
    node.refused("cut.tar", &layer(&[("bin/sh", &[b'x'; 4000])])[..2000]);
    let pipe = node.folder.path().join("pipe");
    nix::unistd::mkfifo(&pipe, nix::sys::stat::Mode::S_IRWXU).unwrap();
    assert_eq!(node.import(&pipe).unwrap_err().kind(), ErrorKind::NotAnImage);
    assert_eq!(node.import(Path::new("/nowhere/x.tar")).unwrap_err().kind(), ErrorKind::NotFound);
}

/// The header, one descriptor and the squashfs of a `.sif`.
fn sif(change: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    const TABLE: usize = 128;
    const DATA: usize = 4096;
    let mut bytes = vec![0; DATA + 1000];
    bytes[32..42].copy_from_slice(b"SIF_MAGIC\0");
    bytes[88..96].copy_from_slice(&1u64.to_le_bytes());
    bytes[96..104].copy_from_slice(&(TABLE as u64).to_le_bytes());
    bytes[TABLE..TABLE + 4].copy_from_slice(&0x4004u32.to_le_bytes());
    bytes[TABLE + 4] = 1;
    bytes[TABLE + 17..TABLE + 25].copy_from_slice(&(DATA as u64).to_le_bytes());
    bytes[TABLE + 25..TABLE + 33].copy_from_slice(&1000u64.to_le_bytes());
    bytes[TABLE + 201] = 1;
    bytes[TABLE + 205] = 2;
    let code = if cfg!(target_arch = "aarch64") { b"04" } else { b"02" };
    bytes[TABLE + 209..TABLE + 211].copy_from_slice(code);
    bytes[DATA..DATA + 4].copy_from_slice(b"hsqs");
    bytes[DATA + 40..DATA + 48].copy_from_slice(&900u64.to_le_bytes());
    change(&mut bytes);
    bytes
}

#[test]
fn the_squashfs_of_a_sif_is_found_and_every_field_is_checked() {
    let node = Node::new();
    let image = node.import(&node.file("good.sif", &sif(|_| ()))).unwrap();
    let Root::Squash(squash) = &image.root else { panic!("{image:?}") };
    assert_eq!((squash.offset, squash.size), (4096, 1000));
    let plain = node.import(&node.file("plain.sqsh", &sif(|_| ())[4096..])).unwrap();
    assert!(matches!(plain.root, Root::Squash(s) if s.offset == 0 && s.size == 1000));
    let set = |at: usize, value: u64| {
        move |b: &mut Vec<u8>| b[at..at + 8].copy_from_slice(&value.to_le_bytes())
    };
    for (bytes, says) in [
        (sif(|b| b[32] = b'x'), "not the header"),
        (sif(set(88, u64::MAX)), "descriptors"),
        (sif(set(96, u64::MAX - 5)), "beyond the end"),
        (sif(set(128 + 17, u64::MAX)), "beyond the end"),
        (sif(set(128 + 25, 5000)), "beyond the end"),
        (sif(|b| b[128 + 205] = 3), "no primary system partition"),
        (sif(|b| b[128 + 201] = 5), "encrypted"),
        (sif(|b| b[128 + 201] = 2), "squashfs (1) is needed"),
        (sif(|b| b[4096] = 0), "no squashfs"),
        (sif(set(4096 + 40, 5000)), "longer than the file"),
        (sif(|b| b.truncate(100)), "ends early"),
    ] {
        let line = node.refused("bad.sif", &bytes);
        assert!(line.contains(says), "{says}: {line}");
    }
    let error = node.import(&node.file("other.sif", &sif(|b| b[128 + 210] = b'1'))).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::WrongPlatform, "{error}");
}
