//! Few bytes in several pieces, as the head and the body of a small answer, go to the kernel as one piece: it takes a list of pieces by a longer
//! way, which costs more than copying them.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll};
use tokio::io::AsyncWrite;

/// Bytes that are copied; with more the list costs less.
const GATHERED_BYTES_MAX: usize = 1024;

/// Writes the pieces, or the first bytes of them.
pub fn poll_write_pieces<S: AsyncWrite>(
    stream: Pin<&mut S>,
    context: &mut Context<'_>,
    pieces: &[IoSlice<'_>],
) -> Poll<io::Result<usize>> {
    if let [piece] = pieces {
        return stream.poll_write(context, piece);
    }
    let length: usize = pieces.iter().map(|piece| piece.len()).sum();
    if length > GATHERED_BYTES_MAX {
        return stream.poll_write_vectored(context, pieces);
    }
    let (mut gathered, mut end) = ([0; GATHERED_BYTES_MAX], 0);
    for piece in pieces {
        gathered[end..end + piece.len()].copy_from_slice(piece);
        end += piece.len();
    }
    stream.poll_write(context, &gathered[..end])
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::pin::pin;
    use std::task::Waker;

    /// Takes a few bytes of each write, and notes in how many pieces it came.
    struct Taken {
        most: usize,
        bytes: Vec<u8>,
        pieces: usize,
    }

    impl AsyncWrite for Taken {
        fn poll_write(
            mut self: Pin<&mut Self>,
            _: &mut Context<'_>,
            bytes: &[u8],
        ) -> Poll<io::Result<usize>> {
            let length = bytes.len().min(self.most);
            self.pieces = 1;
            self.bytes.extend_from_slice(&bytes[..length]);
            Poll::Ready(Ok(length))
        }

        fn poll_write_vectored(
            mut self: Pin<&mut Self>,
            _: &mut Context<'_>,
            pieces: &[IoSlice<'_>],
        ) -> Poll<io::Result<usize>> {
            self.pieces = pieces.len();
            Poll::Ready(Ok(pieces.iter().map(|piece| piece.len()).sum()))
        }

        fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }

        fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }
    }

    /// How many bytes were taken, in how many pieces, and those that were copied.
    fn written(most: usize, pieces: &[&[u8]]) -> (usize, usize, Vec<u8>) {
        let mut taken = Taken { most, bytes: Vec::new(), pieces: 0 };
        let pieces: Vec<IoSlice<'_>> = pieces.iter().map(|piece| IoSlice::new(piece)).collect();
        let mut context = Context::from_waker(Waker::noop());
        let polled = poll_write_pieces(pin!(&mut taken), &mut context, &pieces);
        let Poll::Ready(Ok(length)) = polled else { panic!("it is taken") };
        (length, taken.pieces, taken.bytes)
    }

    #[test]
    fn few_bytes_are_written_as_one_piece_and_many_as_they_are() {
        assert_eq!(written(100, &[b"head", b"", b"body"]), (8, 1, b"headbody".to_vec()));
        assert_eq!(written(6, &[b"head", b"body"]), (6, 1, b"headbo".to_vec()), "a part of them");
        assert_eq!(written(100, &[]), (0, 1, Vec::new()));
        let full = [7; GATHERED_BYTES_MAX];
        assert_eq!(written(2 * full.len(), &[&full, b""]), (full.len(), 1, full.to_vec()));
        assert_eq!(written(2 * full.len(), &[&full, b"x"]), (full.len() + 1, 2, Vec::new()));
        let long = [7; 2 * GATHERED_BYTES_MAX];
        assert_eq!(written(usize::MAX, &[&long]).1, 1, "one piece is never copied");
    }
}
