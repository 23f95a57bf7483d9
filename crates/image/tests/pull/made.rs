//! Images that are made on the spot, and a store to pull them into.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::PathBuf;

use image::{Digest, Image, Pull, RegistryConfig, Root, Source, Store, Timeouts};

/// A tar archive of files.
pub fn layer(files: &[(&str, &[u8])]) -> Vec<u8> {
    let mut builder = tar::Builder::new(Vec::new());
    for (path, data) in files {
        let mut header = tar::Header::new_gnu();
        header.set_size(data.len() as u64);
        header.set_mode(0o644);
        header.set_mtime(1_700_000_000);
        builder.append_data(&mut header, path, *data).unwrap();
    }
    builder.into_inner().unwrap()
}

pub fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

/// Bytes that do not compress.
pub fn noise(len: usize) -> Vec<u8> {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    (0..len)
        .map(|_| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state as u8
        })
        .collect()
}

/// An image with its blobs by digest.
#[derive(Clone, Default)]
pub struct Made {
    pub manifest: Vec<u8>,
    pub blobs: BTreeMap<String, Vec<u8>>,
    pub layers: Vec<Digest>,
}

impl Made {
    pub fn new(layers: &[Vec<u8>]) -> Self {
        Self::with_config(
            layers,
            serde_json::json!({"Env": ["A=1"], "Cmd": ["/bin/sh"], "User": "me"}),
        )
    }

    pub fn with_config(layers: &[Vec<u8>], settings: serde_json::Value) -> Self {
        let mut made = Self::default();
        let mut descriptors = Vec::new();
        let diff_ids: Vec<_> = layers.iter().map(|l| Digest::of(l)).collect();
        for layer in layers {
            let blob = gzip(layer);
            let digest = Digest::of(&blob);
            descriptors.push(
                serde_json::json!({"mediaType": "application/vnd.oci.image.layer.v1.tar+gzip",
                "digest": digest, "size": blob.len()}),
            );
            made.blobs.insert(digest.to_string(), blob);
            made.layers.push(digest);
        }
        let config = serde_json::json!({"architecture": image::Platform::here().architecture, "os": "linux",
            "config": settings, "rootfs": {"type": "layers", "diff_ids": diff_ids}});
        let config = config.to_string().into_bytes();
        let manifest = serde_json::json!({"schemaVersion": 2,
            "mediaType": "application/vnd.oci.image.manifest.v1+json",
            "config": {"mediaType": "application/vnd.oci.image.config.v1+json",
                "digest": Digest::of(&config), "size": config.len()},
            "layers": descriptors});
        made.blobs.insert(Digest::of(&config).to_string(), config);
        made.manifest = manifest.to_string().into_bytes();
        made
    }

    /// An image whose configuration names one layer, and whose manifest leads to another.
    pub fn claiming(claimed: &[u8], brought: &[u8]) -> Self {
        let (mut made, other) = (Self::new(&[claimed.to_vec()]), Self::new(&[brought.to_vec()]));
        let text = String::from_utf8(made.manifest.clone()).unwrap();
        let (from, to) = (&made.layers[0], &other.layers[0]);
        let size = |made: &Self, digest: &Digest| {
            format!("\"size\":{}", made.blobs[digest.as_str()].len())
        };
        let text =
            text.replace(from.as_str(), to.as_str()).replace(&size(&made, from), &size(&other, to));
        made.manifest = text.into_bytes();
        made.blobs.remove(made.layers[0].as_str());
        made.blobs.extend(other.blobs);
        made.layers = other.layers;
        made
    }

    pub fn digest(&self) -> Digest {
        Digest::of(&self.manifest)
    }

    /// A small image of two layers, the upper one with a whiteout.
    pub fn small() -> Self {
        Self::new(&[
            layer(&[
                ("etc/passwd", b"root:x:0:0::/root:/bin/sh\nme:x:7:8::/home/me:\n"),
                ("gone", b"x"),
            ]),
            layer(&[("hello", b"world"), (".wh.gone", b"")]),
        ])
    }
}

pub struct Node {
    pub folder: tempfile::TempDir,
    pub store: Store,
    pub registries: RegistryConfig,
}

impl Node {
    pub fn new() -> Self {
        Self::bounded(1 << 30)
    }

    pub fn bounded(bytes: u64) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::open(&folder.path().join("store"), bytes).unwrap();
        Self {
            folder,
            store,
            registries: RegistryConfig { timeouts: brief(), ..Default::default() },
        }
    }

    /// Trusts a registry that speaks plain HTTP.
    pub fn knows(mut self, host: &str) -> Self {
        self.registries.insecure.insert(host.to_owned());
        self
    }

    pub fn pull(&self, name: &str) -> image::Result<Image> {
        self.store.pull(&source(name), Pull::new(&self.registries))
    }

    /// Names in a folder of the store.
    pub fn names(&self, folder: &str) -> Vec<String> {
        let read = std::fs::read_dir(self.store.dir().join(folder)).unwrap();
        let mut names: Vec<_> =
            read.map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }
}

pub fn source(name: &str) -> Source {
    name.parse().unwrap()
}

/// Short enough to wait for in a test.
pub fn brief() -> Timeouts {
    let millis = std::time::Duration::from_millis;
    Timeouts { connect: millis(2000), silence: millis(300), slow: millis(1500) }
}

pub fn lower(image: &Image) -> &[PathBuf] {
    match &image.root {
        Root::Layers(lower) => lower,
        other => panic!("{other:?}"),
    }
}
