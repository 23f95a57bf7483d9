//! Archives and repositories: what is refused, and whose they are.

use super::tests::Api;
use crate::connection_limits::ConnectionLimits;
use crate::http::body_limits::BodyLimits;
use crate::http::calls;
use crate::http::peer::Peer;
use crate::http::router;
use crate::shared::uploads::Kind;
use crate::testing::user;
use axum::body::Body;
use axum::http::header::CONTENT_TYPE;
use axum::http::{Request, StatusCode};
use http_body_util::BodyExt;
use model::principal::{Principal, Role};
use serde_json::{Value, json};
use tower_service::Service;
use wire::client::{Answer, Call};

fn stranger() -> Principal {
    Principal { name: "sam".into(), uid: 2001, gid: 2001, ..user() }
}

fn admin() -> Principal {
    Principal { name: "root".into(), uid: 0, gid: 0, role: Role::Admin, ..user() }
}

/// An upload of one file as a form, and the status and body of its answer.
pub(super) async fn upload(
    api: &Api,
    path: &str,
    bytes: &[u8],
    by: Principal,
) -> (StatusCode, Value) {
    let head = "--b\r\nContent-Disposition: form-data; name=\"file\"; filename=\"x\"\r\n\r\n";
    let body = [head.as_bytes(), bytes, b"\r\n--b--\r\n"].concat();
    let request = Request::builder().method("POST").uri(path);
    let request = request.header(CONTENT_TYPE, "multipart/form-data; boundary=b");
    let mut request = request.body(Body::from(body)).expect("a request");
    request.extensions_mut().insert(Peer::Socket(by));
    let limits: ConnectionLimits = "".parse().expect("limits");
    let mut router =
        router(api.server.shared.clone(), BodyLimits::new(api.server.shared.clone(), &limits));
    let response = router.call(request).await.expect("a response");
    let status = response.status();
    let body = response.into_body().collect().await.expect("a body").to_bytes();
    (status, serde_json::from_slice(&body).unwrap_or(Value::Null))
}

#[tokio::test(flavor = "multi_thread")]
async fn archives_are_checked_when_they_are_uploaded_and_are_their_users_own() {
    let api = Api::empty().await;
    let path = "/api/files/upload_archive";
    let mut builder = tar::Builder::new(Vec::new());
    let mut header = tar::Header::new_gnu();
    header.set_size(2);
    header.set_mode(0o644);
    builder.append_data(&mut header, "a.txt", &b"hi"[..]).expect("an entry");
    let good = builder.into_inner().expect("an archive");
    let mut bad = good.clone();
    // A name that leads upwards, and the sum of the header with it.
    bad[..5].copy_from_slice(b"../ab");
    let mut header = tar::Header::from_byte_slice(&bad[..512]).clone();
    header.set_cksum();
    bad[..512].copy_from_slice(header.as_bytes());
    for (bytes, words) in [
        (&bad[..], "../ab: expected a path below one folder"),
        (b"no archive", "cannot be read"),
        (&vec![0; (4 << 20) + 512], "at most 4194304 bytes"),
    ] {
        let (status, said) = upload(&api, path, bytes, user()).await;
        assert_eq!(status, StatusCode::BAD_REQUEST, "{said}");
        assert!(said["detail"][0]["msg"].as_str().expect("a line").contains(words), "{said}");
    }
    let (status, kept) = upload(&api, path, &good, user()).await;
    assert_eq!(status, StatusCode::OK, "{kept}");
    let by_hash = json!({"hash": kept["hash"]});
    let (_, again) =
        api.send("/api/files/get_archive_by_hash", by_hash.clone(), Some(user())).await;
    assert_eq!(again, kept);
    let (status, _) = api.send("/api/files/get_archive_by_hash", by_hash, Some(stranger())).await;
    assert_eq!(status, StatusCode::BAD_REQUEST, "another's");
    let run = json!({"run_spec": {
        "file_archives": [{"id": kept["id"], "path": "a.txt"}],
        "configuration": {"type": "task", "commands": ["a"], "retry": true, "files": ["a.txt"]},
    }});
    let plan = "/api/project/main/runs/get_plan";
    let (status, said) = api.send(plan, run.clone(), Some(user())).await;
    assert_eq!(status, StatusCode::OK, "{said}");
    let (status, said) = api.send(plan, run, Some(stranger())).await;
    assert_eq!(status, StatusCode::BAD_REQUEST);
    assert!(said["detail"][0]["msg"].as_str().expect("a line").contains("is not here"), "{said}");
}

#[tokio::test(flavor = "multi_thread")]
async fn archive_that_is_named_often_is_refused_before_it_is_read() {
    let api = Api::empty().await;
    let mut builder = tar::Builder::new(Vec::new());
    let mut header = tar::Header::new_gnu();
    header.set_size(2 << 20);
    header.set_mode(0o644);
    builder.append_data(&mut header, "a", &vec![0; 2 << 20][..]).expect("an entry");
    let archive = builder.into_inner().expect("an archive");
    let (status, kept) = upload(&api, "/api/files/upload_archive", &archive, user()).await;
    assert_eq!(status, StatusCode::OK, "{kept}");
    let run = |times: usize| {
        let one = json!({"id": kept["id"], "path": "a"});
        json!({"run_spec": {
            "file_archives": vec![one; times],
            "configuration": {"type": "task", "commands": ["a"], "files": vec!["a"; times]},
        }})
    };
    let plan = "/api/project/main/runs/get_plan";
    let (status, said) = api.send(plan, run(2), Some(user())).await;
    assert_eq!(status, StatusCode::OK, "{said}");
    for (times, words) in [(4, "at most 8388608 bytes"), (1001, "at most 1000 items")] {
        let (status, said) = api.send(plan, run(times), Some(user())).await;
        assert_eq!(status, StatusCode::BAD_REQUEST, "{said}");
        assert!(said["detail"][0]["msg"].as_str().expect("a line").contains(words), "{said}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn repositories_are_kept_encrypted_and_are_their_users_own() {
    let api = Api::empty().await;
    let creds =
        json!({"clone_url": "https://h/r.git", "oauth_token": "hush-1", "private_key": null});
    let info = json!({"repo_type": "remote", "repo_name": "r"});
    let init = json!({"repo_id": "r-1", "repo_info": info, "repo_creds": creds});
    let (status, _) = api.send("/api/project/main/repos/init", init, Some(user())).await;
    assert_eq!(status, StatusCode::OK);
    let get = |with: bool| json!({"repo_id": "r-1", "include_creds": with});
    let (_, kept) = api.send("/api/project/main/repos/get", get(true), Some(user())).await;
    assert_eq!(kept["repo_creds"], creds);
    let (_, kept) = api.send("/api/project/main/repos/get", get(false), Some(user())).await;
    assert_eq!(kept["repo_creds"], Value::Null);
    let other = api.send("/api/project/main/repos/get", get(true), Some(stranger())).await;
    assert_eq!(other.0, StatusCode::BAD_REQUEST);
    let list = "/api/project/main/repos/list";
    let (_, listed) = api.send(list, json!({}), Some(user())).await;
    let head = json!({"repo_id": "r-1", "repo_info": info, "repo_creds": null});
    assert_eq!(listed, json!([head]));
    let (_, listed) = api.send(list, json!({}), Some(stranger())).await;
    assert_eq!(listed, json!([]), "repositories of others are not listed");
    let uploads = &api.server.shared.uploads;
    let kept = uploads.kept(user().uid, Kind::Repository);
    let stored = uploads.get(user().uid, Kind::Repository, &kept[0].0).expect("it is kept");
    assert!(!String::from_utf8_lossy(&stored).contains("hush-1"));
    // A rotation of the key takes what is kept along. It waits for no turn of a user: a submission has one while it waits for
    // the rotation.
    let own = uploads.own_turn(user().uid).await;
    let rotated = calls::answer(&api.server.shared, admin(), Call::RotateSecretKey).await;
    drop(own);
    assert!(matches!(rotated, Ok(Answer::Done)), "{rotated:?}");
    let rotated = uploads.get(user().uid, Kind::Repository, &kept[0].0).expect("it is kept");
    assert_ne!(rotated, stored);
    let (_, again) = api.send("/api/project/main/repos/get", get(true), Some(user())).await;
    assert_eq!(again["repo_creds"], creds);
}
