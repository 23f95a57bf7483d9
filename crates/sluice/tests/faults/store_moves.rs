//! A state that moves between files and a database, the check of either, and stores that cannot be used.

use crate::database::TestDatabase;
use crate::harness::{Cluster, TIMEOUT, TWO_NODES, within};
use crate::servers::{
    Server, agent, await_cancelled, copy_keys, jobs, server_command, server_command_at,
};
use std::collections::BTreeSet;

#[test]
fn up_store_that_cannot_be_used_is_refused_in_one_line() {
    let database = TestDatabase::start();
    let (first, other) = (Cluster::folder(TWO_NODES), Cluster::folder(TWO_NODES));
    let _server = Server::lead(&first, &database);
    let refusal = |store: &str| {
        let said = server_command(&other, store).output().expect("the program runs");
        assert_ne!(said.status.code(), Some(0));
        let text = String::from_utf8_lossy(&said.stderr).into_owned();
        let errors: Vec<&str> =
            text.lines().filter(|line| line.starts_with("sluice: error: ")).collect();
        assert_eq!(errors.len(), 1, "{text}");
        assert!(!text.contains("hunter2"), "{text}");
        errors[0].to_owned()
    };
    let said = refusal(&database.url());
    assert!(
        said.contains("the store of another cluster") && said.contains("server/keys"),
        "{said}"
    );
    let said = refusal("postgres://sluice:hunter2@127.0.0.1/sluice?sslmode=disable");
    assert!(said.contains("--store-password-file"), "{said}");
    let said = refusal("postgres://sluice@127.0.0.1/sluice");
    assert!(said.contains("sslrootcert=FILE"), "{said}");
    let said = refusal("postgres://sluice@/?host=/run/postgresql");
    assert!(said.contains("it names no database"), "{said}");
    let said = refusal("/var/lib/sluice");
    assert!(said.contains("expected postgres://USER@HOST/DATABASE"), "{said}");
}

#[test]
fn up_server_with_a_key_of_a_store_and_no_store_begins_no_cluster() {
    let cluster = Cluster::folder(TWO_NODES);
    let key = cluster.write("store.key", &"4f".repeat(32));
    for option in ["--store-key-file", "--store-password-file"] {
        let key = key.to_str().expect("a path");
        let state = cluster.state().display().to_string();
        let conf = cluster.path("conf").display().to_string();
        let said = cluster.sluice(&["server", "--state", &state, "--config", &conf, option, key]);
        assert_ne!(said.code, 0);
        assert!(said.stderr.contains(&format!("{option} {key}: no database is named")), "{said:?}");
        assert!(!cluster.state().join("server/journal").exists(), "nothing was begun");
    }
}

#[test]
fn up_address_on_the_command_line_leaves_the_password_file_of_sluice_toml() {
    let mut database = TestDatabase::start();
    database.execute("postgres", "CREATE ROLE guarded LOGIN PASSWORD 'of the database'");
    database.execute("postgres", "ALTER DATABASE sluice OWNER TO guarded");
    database.require_password("guarded");
    let cluster = Cluster::folder(TWO_NODES);
    cluster.write_conf("db-password", "of the database\n");
    let elsewhere = "[store]\nurl = 'postgres:///other'\npassword_file = 'db-password'\n";
    cluster.write_conf("sluice.toml", elsewhere);
    let server = Server::spawn(&mut server_command(&cluster, &database.url_as("guarded")));
    server.await_line("sluice is up");
}

#[test]
fn up_database_that_was_restored_from_a_dump_goes_on_in_a_new_epoch() {
    let database = TestDatabase::start();
    let cluster = Cluster::folder(TWO_NODES);
    let server = Server::lead(&cluster, &database);
    let addresses = [cluster.address_of("listen"), cluster.address_of("agents")];
    let addresses = [&*addresses[0], &*addresses[1]];
    let start = || {
        let server = Server::spawn(&mut server_command_at(&cluster, &database.url(), addresses));
        server.await_line("sluice is up");
        server
    };
    let _agent = agent("node1", &[&cluster]);
    let run = || {
        let job = cluster.submit(&["-w", "node1", "-o", "/dev/null", "--wrap", "true"]);
        assert_eq!(cluster.await_end(job), "COMPLETED|0:0");
        job
    };
    run();
    database.dump();
    let mut last = (run(), server);
    for _ in 0..2 {
        // A term more, which the agent sees.
        last.1.end("TERM");
        last = (last.0, start());
        last.0 = run();
    }
    let (later, mut server) = last;
    let url = database.url();
    let restored = || cluster.sluice(&["store", "restored", "--store", &url]);
    let led = restored();
    assert!(led.stderr.contains(" leads: stop every server first"), "{}", led.stderr);
    server.end("TERM");
    database.restore_dump();
    // By the dump a server leads, whose lease lapses.
    let said = within(TIMEOUT, "the lease of the dump has lapsed", || {
        Some(restored()).filter(|said| !said.stderr.contains(" leads: "))
    });
    assert!(said.ok().contains(", ids go on at "));
    let _server = start();
    assert!(run() > later, "an id was given out twice");
    let sound = cluster.sluice(&["store", "check", "--store", &url]).ok();
    assert!(sound.contains(" is sound: "), "{sound}");
}

#[test]
fn up_password_of_the_database_is_in_no_log_and_no_list_of_processes() {
    const PASSWORD: &str = "hunter2 of the database";
    let mut database = TestDatabase::start();
    let role = format!("CREATE ROLE guarded LOGIN PASSWORD '{PASSWORD}'");
    database.execute("postgres", &role);
    database.execute("postgres", "ALTER DATABASE sluice OWNER TO guarded");
    database.require_password("guarded");
    let cluster = Cluster::folder(TWO_NODES);
    let url = database.url_as("guarded");
    let without = server_command(&cluster, &url).output().expect("it ends");
    let said = String::from_utf8_lossy(&without.stderr).into_owned();
    assert!(said.contains("password authentication failed"), "{said}");
    let file = cluster.write("db-password", &format!("{PASSWORD}\n"));
    for is_by_file in [true, false] {
        let log = std::fs::File::create(cluster.path("server.log")).expect("a log");
        let mut command = server_command(&cluster, &url);
        if is_by_file {
            command.arg("--store-password-file").arg(&file);
        } else {
            command.env("SLUICE_STORE_PASSWORD", PASSWORD);
        }
        let mut server = Server::spawn_with_log(&mut command, log.into());
        server.await_line("sluice is up");
        cluster.submit(&["-H", "--wrap", "true"]);
        let shown = std::fs::read(format!("/proc/{}/cmdline", server.process.id()));
        let shown = String::from_utf8_lossy(&shown.expect("its command line")).into_owned();
        server.end("TERM");
        let log = std::fs::read_to_string(cluster.path("server.log")).expect("a log");
        for text in [shown, log] {
            assert!(!text.contains("hunter2"), "{text}");
        }
    }
}

/// Holds the lock of a state folder as a server does, until the file is dropped.
fn hold_server_lock(cluster: &Cluster) -> std::fs::File {
    let path = cluster.state().join("server.own.lock");
    let file = std::fs::File::options().append(true).open(path).expect("the lock's file");
    let whole = nix::libc::flock {
        l_type: nix::libc::F_WRLCK as nix::libc::c_short,
        l_whence: nix::libc::SEEK_SET as nix::libc::c_short,
        l_start: 0,
        l_len: 0,
        l_pid: 0,
    };
    nix::fcntl::fcntl(&file, nix::fcntl::FcntlArg::F_OFD_SETLK(&whole)).expect("a lock");
    file
}

#[test]
fn up_state_moves_to_a_database_and_back_with_its_books() {
    let database = TestDatabase::start();
    let cluster = Cluster::folder(TWO_NODES);
    let state = cluster.state().display().to_string();
    let start = |store: Option<&str>| {
        let mut command = cluster.command(&["server", "--state", &state, "--config"]);
        command.arg(cluster.path("conf"));
        command.args(["--listen", "127.0.0.1:0", "--agents", "127.0.0.1:0"]);
        if let Some(url) = store {
            command.args(["--store", url]);
        }
        let server = Server::spawn(&mut command);
        server.await_line("sluice is up");
        server
    };
    let mut server = start(None);
    let (kept, ended) =
        (cluster.submit(&["-H", "--wrap", "echo kept"]), cluster.submit(&["-H", "--wrap", "true"]));
    cluster.sluice(&["scancel", &ended.to_string()]).ok();
    let seen = || {
        assert_eq!(jobs(&cluster), BTreeSet::from([kept]));
        let script =
            cluster.sluice(&["scontrol", "write", "batch_script", &kept.to_string(), "-"]).ok();
        assert!(script.contains("echo kept"), "{script}");
        await_cancelled(&cluster, ended);
    };
    seen();
    let url = database.url();
    let migrate =
        |from: &str, to: &str| cluster.sluice(&["store", "migrate", "--from", from, "--to", to]);
    let runs = migrate(&state, &url);
    assert!(runs.stderr.contains("a server runs in "), "{}", runs.stderr);
    server.end("TERM");
    let held = hold_server_lock(&cluster);
    let locked = migrate(&state, &url);
    assert!(locked.stderr.contains("a server runs in "), "{}", locked.stderr);
    drop(held);
    let said = migrate(&state, &url).ok();
    assert!(said.contains(", and was compared: "), "{said}");
    let twice = migrate(&state, &url);
    assert!(twice.stderr.contains("there is no journal to be moved"), "{}", twice.stderr);

    let mut server = start(Some(&url));
    seen();
    // The first script that is stored behind those that were moved.
    let stored = cluster.submit(&["-H", "--wrap", "echo behind"]).to_string();
    let script = cluster.sluice(&["scontrol", "write", "batch_script", &stored, "-"]).ok();
    assert!(script.contains("echo behind"), "{script}");
    cluster.sluice(&["scancel", &stored]).ok();
    let led = migrate(&url, &state);
    assert_ne!(led.code, 0, "a server runs");
    // The books of another server of the cluster are made from the database.
    let second = Cluster::folder(TWO_NODES);
    let standby = Server::wait_beside(&cluster, &second, &database);
    let id = ended.to_string();
    let said = second.sluice(&["sacct", "-X", "-n", "-P", "-j", &id, "-o", "State"]).ok();
    assert!(said.starts_with("CANCELLED"), "{said}");
    drop(standby);
    server.end("TERM");
    // Books of another history, as far as the database's: in a folder that has nothing else, and beside one that has.
    let other = Cluster::up(TWO_NODES);
    for _ in 0..2 {
        let stranger = other.submit(&["-H", "-J", "stranger", "--wrap", "true"]);
        other.sluice(&["scancel", &stranger.to_string()]).ok();
        await_cancelled(&other, stranger);
    }
    other.sluice(&["down"]).ok();
    let books = other.state().join("server/books.sqlite");
    let third = Cluster::folder(TWO_NODES);
    copy_keys(&cluster, &third);
    std::fs::copy(&books, third.state().join("server/books.sqlite")).expect("copied");
    let mixed = migrate(&url, &third.state().display().to_string());
    assert!(mixed.stderr.contains("the books of another history are there"), "{}", mixed.stderr);
    std::fs::copy(&books, cluster.state().join("server/books.sqlite")).expect("copied");
    migrate(&url, &state).ok();
    let late = server_command(&second, &url).output().expect("it ends");
    let said = String::from_utf8_lossy(&late.stderr).into_owned();
    assert!(said.contains("the state was moved from it to files"), "{said}");
    let _server = start(None);
    seen();
    let booked = cluster.sluice(&["sacct", "-X", "-n", "-P", "-o", "JobName"]).ok();
    assert!(!booked.contains("stranger"), "{booked}");
    assert!(cluster.submit(&["-H", "--wrap", "true"]) > ended, "ids go on");
}

#[test]
fn up_store_check_reads_a_folder_and_a_database_and_names_the_damage() {
    let mut database = TestDatabase::start();
    let cluster = Cluster::folder(TWO_NODES);
    let check = |store: &str| cluster.sluice(&["store", "check", "--store", store]);
    let said = check(&database.url());
    assert!(said.stderr.contains("no server has kept its state there"), "{}", said.stderr);
    let mut server = Server::lead(&cluster, &database);
    cluster.submit(&["-H", "--wrap", "true"]);
    let ended = cluster.submit(&["-H", "--wrap", "true"]);
    cluster.sluice(&["scancel", &ended.to_string()]).ok();
    await_cancelled(&cluster, ended);
    server.end("TERM");
    let sound = check(&database.url()).ok();
    assert!(sound.contains(" is sound: 2 jobs as of event "), "{sound}");
    assert!(sound.contains("; books of 1 records\n"), "{sound}");
    assert!(sound.contains("nobody leads; "), "{sound}");
    let flip_text =
        "UPDATE sluice.extent SET bytes = set_byte(bytes, 70, 255 - get_byte(bytes, 70))
                     FROM sluice.file WHERE id = file AND path LIKE 'blobs/packs/%'";
    database.execute("sluice", flip_text);
    let damaged = check(&database.url());
    assert_eq!(damaged.code, 1);
    let expected = "packs/pack-00000001 is damaged at byte ";
    assert!(damaged.stderr.contains(expected), "{}", damaged.stderr);
    database.execute("sluice", flip_text);
    check(&database.url()).ok();
    let cut = "UPDATE sluice.ended SET entry = substr(entry, 2)";
    database.execute("sluice", cut);
    let damaged = check(&database.url());
    assert!(damaged.stderr.contains("the ended jobs of seq "), "{}", damaged.stderr);
    database.execute("sluice", "DELETE FROM sluice.ended");
    let without = check(&database.url()).ok();
    assert!(without.contains("; no books\n"), "{without}");
    let put_aside = "UPDATE sluice.file SET path = 'aside' || path WHERE path LIKE 'blobs/%'";
    database.execute("sluice", put_aside);
    let missing = check(&database.url());
    assert_eq!(missing.code, 1);
    assert!(missing.stderr.contains(" is missing"), "{}", missing.stderr);
    database.execute(
        "sluice",
        "UPDATE sluice.file SET path = substr(path, 6) WHERE path LIKE 'asideblobs/%'",
    );
    check(&database.url()).ok();
    let flip = "UPDATE sluice.journal SET frame = set_byte(frame, 80, 255 - get_byte(frame, 80))
                WHERE last_seq = (SELECT max(last_seq) FROM sluice.journal)";
    database.execute("sluice", flip);
    let damaged = check(&database.url());
    assert_eq!(damaged.code, 1);
    assert!(damaged.stderr.contains("sluice.journal: damaged at"), "{}", damaged.stderr);
    database.crash();
    let away = check(&database.url());
    assert!(away.stderr.contains("the database cannot be reached"), "{}", away.stderr);
    database.restart();

    let alone = Cluster::up(TWO_NODES);
    alone.submit(&["-H", "--wrap", "true"]);
    alone.sluice(&["down"]).ok();
    let state = alone.state().display().to_string();
    let sound = alone.sluice(&["store", "check", "--state", &state]).ok();
    assert!(sound.contains(" is sound: 1 jobs as of event "), "{sound}");
    assert!(sound.contains("; books of 0 records\n"), "{sound}");
    std::fs::remove_file(alone.state().join("server/books.sqlite")).expect("removed");
    let without = alone.sluice(&["store", "check", "--state", &state]).ok();
    assert!(without.contains("; no books\n"), "{without}");
}
