//! A PostgreSQL of the test's own: a cluster in a scratch folder, on a socket there, run by an ordinary user; where a test asks for it,
//! at an address of a network namespace, with TLS, or with other settings.

use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use nix::sched::{CloneFlags, setns};
use nix::unistd::{Gid, Uid};

/// Whom the database runs as where the test is root: PostgreSQL refuses root.
const ORDINARY_USER: u32 = 65534;
const START_TIMEOUT: Duration = Duration::from_secs(60);

pub struct TestDatabase {
    folder: tempfile::TempDir,
    server: Child,
    service: Service,
}

/// How the database is served beside its socket.
#[derive(Default)]
struct Service {
    /// `NAME=VALUE` each.
    settings: Vec<String>,
    /// The network namespace that it runs in.
    namespace: Option<PathBuf>,
    /// Variables of its process.
    environment: Vec<(String, String)>,
}

impl TestDatabase {
    /// A database `sluice` of the user `sluice`, in UTF-8.
    pub fn start() -> Self {
        let folder = scratch_folder();
        let data = folder.path().join("data");
        let made = program("initdb", folder.path())
            .args(["--username=sluice", "--auth=trust", "--no-sync", "--encoding=UTF8"])
            .args(["--locale=C", "--pgdata"])
            .arg(&data)
            .stdout(Stdio::null())
            .status()
            .expect("initdb");
        assert!(made.success(), "initdb: {made}");
        let service = Service::default();
        let server = serve(folder.path(), &service);
        let database = Self { folder, server, service };
        database.await_answer();
        database.execute("postgres", "CREATE DATABASE sluice");
        database
    }

    /// A second PostgreSQL that follows this one, which acknowledges nothing from now on that the second does not have.
    #[allow(dead_code, reason = "the tests of the program use it")]
    pub fn replica(&self) -> Self {
        let folder = scratch_folder();
        let made = program("pg_basebackup", folder.path())
            .args(["--write-recovery-conf", "--checkpoint=fast", "--no-sync", "-U", "sluice", "-h"])
            .arg(self.folder.path())
            .arg("--pgdata")
            .arg(folder.path().join("data"))
            .status()
            .expect("pg_basebackup");
        assert!(made.success(), "pg_basebackup: {made}");
        let service = Service::default();
        let server = serve(folder.path(), &service);
        let replica = Self { folder, server, service };
        replica.await_answer();
        self.execute("postgres", "ALTER SYSTEM SET synchronous_standby_names = '*'");
        self.execute("postgres", "SELECT pg_reload_conf()");
        replica
    }

    /// Makes a replica the database itself.
    #[allow(dead_code, reason = "the tests of the program use it")]
    pub fn promote(&self) {
        let mut promote = program("pg_ctl", self.folder.path());
        promote.args(["promote", "--silent", "--pgdata"]).arg(self.folder.path().join("data"));
        assert!(promote.status().expect("pg_ctl").success());
    }

    /// The address of this database, or of its replica once that is the one to be written to.
    #[allow(dead_code, reason = "the tests of the program use it")]
    pub fn url_with(&self, replica: &Self) -> String {
        let host = |of: &Self| of.folder.path().display().to_string().replace('/', "%2F");
        let (one, other) = (host(self), host(replica));
        format!("postgres://sluice@{one},{other}/sluice?target_session_attrs=read-write")
    }

    /// The address that `sluice server --store` takes.
    pub fn url(&self) -> String {
        self.url_of("sluice")
    }

    pub fn url_of(&self, database: &str) -> String {
        format!("postgres:///{database}?host={}&user=sluice", self.folder.path().display())
    }

    /// Runs one statement in a database.
    pub fn execute(&self, database: &str, sql: &str) {
        let done = self.psql(database, sql).status().expect("psql");
        assert!(done.success(), "{sql}: {done}");
    }

    /// Dumps the store into a file of the folder.
    #[allow(dead_code, reason = "the tests of the program use it")]
    pub fn dump(&self) {
        let mut dump = program("pg_dump", self.folder.path());
        dump.args(["-U", "sluice", "-d", "sluice", "-f", "sluice.sql", "-h"]);
        assert!(dump.arg(self.folder.path()).status().expect("pg_dump").success());
    }

    /// Puts the dump in the store's place.
    #[allow(dead_code, reason = "the tests of the program use it")]
    pub fn restore_dump(&self) {
        self.execute("sluice", "DROP SCHEMA sluice CASCADE");
        self.execute("sluice", "\\i sluice.sql");
    }

    /// Ends the database as a crash does.
    pub fn crash(&mut self) {
        self.stop();
    }

    /// Starts the database again after a crash.
    pub fn restart(&mut self) {
        self.server = serve(self.folder.path(), &self.service);
        self.await_answer();
    }

    /// Starts the database again with these settings, in a network namespace where one is named.
    #[allow(dead_code, reason = "the tests of the program use it")]
    pub fn serve_with(&mut self, settings: &[&str], namespace: Option<&Path>) {
        self.service.settings = settings.iter().map(|setting| (*setting).to_owned()).collect();
        self.service.namespace = namespace.map(Path::to_owned);
        let rules = self.folder.path().join("data/pg_hba.conf");
        let mut rules = std::fs::OpenOptions::new().append(true).open(rules).expect("its rules");
        writeln!(rules, "host all all 0.0.0.0/0 trust").expect("written");
        self.stop();
        self.restart();
    }

    /// Starts the database again with these variables in its environment.
    #[allow(dead_code, reason = "the tests of the program use it")]
    pub fn serve_in(&mut self, environment: &[(&str, &str)]) {
        let owned = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
        self.service.environment = environment.iter().map(owned).collect();
        self.stop();
        self.restart();
    }

    /// Starts the database again, which asks this user for the password from then on.
    #[allow(dead_code, reason = "the tests of the program use it")]
    pub fn require_password(&mut self, user: &str) {
        let rules = self.folder.path().join("data/pg_hba.conf");
        let text = std::fs::read_to_string(&rules).expect("its rules");
        std::fs::write(&rules, format!("local all {user} scram-sha-256\n{text}")).expect("written");
        self.stop();
        self.restart();
    }

    /// The folder that its user owns and everybody reads; its data has another in it.
    #[allow(dead_code, reason = "the tests of the program use it")]
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Writes a file that the database's user owns and nobody else reads; its path.
    #[allow(dead_code, reason = "the tests of the program use it")]
    pub fn private_file(&self, name: &str, text: &str) -> String {
        let path = self.folder.path().join(name);
        std::fs::write(&path, text).expect("written");
        let private = std::fs::Permissions::from_mode(0o600);
        std::fs::set_permissions(&path, private).expect("closed");
        give_away(&path);
        path.display().to_string()
    }

    /// The address of the same database for another user of it.
    #[allow(dead_code, reason = "the tests of the program use it")]
    pub fn url_as(&self, user: &str) -> String {
        self.url().replace("user=sluice", &format!("user={user}"))
    }

    /// Takes so many sessions of a user, which are held until they are dropped. One that is refused is asked for again: a session that
    /// was told to end has its place for a moment longer.
    #[allow(dead_code, reason = "the tests of the program use it")]
    pub fn take_sessions(&self, user: &str, count: usize) -> Vec<postgres::Client> {
        let (began, url) = (Instant::now(), self.url_as(user));
        let mut taken = Vec::new();
        while taken.len() < count {
            match postgres::Client::connect(&url, postgres::NoTls) {
                Ok(session) => taken.push(session),
                Err(error) => {
                    assert!(began.elapsed() < START_TIMEOUT, "{} of {count}: {error}", taken.len());
                    std::thread::sleep(Duration::from_millis(10));
                }
            }
        }
        taken
    }

    fn psql(&self, database: &str, sql: &str) -> Command {
        let mut command = program("psql", self.folder.path());
        command.args(["-X", "-q", "-A", "-t", "-v", "ON_ERROR_STOP=1", "-U", "sluice", "-h"]);
        command.arg(self.folder.path()).args(["-d", database, "-c", sql]);
        command.stdin(Stdio::null()).stdout(Stdio::null());
        command
    }

    fn await_answer(&self) {
        let began = Instant::now();
        loop {
            let mut ready = program("pg_isready", self.folder.path());
            ready.arg("-h").arg(self.folder.path()).stdout(Stdio::null());
            if ready.status().expect("pg_isready").success() {
                return;
            }
            assert!(began.elapsed() < START_TIMEOUT, "PostgreSQL does not answer");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    fn stop(&mut self) {
        let mut stop = program("pg_ctl", self.folder.path());
        stop.args(["stop", "--mode=immediate", "--silent", "--pgdata"]);
        let _ = stop.arg(self.folder.path().join("data")).status();
        let _ = self.server.wait();
    }
}

impl Drop for TestDatabase {
    fn drop(&mut self) {
        self.stop();
    }
}

/// A folder that PostgreSQL's user owns.
fn scratch_folder() -> tempfile::TempDir {
    let folder = tempfile::Builder::new().prefix("pg").tempdir_in("/tmp").expect("a folder");
    // The socket in it is for the server's own user too; the data has a folder of its own.
    let open = std::fs::Permissions::from_mode(0o755);
    std::fs::set_permissions(folder.path(), open).expect("opened");
    give_away(folder.path());
    folder
}

/// Makes PostgreSQL's user the owner.
fn give_away(path: &Path) {
    if nix::unistd::geteuid().is_root() {
        let (user, group) = (Uid::from_raw(ORDINARY_USER), Gid::from_raw(ORDINARY_USER));
        nix::unistd::chown(path, Some(user), Some(group)).expect("given away");
    }
}

fn serve(folder: &Path, service: &Service) -> Child {
    let log = std::fs::OpenOptions::new().create(true).append(true).open(folder.join("log"));
    let mut command = program("postgres", folder);
    command.arg("-D").arg(folder.join("data")).arg("-k").arg(folder);
    command.args(["-c", "listen_addresses="]);
    command.envs(service.environment.iter().map(|(name, value)| (name, value)));
    for setting in &service.settings {
        command.args(["-c", setting]);
    }
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log.expect("a log"));
    let Some(namespace) = &service.namespace else { return command.spawn().expect("postgres") };
    // A process begins in the namespace of the thread that starts it.
    let start = || {
        let namespace = std::fs::File::open(namespace).expect("a namespace");
        setns(namespace, CloneFlags::CLONE_NEWNET).expect("root may enter it");
        command.spawn().expect("postgres")
    };
    std::thread::scope(|scope| scope.spawn(start).join().expect("postgres is started"))
}

/// A program of the newest PostgreSQL here, as an ordinary user.
fn program(name: &str, folder: &Path) -> Command {
    let mut found: Vec<PathBuf> = std::fs::read_dir("/usr/lib/postgresql")
        .expect("PostgreSQL is installed (scripts/install test)")
        .map(|entry| entry.expect("an entry").path().join("bin").join(name))
        .filter(|path| path.exists())
        .collect();
    found.sort();
    let mut command = Command::new(found.last().expect(name));
    command.current_dir(folder);
    if nix::unistd::geteuid().is_root() {
        command.uid(ORDINARY_USER).gid(ORDINARY_USER);
    }
    command
}
