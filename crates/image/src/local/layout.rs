//! OCI image layouts and the archives of `docker save`: from their parts to one image.

use serde::Deserialize;

use super::contents::Contents;
use crate::digest::Digest;
use crate::error::{Error, Result, shown};
use crate::manifest::{
    CONFIG_BYTES_MAX, ConfigFile, Descriptor, Document, MANIFEST_BYTES_MAX, choose,
};
use crate::platform::Platform;

const REF_NAME: &str = "org.opencontainers.image.ref.name";

/// One image of a layout, with the parts that are its layers, bottom first.
pub struct Layout {
    pub contents: Contents,
    pub digest: Digest,
    pub file: ConfigFile,
    pub layers: Vec<String>,
}

/// An image in the `manifest.json` of `docker save`.
#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Saved {
    config: String,
    #[serde(default)]
    repo_tags: Option<Vec<String>>,
    layers: Vec<String>,
}

impl Layout {
    pub fn read(
        name: &str,
        contents: Contents,
        tag: Option<&str>,
        platform: &Platform,
    ) -> Result<Self> {
        let layout = if contents.size("index.json").is_some() {
            Self::oci(name, contents, tag, platform)?
        } else {
            Self::docker(name, contents, tag, platform)?
        };
        if layout.layers.len() != layout.file.diff_ids.len() {
            let fault = format!(
                "it has {} layers, and its configuration {}",
                layout.layers.len(),
                layout.file.diff_ids.len()
            );
            return Err(Error::NotAnImage { what: name.to_owned(), fault });
        }
        Ok(layout)
    }

    fn oci(name: &str, contents: Contents, tag: Option<&str>, platform: &Platform) -> Result<Self> {
        let bytes = contents.read(name, "index.json", MANIFEST_BYTES_MAX)?;
        let Document::Index(mut manifests) = Document::parse(name, &bytes)? else {
            return Err(Error::NotAnImage {
                what: name.to_owned(),
                fault: "its index.json lists no images".into(),
            });
        };
        if let Some(tag) = tag {
            manifests.retain(|m| {
                m.annotations
                    .get(REF_NAME)
                    .is_some_and(|n| n == tag || n.ends_with(&format!(":{tag}")))
            });
            if manifests.is_empty() {
                return Err(Error::NotFound {
                    what: format!("the tag {tag}"),
                    place: name.to_owned(),
                });
            }
        }
        // An index may lead to the list of an image's platforms.
        let mut chosen = choose(name, &manifests, platform)?;
        for _ in 0..2 {
            let bytes = blob(name, &contents, &chosen, MANIFEST_BYTES_MAX)?;
            match Document::parse(name, &bytes)? {
                Document::Index(manifests) => chosen = choose(name, &manifests, platform)?,
                Document::Image(manifest) => {
                    let config = blob(name, &contents, &manifest.config, CONFIG_BYTES_MAX)?;
                    let file = ConfigFile::parse(name, &config, platform)?;
                    let layers = manifest.layers.iter().map(|l| part_of(&l.digest)).collect();
                    return Ok(Self { contents, digest: chosen.digest, file, layers });
                }
            }
        }
        Err(Error::NotAnImage {
            what: name.to_owned(),
            fault: "its lists of images lead to more lists".into(),
        })
    }

    fn docker(
        name: &str,
        contents: Contents,
        tag: Option<&str>,
        platform: &Platform,
    ) -> Result<Self> {
        let not = |fault: String| Error::NotAnImage { what: name.to_owned(), fault };
        let bytes = contents.read(name, "manifest.json", MANIFEST_BYTES_MAX)?;
        let mut saved: Vec<Saved> = serde_json::from_slice(&bytes).map_err(|e| {
            not(format!("its manifest.json is not readable: {}", shown(e.to_string().as_bytes())))
        })?;
        if let Some(tag) = tag {
            let tagged = |s: &Saved| {
                s.repo_tags.iter().flatten().any(|t| t == tag || t.ends_with(&format!(":{tag}")))
            };
            saved.retain(tagged);
        }
        let count = saved.len();
        let (Some(image), 1) = (saved.pop(), count) else {
            return Err(not(format!(
                "it has {count} images; save one alone, or name its tag as in docker-archive:PATH:TAG"
            )));
        };
        let config = contents.read(name, &image.config, CONFIG_BYTES_MAX)?;
        let file = ConfigFile::parse(name, &config, platform)?;
        Ok(Self { contents, digest: Digest::of(&config), file, layers: image.layers })
    }
}

fn part_of(digest: &Digest) -> String {
    format!("blobs/sha256/{}", digest.hex())
}

/// A small blob with its digest checked.
fn blob(name: &str, contents: &Contents, descriptor: &Descriptor, max: u64) -> Result<Vec<u8>> {
    let bytes = contents.read(name, &part_of(&descriptor.digest), max)?;
    let found = Digest::of(&bytes);
    if found != descriptor.digest {
        let what = format!("a part of {name}");
        return Err(Error::DigestMismatch {
            what,
            expected: descriptor.digest.to_string(),
            found: found.to_string(),
        });
    }
    Ok(bytes)
}
