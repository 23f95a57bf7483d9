//! A check of the blobs that writes nothing: every record of the packs, and every large blob whole. A server may store blobs meanwhile,
//! and remove some.

use std::collections::HashSet;
use std::io;

use super::index::{BadBytes, BlobIndex};
use super::pack::{self, RECORD_HEADER};
use super::{BIG, BlobError, BlobId, TEMPORARY, read_record};
use crate::disk::{Disk, Entry};

/// How often it begins anew where a file is removed that it was about to read.
const TRIES: u32 = 5;

#[derive(Default)]
pub struct BlobInspection {
    sound: HashSet<BlobId>,
    /// Bytes that hold no sound record. What was there is missing, if it was ever acknowledged.
    pub damaged: Vec<BadBytes>,
    /// The end of the newest pack, where it is no sound record: one that is on its way, that a crash cut short, or that is damaged.
    pub unfinished: Option<BadBytes>,
}

impl BlobInspection {
    pub fn of(disk: &dyn Disk) -> Result<Self, BlobError> {
        let mut tries = 1;
        loop {
            match Self::once(disk) {
                Err(error) if is_gone(&error) && tries < TRIES => tries += 1,
                inspected => return inspected,
            }
        }
    }

    /// Whether the content is there, and sound.
    pub fn contains(&self, id: &BlobId) -> bool {
        self.sound.contains(id)
    }

    pub fn len(&self) -> usize {
        self.sound.len()
    }

    pub fn is_empty(&self) -> bool {
        self.sound.is_empty()
    }

    fn once(disk: &dyn Disk) -> Result<Self, BlobError> {
        let mut index = BlobIndex::default();
        index.complete(disk)?;
        let (damaged, unfinished) = index.bad_bytes();
        let sound = index.packs.into_values().flat_map(|pack| pack.blobs.into_keys()).collect();
        let mut inspection = Self { sound, damaged, unfinished };
        for folder in list(disk, BIG)?.into_iter().filter(|entry| entry.is_dir) {
            let folder = format!("{BIG}/{}", folder.name);
            for entry in list(disk, &folder)? {
                if !entry.name.ends_with(TEMPORARY) {
                    inspection.inspect_large(disk, &format!("{folder}/{}", entry.name), &entry)?;
                }
            }
        }
        Ok(inspection)
    }

    fn inspect_large(
        &mut self,
        disk: &dyn Disk,
        path: &str,
        entry: &Entry,
    ) -> Result<(), BlobError> {
        let file = disk.open(path).map_err(BlobError::io("open", path))?;
        let mut header = [0; RECORD_HEADER];
        let read = file.read_at(0, &mut header).map_err(BlobError::io("read", path))?;
        let len = pack::describe(&header[..read]).and_then(|(_, _, len)| u32::try_from(len).ok());
        let is_sound = match (entry.name.parse::<BlobId>(), len) {
            // No more is read than there is.
            (Ok(id), Some(len)) if u64::from(len) <= entry.len => {
                match read_record(&*file, path, &id, 0, len) {
                    Ok(_) => self.sound.insert(id),
                    Err(BlobError::Damaged { .. }) => false,
                    Err(error) => return Err(error),
                }
            }
            _ => false,
        };
        if !is_sound {
            self.damaged.push(BadBytes { file: path.to_owned(), offset: 0, bytes: entry.len });
        }
        Ok(())
    }
}

/// The names of the blobs that a commit of the journal carries.
pub fn carried_ids(records: &[u8]) -> Vec<BlobId> {
    let mut ids = Vec::new();
    pack::scan(records, |_, record| ids.push(record.id));
    ids
}

/// Whether a file was removed since it was listed.
fn is_gone(error: &BlobError) -> bool {
    matches!(error, BlobError::Io { source, .. } if source.kind() == io::ErrorKind::NotFound)
}

fn list(disk: &dyn Disk, folder: &str) -> Result<Vec<Entry>, BlobError> {
    match disk.list(folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        listed => listed.map_err(BlobError::io("list", folder)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::blob::Blobs;
    use crate::faulty_disk::FaultyDisk;
    use std::sync::Arc;

    #[test]
    fn damage_in_a_pack_and_in_a_large_blob_is_found_and_nothing_is_written() {
        let disk = FaultyDisk::default();
        assert!(BlobInspection::of(&disk).expect("nothing there").is_empty());
        let mut blobs = Blobs::open(Arc::new(disk.clone()), Default::default()).expect("opened").0;
        let large = vec![7; 2 << 20];
        let ids = [&b"first"[..], b"second", &large].map(|text| blobs.put(text, 1).expect("put"));
        drop(blobs);
        let sound = BlobInspection::of(&disk).expect("read");
        assert!(sound.damaged.is_empty() && ids.iter().all(|id| sound.contains(id)));
        let large = format!("big/{:02x}/{}", ids[2].0[0], ids[2]);
        for (path, byte) in [("packs/pack-00000001", 60), (&*large, 1 << 20)] {
            disk.tamper(path, |bytes| bytes[byte] ^= 1).expect("tampered with");
        }
        let before = disk.open("packs/pack-00000001").and_then(|file| file.read_all());
        let damaged = BlobInspection::of(&disk).expect("read");
        let files: Vec<_> = damaged.damaged.iter().map(|bad| bad.file.as_str()).collect();
        assert_eq!(files, ["packs/pack-00000001", &large]);
        assert_eq!(ids.map(|id| damaged.contains(&id)), [false, true, false]);
        let after = disk.open("packs/pack-00000001").and_then(|file| file.read_all());
        assert_eq!(before.expect("read"), after.expect("read"));
    }
}
