//! Images in this machine's own files. A file is opened once, and everything is read through that handle.
//!
//! - `contents.rs`: the named parts of a folder or of an archive.
//! - `layout.rs`: OCI image layouts and `docker save`, in either.
//! - `sif.rs`: the squashfs in a `.sif`, or alone.

mod contents;
mod file_user;
mod layout;
mod sif;

use std::fs::File;
use std::io::{Seek, SeekFrom};
use std::os::fd::AsFd;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::Path;

use crate::config::ImageConfig;
use crate::digest::Digest;
use crate::error::{Error, Result};
use crate::image::{Image, Root};
use crate::manifest::ConfigFile;
use crate::pull::Pull;
use crate::reference::Source;
use crate::store::{
    ImportRecord, Phase, Reporter, Requester, Store, pull_key, read_record, write_record,
};
use crate::unpack::{decoder, exists};

use contents::{Contents, is_image_archive};
pub use file_user::FileUser;
use layout::Layout;
pub use sif::SquashImage;

/// What a root file system has at least one of.
const ROOT_FOLDERS: [&str; 4] = ["bin", "usr", "etc", "sbin"];

impl Store {
    /// The image at a path: used in place, or taken into the store.
    pub(crate) fn import(
        &self,
        source: &Source,
        path: &Path,
        tag: Option<&str>,
        pull: Pull,
        reporter: &Reporter,
    ) -> Result<Image> {
        let name = source.to_string();
        let requester = pull.requester();
        let not = |fault: &str| Error::NotAnImage { what: name.clone(), fault: fault.to_owned() };
        let file = match pull.opened {
            Some(opened) => File::from(opened),
            // A pipe or a terminal must not be waited for.
            None => std::fs::OpenOptions::new()
                .read(true)
                .custom_flags(libc::O_NONBLOCK | libc::O_NOCTTY)
                .open(path)
                .map_err(|e| missing(&name, path, e))?,
        };
        let kind = file.metadata().map_err(Error::at(path))?;
        if kind.is_dir() {
            if exists(file.as_fd(), b"oci-layout") || exists(file.as_fd(), b"index.json") {
                let layout = Layout::read(
                    &name,
                    Contents::Folder(file, pull.file_user),
                    tag,
                    &pull.platform,
                )?;
                return Ok(self.import_layout(&name, layout, &requester, reporter)?.0);
            }
            if !ROOT_FOLDERS.iter().any(|folder| exists(file.as_fd(), folder.as_bytes())) {
                return Err(not(
                    "the folder is neither an OCI image layout nor a root file system with bin, usr or etc",
                ));
            }
            let root = Root::Folder { path: path.to_owned(), handle: file.into() };
            return Ok(Image {
                name,
                config: ImageConfig::default(),
                root,
                digest: None,
                in_use: None,
            });
        }
        if !kind.is_file() {
            return Err(not("it is neither a file nor a folder"));
        }
        if let Some(squash) = sif::open(&name, path, &file, &pull.platform)? {
            let root = Root::Squash(squash);
            return Ok(Image {
                name,
                config: ImageConfig::default(),
                root,
                digest: None,
                in_use: None,
            });
        }
        reporter.phase(Phase::Unpacking);
        self.import_archive(source, file, tag, &pull.platform, &requester, reporter)
    }

    fn import_archive(
        &self,
        source: &Source,
        mut file: File,
        tag: Option<&str>,
        platform: &crate::platform::Platform,
        requester: &Requester,
        reporter: &Reporter,
    ) -> Result<Image> {
        let name = source.to_string();
        let before = stamp(&file)?;
        // Another process may have imported it while this one waited for its turn.
        if let Some(image) = self.imported(source, &file, requester) {
            return Ok(image);
        }
        let start =
            |file: &mut File| file.seek(SeekFrom::Start(0)).map(drop).map_err(Error::io(&*name));
        let (image, is_whole) = if is_image_archive(&name, &file)? {
            start(&mut file)?;
            let plain = self.decompressed(&name, file.try_clone().map_err(Error::io(&*name))?)?;
            let layout = Layout::read(&name, Contents::index(&name, plain)?, tag, platform)?;
            self.import_layout(&name, layout, requester, reporter)?
        } else {
            start(&mut file)?;
            // The pull's lock keeps a second import of the same file away.
            self.make_room(file.metadata().map_err(Error::io(&*name))?.len())?;
            let (diff_id, held) = self.import_layer(&name, &file, None, requester)?;
            let config =
                ConfigFile { config: ImageConfig::default(), diff_ids: vec![diff_id.clone()] };
            let image = self.image_of(&name, &diff_id, requester, || Ok((config, vec![held])))?;
            (image, true)
        };
        // A file that was written to meanwhile is read again next time.
        if let Some(digest) = &image.digest
            && stamp(&file)? == before
        {
            let import = ImportRecord { stamp: before, digest: digest.clone(), is_whole };
            write_record(&self.folders.import(&pull_key(source)), &import)?;
        }
        Ok(image)
    }

    /// The image that was made from this file, as it is now, if the store still has it for who wants it.
    pub(crate) fn imported(
        &self,
        source: &Source,
        file: &File,
        requester: &Requester,
    ) -> Option<Image> {
        let import: ImportRecord = read_record(&self.folders.import(&pull_key(source)))?;
        let is_same = stamp(file).is_ok_and(|now| now == import.stamp);
        if !is_same || !(import.is_whole || self.has_image_for(&import.digest, requester)) {
            return None;
        }
        self.image(&source.to_string(), &import.digest).ok()
    }

    /// Whether the image is there with every layer, for who wants it.
    fn has_image_for(&self, digest: &Digest, requester: &Requester) -> bool {
        let image = self.whole_image(digest);
        image.is_some_and(|image| self.admits_to_all(&image.diff_ids, requester))
    }

    /// Returns also whether every layer was read from these parts.
    fn import_layout(
        &self,
        name: &str,
        layout: Layout,
        requester: &Requester,
        reporter: &Reporter,
    ) -> Result<(Image, bool)> {
        let Layout { contents, digest, file, layers } = layout;
        let mut is_whole = false;
        let image = self.image_of(name, &digest, requester, || {
            is_whole = true;
            reporter
                .expect(layers.len(), layers.iter().map(|l| contents.size(l).unwrap_or(0)).sum());
            let mut held = Vec::new();
            for (at, (diff_id, part)) in file.diff_ids.iter().zip(&layers).enumerate() {
                let what = format!("layer {} of {name}", diff_id.short());
                let size = contents.size(part).ok_or_else(|| contents::part_missing(name, part))?;
                let open = || contents.open(name, part);
                let (layer, was_read) = self.layer_from(&what, diff_id, size, requester, open)?;
                held.push(layer);
                is_whole &= was_read;
                reporter.downloaded(at, size);
                reporter.layer_done();
            }
            Ok((file, held))
        })?;
        Ok((image, is_whole))
    }

    /// An archive as it is, or decompressed into a file of the store that has no name.
    fn decompressed(&self, name: &str, file: File) -> Result<File> {
        let mut decoder =
            decoder(file.try_clone().map_err(Error::io(name))?).map_err(Error::io(name))?;
        if decoder.is_plain() {
            return Ok(file);
        }
        let tmp = self.folders.tmp();
        let mut plain = std::fs::OpenOptions::new()
            .read(true)
            .write(true)
            .custom_flags(libc::O_TMPFILE)
            .mode(0o600)
            .open(&tmp)
            .map_err(Error::at(&tmp))?;
        let room = self.options.bound_bytes.saturating_sub(self.used_bytes());
        let room = room.min(self.free_bytes()?);
        let mut bounded = std::io::Read::take(&mut decoder, room.saturating_add(1));
        let copied = std::io::copy(&mut bounded, &mut plain);
        let copied = copied.map_err(|e| Error::NotAnImage {
            what: name.to_owned(),
            fault: crate::error::shown(e.to_string().as_bytes()),
        })?;
        if copied > room {
            let fault =
                format!("{name} has more than the {room} bytes that are left, decompressed");
            return Err(Error::StoreFull { store: self.name(), fault });
        }
        Ok(plain)
    }
}

fn missing(name: &str, path: &Path, error: std::io::Error) -> Error {
    if error.kind() == std::io::ErrorKind::NotFound {
        return Error::NotFound {
            what: name.to_owned(),
            place: "this machine's file system".into(),
        };
    }
    Error::at(path)(error)
}

/// Changes with every change to the file: no user can set the time of the inode's own change.
fn stamp(file: &File) -> Result<String> {
    let m = file.metadata().map_err(Error::io("an image's file"))?;
    Ok(format!(
        "{}:{}:{}:{}.{}:{}.{}",
        m.dev(),
        m.ino(),
        m.size(),
        m.mtime(),
        m.mtime_nsec(),
        m.ctime(),
        m.ctime_nsec()
    ))
}

/// Bytes at a place of a file, whatever its position is.
fn bytes_at(file: &File, at: u64, len: usize) -> Option<Vec<u8>> {
    let mut bytes = vec![0; len];
    file.read_exact_at(&mut bytes, at).ok().map(|()| bytes)
}
