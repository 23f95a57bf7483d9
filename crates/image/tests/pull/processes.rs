//! Several processes that want one image: this test's own program, started again as a puller.

use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use image::{Phase, Pull, RegistryConfig, Store, StoreOptions};

use super::made::{Made, Node, layer, lower, noise, source};
use super::played::{Played, Reply, serve};

/// After so long a pull that does not run is killed by who waits for it.
const KEEP_ALIVE_TIMEOUT: Duration = Duration::from_secs(1);
/// What a puller is told: the store's folder, the registry, the name.
const TOLD: [&str; 3] = ["IMAGE_TEST_STORE", "IMAGE_TEST_REGISTRY", "IMAGE_TEST_NAME"];

/// Not a test of its own: does one pull when another test starts it.
#[test]
fn puller() {
    let told: Vec<_> = TOLD.iter().filter_map(|name| std::env::var(name).ok()).collect();
    let [dir, host, name] = &told[..] else { return };
    let options =
        StoreOptions { keep_alive_timeout: KEEP_ALIVE_TIMEOUT, ..StoreOptions::bounded(1 << 30) };
    let store = Store::open_with(dir.as_ref(), options).unwrap();
    let registries = RegistryConfig { insecure: [host.clone()].into(), ..Default::default() };
    let image = store.pull(&source(name), Pull::new(&registries)).unwrap();
    assert!(lower(&image).iter().all(|folder| folder.is_dir()));
}

fn start(node: &Node, host: &str, name: &str) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "processes::puller", "--nocapture"])
        .env(TOLD[0], node.store.dir())
        .env(TOLD[1], host)
        .env(TOLD[2], name)
        .stdout(Stdio::null())
        .spawn()
        .unwrap()
}

fn wait_for(what: &str, mut holds: impl FnMut() -> bool) {
    let start = Instant::now();
    while !holds() {
        assert!(start.elapsed() < Duration::from_secs(60), "{what} did not come");
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn ten_processes_that_pull_one_image_download_it_once() {
    let made = Made::new(&[layer(&[("a", &noise(300_000))]), layer(&[("b", b"2")])]);
    let registry = Played::serving(&made);
    let node = Node::new();
    let name = format!("{}/a:1", registry.host);
    let children: Vec<_> = (0..10).map(|_| start(&node, &registry.host, &name)).collect();
    for mut child in children {
        assert!(child.wait().unwrap().success());
    }
    for digest in made.blobs.keys() {
        assert_eq!(registry.requests(digest).len(), 1, "{digest}");
    }
    assert!(node.names("tmp").is_empty() && node.names("partial").is_empty());
}

#[test]
fn the_next_process_goes_on_where_a_killed_one_stopped() {
    let made = Made::new(&[layer(&[("a", &noise(600_000))])]);
    let (served, asked) = (made.clone(), AtomicUsize::new(0));
    let registry = Played::new(move |request| {
        let mut reply = serve(&served, request);
        if request.path.ends_with(served.layers[0].as_str())
            && asked.fetch_add(1, Ordering::Relaxed) == 0
        {
            (reply.cut, reply.hang) = (Some(250_000), true);
        }
        reply
    });
    let node = Node::new().knows(&registry.host);
    let name = format!("{}/a:1", registry.host);
    let mut child = start(&node, &registry.host, &name);
    let partials = node.store.dir().join("partial");
    wait_for("the first part", || {
        let mut files = std::fs::read_dir(&partials).unwrap().flatten();
        files.any(|file| file.metadata().is_ok_and(|m| m.len() == 250_000))
    });
    let progress = node.store.progress(&source(&name)).unwrap();
    assert_eq!((progress.phase, progress.layers_total), (Phase::Downloading, 1));
    child.kill().unwrap();
    child.wait().unwrap();
    assert_eq!(node.store.progress(&source(&name)), None);
    let image = node.pull(&name).unwrap();
    assert_eq!(std::fs::read(lower(&image)[0].join("a")).unwrap(), noise(600_000));
    let from: Vec<_> = registry.requests(made.layers[0].as_str()).iter().map(|r| r.from).collect();
    assert_eq!(from, [None, Some(250_000)]);
}

#[test]
fn who_waits_takes_over_from_a_process_that_is_killed() {
    let made = Made::new(&[layer(&[("a", &noise(300_000))])]);
    let (served, asked) = (made.clone(), AtomicUsize::new(0));
    let registry = Played::new(move |request| {
        if request.path.ends_with(served.layers[0].as_str())
            && asked.fetch_add(1, Ordering::Relaxed) == 0
        {
            return Reply { status: 0, ..Default::default() };
        }
        serve(&served, request)
    });
    let node = Node::new().knows(&registry.host);
    let name = format!("{}/a:1", registry.host);
    let mut first = start(&node, &registry.host, &name);
    wait_for("the download", || !registry.requests(made.layers[0].as_str()).is_empty());
    let mut second = start(&node, &registry.host, &name);
    first.kill().unwrap();
    first.wait().unwrap();
    assert!(second.wait().unwrap().success());
}

/// As a user can bring it about: a job that pulls gets SIGSTOP.
#[test]
fn a_process_that_is_stopped_does_not_keep_others_from_the_image() {
    let made = Made::new(&[layer(&[("a", &noise(300_000))])]);
    let (served, asked) = (made.clone(), AtomicUsize::new(0));
    let registry = Played::new(move |request| {
        let mut reply = serve(&served, request);
        if request.path.ends_with(served.layers[0].as_str())
            && asked.fetch_add(1, Ordering::Relaxed) == 0
        {
            (reply.cut, reply.hang) = (Some(1000), true);
        }
        reply
    });
    let node = Node::new().knows(&registry.host);
    let name = format!("{}/a:1", registry.host);
    let mut stopped = start(&node, &registry.host, &name);
    wait_for("the download", || !registry.requests(made.layers[0].as_str()).is_empty());
    let pid = nix::unistd::Pid::from_raw(stopped.id() as i32);
    nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGSTOP).unwrap();
    let mut second = start(&node, &registry.host, &name);
    assert!(second.wait().unwrap().success());
    let end = stopped.wait().unwrap();
    assert_eq!(std::os::unix::process::ExitStatusExt::signal(&end), Some(9));
}

/// As a user can bring it about: an image of his own has a layer that everybody wants, and a registry of his own gives it slowly.
#[test]
fn a_registry_that_is_slow_keeps_nobody_from_a_layer_that_another_has() {
    let made = Made::new(&[layer(&[("a", &noise(300_000))])]);
    let served = made.clone();
    let slow = Played::new(move |request| {
        let mut reply = serve(&served, request);
        if request.path.ends_with(served.layers[0].as_str()) {
            (reply.cut, reply.hang) = (Some(1000), true);
        }
        reply
    });
    let good = Played::serving(&made);
    let node = Node::new().knows(&good.host);
    let mut waits = start(&node, &slow.host, &format!("{}/a:1", slow.host));
    wait_for("the download", || !slow.requests(made.layers[0].as_str()).is_empty());
    let image = node.pull(&format!("{}/a:1", good.host)).unwrap();
    assert_eq!(std::fs::read(lower(&image)[0].join("a")).unwrap(), noise(300_000));
    assert_eq!(waits.try_wait().unwrap(), None, "the other still waits for its registry");
    waits.kill().unwrap();
    waits.wait().unwrap();
}

#[test]
fn what_a_killed_process_was_unpacking_is_removed_when_the_store_is_opened() {
    let node = Node::new();
    let half = node.store.dir().join("tmp").join("0".repeat(64)).join("fs/usr");
    std::fs::create_dir_all(&half).unwrap();
    Store::open(node.store.dir(), 1 << 30).unwrap();
    assert!(node.names("tmp").is_empty());
}

#[test]
fn a_store_that_was_cleaned_lately_in_this_boot_opens_without() {
    let node = Node::new();
    let half = node.store.dir().join("tmp").join("0".repeat(64));
    std::fs::create_dir_all(&half).unwrap();
    let hour = Duration::from_secs(3600);
    let options = StoreOptions { clean_pause: hour, ..StoreOptions::bounded(1 << 30) };
    let open = || Store::open_with(node.store.dir(), options).unwrap();
    open();
    assert!(half.exists(), "it was cleaned when it was made");
    let mark = node.store.dir().join("cleaned");
    let boot = std::fs::read_to_string(&mark).unwrap();
    for (text, age) in [("another", Duration::ZERO), (boot.as_str(), hour * 2)] {
        std::fs::create_dir_all(&half).unwrap();
        std::fs::write(&mark, text).unwrap();
        let file = std::fs::File::options().write(true).open(&mark).unwrap();
        file.set_modified(std::time::SystemTime::now() - age).unwrap();
        open();
        assert!(!half.exists(), "{text} {age:?}");
    }
    assert_eq!(std::fs::read_to_string(&mark).unwrap(), boot);
}

#[test]
fn a_layer_of_another_boot_counts_only_if_it_was_synced() {
    let made = Made::small();
    let registry = Played::serving(&made);
    let node = Node::new().knows(&registry.host);
    let name = format!("{}/a@{}", registry.host, made.digest());
    let rewrite = |from: &str, to: &str| {
        for layer in node.names("layers/sha256") {
            let path = node.store.dir().join("layers/sha256").join(layer).join("layer.json");
            let text = std::fs::read_to_string(&path).unwrap();
            std::fs::write(path, text.replace(from, to)).unwrap();
        }
    };
    let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap();
    drop(node.pull(&name).unwrap());
    node.store.sync().unwrap();
    rewrite(boot.trim(), "another");
    Store::open(node.store.dir(), 1 << 30).unwrap();
    assert_eq!(node.names("layers/sha256").len(), 2);
    rewrite("\"synced\":true", "\"synced\":false");
    Store::open(node.store.dir(), 1 << 30).unwrap();
    assert!(node.names("layers/sha256").is_empty());
    node.pull(&name).unwrap();
    assert_eq!(node.names("layers/sha256").len(), 2);
}

#[test]
fn what_stands_for_nothing_any_more_is_removed_after_a_day_and_a_held_lock_is_not() {
    let made = Made::small();
    let registry = Played::serving(&made);
    let node = Node::new().knows(&registry.host);
    let image = node.pull(&format!("{}/a:1", registry.host)).unwrap();
    let yesterday = std::time::SystemTime::now() - Duration::from_secs(90_000);
    let old = |name: &str| {
        let file = std::fs::File::create(node.store.dir().join(name)).unwrap();
        file.set_modified(yesterday).unwrap();
        file
    };
    for name in ["locks/pull-x", "locks/layer-x", "partial/x", "tags/x.new.1"] {
        old(name);
    }
    let held = old("locks/pull-held");
    let held = nix::fcntl::Flock::lock(held, nix::fcntl::FlockArg::LockShared).unwrap();
    for name in node.names("locks") {
        let lock = std::fs::File::open(node.store.dir().join("locks").join(name)).unwrap();
        lock.set_modified(yesterday).unwrap();
    }
    Store::open(node.store.dir(), 1 << 30).unwrap();
    let locks = node.names("locks");
    assert!(
        locks.contains(&"pull-held".to_owned()) && !locks.contains(&"pull-x".to_owned()),
        "{locks:?}"
    );
    assert_eq!(locks.len(), 4, "{locks:?}");
    assert!(node.names("partial").is_empty() && node.names("tags").len() == 1);
    drop((image, held));
}
