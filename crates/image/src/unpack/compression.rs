//! The stream of a layer: decompressed and digested on one thread, while another writes files.

use std::io::{self, BufRead, BufReader, Chain, Cursor, Read};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

use crate::digest::{Digest, Hasher};

const CHUNK_BYTES: usize = 512 << 10;
/// Chunks between the two threads: what one may be ahead of the other.
const CHUNKS_MAX: usize = 8;
const READ_BYTES: usize = 128 << 10;
/// The largest window of zstd, as its own tool has it: 128 MiB of memory.
const ZSTD_WINDOW_LOG_MAX: u32 = 27;

/// What became of a stream.
pub enum Outcome {
    /// It was read to its end.
    Whole(Digest),
    /// Its reader stopped before the end.
    NotRead,
    TooLong,
    Failed(io::Error),
}

type Start<R> = Chain<Cursor<Vec<u8>>, R>;

/// The decompressed bytes of a stream.
pub enum Decoder<R: Read> {
    Plain(BufReader<Start<R>>),
    Gzip(Box<flate2::bufread::MultiGzDecoder<BufReader<Start<R>>>>),
    Zstd(Box<zstd::stream::read::Decoder<'static, BufReader<Start<R>>>>),
}

/// Tells the compression by the first bytes: media types are not always right.
pub fn decoder<R: Read>(mut source: R) -> io::Result<Decoder<R>> {
    let mut magic = Vec::with_capacity(6);
    source.by_ref().take(6).read_to_end(&mut magic)?;
    let kind = magic.clone();
    let whole = BufReader::with_capacity(READ_BYTES, Cursor::new(magic).chain(source));
    if kind.starts_with(&[0x1f, 0x8b]) {
        return Ok(Decoder::Gzip(Box::new(flate2::bufread::MultiGzDecoder::new(whole))));
    }
    // Zstandard's frames, and the frames to be skipped that some tools put first.
    let skippable = kind.len() >= 4 && kind[0] & 0xf0 == 0x50 && kind[1..4] == [0x2a, 0x4d, 0x18];
    if kind.starts_with(&[0x28, 0xb5, 0x2f, 0xfd]) || skippable {
        let mut decoder = zstd::stream::read::Decoder::with_buffer(whole)?;
        decoder.window_log_max(ZSTD_WINDOW_LOG_MAX)?;
        return Ok(Decoder::Zstd(Box::new(decoder)));
    }
    let refused = |name: &str| {
        let fault = format!("{name} is not supported; compress it with gzip or zstd");
        Err(io::Error::new(io::ErrorKind::Unsupported, fault))
    };
    match kind.as_slice() {
        [0xfd, b'7', b'z', b'X', b'Z', 0] => refused("xz"),
        [b'B', b'Z', b'h', ..] => refused("bzip2"),
        _ => Ok(Decoder::Plain(whole)),
    }
}

impl<R: Read> Decoder<R> {
    pub fn is_plain(&self) -> bool {
        matches!(self, Self::Plain(_))
    }
}

impl<R: Read> Read for Decoder<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Plain(reader) => reader.read(buffer),
            Self::Gzip(reader) => reader.read(buffer),
            Self::Zstd(reader) => reader.read(buffer),
        }
    }
}

/// Runs `consume` on this thread with the decompressed stream of `source`, which another thread makes.
pub fn with_stream<T>(
    source: impl Read + Send,
    bytes_max: u64,
    consume: impl FnOnce(ChunkReader) -> T,
) -> (T, Outcome) {
    std::thread::scope(|scope| {
        let (full, chunks) = sync_channel(CHUNKS_MAX);
        let (used, empty) = sync_channel(CHUNKS_MAX + 2);
        let maker = scope.spawn(move || produce(source, bytes_max, &full, &empty));
        let result = consume(ChunkReader { chunks, used, chunk: Vec::new(), at: 0 });
        let outcome = maker
            .join()
            .unwrap_or_else(|_| Outcome::Failed(io::Error::other("the decompressor failed")));
        (result, outcome)
    })
}

fn produce(
    source: impl Read,
    bytes_max: u64,
    full: &SyncSender<Vec<u8>>,
    empty: &Receiver<Vec<u8>>,
) -> Outcome {
    let mut stream = match decoder(source) {
        Ok(stream) => stream,
        Err(error) => return Outcome::Failed(error),
    };
    let (mut hasher, mut total) = (Hasher::default(), 0);
    loop {
        let mut chunk = empty.try_recv().unwrap_or_default();
        chunk.resize(CHUNK_BYTES, 0);
        let mut filled = 0;
        let failed = loop {
            match stream.read(&mut chunk[filled..]) {
                Ok(0) => break None,
                Ok(n) => filled += n,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => break Some(error),
            }
            if filled == CHUNK_BYTES {
                break None;
            }
        };
        if let Some(error) = failed {
            return Outcome::Failed(error);
        }
        if filled == 0 {
            return Outcome::Whole(hasher.finish());
        }
        total += filled as u64;
        if total > bytes_max {
            return Outcome::TooLong;
        }
        chunk.truncate(filled);
        hasher.update(&chunk);
        if full.send(chunk).is_err() {
            return Outcome::NotRead;
        }
    }
}

/// The consumer's end of the stream.
pub struct ChunkReader {
    chunks: Receiver<Vec<u8>>,
    used: SyncSender<Vec<u8>>,
    chunk: Vec<u8>,
    at: usize,
}

impl BufRead for ChunkReader {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        if self.at == self.chunk.len() {
            let used = std::mem::take(&mut self.chunk);
            self.at = 0;
            if used.capacity() > 0 {
                let _ = self.used.try_send(used);
            }
            // The producer is gone after its last chunk: the end, or a failure that its outcome tells.
            self.chunk = self.chunks.recv().unwrap_or_default();
        }
        Ok(&self.chunk[self.at..])
    }

    fn consume(&mut self, n: usize) {
        self.at += n;
    }
}

impl Read for ChunkReader {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let n = self.fill_buf()?.read(buffer)?;
        self.consume(n);
        Ok(n)
    }
}
