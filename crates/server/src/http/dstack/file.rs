//! Archives of files, uploaded before the run that brings them along.

use super::answer::{ApiResult, Json, Refused};
use super::multipart::UploadedFile;
use super::uuid;
use crate::shared::Shared;
use crate::shared::uploads::{self, Kind};
use axum::Extension;
use axum::extract::State;
use dstack::api::run::FileArchiveMapping;
use dstack::api::stored::{FileArchive, GetArchiveByHash};
use model::principal::Principal;
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
    block_in_place(|| {
        uploads::check_size(&file.bytes)?;
        let checked = workspace::entries(&file.bytes);
        checked.map_err(|error| Refused::because(format!("`files`: {error}")))?;
        let key = key(&file);
        shared.uploads.put(by.uid, Kind::Archive, &key, &file.bytes)?;
        Ok(Json(body(by.uid, key)))
    })
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
    let kept = block_in_place(|| shared.uploads.keys(by.uid, Kind::Archive));
    if kept.contains(&wanted.hash) {
        return Ok(Json(body(by.uid, wanted.hash)));
    }
    Err(Refused::not_found("Resource not found"))
}

/// The archives that a run names by their ids.
pub fn named(
    shared: &Shared,
    by: &Principal,
    wanted: &[FileArchiveMapping],
) -> Result<Vec<workspace::FileArchive>, Refused> {
    let kept = shared.uploads.keys(by.uid, Kind::Archive);
    let one = |wanted: &FileArchiveMapping| {
        let missing = || {
            let text = format!(
                "`files`: archive {} for {} is not here: upload it",
                wanted.id, wanted.path
            );
            Refused::not_found(text)
        };
        let hash = kept.iter().find(|hash| body(by.uid, (*hash).clone()).id == wanted.id);
        let bytes = hash.and_then(|hash| shared.uploads.get(by.uid, Kind::Archive, hash));
        let archive = Blob(bytes.ok_or_else(missing)?);
        Ok(workspace::FileArchive { path: wanted.path.clone(), archive })
    };
    wanted.iter().map(one).collect()
}
