//! From a name to an image in the store: what is missing is downloaded and unpacked, by one process for all.

use std::fs::File;
use std::io::{Seek, SeekFrom};
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::sync_channel;

use crate::digest::Digest;
use crate::error::{Error, Result};
use crate::image::Image;
use crate::local::FileUser;
use crate::manifest::{ConfigFile, Descriptor, Document, Manifest, choose};
use crate::platform::Platform;
use crate::reference::{Reference, Source, Version};
use crate::registry::{Client, Credentials, RegistryConfig};
use crate::store::{
    ImageRecord, KeepAlive, LayerHeld, Lock, Mode, OnProgress, Phase, Reporter, Requester, Store,
    TagRecord, Watcher, now, pull_key, read_record, write_record,
};

/// When a registry is asked what a tag leads to. A digest leads to the same for ever.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum PullPolicy {
    #[default]
    Always,
    IfNotPresent,
}

/// How an image is to be got.
pub struct Pull<'a> {
    pub registry: &'a RegistryConfig,
    /// For this pull only.
    pub credentials: Option<Credentials>,
    pub policy: PullPolicy,
    pub platform: Platform,
    pub on_progress: Option<OnProgress<'a>>,
    /// The file or folder of a path, opened with the rights of whoever named it. Without it the path is opened with
    /// the rights of this process.
    pub opened: Option<OwnedFd>,
    /// The user with whose rights the files of an image in a folder are opened: whoever wrote the image names them.
    /// `None`: with the rights of this process.
    pub file_user: Option<FileUser>,
}

impl<'a> Pull<'a> {
    pub fn new(registry: &'a RegistryConfig) -> Self {
        Self {
            registry,
            credentials: None,
            policy: PullPolicy::default(),
            platform: Platform::here(),
            on_progress: None,
            opened: None,
            file_user: None,
        }
    }

    /// Who wants the image, of a file of the node.
    pub(crate) fn requester(&self) -> Requester {
        let user = self.file_user.as_ref().map_or(0, |user| user.uid);
        Requester { user, repository: None, is_public: false }
    }
}

/// A layer that is not in the store, or not for who wants it.
struct Missing {
    diff_id: Digest,
    blob: Descriptor,
}

/// A blob that is on disk whole, with the lock of its file.
struct Downloaded {
    at: usize,
    partial: Lock,
}

enum Arrival {
    There(LayerHeld),
    Downloaded(Downloaded),
}

impl Store {
    /// Gets an image and holds it in use. Blocks for as long as it takes; a process that is killed here leaves what the
    /// next one takes up.
    pub fn pull(&self, source: &Source, pull: Pull) -> Result<Image> {
        let key = pull_key(source);
        let began = now();
        if let Some(image) = self.image_of_source(source, &key, began, &pull)? {
            return Ok(image);
        }
        let mut lock = self.wait_for_turn(source, &key, pull.on_progress)?;
        let keep_alive = KeepAlive::start(&mut lock, self.options.keep_alive_timeout)?;
        let reporter = Reporter::new(self.folders.progress(&key), pull.on_progress);
        let image = match source {
            Source::Registry(reference) => {
                self.pull_from_registry(reference, &key, began, &pull, &reporter)
            }
            Source::Path { path, tag } => {
                self.import(source, path, tag.as_deref(), pull, &reporter)
            }
        }?;
        reporter.phase(Phase::Done);
        drop((keep_alive, lock));
        Ok(image)
    }

    /// The image that is there, where that can be said without a question to a registry and without reading the file: it waits
    /// for no turn, and leaves no word of its progress.
    fn image_of_source(
        &self,
        source: &Source,
        key: &Digest,
        began: (u64, u32),
        pull: &Pull,
    ) -> Result<Option<Image>> {
        match source {
            Source::Registry(reference) => {
                self.resolved(reference, &reference.to_string(), key, began, pull.policy)
            }
            Source::Path { .. } => {
                let Some(opened) = &pull.opened else { return Ok(None) };
                let file = opened.try_clone().map(File::from).map_err(Error::io("a file"))?;
                Ok(self.imported(source, &file, &pull.requester()))
            }
        }
    }

    /// One process at a time pulls an image. Who waits is told how far it is.
    fn wait_for_turn(
        &self,
        source: &Source,
        key: &Digest,
        on_progress: Option<OnProgress>,
    ) -> Result<Lock> {
        let mut watcher = Watcher::new(self);
        Lock::take(&self.folders.pull_lock(key), Mode::Exclusive, || {
            watcher.turn();
            if let (Some(tell), Some(progress)) = (on_progress, self.progress(source)) {
                tell(&progress);
            }
        })
    }

    fn pull_from_registry(
        &self,
        reference: &Reference,
        key: &Digest,
        began: (u64, u32),
        pull: &Pull,
        reporter: &Reporter,
    ) -> Result<Image> {
        let name = reference.to_string();
        if let Some(image) = self.resolved(reference, &name, key, began, pull.policy)? {
            return Ok(image);
        }
        reporter.phase(Phase::Resolving);
        let client = Client::new(pull.registry, reference, pull.credentials.clone())?;
        let found = client.manifest()?;
        let (digest, manifest, private) = match Document::parse(&name, &found.bytes)? {
            Document::Image(manifest) => (found.digest, manifest, found.private),
            Document::Index(manifests) => {
                let chosen = choose(&name, &manifests, &pull.platform)?;
                let found = client.manifest_by(&chosen.digest)?;
                let Document::Image(manifest) = Document::parse(&name, &found.bytes)? else {
                    return Err(Error::NotAnImage {
                        what: name,
                        fault: "its list of images leads to another list".into(),
                    });
                };
                (found.digest, manifest, found.private)
            }
        };
        let repository = Some(format!("{}/{}", reference.registry, reference.repository));
        let requester = Requester { repository, is_public: !private, ..pull.requester() };
        let image = self.image_of(&name, &digest, &requester, || {
            let bytes =
                client.small_blob(&format!("the configuration of {name}"), &manifest.config)?;
            let file = ConfigFile::parse(&name, &bytes, &pull.platform)?;
            let held = self.get_layers(
                &name,
                &manifest,
                &file,
                &requester,
                reporter,
                |blob, file, progress| client.download(blob, file, progress),
            )?;
            Ok((file, held))
        })?;
        let tag = TagRecord { reference: name, digest, resolved_at: now() };
        write_record(&self.folders.tag(key), &tag)?;
        Ok(image)
    }

    /// What the reference led to before, where that needs no question: a digest, a tag under `IfNotPresent`, or what
    /// another process asked while this one waited. An image that needed credentials is asked for again, with the
    /// caller's own.
    fn resolved(
        &self,
        reference: &Reference,
        name: &str,
        key: &Digest,
        began: (u64, u32),
        policy: PullPolicy,
    ) -> Result<Option<Image>> {
        let Some(tag) = read_record::<TagRecord>(&self.folders.tag(key)) else { return Ok(None) };
        let by_digest = matches!(reference.version, Version::Digest(_));
        if !by_digest && policy == PullPolicy::Always && tag.resolved_at < began {
            return Ok(None);
        }
        let lock = Lock::take(&self.folders.image_lock(&tag.digest), Mode::Shared, || ())?;
        match self.whole_image(&tag.digest) {
            Some(record) if !record.private => self.in_use(name, record, lock).map(Some),
            _ => Ok(None),
        }
    }

    /// The image of a manifest: the one that is there for who wants it, or a new one of what `get` brings.
    pub(crate) fn image_of(
        &self,
        name: &str,
        digest: &Digest,
        requester: &Requester,
        get: impl FnOnce() -> Result<(ConfigFile, Vec<LayerHeld>)>,
    ) -> Result<Image> {
        let lock = Lock::take(&self.folders.image_lock(digest), Mode::Shared, || ())?;
        if let Some(mut record) = self.whole_image(digest)
            && self.admits_to_all(&record.diff_ids, requester)
        {
            if record.private && requester.is_public {
                record.private = false;
                write_record(&self.folders.image(digest), &record)?;
            }
            return self.in_use(name, record, lock);
        }
        let (file, held) = get()?;
        let record = ImageRecord {
            digest: digest.clone(),
            config: file.config,
            diff_ids: file.diff_ids,
            private: !requester.is_public,
        };
        write_record(&self.folders.image(digest), &record)?;
        // From here on the image's record keeps its layers.
        drop(held);
        self.in_use(name, record, lock)
    }

    /// Brings every layer into the store and holds it there.
    pub(crate) fn get_layers(
        &self,
        name: &str,
        manifest: &Manifest,
        config: &ConfigFile,
        requester: &Requester,
        reporter: &Reporter,
        download: impl Fn(&Descriptor, &mut File, &(dyn Fn(u64) + Sync)) -> Result<()> + Sync,
    ) -> Result<Vec<LayerHeld>> {
        if manifest.layers.len() != config.diff_ids.len() {
            let fault = format!(
                "its manifest has {} layers, and its configuration {}",
                manifest.layers.len(),
                config.diff_ids.len()
            );
            return Err(Error::NotAnImage { what: name.to_owned(), fault });
        }
        let (mut held, mut missing) = (Vec::new(), Vec::<Missing>::new());
        for (diff_id, blob) in config.diff_ids.iter().zip(&manifest.layers) {
            if missing.iter().any(|m| m.diff_id == *diff_id) {
                continue;
            }
            match self.layer_if_there(diff_id)? {
                Some(layer) if self.admits(diff_id, requester) => held.push(layer),
                _ => missing.push(Missing { diff_id: diff_id.clone(), blob: blob.clone() }),
            }
        }
        if missing.is_empty() {
            return Ok(held);
        }
        let bytes: u64 = missing.iter().map(|m| m.blob.size).sum();
        reporter.expect(missing.len(), bytes);
        // Unpacked, a layer is two or three times its download; the download itself is what is certain.
        self.make_room(bytes.saturating_mul(3)).or_else(|_| self.make_room(bytes))?;
        let _slot = self.wait_for_slot(requester.user, || reporter.phase(Phase::Waiting))?;
        self.require_free(bytes)?;
        reporter.phase(Phase::Downloading);
        held.extend(self.get_missing(name, &missing, requester, reporter, download)?);
        Ok(held)
    }

    /// Downloads on several threads, and unpacks on this one.
    fn get_missing(
        &self,
        name: &str,
        missing: &[Missing],
        requester: &Requester,
        reporter: &Reporter,
        download: impl Fn(&Descriptor, &mut File, &(dyn Fn(u64) + Sync)) -> Result<()> + Sync,
    ) -> Result<Vec<LayerHeld>> {
        let (next, stop) = (AtomicUsize::new(0), AtomicBool::new(false));
        let fetch = |at: usize| -> Result<Arrival> {
            let Missing { diff_id, blob } = &missing[at];
            let mut watcher = Watcher::new(self);
            let path = self.folders.partial(&requester.download_key(&blob.digest));
            let mut partial = Lock::take(&path, Mode::Exclusive, || watcher.turn())?;
            // Who had the file before may have made the layer of it.
            if let Some(held) = self.layer_if_there(diff_id)?
                && self.admits(diff_id, requester)
            {
                partial.remove();
                return Ok(Arrival::There(held));
            }
            let progress = |bytes| reporter.downloaded(at, bytes);
            if let Err(error) = download(blob, partial.file(), &progress) {
                // There is nothing for the next process to take up.
                if partial.file().metadata().is_ok_and(|file| file.len() == 0) {
                    partial.remove();
                }
                return Err(self.disk_full(error));
            }
            Ok(Arrival::Downloaded(Downloaded { at, partial }))
        };
        std::thread::scope(|scope| {
            let (arrived, arrivals) = sync_channel(0);
            for _ in 0..self.options.downloads_max.clamp(1, missing.len()) {
                let (arrived, next, stop, fetch) = (arrived.clone(), &next, &stop, &fetch);
                scope.spawn(move || {
                    loop {
                        let at = next.fetch_add(1, Ordering::Relaxed);
                        if at >= missing.len()
                            || stop.load(Ordering::Relaxed)
                            || arrived.send(fetch(at)).is_err()
                        {
                            return;
                        }
                    }
                });
            }
            drop(arrived);
            let (mut held, mut failed) = (Vec::new(), None);
            for arrival in arrivals {
                let layer = match arrival {
                    _ if failed.is_some() => continue,
                    Ok(Arrival::There(layer)) => Ok(layer),
                    Ok(Arrival::Downloaded(downloaded)) => {
                        self.unpack_download(name, &missing[downloaded.at], downloaded, requester)
                    }
                    Err(error) => Err(error),
                };
                match layer {
                    Ok(layer) => {
                        reporter.layer_done();
                        held.push(layer);
                    }
                    Err(error) => {
                        stop.store(true, Ordering::Relaxed);
                        failed = Some(error);
                    }
                }
            }
            failed.map_or(Ok(held), Err)
        })
    }

    /// The download is removed once it was read, whatever came of it: its digest was right, so it would be no better next
    /// time.
    fn unpack_download(
        &self,
        name: &str,
        layer: &Missing,
        downloaded: Downloaded,
        requester: &Requester,
    ) -> Result<LayerHeld> {
        let mut partial = downloaded.partial;
        let _ = self.make_room(layer.blob.size.saturating_mul(2));
        // Unpacked, it is hardly smaller.
        self.require_free(layer.blob.size)?;
        let what = format!("layer {} of {name}", layer.diff_id.short());
        let file = partial.file();
        let outcome = file
            .seek(SeekFrom::Start(0))
            .map_err(Error::io(&*what))
            .and_then(|_| self.layer_of(&what, &layer.diff_id, &*file, requester));
        partial.remove();
        outcome
    }

    fn disk_full(&self, error: Error) -> Error {
        match error {
            Error::Io { source, .. } if source.raw_os_error() == Some(libc::ENOSPC) => {
                Error::StoreFull {
                    store: self.name(),
                    fault: "no space is left on the file system".into(),
                }
            }
            other => other,
        }
    }
}
