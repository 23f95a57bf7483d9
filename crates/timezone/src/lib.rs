//! The time zone of this process: `TZ`, or the machine's `/etc/localtime`.
//!
//! `jiff::tz::TimeZone::system` finds the same one, but lists the whole database of zones first: a hundred system calls at the
//! start of each `squeue`. Here the one file is opened. What cannot be told without the list is left to jiff, so that the result is
//! the same for every value of `TZ`.

#![cfg_attr(not(test), warn(clippy::unwrap_used))]

use jiff::tz::TimeZone;
use jiff::{Timestamp, Zoned};
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// How long a result is kept: a daemon follows a machine whose time zone is changed.
const CACHE_TTL: Duration = Duration::from_secs(5 * 60);

/// Nearly every file of the database is shorter: it is read in one piece.
const FILE_BYTES_USUAL: usize = 4096;
const FILE_BYTES_MAX: u64 = 1 << 20;

/// What the path of any database ends with; the name of a zone follows.
const DATABASE_END: &str = "zoneinfo/";

/// Folders of a database that hold it again with other rules, which jiff leaves out.
const COPIES: [&str; 2] = ["posix", "right"];

/// The time zone in which times are shown and read. A file that is in no database has the empty name. A wrong `TZ` is UTC.
pub fn local() -> TimeZone {
    static CACHE: Mutex<Option<(Instant, TimeZone)>> = Mutex::new(None);
    let mut cache = CACHE.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some((found_at, zone)) = &*cache
        && found_at.elapsed() < CACHE_TTL
    {
        return zone.clone();
    }
    let zone = Surroundings::of_process().zone().unwrap_or_else(listed);
    *cache = Some((Instant::now(), zone.clone()));
    zone
}

/// The time now, in that zone.
pub fn now() -> Zoned {
    Timestamp::now().to_zoned(local())
}

/// As jiff finds it by the list of all zones.
#[allow(clippy::disallowed_methods, reason = "the one place that may")]
fn listed() -> TimeZone {
    TimeZone::system()
}

/// Where the time zone is named, and where its rules are.
struct Surroundings {
    /// `TZ`
    variable: Option<OsString>,
    localtime: PathBuf,
    database: PathBuf,
}

impl Surroundings {
    fn of_process() -> Self {
        let database = std::env::var_os("TZDIR").unwrap_or_else(|| "/usr/share/zoneinfo".into());
        Self {
            variable: std::env::var_os("TZ"),
            localtime: "/etc/localtime".into(),
            database: database.into(),
        }
    }

    /// `None` where only the list of all zones tells: a name in other letters, or in another database.
    fn zone(&self) -> Option<TimeZone> {
        let Some(value) = &self.variable else { return self.of_file(&self.localtime) };
        let value = value.to_str()?;
        if value.is_empty() {
            return Some(TimeZone::UTC);
        }
        let named = match value.strip_prefix(':') {
            Some(named) => named,
            None => match TimeZone::posix(value) {
                Ok(rule) => return Some(rule),
                Err(_) => value,
            },
        };
        match name_in_database(OsStr::new(named)) {
            Some(name) => self.of_name(name),
            None if named.starts_with('/') => self.of_file(Path::new(named)),
            None => self.of_name(named),
        }
    }

    /// The zone of a file, with its name where the file is a link into a database.
    fn of_file(&self, path: &Path) -> Option<TimeZone> {
        let target = std::fs::read_link(path).unwrap_or_default();
        match name_in_database(target.as_os_str()) {
            Some(name) => self.of_name(name),
            None => read(path, ""),
        }
    }

    fn of_name(&self, name: &str) -> Option<TimeZone> {
        if name.eq_ignore_ascii_case("UTC") {
            return Some(TimeZone::UTC);
        }
        let is_plain = name.split('/').all(|part| !matches!(part, "" | "." | ".."));
        let is_copy = COPIES.iter().any(|copy| Path::new(name).starts_with(copy));
        if !is_plain || is_copy {
            return None;
        }
        read(&self.database.join(name), name)
    }
}

/// `Europe/Berlin` of `/usr/share/zoneinfo/Europe/Berlin`.
fn name_in_database(path: &OsStr) -> Option<&str> {
    path.to_str()?.rsplit_once(DATABASE_END).map(|(_, name)| name)
}

fn read(path: &Path, name: &str) -> Option<TimeZone> {
    let mut bytes = Vec::with_capacity(FILE_BYTES_USUAL);
    File::open(path).ok()?.take(FILE_BYTES_MAX).read_to_end(&mut bytes).ok()?;
    TimeZone::tzif(name, &bytes).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use jiff::fmt::temporal::DateTimePrinter;
    use std::os::unix::fs::symlink;
    use tempfile::TempDir;

    /// A file of the database: one offset east of Greenwich, and the same as a rule.
    fn tzif(abbreviation: &str, hours: i32) -> Vec<u8> {
        let mut block = b"TZif2".to_vec();
        block.extend([0; 15]);
        // Indicators of UTC and of standard time, leap seconds, transitions, types, bytes of abbreviations.
        for count in [0, 0, 0, 0, 1, abbreviation.len() as u32 + 1] {
            block.extend(count.to_be_bytes());
        }
        block.extend((hours * 3600).to_be_bytes());
        block.extend([0, 0]);
        block.extend(abbreviation.bytes());
        block.push(0);
        let rule = format!("\n{abbreviation}{}\n", -hours);
        [block.clone(), block, rule.into_bytes()].concat()
    }

    /// A machine whose database has two zones, and whose own is that of Tokyo.
    struct Machine {
        dir: TempDir,
    }

    impl Machine {
        fn new() -> Self {
            let machine = Self { dir: tempfile::tempdir().expect("a folder") };
            for folder in ["zoneinfo/Asia", "zoneinfo/right"] {
                std::fs::create_dir_all(machine.path(folder)).expect("a folder");
            }
            machine.write("zoneinfo/Asia/Tokyo", &tzif("JST", 9));
            machine.write("zoneinfo/EST5EDT", &tzif("EST", -5));
            machine.write("zoneinfo/right/UTC", &tzif("UTC", 0));
            machine.write("zoneinfo/zone.tab", b"JP\t+353916+1394441\tAsia/Tokyo\n");
            machine.write("lunar", &tzif("LUN", 3));
            symlink("../zoneinfo/Asia/Tokyo", machine.path("localtime")).expect("a link");
            machine
        }

        fn path(&self, name: &str) -> PathBuf {
            self.dir.path().join(name)
        }

        fn write(&self, name: &str, bytes: &[u8]) {
            std::fs::write(self.path(name), bytes).expect("written");
        }

        fn zone(&self, variable: Option<&str>) -> Option<TimeZone> {
            let (localtime, database) = (self.path("localtime"), self.path("zoneinfo"));
            Surroundings { variable: variable.map(Into::into), localtime, database }.zone()
        }

        /// The zone's name, its abbreviation and its offset in hours.
        fn found(&self, variable: Option<&str>) -> Option<(String, String, i32)> {
            let zone = self.zone(variable)?;
            let name = DateTimePrinter::new().time_zone_to_string(&zone).expect("a name");
            let info = zone.to_offset_info(Timestamp::UNIX_EPOCH);
            let hours = info.offset().seconds() / 3600;
            Some((name, info.abbreviation().to_owned(), hours))
        }
    }

    #[test]
    fn zone_is_found_by_every_form_of_tz_without_the_list_of_zones() {
        let machine = Machine::new();
        let (in_database, elsewhere) = (machine.path("zoneinfo/Asia/Tokyo"), machine.path("lunar"));
        let text = |path: &Path| path.to_str().expect("UTF-8").to_owned();
        let table = [
            (None, ("Asia/Tokyo", "JST", 9)),
            (Some(String::new()), ("UTC", "UTC", 0)),
            (Some("utc".to_owned()), ("UTC", "UTC", 0)),
            (Some("Asia/Tokyo".to_owned()), ("Asia/Tokyo", "JST", 9)),
            (Some(":Asia/Tokyo".to_owned()), ("Asia/Tokyo", "JST", 9)),
            // A zone of the database, although it looks like a rule.
            (Some("EST5EDT".to_owned()), ("EST5EDT", "EST", -5)),
            (Some("EST5EDT,M3.2.0,M11.1.0".to_owned()), ("EST5EDT,M3.2.0,M11.1.0", "EST", -5)),
            (Some(text(&in_database)), ("Asia/Tokyo", "JST", 9)),
            (Some(format!(":{}", text(&in_database))), ("Asia/Tokyo", "JST", 9)),
            (Some("../zoneinfo/Asia/Tokyo".to_owned()), ("Asia/Tokyo", "JST", 9)),
            (Some(text(&machine.path("localtime"))), ("Asia/Tokyo", "JST", 9)),
            // A file of no database has no name that a server elsewhere would know.
            (Some(text(&elsewhere)), ("", "LUN", 3)),
        ];
        for (variable, (name, abbreviation, hours)) in table {
            let found = machine.found(variable.as_deref());
            let expected = (name.to_owned(), abbreviation.to_owned(), hours);
            assert_eq!(found, Some(expected), "{variable:?}");
        }
    }

    #[test]
    fn machine_whose_time_zone_is_a_file_and_no_link_has_its_rules() {
        let machine = Machine::new();
        std::fs::remove_file(machine.path("localtime")).expect("removed");
        machine.write("localtime", &tzif("JST", 9));
        assert_eq!(machine.found(None), Some((String::new(), "JST".to_owned(), 9)));
    }

    #[test]
    fn what_only_the_list_of_zones_can_tell_is_left_to_it() {
        let machine = Machine::new();
        let nothing = machine.path("nothing").to_str().expect("UTF-8").to_owned();
        let names = ["asia/tokyo", "Mars/Phobos", "right/UTC", "zone.tab", "Asia"];
        let paths = ["Asia/../../lunar", "Asia//Tokyo", "Asia/./Tokyo", nothing.as_str()];
        for variable in names.into_iter().chain(paths) {
            assert_eq!(machine.zone(Some(variable)), None, "{variable}");
        }
        std::fs::remove_file(machine.path("localtime")).expect("removed");
        assert_eq!(machine.zone(None), None, "a machine without a time zone");
        symlink("/usr/share/zoneinfo/Mars/Phobos", machine.path("localtime")).expect("a link");
        assert_eq!(machine.zone(None), None, "a zone that the database does not have");
    }

    /// Whatever this machine and this process have for a time zone, both ways find the same.
    #[test]
    fn result_is_that_of_the_list() {
        let (ours, of_the_list) = (local(), listed());
        for second in [0, 1_500_000_000, 1_800_000_000, 1_810_000_000] {
            let at = Timestamp::from_second(second).expect("a time");
            let (own, theirs) = (ours.to_offset_info(at), of_the_list.to_offset_info(at));
            assert_eq!(own.offset(), theirs.offset());
            assert_eq!(own.abbreviation(), theirs.abbreviation());
        }
    }
}
