use super::packet::{DATA_BYTES_MAX, kind};
use super::*;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

/// Makes packets of a client.
struct Request(Vec<u8>);

impl Request {
    fn new(kind: u8, number: u32) -> Self {
        Self(vec![kind]).number(number)
    }

    fn number(mut self, number: u32) -> Self {
        self.0.extend(number.to_be_bytes());
        self
    }

    fn long(mut self, number: u64) -> Self {
        self.0.extend(number.to_be_bytes());
        self
    }

    fn text(self, text: &[u8]) -> Self {
        let mut own = self.number(text.len() as u32);
        own.0.extend_from_slice(text);
        own
    }

    fn path(self, path: &Path) -> Self {
        self.text(path.as_os_str().as_bytes())
    }
}

/// The status of an answer, or its kind where it is more than a status.
fn status(reply: &Reply) -> Result<u8, u32> {
    match reply.0[0] {
        kind::STATUS => Err(u32::from_be_bytes(reply.0[5..9].try_into().expect("a number"))),
        kind => Ok(kind),
    }
}

fn handle(reply: &Reply) -> Vec<u8> {
    assert_eq!(reply.0[0], kind::HANDLE, "{reply:?}");
    reply.0[9..].to_vec()
}

const DONE: Result<u8, u32> = Err(0);
const END: Result<u8, u32> = Err(1);
const NO_SUCH_FILE: Result<u8, u32> = Err(2);
const FAILURE: Result<u8, u32> = Err(4);
const BAD_MESSAGE: Result<u8, u32> = Err(5);
const UNSUPPORTED: Result<u8, u32> = Err(8);

/// To write, to be made, and to be emptied.
const NEW: u32 = 2 | 8 | 16;

#[test]
fn file_is_written_read_renamed_and_removed() {
    let dir = tempfile::tempdir().expect("a folder");
    let path = dir.path().join("a");
    let mut server = Server::default();
    let open = Request::new(kind::OPEN, 7).path(&path).number(NEW).number(4).number(0o640);
    let file = handle(&server.answer(&open.0));
    let data = vec![7; DATA_BYTES_MAX];
    let write = Request::new(kind::WRITE, 8).text(&file).long(3).text(&data);
    assert_eq!(status(&server.answer(&write.0)), DONE);
    assert_eq!(status(&server.answer(&Request::new(kind::CLOSE, 9).text(&file).0)), DONE);
    assert_eq!(status(&server.answer(&Request::new(kind::CLOSE, 9).text(&file).0)), BAD_MESSAGE);
    let written = std::fs::read(&path).expect("the file");
    assert_eq!((written.len(), written[2], written[3]), (DATA_BYTES_MAX + 3, 0, 7));
    let mode = std::fs::metadata(&path).expect("the file").permissions().mode();
    assert_eq!(mode & 0o777 & !0o640, 0);

    let open = Request::new(kind::OPEN, 1).path(&path).number(1).number(0);
    let file = handle(&server.answer(&open.0));
    let read = |at: u64| Request::new(kind::READ, 2).text(&file).long(at).number(10);
    let got = server.answer(&read(0).0);
    assert_eq!((got.0[0], &got.0[9..]), (kind::DATA, &[0, 0, 0, 7, 7, 7, 7, 7, 7, 7][..]));
    assert_eq!(status(&server.answer(&read(1 << 40).0)), END);

    let (other, third) = (dir.path().join("b"), dir.path().join("c"));
    std::fs::write(&other, "b").expect("written");
    let rename = |to: &Path| Request::new(kind::RENAME, 3).path(&path).path(to);
    assert_eq!(status(&server.answer(&rename(&other).0)), FAILURE, "it is there already");
    assert_eq!(status(&server.answer(&rename(&third).0)), DONE);
    let remove = |path: &Path| Request::new(kind::REMOVE, 4).path(path);
    assert_eq!(status(&server.answer(&remove(&third).0)), DONE);
    assert_eq!(status(&server.answer(&remove(&third).0)), NO_SUCH_FILE);
}

#[test]
fn folder_is_listed_to_its_end() {
    let dir = tempfile::tempdir().expect("a folder");
    for number in 0..300 {
        std::fs::write(dir.path().join(format!("f{number}")), "").expect("written");
    }
    let mut server = Server::default();
    let folder = handle(&server.answer(&Request::new(kind::OPENDIR, 1).path(dir.path()).0));
    let mut names = 0;
    loop {
        let reply = server.answer(&Request::new(kind::READDIR, 2).text(&folder).0);
        match status(&reply) {
            END => break,
            read => assert_eq!(read, Ok(kind::NAME)),
        }
        names += u32::from_be_bytes(reply.0[5..9].try_into().expect("a number"));
    }
    assert_eq!(names, 300);
}

#[test]
fn paths_are_made_absolute_also_where_nothing_is() {
    let mut server = Server::default();
    for (asked, expected) in [("/", "/"), ("/no/such/../file", "/no/file"), ("/../..", "/")] {
        let reply = server.answer(&Request::new(kind::REALPATH, 1).text(asked.as_bytes()).0);
        assert_eq!(status(&reply), Ok(kind::NAME));
        let length = u32::from_be_bytes(reply.0[9..13].try_into().expect("a number")) as usize;
        assert_eq!(&reply.0[13..13 + length], expected.as_bytes());
    }
}

#[test]
fn whatever_a_packet_holds_is_answered() {
    let mut server = Server::default();
    let long = Request::new(kind::OPEN, 1).number(u32::MAX).0;
    let nul = Request::new(kind::STAT, 1).text(b"a\0b").0;
    let attributes =
        Request::new(kind::SETSTAT, 1).text(b"/tmp").number(1 << 31).number(u32::MAX).0;
    for packet in [&long[..], &nul, &attributes, &[kind::READ], &[kind::READ, 0, 0, 0, 1]] {
        assert_eq!(status(&server.answer(packet)), BAD_MESSAGE, "{packet:?}");
    }
    assert_eq!(status(&server.answer(&Request::new(77, 1).0)), UNSUPPORTED);
    let unknown = Request::new(kind::EXTENDED, 1).text(b"nosuch@example").0;
    assert_eq!(status(&server.answer(&unknown)), UNSUPPORTED);
    for kind in 0..=u8::MAX {
        for length in 0..40 {
            let mut packet = vec![0; length];
            packet.splice(0..0, [kind]);
            server.answer(&packet);
        }
    }
}

#[test]
fn packet_beyond_the_bound_ends_the_service() {
    let mut output = Vec::new();
    let error = serve(&(u32::MAX.to_be_bytes())[..], &mut output).expect_err("too long");
    assert!(error.to_string().contains("4294967295"), "{error}");
    let hello = [&5_u32.to_be_bytes()[..], &[kind::INIT, 0, 0, 0, 3]].concat();
    serve(&hello[..], &mut output).expect("the input ends");
    assert_eq!(output[4..9], [kind::VERSION, 0, 0, 0, 3]);
}
