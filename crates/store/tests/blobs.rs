//! What the blobs promise: kept once, durable when committed, checked when read.

use std::sync::Arc;

use store::blob::{BlobOptions, BlobRecovery};
use store::{BlobError, BlobId, BlobIndex, Blobs, Disk, FaultyDisk, FollowedBlobs};

fn options() -> BlobOptions {
    BlobOptions {
        packed_bytes_max: 200,
        pack_bytes: 2048,
        blob_bytes_max: 5000,
        staged_bytes_max: 4096,
    }
}

fn open(disk: &FaultyDisk) -> (Blobs, BlobRecovery) {
    Blobs::open(Arc::new(disk.clone()), options()).unwrap()
}

/// Small for even numbers, large for odd multiples of five.
fn content(number: usize) -> Vec<u8> {
    let len = if number % 10 == 5 { 700 + number } else { 20 + number % 50 };
    format!("blob {number} ").into_bytes().into_iter().cycle().take(len).collect()
}

fn names(disk: &FaultyDisk, dir: &str) -> Vec<String> {
    disk.list(dir).unwrap().into_iter().map(|entry| entry.name).collect()
}

#[test]
fn packs_that_were_read_before_are_read_on_and_others_anew() {
    let disk = FaultyDisk::default();
    let (mut blobs, _) = open(&disk);
    let mut index = BlobIndex::default();
    let mut ids: Vec<BlobId> = (0..30).map(|n| blobs.put(&content(n), 1).unwrap()).collect();
    // In steps of less than a record, and again when more was put there.
    while index.read_on(&disk, 64).unwrap() {}
    ids.extend((30..60).map(|n| blobs.put(&content(n), 1).unwrap()));
    assert!(index.read_on(&disk, 64).unwrap(), "there is more");
    drop(blobs);
    let (all, expected) = open(&disk);
    drop(all);
    let (blobs, recovery) = Blobs::open_indexed(Arc::new(disk.clone()), options(), index).unwrap();
    assert_eq!(recovery, expected);
    for (number, id) in ids.iter().enumerate() {
        assert_eq!(blobs.get(id).unwrap().unwrap(), content(number));
    }
    drop(blobs);

    // Packs of the same numbers with other contents, as after the first were removed.
    let mut index = BlobIndex::default();
    while index.read_on(&disk, 4096).unwrap() {}
    let other = FaultyDisk::default();
    let (mut blobs, _) = open(&other);
    let own: Vec<BlobId> = (100..130).map(|n| blobs.put(&content(n), 1).unwrap()).collect();
    drop(blobs);
    let (blobs, _) = Blobs::open_indexed(Arc::new(other.clone()), options(), index).unwrap();
    assert!(own.iter().all(|id| blobs.get(id).unwrap().is_some()));
    assert_eq!(blobs.get(&ids[0]).unwrap(), None);
}

#[test]
fn small_blobs_of_another_server_are_found_as_far_as_the_packs_were_read() {
    let disk = FaultyDisk::default();
    let (mut blobs, _) = open(&disk);
    let followed = FollowedBlobs::new(Arc::new(disk.clone()));
    let read_all = || while followed.read_on(&disk, 4096).unwrap() {};
    let small = blobs.put(&content(1), 1).unwrap();
    assert_eq!(followed.get(&small).unwrap(), None, "nothing was read yet");
    read_all();
    assert_eq!(followed.get(&small).unwrap(), Some(content(1)));
    let (later, large) = (blobs.put(&content(2), 1).unwrap(), blobs.put(&content(5), 1).unwrap());
    assert_eq!(followed.get(&later).unwrap(), None, "it was stored since");
    read_all();
    assert_eq!(followed.get(&later).unwrap(), Some(content(2)));
    assert_eq!(followed.get(&large).unwrap(), None, "it has a file of its own");
    // Who leads next goes on from what was read.
    let index = followed.take_index();
    assert_eq!(followed.get(&small).unwrap(), None);
    drop(blobs);
    let (blobs, _) = Blobs::open_indexed(Arc::new(disk.clone()), options(), index).unwrap();
    assert!([small, later, large].iter().all(|id| blobs.contains(id)));
    // A blob whose pack was removed is an error and no other content: the index still names it.
    let again = FollowedBlobs::new(Arc::new(disk.clone()));
    while again.read_on(&disk, 4096).unwrap() {}
    drop(blobs);
    for pack in names(&disk, "packs") {
        disk.remove(&format!("packs/{pack}")).unwrap();
    }
    assert!(matches!(again.get(&small), Err(BlobError::Io { .. })));
}

#[test]
fn small_and_large_blobs_are_kept_once_and_found_again() {
    let disk = FaultyDisk::default();
    let (mut blobs, _) = open(&disk);
    let ids: Vec<BlobId> = (0..40).map(|n| blobs.put(&content(n), 1).unwrap()).collect();
    let used = disk.used_bytes();
    let all: Vec<Vec<u8>> = (0..40).map(content).collect();
    let all: Vec<&[u8]> = all.iter().map(Vec::as_slice).collect();
    assert_eq!(blobs.put_many(&all, 2).unwrap(), ids);
    assert_eq!(disk.used_bytes(), used, "the same content costs nothing");
    assert!(names(&disk, "packs").len() > 1);
    drop(blobs);
    disk.restart(3);
    let (blobs, recovery) = open(&disk);
    assert_eq!(recovery, BlobRecovery { blobs: 40, ..BlobRecovery::default() });
    for (number, id) in ids.iter().enumerate() {
        assert_eq!(blobs.get(id).unwrap().unwrap(), content(number));
    }
    assert_eq!(blobs.get(&BlobId::of(b"never stored")).unwrap(), None);
}

#[test]
fn staged_blobs_are_there_after_the_commit_and_bounds_are_said() {
    let disk = FaultyDisk::default();
    let (mut blobs, _) = open(&disk);
    let id = blobs.stage(b"script", 1).unwrap();
    assert!(!blobs.contains(&id));
    blobs.commit_staged().unwrap();
    assert_eq!(blobs.get(&id).unwrap().unwrap(), b"script");
    assert!(matches!(
        blobs.stage(&[0; 5001], 1),
        Err(BlobError::TooLarge { bytes: 5001, max: 5000 })
    ));
    let refused = (0..200_u32).find_map(|n| blobs.stage(&n.to_le_bytes(), 1).err()).unwrap();
    assert!(matches!(refused, BlobError::StagedFull { max: 4096 }));
    blobs.commit_staged().expect("what was staged before the bound is stored");
    assert!(blobs.contains(&BlobId::of(&0_u32.to_le_bytes())));
}

#[test]
fn a_crash_at_any_write_loses_no_committed_blob() {
    let work = |disk: &FaultyDisk, committed: &mut Vec<usize>| -> Result<(), BlobError> {
        let (mut blobs, _) = Blobs::open(Arc::new(disk.clone()), options())?;
        for first in (0..32).step_by(4) {
            for number in first..first + 4 {
                blobs.stage(&content(number), 1)?;
            }
            blobs.commit_staged()?;
            committed.extend(first..first + 4);
        }
        Ok(())
    };
    let mut crash_at = 1;
    loop {
        let mut crashed = false;
        for seed in 0..8 {
            let disk = FaultyDisk::default();
            disk.crash_at(crash_at);
            let mut committed = Vec::new();
            crashed |= work(&disk, &mut committed).is_err();
            disk.restart(seed);
            let (mut blobs, recovery) = open(&disk);
            for number in committed {
                let found = blobs.get(&BlobId::of(&content(number))).unwrap();
                assert_eq!(found, Some(content(number)), "crash at {crash_at}, seed {seed}");
            }
            let kept = recovery.blobs;
            for number in 0..32 {
                blobs.put(&content(number), 1).unwrap();
            }
            assert!(kept <= 32 && blobs.len() == 32);
        }
        if !crashed {
            break;
        }
        crash_at += 1;
    }
    assert!(crash_at > 40, "the crashes cover the whole work: {crash_at}");
}

#[test]
fn what_a_killed_program_left_unsynced_is_durable_once_it_is_known() {
    for crash_at in 1..30 {
        let disk = FaultyDisk::default();
        disk.crash_at(crash_at);
        if let Ok((mut blobs, _)) = Blobs::open(Arc::new(disk.clone()), options()) {
            for number in 0..8 {
                let _ = blobs.put(&content(number), 1);
            }
        }
        disk.restart_program();
        let known = open(&disk).0;
        disk.restart(crash_at);
        let found = open(&disk).0;
        for number in 0..8 {
            let id = BlobId::of(&content(number));
            assert_eq!(found.contains(&id), known.contains(&id), "crash at {crash_at}, {number}");
        }
    }
}

#[test]
fn a_cut_pack_keeps_its_sound_records_and_damage_is_said() {
    let disk = FaultyDisk::default();
    let (mut blobs, _) = open(&disk);
    let ids: Vec<BlobId> = (0..4).map(|n| blobs.put(&content(n), 1).unwrap()).collect();
    let pack = "packs/pack-00000001";
    let bytes = disk.open(pack).unwrap().read_all().unwrap();
    let used = bytes.iter().rposition(|byte| *byte != 0).unwrap() + 1;
    for cut in 0..used {
        let copy = disk.fork();
        copy.tamper(pack, |bytes| bytes.truncate(cut)).unwrap();
        let (blobs, recovery) = open(&copy);
        for id in &ids[..recovery.blobs as usize] {
            assert!(blobs.get(id).unwrap().is_some(), "cut at {cut}");
        }
        assert!(recovery.damaged.is_empty());
    }
    for byte in 0..used {
        let copy = disk.fork();
        copy.tamper(pack, |bytes| bytes[byte] ^= 4).unwrap();
        let (found, recovery) = open(&copy);
        assert_eq!(recovery.blobs, 3, "byte {byte}");
        assert!(recovery.torn_tail.is_some() != (recovery.damaged.len() == 1), "byte {byte}");
        drop(found);
        // Under a running server the damage is found when the blob is read.
        let gone = ids.iter().filter(|id| {
            disk.tamper(pack, |bytes| bytes[byte] ^= 4).unwrap();
            let bad = blobs.get(id).is_err();
            disk.tamper(pack, |bytes| bytes[byte] ^= 4).unwrap();
            bad
        });
        assert_eq!(gone.count(), 1, "byte {byte}");
    }
}

#[test]
fn a_full_disk_and_a_failed_sync_store_nothing_and_the_next_put_works() {
    let disk = FaultyDisk::default();
    let (mut blobs, _) = open(&disk);
    let kept = blobs.put(b"kept", 1).unwrap();
    for number in [3, 15] {
        disk.fail_sync_at(1);
        assert!(blobs.put(&content(number), 1).is_err());
        for blobs in [&blobs, &open(&disk.fork()).0] {
            assert!(!blobs.contains(&BlobId::of(&content(number))), "not even from the cache");
        }
        let id = blobs.put(&content(number), 1).unwrap();
        disk.set_capacity(Some(disk.used_bytes()));
        let refused = (100..300).find_map(|n| blobs.put(&content(n), 1).err()).unwrap();
        assert!(matches!(refused, BlobError::Full { .. }), "{refused}");
        assert!(names(&disk, "big").iter().all(|name| !name.ends_with(".tmp")));
        disk.set_capacity(None);
        let next = blobs.put(&content(number + 1), 1).unwrap();
        let copy = disk.fork();
        let (reopened, _) = open(&copy);
        for id in [kept, id, next] {
            assert!(reopened.get(&id).unwrap().is_some());
        }
    }
}

/// Stages one content and stores it for a commit that carries it.
fn store_carried(blobs: &mut Blobs, number: usize) -> (BlobId, Vec<u8>) {
    let id = blobs.stage(&content(number), 1).unwrap();
    (id, blobs.store_staged(usize::MAX).unwrap())
}

#[test]
fn blob_that_a_commit_carries_is_put_back_after_a_crash() {
    let mut lost = 0;
    for seed in 0..16 {
        let disk = FaultyDisk::default();
        let (mut blobs, _) = open(&disk);
        let (id, records) = store_carried(&mut blobs, 3);
        assert_eq!(blobs.unsynced_len(), records.len());
        assert_eq!(blobs.get(&id).unwrap(), Some(content(3)), "it is read before it is synced");
        disk.restart(seed);
        let (mut blobs, _) = open(&disk);
        lost += usize::from(!blobs.contains(&id));
        blobs.restore(&records).unwrap();
        blobs.commit_staged().unwrap();
        disk.restart(seed);
        assert_eq!(open(&disk).0.get(&id).unwrap(), Some(content(3)), "seed {seed}");
    }
    assert!(lost > 0, "some crash keeps it from its pack");
}

#[test]
fn private_content_is_carried_by_no_commit_and_is_durable_at_once() {
    let disk = FaultyDisk::default();
    let (mut blobs, _) = open(&disk);
    let private = content(3);
    let id = blobs.stage_private(BlobId::of(&private), &private, 1).unwrap();
    let beside = blobs.stage(&content(5), 1).unwrap();
    assert_eq!(blobs.store_staged(usize::MAX).unwrap(), Vec::<u8>::new());
    assert!(!store_carried(&mut blobs, 7).1.is_empty(), "what comes after it is carried again");
    disk.restart(1);
    let (blobs, _) = open(&disk);
    assert!(blobs.contains(&id) && blobs.contains(&beside));
}

#[test]
fn blobs_are_durable_once_synced_also_where_a_sync_fails() {
    for (failed, seed) in [(false, 1), (false, 2), (false, 3), (true, 1), (true, 2), (true, 3)] {
        let disk = FaultyDisk::default();
        let (mut blobs, _) = open(&disk);
        let ids = [2, 4, 6].map(|number| store_carried(&mut blobs, number).0);
        if failed {
            disk.fail_sync_at(1);
        }
        blobs.sync().unwrap();
        assert_eq!(blobs.unsynced_len(), 0);
        disk.restart(seed);
        let (blobs, _) = open(&disk);
        assert!(ids.iter().all(|id| blobs.get(id).unwrap().is_some()), "failed: {failed}");
    }
}

#[test]
fn blobs_of_a_commit_that_was_not_kept_are_synced_before_others_rely_on_them() {
    let disk = FaultyDisk::default();
    let (mut blobs, _) = open(&disk);
    let (id, _) = store_carried(&mut blobs, 2);
    blobs.distrust_unsynced();
    // The content is known: a later commit carries nothing of it.
    assert_eq!(store_carried(&mut blobs, 2), (id, Vec::new()));
    assert_eq!(blobs.unsynced_len(), 0);
    disk.restart(1);
    assert!(open(&disk).0.contains(&id));
}

#[test]
fn pack_that_is_left_for_another_is_synced() {
    let disk = FaultyDisk::default();
    let (mut blobs, _) = open(&disk);
    // A pack takes about twenty of them.
    let stored: Vec<(BlobId, Vec<u8>)> =
        (0..60).step_by(2).map(|number| store_carried(&mut blobs, number)).collect();
    assert!(names(&disk, "packs").len() > 1);
    let last = stored.last().unwrap().1.len();
    assert!(blobs.unsynced_len() >= last && blobs.unsynced_len() <= 2048, "of the last pack");
    let unsynced = blobs.unsynced_len();
    let of_last = |at: usize| stored[at..].iter().map(|(_, records)| records.len()).sum::<usize>();
    let first_of_last = (0..stored.len()).find(|at| of_last(*at) <= unsynced).unwrap();
    assert!(first_of_last > 0);
    disk.restart(3);
    let (mut blobs, _) = open(&disk);
    let is_kept = |(id, _): &(BlobId, Vec<u8>)| blobs.contains(id);
    assert!(stored[..first_of_last].iter().all(is_kept), "the first pack was synced");
    stored.iter().for_each(|(_, records)| blobs.restore(records).unwrap());
    blobs.commit_staged().unwrap();
    assert!(stored.iter().all(|(id, _)| blobs.contains(id)));
    // A journal that carries none has every blob synced.
    let number = 61;
    blobs.stage(&content(number), 1).unwrap();
    assert_eq!(blobs.store_staged(0).unwrap(), Vec::<u8>::new());
    disk.restart(3);
    assert!(open(&disk).0.contains(&BlobId::of(&content(number))));
}

#[test]
fn blobs_of_a_sync_that_failed_are_written_again_by_the_next_start() {
    for is_left_for_another in [false, true] {
        let disk = FaultyDisk::default();
        let (mut blobs, _) = open(&disk);
        let (id, _) = store_carried(&mut blobs, 2);
        disk.fail_sync_at(1);
        if is_left_for_another {
            // The pack that they should have gone into cannot be written either.
            disk.fail_write_at(1);
            blobs.sync().unwrap_err();
        } else {
            blobs.put(&content(4), 1).unwrap_err();
        }
        assert_eq!(names(&disk, "packs"), ["pack-00000001"], "none is left empty");
        // The program is killed, and what it had written is seen and nowhere on the disk.
        disk.restart_program();
        let (blobs, _) = open(&disk);
        assert!(blobs.contains(&id), "nothing of the journal is put back for it");
        blobs.write_again().unwrap();
        disk.restart(1);
        assert!(open(&disk).0.contains(&id), "left for another: {is_left_for_another}");
    }
}
