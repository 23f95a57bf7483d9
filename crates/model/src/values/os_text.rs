//! Arguments, variables and file names as text. The operating system has them as bytes, and they travel as strings: a byte that is
//! not part of UTF-8 is written as a character of its own, the end of the last private area, which no standard assigns. The bytes
//! come back exactly as they were: also text that holds such a character is written byte by byte. So every text that becomes an
//! argument, a variable or a file name is made here, once, and every place that hands it to the kernel turns it back, once.

use std::borrow::Cow;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};

/// The character of a byte from 0x80 on is this one and as many further.
const OF_BYTE_ZERO: u32 = 0x10_ff00;

pub fn from_bytes(bytes: Vec<u8>) -> String {
    match String::from_utf8(bytes) {
        Ok(text) if !has_bytes(&text) => text,
        Ok(text) => written(text.as_bytes()),
        Err(error) => written(error.as_bytes()),
    }
}

pub fn from_os(text: OsString) -> String {
    from_bytes(text.into_vec())
}

/// Writes a text that is UTF-8 to begin with, from a configuration or in JSON: characters that stand for bytes are written so that
/// they come back as themselves.
pub fn from_text(text: String) -> String {
    if has_bytes(&text) { written(text.as_bytes()) } else { text }
}

/// What [`from_bytes`] was given.
pub fn to_bytes(text: &str) -> Cow<'_, [u8]> {
    if !has_bytes(text) {
        return Cow::Borrowed(text.as_bytes());
    }
    let mut bytes = Vec::with_capacity(text.len());
    for c in text.chars() {
        match byte_of(c) {
            Some(byte) => bytes.push(byte),
            None => bytes.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes()),
        }
    }
    Cow::Owned(bytes)
}

pub fn to_os(text: &str) -> Cow<'_, OsStr> {
    match to_bytes(text) {
        Cow::Borrowed(bytes) => Cow::Borrowed(OsStr::from_bytes(bytes)),
        Cow::Owned(bytes) => Cow::Owned(OsString::from_vec(bytes)),
    }
}

/// Whether the text stands for bytes that are not its own.
pub fn has_bytes(text: &str) -> bool {
    text.contains(|c: char| byte_of(c).is_some())
}

fn written(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len() * 2);
    for chunk in bytes.utf8_chunks() {
        for c in chunk.valid().chars() {
            match byte_of(c) {
                Some(_) => text.extend(c.encode_utf8(&mut [0; 4]).bytes().map(char_of)),
                None => text.push(c),
            }
        }
        text.extend(chunk.invalid().iter().copied().map(char_of));
    }
    text
}

/// The byte that a character stands for. No ASCII is among them: nothing that ends a name or parts a path can be hidden so.
fn byte_of(c: char) -> Option<u8> {
    let byte = u32::from(c).checked_sub(OF_BYTE_ZERO).and_then(|byte| u8::try_from(byte).ok());
    byte.filter(|byte| !byte.is_ascii())
}

fn char_of(byte: u8) -> char {
    char::from_u32(OF_BYTE_ZERO + u32::from(byte)).unwrap_or(char::REPLACEMENT_CHARACTER)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_left_as_it_is() {
        for text in ["", "A=1", "Größe 漢字 🦀", "\u{10fffd}x"].map(str::to_owned) {
            let is_plain = !has_bytes(&text);
            assert_eq!(from_bytes(text.clone().into_bytes()) == text, is_plain, "{text:?}");
            assert_eq!(matches!(to_bytes(&text), Cow::Borrowed(_)), is_plain, "{text:?}");
        }
    }

    #[test]
    fn all_bytes_come_back_as_they_were() {
        let every: Vec<u8> = (0..=255).collect();
        let cut = "漢".as_bytes()[..2].to_vec();
        let of_ours = "\u{10ff80}\u{10ffff}\u{10ff7f}".as_bytes().to_vec();
        for bytes in [every, cut, of_ours, b"gr\xfcn".to_vec(), "grün".into()] {
            let text = from_bytes(bytes.clone());
            assert_eq!(to_bytes(&text), bytes, "{text:?}");
            assert_eq!(to_os(&text).as_bytes(), bytes);
        }
        for text in ["", "grün", "\u{10fffd}x\u{10ffff}"] {
            assert_eq!(*to_bytes(&from_text(text.to_owned())), *text.as_bytes(), "{text:?}");
        }
        assert_eq!(from_bytes(b"gr\xfcn".to_vec()), "gr\u{10fffc}n");
    }

    #[test]
    fn no_character_stands_for_a_byte_of_ascii() {
        for c in ('\u{10ff00}'..='\u{10ff7f}').chain(['\u{10feff}', '=', '\0']) {
            assert_eq!(byte_of(c), None, "{c:?}");
        }
        assert_eq!(byte_of('\u{10ff80}'), Some(0x80));
        assert_eq!(byte_of(char::MAX), Some(0xff));
    }
}
