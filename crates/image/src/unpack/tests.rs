//! Layers that are sound, and layers that attack: each must stay inside its folder.

use std::fs::{self, File};
use std::io::Write;
use std::os::fd::AsFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use super::{Limits, Unpacked, unpack};
use crate::error::{Error, ErrorKind, Result};

/// An entry of an archive as it stands there, with no check of its name.
struct Raw<'a> {
    kind: u8,
    name: &'a [u8],
    link: &'a [u8],
    data: &'a [u8],
    mode: u32,
}

fn raw<'a>(kind: u8, name: &'a str, link: &'a str) -> Raw<'a> {
    Raw { kind, name: name.as_bytes(), link: link.as_bytes(), data: b"", mode: 0o644 }
}

fn file<'a>(name: &'a str, data: &'a str) -> Raw<'a> {
    Raw { data: data.as_bytes(), ..raw(b'0', name, "") }
}

fn folder(name: &str) -> Raw<'_> {
    Raw { mode: 0o755, ..raw(b'5', name, "") }
}

fn header(entry: &Raw) -> tar::Header {
    let mut header = tar::Header::new_gnu();
    let bytes = header.as_mut_bytes();
    bytes[..entry.name.len().min(100)].copy_from_slice(&entry.name[..entry.name.len().min(100)]);
    bytes[157..157 + entry.link.len()].copy_from_slice(entry.link);
    bytes[156] = entry.kind;
    header.set_mode(entry.mode);
    header.set_uid(0);
    header.set_gid(0);
    header.set_mtime(1_600_000_000);
    header.set_size(entry.data.len() as u64);
    header.set_cksum();
    header
}

fn block(out: &mut Vec<u8>, header: &tar::Header, data: &[u8]) {
    out.extend_from_slice(header.as_bytes());
    out.extend_from_slice(data);
    out.resize(out.len().next_multiple_of(512), 0);
}

fn archive(entries: &[Raw]) -> Vec<u8> {
    let mut out = Vec::new();
    for entry in entries {
        block(&mut out, &header(entry), entry.data);
    }
    out.resize(out.len() + 1024, 0);
    out
}

/// A pax header before one entry.
fn with_pax(records: &[(&str, &[u8])], entry: &Raw) -> Vec<u8> {
    let mut data = Vec::new();
    for (key, value) in records {
        let rest = key.len() + value.len() + 3;
        let mut length = rest + rest.to_string().len();
        length = rest + length.to_string().len();
        data.extend_from_slice(format!("{length} {key}=").as_bytes());
        data.extend_from_slice(value);
        data.push(b'\n');
    }
    let mut out = Vec::new();
    block(&mut out, &header(&Raw { data: &data, ..raw(b'x', "pax", "") }), &data);
    out.extend(archive(std::slice::from_ref(entry)));
    out
}

struct Place {
    folder: tempfile::TempDir,
    limits: Limits,
}

impl Place {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("root")).unwrap();
        fs::write(folder.path().join("outside"), "untouched").unwrap();
        Self { folder, limits: Limits { free_bytes_min: 0, ..Limits::default() } }
    }

    fn root(&self) -> PathBuf {
        self.folder.path().join("root")
    }

    fn unpack(&self, bytes: &[u8]) -> Result<Unpacked> {
        unpack("the layer", bytes, None, File::open(self.root()).unwrap().as_fd(), &self.limits)
    }

    /// Nothing beside the root was made or changed.
    fn assert_contained(&self) {
        let mut names: Vec<_> =
            fs::read_dir(self.folder.path()).unwrap().map(|e| e.unwrap().file_name()).collect();
        names.sort();
        assert_eq!(names, ["outside", "root"]);
        assert_eq!(fs::read_to_string(self.folder.path().join("outside")).unwrap(), "untouched");
    }
}

fn refused(entries: &[Raw]) -> String {
    let place = Place::new();
    let error = place.unpack(&archive(entries)).unwrap_err();
    place.assert_contained();
    assert_eq!(error.kind(), ErrorKind::HostileLayer, "{error}");
    let line = error.to_string();
    assert!(!line.contains('\n'), "{line}");
    line
}

#[test]
fn files_folders_and_links_keep_mode_and_time() {
    let place = Place::new();
    let done = place.unpack(&archive(&[
        Raw { mode: 0o700, ..folder("./") },
        Raw { mode: 0o1777, ..folder("tmp/") },
        Raw { mode: 0o750, ..file("usr/bin/tool", "#!/bin/sh") },
        raw(b'2', "bin", "usr/bin"),
        raw(b'1', "usr/bin/same", "usr/bin/tool"),
        file("bin/through", "a folder's link"),
        file("/absolute", "from the root"),
    ]));
    assert_eq!(done.unwrap().entries, 7);
    let at = |name: &str| fs::symlink_metadata(place.root().join(name)).unwrap();
    assert_eq!(at("").mode() & 0o7777, 0o700);
    assert_eq!((at("tmp").mode() & 0o7777, at("tmp").mtime()), (0o1777, 1_600_000_000));
    assert_eq!(
        (at("usr/bin/tool").mode() & 0o7777, at("usr/bin/tool").mtime()),
        (0o750, 1_600_000_000)
    );
    assert_eq!(at("usr").mode() & 0o7777, 0o755);
    assert_eq!(fs::read_link(place.root().join("bin")).unwrap(), Path::new("usr/bin"));
    assert_eq!(at("usr/bin/same").ino(), at("usr/bin/tool").ino());
    assert_eq!(
        fs::read_to_string(place.root().join("usr/bin/through")).unwrap(),
        "a folder's link"
    );
    assert_eq!(fs::read_to_string(place.root().join("absolute")).unwrap(), "from the root");
    place.assert_contained();
}

#[test]
fn a_name_with_dots_is_refused() {
    for name in ["../outside", "a/../../outside", ".."] {
        assert!(refused(&[file(name, "x")]).contains(".."));
    }
    assert!(refused(&[raw(b'1', "x", "../outside")]).contains(".."));
}

#[test]
fn a_link_that_leads_out_leads_to_the_layers_own_root() {
    let place = Place::new();
    let up = "../".repeat(20);
    let outside = format!("{up}{}", place.folder.path().join("outside").display());
    place
        .unpack(&archive(&[
            raw(b'2', "up", &up),
            raw(b'2', "abs", "/"),
            file("up/a", "1"),
            file("abs/b", "2"),
            raw(b'2', "out", &outside),
            // The link itself is replaced; nothing is written through it.
            file("out", "3"),
        ]))
        .unwrap();
    place.assert_contained();
    for (name, data) in [("a", "1"), ("b", "2"), ("out", "3")] {
        assert_eq!(fs::read_to_string(place.root().join(name)).unwrap(), data);
    }
    assert!(refused(&[raw(b'2', "d", "/nowhere"), file("d/x", "")]).contains("leads nowhere"));
    assert!(
        refused(&[raw(b'2', "a", "b"), raw(b'2', "b", "a"), file("a/x", "")]).contains("never end")
    );
    assert!(refused(&[file("f", ""), file("f/x", "")]).contains("a file and not a folder"));
}

#[test]
fn a_hard_link_goes_to_a_file_that_is_already_in_the_layer() {
    let place = Place::new();
    let outside = place.folder.path().join("outside");
    assert!(refused(&[raw(b'1', "x", outside.to_str().unwrap())]).contains("not in the layer"));
    assert!(refused(&[raw(b'1', "x", "later"), file("later", "")]).contains("not in the layer"));
    assert!(refused(&[folder("d"), raw(b'1', "x", "d")]).contains("not a file"));
    assert!(refused(&[raw(b'1', "x", "/")]).contains("the root"));
    // Through a link out of the layer: it is looked up inside.
    let parent = place.folder.path().to_str().unwrap().to_owned();
    assert!(
        refused(&[raw(b'2', "l", &parent), raw(b'1', "x", "l/outside")])
            .contains("not in the layer")
    );
    place.unpack(&archive(&[file("f", "1"), raw(b'1', "f", "f")])).unwrap();
    assert_eq!(fs::read_to_string(place.root().join("f")).unwrap(), "1");
}

#[test]
fn the_later_entry_counts_whatever_was_there() {
    let place = Place::new();
    place
        .unpack(&archive(&[
            folder("a"),
            folder("a/b"),
            file("a/b/c", "deep"),
            file("a", "a file now"),
            file("d", "a file"),
            folder("d"),
            file("d/e", "in a folder now"),
            file("f", "first"),
            file("f", "second"),
        ]))
        .unwrap();
    let read = |name: &str| fs::read_to_string(place.root().join(name)).unwrap();
    assert_eq!(
        (read("a").as_str(), read("d/e").as_str(), read("f").as_str()),
        ("a file now", "in a folder now", "second")
    );
}

#[test]
fn whiteouts_become_overlayfs_own() {
    let place = Place::new();
    place
        .unpack(&archive(&[
            file("a/.wh.gone", ""),
            file("b/.wh..wh..opq", ""),
            file("c/.wh.again", ""),
            folder("c/again"),
            file("d/kept", "x"),
            file("d/.wh.kept", ""),
            file(".wh..wh.plnk", ""),
        ]))
        .unwrap();
    let gone = fs::symlink_metadata(place.root().join("a/gone")).unwrap();
    assert!(gone.file_type().is_char_device() && gone.rdev() == 0);
    assert!(is_opaque(&place.root().join("b")));
    // A folder that comes back shows nothing of the one below.
    assert!(is_opaque(&place.root().join("c/again")));
    assert!(!is_opaque(&place.root().join("a")));
    assert_eq!(fs::read_to_string(place.root().join("d/kept")).unwrap(), "x");
    assert!(!place.root().join(".wh..wh.plnk").exists());
    assert!(refused(&[file("a/.wh...", "")]).contains("whiteout"));
}

#[test]
fn a_whiteout_behind_a_link_that_leads_out_hides_nothing_outside() {
    let place = Place::new();
    let up = "../".repeat(20);
    let parent = place.folder.path().display().to_string();
    place
        .unpack(&archive(&[
            raw(b'2', "up", &up),
            file("up/.wh.outside", ""),
            folder("d"),
            raw(b'2', "here", "/d"),
            file("here/.wh..wh..opq", ""),
        ]))
        .unwrap();
    place.assert_contained();
    let hidden = fs::symlink_metadata(place.root().join("outside")).unwrap();
    assert!(hidden.file_type().is_char_device(), "it is in the layer's own root");
    assert!(is_opaque(&place.root().join("d")));
    for whiteout in ["l/.wh.outside", "l/.wh..wh..opq"] {
        assert!(refused(&[raw(b'2', "l", &parent), file(whiteout, "")]).contains("leads nowhere"));
    }
}

fn is_opaque(folder: &Path) -> bool {
    super::is_opaque(File::open(folder).unwrap().as_fd())
}

#[test]
fn devices_are_not_made_and_set_user_id_is_dropped_unless_asked_for() {
    let mut place = Place::new();
    let entries = [
        raw(b'3', "dev", ""),
        raw(b'4', "disk", ""),
        raw(b'6', "pipe", ""),
        Raw { mode: 0o6755, ..file("su", "") },
    ];
    let done = place.unpack(&archive(&entries)).unwrap();
    assert_eq!(done.skipped, 3);
    assert_eq!(fs::read_dir(place.root()).unwrap().count(), 1);
    let mode = |place: &Place| {
        fs::metadata(place.root().join("su")).unwrap().permissions().mode() & 0o7777
    };
    assert_eq!(mode(&place), 0o755);
    place.limits.keep_setuid = true;
    place.unpack(&archive(&entries)).unwrap();
    assert_eq!(mode(&place), 0o6755);
}

#[test]
fn attributes_of_overlayfs_and_of_the_system_are_not_taken_from_a_layer() {
    let place = Place::new();
    let set: [(&str, &[u8]); 5] = [
        ("SCHILY.xattr.user.note", b"a\nb"),
        ("SCHILY.xattr.user.overlay.redirect", b"/etc"),
        ("SCHILY.xattr.trusted.overlay.opaque", b"y"),
        ("SCHILY.xattr.security.selinux", b"x"),
        ("SCHILY.xattr.security.capability", b"\x01\0\0\x02\0\x20\0\0\0\0\0\0\0\0\0\0\0\0\0\0"),
    ];
    place.unpack(&with_pax(&set, &folder("d"))).unwrap();
    let path = std::ffi::CString::new(place.root().join("d").to_str().unwrap()).unwrap();
    let mut names = vec![0u8; 4096];
    // SAFETY: the path ends in NUL, and the kernel writes at most `names.len()` bytes.
    let n = unsafe { libc::listxattr(path.as_ptr(), names.as_mut_ptr().cast(), names.len()) };
    assert_eq!(&names[..n.max(0) as usize], b"user.note\0");
}

#[test]
fn long_names_are_taken_and_endless_ones_refused() {
    let long = format!("{}/{}", "d".repeat(200), "n".repeat(200));
    let place = Place::new();
    place.unpack(&with_pax(&[("path", long.as_bytes())], &file("short", "x"))).unwrap();
    assert!(place.root().join(&long).exists());
    let mut gnu = Vec::new();
    block(
        &mut gnu,
        &header(&Raw { data: long.as_bytes(), ..raw(b'L', "././@LongLink", "") }),
        long.as_bytes(),
    );
    gnu.extend(archive(&[file("short", "y")]));
    place.unpack(&gnu).unwrap();
    assert_eq!(fs::read_to_string(place.root().join(&long)).unwrap(), "y");
    let error = place
        .unpack(&with_pax(&[("path", "n".repeat(5000).as_bytes())], &file("x", "")))
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::HostileLayer, "{error}");
    // A name of a gigabyte is refused by what its header says, before it is read.
    let mut huge = header(&raw(b'L', "x", ""));
    huge.set_size(1 << 30);
    huge.set_cksum();
    let error = place.unpack(huge.as_bytes()).unwrap_err().to_string();
    assert!(error.contains("extended header has 1073741824 bytes"), "{error}");
}

/// An entry may have any number of extended headers: what they say is kept in memory until the entry comes.
#[test]
fn extended_headers_of_an_entry_are_bounded_together() {
    let attribute = |name: &str| {
        let key = format!("SCHILY.xattr.user.{name}");
        let with_entry = with_pax(&[(key.as_str(), &[b'x'; 60_000])], &file("a", ""));
        // Without the entry and the archive's end.
        with_entry[..with_entry.len() - 512 - 1024].to_vec()
    };
    let few: Vec<u8> = ["1", "2"].iter().flat_map(|name| attribute(name)).collect();
    let end = archive(&[file("a", "")]);
    Place::new().unpack(&[few, end.clone()].concat()).unwrap();
    let many: Vec<u8> = (0..20).flat_map(|at| attribute(&at.to_string())).collect();
    let error = Place::new().unpack(&[many, end].concat()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::HostileLayer, "{error}");
    assert!(error.to_string().contains("those of an entry at most 1048576"), "{error}");
}

/// Attributes take space that no size in a header tells.
#[test]
fn attributes_count_towards_the_room_of_a_layer() {
    let mut place = Place::new();
    place.limits = Limits { room_bytes: 50_000, free_bytes_min: 0, ..Limits::default() };
    let heavy = with_pax(&[("SCHILY.xattr.user.x", &[b'x'; 60_000])], &file("a", ""));
    assert_eq!(place.unpack(&heavy).unwrap_err().kind(), ErrorKind::StoreFull);
}

#[test]
fn a_layer_that_needs_more_than_its_bounds_is_refused() {
    let mut place = Place::new();
    let zeros = "\0".repeat(4 << 20);
    let bomb = {
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
        encoder.write_all(&archive(&[file("zeros", &zeros)])).unwrap();
        encoder.finish().unwrap()
    };
    place.limits.bytes_max = 1 << 20;
    assert_eq!(place.unpack(&bomb).unwrap_err().kind(), ErrorKind::HostileLayer);
    place.limits = Limits { room_bytes: 1 << 20, free_bytes_min: 0, ..Limits::default() };
    assert_eq!(place.unpack(&bomb).unwrap_err().kind(), ErrorKind::StoreFull);
    place.limits = Limits { free_bytes_min: 1 << 60, ..Limits::default() };
    assert_eq!(place.unpack(&bomb).unwrap_err().kind(), ErrorKind::StoreFull);
    // A bomb behind the archive's end is digested, and so counts too.
    let mut behind = archive(&[file("a", "1")]);
    behind.resize(4 << 20, 0);
    place.limits = Limits { bytes_max: 1 << 20, free_bytes_min: 0, ..Limits::default() };
    assert_eq!(place.unpack(&behind).unwrap_err().kind(), ErrorKind::HostileLayer);
    place.limits = Limits { entries_max: 3, free_bytes_min: 0, ..Limits::default() };
    let names: Vec<_> = (0..4).map(|i| i.to_string()).collect();
    let many: Vec<_> = names.iter().map(|n| file(n, "")).collect();
    assert!(place.unpack(&archive(&many)).unwrap_err().to_string().contains("more than 3 entries"));
    // Many small files take more on disk than in the archive.
    let ones: Vec<_> = names.iter().map(|n| file(n, "1")).collect();
    place.limits = Limits { bytes_max: 8192, free_bytes_min: 0, ..Limits::default() };
    assert!(place.unpack(&archive(&ones)).unwrap_err().to_string().contains("on disk"));
}

#[test]
fn sparse_files_and_unknown_types_are_refused() {
    assert!(refused(&[raw(b'S', "sparse", "")]).contains("--sparse"));
    assert!(refused(&[raw(b'V', "volume", "")]).contains("not known"));
    let place = Place::new();
    let sparse = with_pax(&[("GNU.sparse.realsize", b"1099511627776")], &file("x", ""));
    assert_eq!(place.unpack(&sparse).unwrap_err().kind(), ErrorKind::HostileLayer);
    let mut huge = header(&raw(b'0', "x", ""));
    huge.as_mut_bytes()[124..136]
        .copy_from_slice(&[0x80, 0, 0, 0, 0x7f, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff]);
    huge.set_cksum();
    assert_eq!(place.unpack(huge.as_bytes()).unwrap_err().kind(), ErrorKind::HostileLayer);
}

#[test]
fn an_archive_that_ends_early_is_an_error_wherever_it_ends() {
    let whole = archive(&[file("a", &"x".repeat(3000)), file("b", "y")]);
    for len in [1, 511, 600, 3000, 3600, 4000, 5000] {
        let error = Place::new().unpack(&whole[..len]).unwrap_err();
        assert!(matches!(error, Error::NotAnImage { .. }), "{len}: {error}");
    }
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(&whole).unwrap();
    let packed = encoder.finish().unwrap();
    for len in [8, packed.len() / 2, packed.len() - 4] {
        let error = Place::new().unpack(&packed[..len]).unwrap_err();
        assert!(
            error.to_string().contains("ends early") || error.to_string().contains("not readable"),
            "{len}: {error}"
        );
    }
    assert!(Place::new().unpack(&packed).is_ok());
    let zstd = zstd::encode_all(&whole[..], 1).unwrap();
    assert!(Place::new().unpack(&zstd).is_ok());
    assert!(Place::new().unpack(&zstd[..zstd.len() - 3]).is_err());
    let error = Place::new().unpack(b"\xfd7zXZ\0rest").unwrap_err().to_string();
    assert!(error.contains("xz is not supported"), "{error}");
}

#[test]
fn a_tree_deeper_than_any_path_is_removed() {
    let place = Place::new();
    // Each link starts again where the last folder lies: names stay short, and the tree gets a thousand folders deep.
    let part = "d/".repeat(40);
    let mut names = Vec::new();
    for i in 0..25 {
        let above = if i == 0 { String::new() } else { format!("l{}/", i - 1) };
        names.push((
            format!("{above}{part}"),
            format!("l{i}"),
            format!("{above}{}", part.trim_end_matches('/')),
        ));
    }
    let entries: Vec<_> =
        names.iter().flat_map(|(path, link, to)| [folder(path), raw(b'2', link, to)]).collect();
    place.unpack(&archive(&entries)).unwrap();
    let parent = File::open(place.folder.path()).unwrap();
    super::remove_tree(parent.as_fd(), b"root").unwrap();
    assert_eq!(fs::read_dir(place.folder.path()).unwrap().count(), 1);
}

proptest::proptest! {
    #[test]
    fn no_bytes_make_it_panic_or_leave_its_folder(mut bytes in proptest::collection::vec(0u8..=255, 0..1500), at in 0usize..512, value in 0u8..=255) {
        let place = Place::new();
        let _ = place.unpack(&bytes);
        // A sound header with one byte changed and its sum made right again gets further.
        let mut changed = header(&file("a/b", "data"));
        changed.as_mut_bytes()[at] = value;
        if !(148..156).contains(&at) {
            changed.set_cksum();
        }
        bytes.splice(0..0, changed.as_bytes().iter().copied());
        let _ = place.unpack(&bytes);
        place.assert_contained();
    }
}
