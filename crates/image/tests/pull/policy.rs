//! What a pull brings, when a registry is asked, and whose image it is.

use std::os::unix::fs::{FileTypeExt, MetadataExt};

use image::{Credentials, ErrorKind, FileUser, Limits, Pull, PullPolicy, Store, StoreOptions};

use super::made::{Made, Node, layer, lower, source};
use super::played::{Played, Reply, Request, serve};

#[test]
fn a_pulled_image_has_its_layers_top_first_and_its_settings() {
    let made = Made::small();
    let registry = Played::serving(&made);
    let node = Node::new().knows(&registry.host);
    let image = node.pull(&format!("{}/a/b:1", registry.host)).unwrap();
    let [top, bottom] = lower(&image) else { panic!("{image:?}") };
    assert_eq!(std::fs::read(top.join("hello")).unwrap(), b"world");
    let whiteout = std::fs::symlink_metadata(top.join("gone")).unwrap();
    assert!(whiteout.file_type().is_char_device() && whiteout.rdev() == 0);
    assert_eq!(std::fs::read(bottom.join("gone")).unwrap(), b"x");
    assert_eq!(std::fs::metadata(top.join("hello")).unwrap().mtime(), 1_700_000_000);
    assert_eq!(image.config.cmd, ["/bin/sh"]);
    assert_eq!(image.digest, Some(made.digest()));
    assert_eq!(image.config.user, "me");
    // Nothing of the download stays.
    assert!(
        node.names("partial").is_empty()
            && node.names("tmp").is_empty()
            && node.names("progress").is_empty()
    );
}

#[test]
fn a_tag_is_asked_for_again_unless_the_policy_says_otherwise_and_a_digest_never() {
    let made = Made::small();
    let registry = Played::serving(&made);
    let node = Node::new().knows(&registry.host);
    let tag = format!("{}/a:1", registry.host);
    let by_digest = format!("{}/a@{}", registry.host, made.digest());
    node.pull(&tag).unwrap();
    let asked = |part: &str| registry.requests(part).len();
    let (manifests, blobs) = (asked("/manifests/"), asked("/blobs/"));
    node.pull(&tag).unwrap();
    assert_eq!((asked("/manifests/"), asked("/blobs/")), (manifests + 1, blobs));
    let present = Pull { policy: PullPolicy::IfNotPresent, ..Pull::new(&node.registries) };
    node.store.pull(&source(&tag), present).unwrap();
    assert_eq!(asked("/manifests/"), manifests + 1);
    node.pull(&by_digest).unwrap();
    let before = asked("/");
    node.pull(&by_digest).unwrap();
    assert_eq!(asked("/"), before);
}

#[test]
fn an_image_that_needed_credentials_is_not_given_to_who_has_none() {
    let made = Made::small();
    let served = made.clone();
    let registry = Played::new(move |request| match &request.authorisation {
        Some(auth) if auth == "Basic bWU6c2VjcmV0" => serve(&served, request),
        _ => Reply::status(401).header("WWW-Authenticate", "Basic realm=\"x\""),
    });
    let node = Node::new().knows(&registry.host);
    for name in [format!("{}/a:1", registry.host), format!("{}/a@{}", registry.host, made.digest())]
    {
        let signed = |password: &str| Pull {
            credentials: Some(Credentials { username: "me".into(), password: password.into() }),
            policy: PullPolicy::IfNotPresent,
            ..Pull::new(&node.registries)
        };
        node.store.pull(&source(&name), signed("secret")).unwrap();
        let unsigned = Pull { policy: PullPolicy::IfNotPresent, ..Pull::new(&node.registries) };
        let error = node.store.pull(&source(&name), unsigned).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unauthorised, "{error}");
        let error = node.store.pull(&source(&name), signed("wrong")).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unauthorised, "{error}");
        assert!(!error.to_string().contains("wrong") && !format!("{error:?}").contains("wrong"));
        node.store.pull(&source(&name), signed("secret")).unwrap();
    }
}

/// The digest of a layer is in every manifest that has it, and is no secret.
#[test]
fn a_private_layer_is_not_given_to_who_only_names_it() {
    let secret = layer(&[("secret", b"of a lab")]);
    let made = Made::new(std::slice::from_ref(&secret));
    let served = made.clone();
    let private = Played::new(move |request| match &request.authorisation {
        Some(auth) if auth == "Basic bWU6c2VjcmV0" => serve(&served, request),
        _ => Reply::status(401).header("WWW-Authenticate", "Basic realm=\"x\""),
    });
    let names_it = Played::serving(&Made::claiming(&secret, &layer(&[("other", b"1")])));
    let has_manifest = Played::new({
        let (made, blob) = (made.clone(), made.layers[0].to_string());
        // It has the manifest of the private image and its configuration, but no layer.
        move |request: &Request| {
            if request.path.contains(&blob) { Reply::status(404) } else { serve(&made, request) }
        }
    });
    let has_it = Played::serving(&made);
    let hosts = [&private, &names_it, &has_manifest, &has_it].map(|one| one.host.clone());
    let node = hosts.iter().fold(Node::new(), |node, host| node.knows(host));
    let pull = |host: &str, user: u32, is_signed: bool| {
        let signed = || Credentials { username: "me".into(), password: "secret".into() };
        let pull = Pull {
            credentials: is_signed.then(signed),
            file_user: Some(FileUser { uid: user, gid: user, groups: Vec::new() }),
            ..Pull::new(&node.registries)
        };
        node.store.pull(&source(&format!("{host}/a:1")), pull)
    };
    pull(&private.host, 1000, true).unwrap();
    for user in [1000, 1001] {
        let error = pull(&names_it.host, user, false).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::DigestMismatch, "{user}: {error}");
    }
    let error = pull(&has_manifest.host, 1001, false).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFound, "{error}");
    // Who is given the image by its own repository downloads nothing again.
    let blobs = private.requests("/blobs/").len();
    pull(&private.host, 1002, true).unwrap();
    assert_eq!(private.requests("/blobs/").len(), blobs);
    // A registry that has it gives it to everybody.
    let image = pull(&has_it.host, 1001, false).unwrap();
    assert_eq!(std::fs::read(lower(&image)[0].join("secret")).unwrap(), b"of a lab");
    assert_eq!(node.names("layers/sha256").len(), 1, "it is shared");
    assert!(node.names("partial").is_empty() && node.names("tmp").is_empty());
}

#[test]
fn what_was_used_longest_ago_goes_first_and_never_what_is_in_use() {
    let images: Vec<_> = (0..4)
        .map(|i| Made::new(&[layer(&[(&format!("f{i}"), &super::made::noise(400_000 + i))])]))
        .collect();
    let served = images.clone();
    let registry = Played::new(move |request| {
        let at: usize = request.path.as_bytes()[4].wrapping_sub(b'a').into();
        serve(&served[at.min(3)], request)
    });
    // Each image takes about 0.4 MB unpacked and as much again while it is downloaded.
    let node = Node::bounded(1_700_000).knows(&registry.host);
    let name = |i: u8| format!("{}/{}x:1", registry.host, char::from(b'a' + i));
    let first = node.pull(&name(0)).unwrap();
    drop(node.pull(&name(1)).unwrap());
    drop(node.pull(&name(2)).unwrap());
    let left: Vec<_> = node.store.images().into_iter().map(|i| i.digest).collect();
    assert!(left.contains(&images[0].digest()) && left.contains(&images[2].digest()), "{left:?}");
    assert!(!left.contains(&images[1].digest()), "{left:?}");
    assert_eq!(node.names("layers/sha256").len(), left.len());
    // Everything in use: one clear error, and what is used stays.
    let second = node.pull(&name(2)).unwrap();
    let third = node.pull(&name(1));
    let error = third.and_then(|_third| node.pull(&name(3)).map(|_| ())).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::StoreFull, "{error}");
    for image in [&first, &second] {
        assert!(lower(image)[0].exists());
    }
    assert!(node.names("tmp").is_empty());
    drop((first, second));
    node.pull(&name(3)).unwrap();
}

#[test]
fn a_download_that_nobody_took_up_goes_when_room_is_needed() {
    let made = Made::new(&[layer(&[("f", &super::made::noise(400_000))])]);
    let registry = Played::serving(&made);
    let node = Node::bounded(1_500_000).knows(&registry.host);
    let partial = node.store.dir().join("partial").join("0".repeat(64));
    std::fs::write(&partial, vec![0; 1_200_000]).unwrap();
    node.pull(&format!("{}/a:1", registry.host)).unwrap();
    assert!(!partial.exists());
}

#[test]
fn nothing_is_downloaded_that_the_file_system_cannot_take() {
    let made = Made::new(&[layer(&[("f", b"1")])]);
    let registry = Played::serving(&made);
    let mut node = Node::new().knows(&registry.host);
    let limits = Limits { free_bytes_min: u64::MAX, ..Limits::default() };
    let options = StoreOptions { limits, ..StoreOptions::bounded(1 << 30) };
    node.store = Store::open_with(node.store.dir(), options).unwrap();
    let error = node.pull(&format!("{}/a:1", registry.host)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::StoreFull, "{error}");
    assert!(registry.requests(made.layers[0].as_str()).is_empty());
}

#[test]
fn root_overlayfs_shows_the_layers_as_one_image() {
    if !nix::unistd::geteuid().is_root() {
        println!("skipped: mounting needs root");
        return;
    }
    let made = Made::new(&[
        layer(&[("gone", b"x"), ("kept", b"old"), ("d/below", b"x"), ("again/below", b"x")]),
        layer(&[
            (".wh.gone", b""),
            ("kept", b"new"),
            ("d/.wh..wh..opq", b""),
            ("d/above", b"x"),
            (".wh.again", b""),
            ("again/above", b"x"),
        ]),
    ]);
    let registry = Played::serving(&made);
    let node = Node::new().knows(&registry.host);
    let image = node.pull(&format!("{}/a:1", registry.host)).unwrap();
    let [top, bottom] = lower(&image) else { panic!("{image:?}") };
    let script = format!(
        "mount -t overlay overlay -o ro,lowerdir={}:{} /mnt && cd /mnt && cat kept && find . -type f | sort",
        top.display(),
        bottom.display()
    );
    let shown =
        std::process::Command::new("unshare").args(["-m", "sh", "-c", &script]).output().unwrap();
    let error = String::from_utf8_lossy(&shown.stderr);
    assert!(shown.status.success(), "{error}");
    assert_eq!(String::from_utf8(shown.stdout).unwrap(), "new./again/above\n./d/above\n./kept\n");
}
