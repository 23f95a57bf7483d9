//! Registries that fail, lie, hang or attack: each is one line, and nothing wrong is used.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use image::{Credentials, Digest, ErrorKind, Pull};

use super::made::{Made, Node, layer, lower, noise, source};
use super::played::{Played, Reply, serve};

/// A registry that answers blobs of layers by `fault`, given how often it was asked for one.
fn failing(made: &Made, fault: impl Fn(usize, Reply) -> Reply + Send + Sync + 'static) -> Played {
    let (made, asked) = (made.clone(), AtomicUsize::new(0));
    let layers: Vec<String> = made.layers.iter().map(Digest::to_string).collect();
    Played::new(move |request| {
        let reply = serve(&made, request);
        if layers.iter().any(|layer| request.path.ends_with(layer.as_str())) {
            return fault(asked.fetch_add(1, Ordering::Relaxed), reply);
        }
        reply
    })
}

fn one_layer() -> Made {
    Made::new(&[layer(&[("data", &noise(600_000))])])
}

fn refused(registry: &Played) -> image::Error {
    let node = Node::new().knows(&registry.host);
    let error = node.pull(&format!("{}/a:1", registry.host)).unwrap_err();
    assert!(!error.to_string().contains('\n'), "{error}");
    assert!(
        node.names("layers/sha256").is_empty()
            && node.names("images").is_empty()
            && node.names("tmp").is_empty()
    );
    error
}

#[test]
fn a_download_that_breaks_off_goes_on_where_it_stopped() {
    let made = one_layer();
    let registry = failing(&made, |turn, mut reply| {
        reply.cut = (turn < 3).then_some(100_000);
        reply
    });
    let node = Node::new().knows(&registry.host);
    let image = node.pull(&format!("{}/a:1", registry.host)).unwrap();
    assert_eq!(std::fs::read(lower(&image)[0].join("data")).unwrap(), noise(600_000));
    let from: Vec<_> = registry.requests(made.layers[0].as_str()).iter().map(|r| r.from).collect();
    assert_eq!(from, [None, Some(100_000), Some(200_000), Some(300_000)]);
}

#[test]
fn a_registry_without_ranges_is_asked_for_the_whole_again() {
    let made = one_layer();
    let served = made.clone();
    let asked = AtomicUsize::new(0);
    let registry = Played::new(move |request| {
        let mut reply = serve(&served, &super::played::Request { from: None, ..request.clone() });
        if request.path.ends_with(served.layers[0].as_str())
            && asked.fetch_add(1, Ordering::Relaxed) == 0
        {
            reply.cut = Some(200_000);
        }
        reply
    });
    let node = Node::new().knows(&registry.host);
    let image = node.pull(&format!("{}/a:1", registry.host)).unwrap();
    assert_eq!(std::fs::read(lower(&image)[0].join("data")).unwrap(), noise(600_000));
}

#[test]
fn wrong_bytes_are_a_wrong_digest_and_are_not_used() {
    let made = one_layer();
    let flipped = |_: usize, mut reply: Reply| {
        reply.body[5000] ^= 1;
        reply
    };
    assert_eq!(refused(&failing(&made, flipped)).kind(), ErrorKind::DigestMismatch);
    let longer = |_: usize, mut reply: Reply| {
        reply.body.push(0);
        reply
    };
    assert_eq!(refused(&failing(&made, longer)).kind(), ErrorKind::BadAnswer);
    // A manifest by digest is checked, and so is the configuration.
    let (served, other) = (made.clone(), Made::small());
    let lying = Played::new(move |request| {
        serve(if request.path.contains("manifests") { &other } else { &served }, request)
    });
    let node = Node::new().knows(&lying.host);
    let error = node.pull(&format!("{}/a@{}", lying.host, made.digest())).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::DigestMismatch, "{error}");
    let served = made.clone();
    let config = Played::new(move |request| {
        let mut reply = serve(&served, request);
        let of_layer = served.layers.iter().any(|l| request.path.ends_with(l.as_str()));
        if request.path.contains("/blobs/") && !of_layer {
            reply.body[3] ^= 1;
        }
        reply
    });
    assert_eq!(refused(&config).kind(), ErrorKind::DigestMismatch);
}

#[test]
fn a_layer_with_another_diff_id_than_its_configuration_says_is_not_used() {
    let (a, b) = (layer(&[("a", b"1")]), layer(&[("b", b"2")]));
    let error = refused(&Played::serving(&Made::claiming(&a, &b)));
    assert_eq!(error.kind(), ErrorKind::DigestMismatch, "{error}");
}

#[test]
fn a_registry_that_hangs_is_an_error_and_not_a_hang() {
    let error = refused(&Played::new(|_| Reply { status: 0, ..Default::default() }));
    assert_eq!(error.kind(), ErrorKind::Hangs, "{error}");
    let stops = failing(&one_layer(), |_, mut reply| {
        (reply.cut, reply.hang) = (Some(10_000), true);
        reply
    });
    assert_eq!(refused(&stops).kind(), ErrorKind::Hangs);
    let plain = Played::serving(&one_layer());
    let error = Node::new().pull(&format!("{}/a", plain.host)).unwrap_err();
    assert!(error.to_string().contains("must be listed as insecure"), "{error}");
    let node = Node::new().knows("127.0.0.1:9");
    assert_eq!(node.pull("127.0.0.1:9/a").unwrap_err().kind(), ErrorKind::Unreachable);
}

#[test]
fn refusals_are_told_apart() {
    for (status, kind) in [
        (404, ErrorKind::NotFound),
        (403, ErrorKind::Unauthorised),
        (401, ErrorKind::Unauthorised),
        (500, ErrorKind::BadAnswer),
        (429, ErrorKind::BadAnswer),
    ] {
        let error = refused(&Played::new(move |_| Reply::status(status)));
        assert_eq!(error.kind(), kind, "{status}: {error}");
    }
    let huge = refused(&Played::new(|_| Reply::ok(&vec![b' '; 5 << 20])));
    assert_eq!(huge.kind(), ErrorKind::BadAnswer, "{huge}");
    let made = Made::small();
    let text = String::from_utf8(made.manifest)
        .unwrap()
        .replace("application/vnd.oci.image.config.v1+json", "application/helm");
    let error = refused(&Played::new(move |_| Reply::ok(text.as_bytes())));
    assert_eq!(error.kind(), ErrorKind::NotAnImage, "{error}");
}

#[test]
fn credentials_get_a_token_and_go_to_no_other_host() {
    let made = Made::small();
    let storage = Played::serving(&made);
    let (served, elsewhere) = (made.clone(), storage.host.clone());
    let own: Arc<std::sync::OnceLock<String>> = Arc::default();
    let host = own.clone();
    let registry = Played::new(move |request| {
        if request.path.starts_with("/token") {
            let right = request.authorisation.as_deref() == Some("Basic bWU6c2VjcmV0");
            assert!(request.path.contains("scope=repository%3Aa/b%3Apull"), "{}", request.path);
            return if right { Reply::ok(br#"{"token":"t0ken"}"#) } else { Reply::status(401) };
        }
        if request.authorisation.as_deref() != Some("Bearer t0ken") {
            let challenge =
                format!("Bearer realm=\"http://{}/token\",service=\"s\"", host.get().unwrap());
            return Reply::status(401).header("WWW-Authenticate", &challenge);
        }
        if request.path.contains("/blobs/") {
            return Reply::status(307)
                .header("Location", &format!("http://{elsewhere}{}", request.path));
        }
        serve(&served, request)
    });
    own.set(registry.host.clone()).unwrap();
    let node = Node::new().knows(&registry.host).knows(&storage.host);
    let name = format!("{}/a/b:1", registry.host);
    let signed = |password: &str| Pull {
        credentials: Some(Credentials { username: "me".into(), password: password.into() }),
        ..Pull::new(&node.registries)
    };
    let error = node.store.pull(&source(&name), signed("wrong")).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unauthorised, "{error}");
    node.store.pull(&source(&name), signed("secret")).unwrap();
    let redirected = storage.requests("/blobs/");
    assert!(
        redirected.len() >= 3 && redirected.iter().all(|r| r.authorisation.is_none()),
        "{redirected:?}"
    );
    // A host that is not known as insecure is not gone to without TLS.
    let strict = Node::new().knows(&registry.host);
    let pull = Pull { credentials: signed("secret").credentials, ..Pull::new(&strict.registries) };
    let error = strict.store.pull(&source(&name), pull).unwrap_err();
    assert!(error.to_string().contains("without TLS"), "{error}");
}

#[test]
fn a_mirror_is_asked_first_without_credentials_and_passed_over_when_it_fails() {
    let made = Made::small();
    let registry = Played::serving(&made);
    let good = Played::serving(&made);
    let bad = failing(&made, |_, mut reply| {
        reply.body[10] ^= 1;
        reply
    });
    let name = format!("{}/a:1", registry.host);
    for (mirror, from_registry) in [(&good, false), (&bad, true)] {
        let mut node = Node::new().knows(&registry.host).knows(&mirror.host);
        node.registries.mirrors.insert(registry.host.clone(), vec![mirror.host.clone()]);
        let credentials = Some(Credentials { username: "me".into(), password: "secret".into() });
        node.store
            .pull(&source(&name), Pull { credentials, ..Pull::new(&node.registries) })
            .unwrap();
        assert!(mirror.requests("/").iter().all(|r| r.authorisation.is_none()));
        assert!(!mirror.requests("/manifests/").is_empty());
        assert_eq!(!registry.requests("/blobs/").is_empty(), from_registry);
    }
}

#[test]
fn over_tls_a_registry_is_trusted_by_the_file_of_its_authority_alone() {
    let made = Made::small();
    let certified = rcgen::generate_simple_self_signed(vec!["localhost".into()]).unwrap();
    let key = rustls::pki_types::PrivateKeyDer::Pkcs8(certified.signing_key.serialize_der().into());
    let tls = rustls::ServerConfig::builder_with_provider(Arc::new(
        rustls::crypto::ring::default_provider(),
    ))
    .with_safe_default_protocol_versions()
    .unwrap()
    .with_no_client_auth()
    .with_single_cert(vec![certified.cert.der().clone()], key)
    .unwrap();
    let registry = Played::over(Some(Arc::new(tls)), move |request| serve(&made, request));
    let host = registry.host.replace("127.0.0.1", "localhost");
    let mut node = Node::new();
    let error = node.pull(&format!("{host}/a:1")).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unreachable, "{error}");
    assert!(error.to_string().contains("TLS"), "{error}");
    let file = node.folder.path().join("authority.pem");
    std::fs::write(&file, certified.cert.pem()).unwrap();
    node.registries.ca_file = Some(file.clone());
    node.pull(&format!("{host}/a:1")).unwrap();
    std::fs::write(&file, "nothing").unwrap();
    assert!(node.pull(&format!("{host}/a:1")).unwrap_err().to_string().contains("no certificate"));
}
