//! A blob into a file, from where it broke off. The digest is taken while the bytes come; a file with a wrong one is emptied.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom, Write};
use std::thread::sleep;
use std::time::{Duration, Instant};

use ureq::Body;
use ureq::http::Response;
use ureq::http::header::{CONTENT_LENGTH, CONTENT_RANGE};

use super::client::{Client, Endpoint, Extent, check_digest};
use super::http::{bad_answer, io_fault};
use crate::digest::Hasher;
use crate::error::{Error, Result};
use crate::manifest::Descriptor;

const BUFFER_BYTES: usize = 256 << 10;
/// What must come in every window of `Timeouts::slow`, so that a registry that trickles is an error and not a hang.
const SLOW_BYTES: u64 = 64 << 10;
/// How often one endpoint is asked in a row with less than `SLOW_BYTES` to show for it, and in all.
const IDLE_TRIES_MAX: u32 = 3;
const TRIES_MAX: u32 = 100;

/// A blob's file with the digest of what it holds.
struct Partial<'a> {
    file: &'a mut File,
    hasher: Hasher,
    have: u64,
}

impl Client {
    /// Completes `file` to the whole blob. `progress` is told the bytes that are there.
    pub fn download(
        &self,
        descriptor: &Descriptor,
        file: &mut File,
        progress: &(dyn Fn(u64) + Sync),
    ) -> Result<()> {
        let mut partial =
            Partial::open(file, descriptor.size).map_err(Error::io("a partial download"))?;
        progress(partial.have);
        let mut last = None;
        for endpoint in &self.endpoints {
            match self.complete(endpoint, descriptor, &mut partial, progress) {
                Ok(()) => return Ok(()),
                Err(error @ (Error::Io { .. } | Error::StoreFull { .. })) => return Err(error),
                Err(error) => last = Some(error),
            }
        }
        Err(last.unwrap_or_else(|| bad_answer("?", "there is no endpoint")))
    }

    fn complete(
        &self,
        endpoint: &Endpoint,
        descriptor: &Descriptor,
        partial: &mut Partial,
        progress: &(dyn Fn(u64) + Sync),
    ) -> Result<()> {
        let what = format!("the layer {}", descriptor.digest.short());
        let mut idle_tries = 0;
        let mut resumed = partial.have > 0;
        for turn in 1.. {
            let before = partial.have;
            let outcome = self.fetch(endpoint, descriptor, partial, progress);
            if outcome.is_ok() && partial.have == descriptor.size {
                let found = partial.hasher.clone().finish();
                let Err(mismatch) = check_digest(&what, Some(&descriptor.digest), &found) else {
                    return Ok(());
                };
                partial.empty().map_err(Error::io(&what))?;
                // What was there from before may have been wrong; what comes whole is judged as it is.
                if std::mem::take(&mut resumed) {
                    continue;
                }
                return Err(mismatch);
            }
            let error = match outcome {
                Ok(()) => Error::Truncated {
                    what: what.clone(),
                    expected: descriptor.size,
                    found: partial.have,
                },
                Err(error) if error.is_transient() => error,
                Err(error) => return Err(error),
            };
            idle_tries = if partial.have >= before + SLOW_BYTES { 0 } else { idle_tries + 1 };
            resumed |= partial.have > 0;
            if idle_tries >= IDLE_TRIES_MAX || turn >= TRIES_MAX {
                return Err(error);
            }
            sleep(Duration::from_millis(200) * (idle_tries + 1));
        }
        unreachable!("the loop ends by its bound")
    }

    /// One request for what is missing, and its bytes into the file.
    fn fetch(
        &self,
        endpoint: &Endpoint,
        descriptor: &Descriptor,
        partial: &mut Partial,
        progress: &(dyn Fn(u64) + Sync),
    ) -> Result<()> {
        if partial.have == descriptor.size {
            return Ok(());
        }
        let path = format!("blobs/{}", descriptor.digest);
        let disk = || Error::io(format!("the download of layer {}", descriptor.digest.short()));
        let response = match self.get(endpoint, &path, &[], Extent::From(partial.have)) {
            Err(error @ Error::Truncated { .. }) => {
                partial.empty().map_err(disk())?;
                return Err(error);
            }
            other => other?,
        };
        if response.status() != 206 && partial.have > 0 {
            partial.empty().map_err(disk())?;
        }
        check_extent(&endpoint.host, descriptor, partial.have, &response)?;
        let mut reader = response.into_body().into_reader();
        let mut buffer = vec![0; BUFFER_BYTES];
        let (mut window_start, mut window_bytes) = (Instant::now(), 0);
        loop {
            let n = reader.read(&mut buffer).map_err(|e| io_fault(endpoint.host.clone(), &e))?;
            if n == 0 {
                return Ok(());
            }
            if partial.have + n as u64 > descriptor.size {
                let fault = format!(
                    "layer {} has more than its {} bytes",
                    descriptor.digest.short(),
                    descriptor.size
                );
                return Err(bad_answer(&endpoint.host, &fault));
            }
            partial.append(&buffer[..n]).map_err(disk())?;
            progress(partial.have);
            window_bytes += n as u64;
            if window_start.elapsed() > self.timeouts.slow {
                if window_bytes < SLOW_BYTES {
                    let fault =
                        format!("{window_bytes} bytes in {} s", self.timeouts.slow.as_secs());
                    return Err(Error::Hangs { registry: endpoint.host.clone(), fault });
                }
                (window_start, window_bytes) = (Instant::now(), 0);
            }
        }
    }
}

impl<'a> Partial<'a> {
    /// Takes up what is there from before. More than the blob has can only be wrong.
    fn open(file: &'a mut File, size: u64) -> std::io::Result<Self> {
        let mut partial = Self { file, hasher: Hasher::default(), have: 0 };
        if partial.file.metadata()?.len() > size {
            partial.empty()?;
        }
        partial.file.seek(SeekFrom::Start(0))?;
        let mut buffer = vec![0; BUFFER_BYTES];
        loop {
            let n = partial.file.read(&mut buffer)?;
            if n == 0 {
                return Ok(partial);
            }
            partial.hasher.update(&buffer[..n]);
            partial.have += n as u64;
        }
    }

    fn append(&mut self, bytes: &[u8]) -> std::io::Result<()> {
        self.file.write_all(bytes)?;
        self.hasher.update(bytes);
        self.have += bytes.len() as u64;
        Ok(())
    }

    fn empty(&mut self) -> std::io::Result<()> {
        self.file.set_len(0)?;
        self.file.seek(SeekFrom::Start(0))?;
        (self.hasher, self.have) = (Hasher::default(), 0);
        Ok(())
    }
}

/// What the answer says about its extent must agree with what was asked and with the manifest.
fn check_extent(
    registry: &str,
    descriptor: &Descriptor,
    have: u64,
    response: &Response<Body>,
) -> Result<()> {
    let text = |name| response.headers().get(name).and_then(|v| v.to_str().ok());
    let layer = descriptor.digest.short();
    if response.status() == 206 {
        let start = text(CONTENT_RANGE)
            .and_then(|r| r.trim().strip_prefix("bytes "))
            .and_then(|r| r.split_once('-'))
            .and_then(|(start, _)| start.parse::<u64>().ok());
        if start != Some(have) {
            return Err(bad_answer(
                registry,
                &format!("another part of layer {layer} than was asked for"),
            ));
        }
    }
    let length = text(CONTENT_LENGTH).and_then(|l| l.parse::<u64>().ok());
    if length.is_some_and(|length| length != descriptor.size - have) {
        let fault =
            format!("layer {layer} has not the {} bytes that its manifest says", descriptor.size);
        return Err(bad_answer(registry, &fault));
    }
    Ok(())
}
