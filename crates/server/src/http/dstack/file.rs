//! Archives of files, uploaded before the run that brings them along.

use super::answer::{ApiResult, Json, Refused};
use super::multipart::UploadedFile;
use crate::shared::Shared;
use crate::shared::uploads::{self, Kind};
use crate::show::dstack_id::uuid;
use axum::Extension;
use axum::extract::State;
use dstack::api::run::FileArchiveMapping;
use dstack::api::stored::{FileArchive, GetArchiveByHash};
use model::bounds;
use model::principal::Principal;
use std::collections::HashMap;
use std::sync::Arc;
use store::BlobId;
use tokio::task::block_in_place;
use wire::workspace::{self, Blob};

/// An archive's id is made from its owner and its hash.
fn body(uid: u32, hash: String) -> FileArchive {
    FileArchive { id: uuid("archive", &format!("{uid}/{hash}")), hash }
}

pub async fn upload_archive(
    State(shared): State<Arc<Shared>>,
    Extension(by): Extension<Principal>,
    file: UploadedFile,
) -> ApiResult<FileArchive> {
    check_size(&shared, &file)?;
    let mut turn = shared.uploads.turn(by.uid).await;
    block_in_place(|| {
        let checked = workspace::entries(&file.bytes);
        checked.map_err(|error| Refused::because(format!("`files`: {error}")))?;
        let key = key(&file);
        turn.put(Kind::Archive, &key, &file.bytes)?;
        Ok(Json(body(by.uid, key)))
    })
}

/// Refuses what is too large to be kept, or larger than the server was told to take.
pub fn check_size(shared: &Shared, file: &UploadedFile) -> Result<(), Refused> {
    uploads::check_size(&file.bytes)?;
    let bytes = file.bytes.len() as u64;
    match shared.read().config.upload_bytes_max {
        Some(most) if bytes > most => {
            let text = format!(
                "the upload has {bytes} bytes: at most {most} by DSTACK_SERVER_CODE_UPLOAD_LIMIT"
            );
            Err(Refused::because(text))
        }
        _ => Ok(()),
    }
}

/// The hash that the client gave the file, by which it asks for it again; else that of its bytes.
pub fn key(file: &UploadedFile) -> String {
    if uploads::is_key(&file.name) {
        return file.name.clone();
    }
    BlobId::of(&file.bytes).to_string()
}

pub async fn get_archive_by_hash(
    State(shared): State<Arc<Shared>>,
    Extension(by): Extension<Principal>,
    Json(wanted): Json<GetArchiveByHash>,
) -> ApiResult<FileArchive> {
    let kept = block_in_place(|| shared.uploads.kept(by.uid, Kind::Archive));
    if kept.iter().any(|(hash, _)| *hash == wanted.hash) {
        return Ok(Json(body(by.uid, wanted.hash)));
    }
    Err(Refused::not_found("Resource not found"))
}

/// The hashes of the archives that a run names by their ids, one for each. Together they fit into an order.
pub fn find(
    shared: &Shared,
    by: &Principal,
    wanted: &[FileArchiveMapping],
) -> Result<Vec<String>, Refused> {
    bounds::FILES.hold(wanted.len())?;
    let kept = shared.uploads.kept(by.uid, Kind::Archive).into_iter();
    let kept: HashMap<String, (String, u64)> =
        kept.map(|(hash, bytes)| (body(by.uid, hash.clone()).id, (hash, bytes))).collect();
    let mut sum = 0;
    let one = |wanted: &FileArchiveMapping| -> Result<String, Refused> {
        let missing = || {
            let text = format!(
                "`files`: archive {} for {} is not here: upload it",
                wanted.id, wanted.path
            );
            Refused::not_found(text)
        };
        let (hash, bytes) = kept.get(&wanted.id).ok_or_else(missing)?;
        // In base 64.
        sum += (*bytes as usize).div_ceil(3) * 4;
        bounds::WORKSPACE_BYTES.hold(sum)?;
        Ok(hash.clone())
    };
    wanted.iter().map(one).collect()
}

/// The archives that a run names by their ids; each is read once, however often it is named.
pub fn named(
    shared: &Shared,
    by: &Principal,
    wanted: &[FileArchiveMapping],
) -> Result<Vec<workspace::FileArchive>, Refused> {
    let mut read: HashMap<String, Blob> = HashMap::new();
    let mut all = Vec::new();
    for (wanted, hash) in wanted.iter().zip(find(shared, by, wanted)?) {
        let archive = match read.get(&hash) {
            Some(archive) => archive.clone(),
            None => {
                let bytes = shared.uploads.get(by.uid, Kind::Archive, &hash);
                let missing = || Refused::not_found("`files`: an archive is gone: upload it again");
                let archive = Blob(bytes.ok_or_else(missing)?);
                read.insert(hash, archive.clone());
                archive
            }
        };
        all.push(workspace::FileArchive { path: wanted.path.clone(), archive });
    }
    Ok(all)
}
