//! The names of entries: parts that lead downwards only, and the whiteouts of OCI layers among them.

use super::archive::Fault;

const PATH_BYTES_MAX: usize = 4095;
const NAME_BYTES_MAX: usize = 255;
/// How deep an entry may lie: images stay below fifty.
const DEPTH_MAX: usize = 256;

const WHITEOUT: &[u8] = b".wh.";
const OPAQUE: &[u8] = b".wh..wh..opq";

/// A name of the layer, relative to its root, without `.`, `..` or empty parts. The root itself is empty.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EntryPath(Vec<u8>);

/// What the last part of a name stands for.
#[derive(Debug, PartialEq, Eq)]
pub enum Meaning<'a> {
    /// The layer's root folder.
    Root,
    Plain {
        name: &'a [u8],
    },
    /// The thing of this name in the layers below is gone.
    Whiteout {
        name: &'a [u8],
    },
    /// Everything in this folder in the layers below is gone.
    Opaque,
    /// A file that the union file system aufs kept for itself.
    Aufs,
}

impl EntryPath {
    /// An absolute name is taken from the layer's root, as other tools do.
    pub fn new(bytes: &[u8]) -> Result<Self, Fault> {
        let refused = |fault: &str| Err(Fault::refused(bytes, fault));
        if bytes.contains(&0) {
            return refused("its name has a NUL character");
        }
        let mut clean = Vec::with_capacity(bytes.len());
        let mut depth = 0;
        for part in bytes.split(|b| *b == b'/').filter(|part| !part.is_empty() && *part != b".") {
            if part == b".." {
                return refused("its name has .. in it, which could lead out of the layer");
            }
            if part.len() > NAME_BYTES_MAX {
                return refused("a part of its name has more than 255 bytes");
            }
            depth += 1;
            if !clean.is_empty() {
                clean.push(b'/');
            }
            clean.extend_from_slice(part);
        }
        if clean.len() > PATH_BYTES_MAX || depth > DEPTH_MAX {
            return refused("its name is longer or deeper than any file's");
        }
        Ok(Self(clean))
    }

    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// The folder that it lies in; empty for the root.
    pub fn parent(&self) -> &[u8] {
        split(&self.0).0
    }

    pub fn meaning(&self) -> Result<Meaning<'_>, Fault> {
        if self.0.is_empty() {
            return Ok(Meaning::Root);
        }
        let (_, name) = split(&self.0);
        let Some(hidden) = name.strip_prefix(WHITEOUT) else { return Ok(Meaning::Plain { name }) };
        if name == OPAQUE {
            return Ok(Meaning::Opaque);
        }
        if hidden.starts_with(WHITEOUT) {
            return Ok(Meaning::Aufs);
        }
        if matches!(hidden, b"" | b"." | b"..") {
            return Err(Fault::refused(&self.0, "a whiteout must name what it hides"));
        }
        Ok(Meaning::Whiteout { name: hidden })
    }
}

/// A path's folder and last part.
pub fn split(path: &[u8]) -> (&[u8], &[u8]) {
    match path.iter().rposition(|b| *b == b'/') {
        Some(at) => (&path[..at], &path[at + 1..]),
        None => (b"", path),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_leads_downwards_or_is_refused() {
        let clean = |text: &str| {
            EntryPath::new(text.as_bytes()).map(|p| String::from_utf8(p.0).unwrap()).ok()
        };
        assert_eq!(clean("./usr//bin/./x/").as_deref(), Some("usr/bin/x"));
        assert_eq!(clean("/etc/passwd").as_deref(), Some("etc/passwd"));
        assert_eq!(clean("./").as_deref(), Some(""));
        let (deep, long) = ("a/".repeat(300), "x".repeat(256));
        for bad in ["../x", "a/../../b", "a/..", "nul\0", &deep, &long] {
            assert_eq!(clean(bad), None, "{bad:?}");
        }
    }

    #[test]
    fn whiteouts_are_told_from_files() {
        let meaning = |text: &str| {
            format!(
                "{:?}",
                EntryPath::new(text.as_bytes()).unwrap().meaning().map_err(|_| "refused")
            )
        };
        let hides_x = format!("{:?}", Ok::<_, ()>(Meaning::Whiteout { name: b"x" }));
        assert_eq!(meaning("a/.wh.x"), hides_x);
        assert_eq!(meaning("a/.wh..wh..opq"), "Ok(Opaque)");
        assert_eq!(meaning(".wh..wh.plnk"), "Ok(Aufs)");
        for bad in ["a/.wh.", "a/.wh..", "a/.wh..."] {
            assert_eq!(meaning(bad), "Err(\"refused\")", "{bad}");
        }
    }
}
