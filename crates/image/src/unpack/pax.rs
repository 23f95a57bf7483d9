//! The records of a pax extended header: `LENGTH KEY=VALUE\n`, where a value may hold any byte.

/// What an extended header says about the entry that follows it.
#[derive(Default)]
pub struct Extensions {
    pub path: Option<Vec<u8>>,
    pub link: Option<Vec<u8>>,
    pub size: Option<u64>,
    pub uid: Option<u64>,
    pub gid: Option<u64>,
    /// Seconds and nanoseconds.
    pub mtime: Option<(i64, u32)>,
    pub xattrs: Vec<(Vec<u8>, Vec<u8>)>,
    pub sparse: bool,
}

const XATTR: &[u8] = b"SCHILY.xattr.";

impl Extensions {
    /// Reads all records; an error says which part is wrong.
    pub fn read(&mut self, mut bytes: &[u8]) -> Result<(), &'static str> {
        while !bytes.is_empty() {
            let space = bytes
                .iter()
                .take(20)
                .position(|b| *b == b' ')
                .ok_or("a pax record without a length")?;
            let length: usize =
                number(&bytes[..space]).ok_or("a pax record whose length is no number")?;
            if length <= space + 1 || length > bytes.len() || bytes[length - 1] != b'\n' {
                return Err("a pax record whose length is wrong");
            }
            let record = &bytes[space + 1..length - 1];
            let equals =
                record.iter().position(|b| *b == b'=').ok_or("a pax record without a value")?;
            self.set(&record[..equals], &record[equals + 1..])?;
            bytes = &bytes[length..];
        }
        Ok(())
    }

    fn set(&mut self, key: &[u8], value: &[u8]) -> Result<(), &'static str> {
        let amount = || number::<u64>(value).ok_or("a pax record whose value is no number");
        match key {
            b"path" => self.path = Some(value.to_vec()),
            b"linkpath" => self.link = Some(value.to_vec()),
            b"size" => self.size = Some(amount()?),
            b"uid" => self.uid = Some(amount()?),
            b"gid" => self.gid = Some(amount()?),
            b"mtime" => self.mtime = Some(time(value).ok_or("a pax record whose time is none")?),
            _ if key.starts_with(b"GNU.sparse.") => self.sparse = true,
            _ if key.starts_with(XATTR) => {
                self.xattrs.push((key[XATTR.len()..].to_vec(), value.to_vec()))
            }
            _ => {}
        }
        Ok(())
    }
}

fn number<T: std::str::FromStr>(bytes: &[u8]) -> Option<T> {
    let digits = bytes.iter().all(u8::is_ascii_digit);
    std::str::from_utf8(bytes).ok().filter(|_| digits)?.parse().ok()
}

/// Seconds with a fraction, before or after 1970; nanoseconds count forward from the second.
fn time(bytes: &[u8]) -> Option<(i64, u32)> {
    let text = std::str::from_utf8(bytes).ok()?;
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    let negative = whole.starts_with('-');
    let seconds: i64 = whole.parse().ok()?;
    if !fraction.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    let nanos: u32 = format!("{fraction:0<9}")[..9].parse().ok()?;
    if negative && nanos > 0 {
        Some((seconds.checked_sub(1)?, 1_000_000_000 - nanos))
    } else {
        Some((seconds, nanos))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(bytes: &[u8]) -> Result<Extensions, &'static str> {
        let mut extensions = Extensions::default();
        extensions.read(bytes).map(|()| extensions)
    }

    #[test]
    fn records_are_read_by_their_length_and_not_by_their_lines() {
        let found = read(b"9 path=a\n31 SCHILY.xattr.user.x=a\nb=\0cd\n20 mtime=-1.5000000\n")
            .unwrap_or_else(|e| panic!("{e}"));
        assert_eq!(found.path.as_deref(), Some(&b"a"[..]));
        assert_eq!(found.xattrs, [(b"user.x".to_vec(), b"a\nb=\0cd".to_vec())]);
        assert_eq!(found.mtime, Some((-2, 500_000_000)));
    }

    #[test]
    fn a_broken_record_is_refused() {
        for bytes in [
            &b"x"[..],
            b"0 a=b\n",
            b"3 \n",
            b"99 a=b\n",
            b"6 a=b",
            b"6 abc\n",
            b"9 size=x\n",
            b"9 size=\n\n",
            b"99999999999999999999999 a=b\n",
        ] {
            assert!(read(bytes).is_err(), "{bytes:?}");
        }
    }
}
