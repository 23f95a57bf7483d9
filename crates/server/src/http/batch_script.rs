//! A batch script that comes over HTTP, read as `sbatch` reads one, and an allocation without one, as `salloc --no-shell` asks for it:
//! for the user who asks, in the user's home where nothing else is said, with the usual environment. No file of the server's machine
//! is read for it.

use crate::auth::logins::Login;
use crate::clock;
use crate::shared::Shared;
use jiff::tz::TimeZone;
use model::os_text;
use model::principal::Principal;
use model::time::Timestamp;
use slurm::option::invocation::{self, Caller, Invocation};
use slurm::option::{Command, OptionError, ValueContext, script_faults};
use slurm::request::{self, Draft, LoginUser, Submitter};
use std::io;

/// Where a job finds its programs, whatever the server's own environment is.
const PATH: &str = "/usr/local/bin:/usr/bin:/bin:/usr/local/sbin:/usr/sbin:/sbin";

/// A script that is wrong is read again and again, to find each line that is: no longer one than this, and no more often.
const LOOKED_THROUGH_MAX: usize = 64 << 10;
const READS_MAX: u32 = 300;

const UMASK: u32 = 0o022;

/// The default name of the second and later components of an allocation.
const NAME_OF_COMPONENT: &str = "interactive";

/// What options may know here: the time, and nothing of the server's own user or files.
struct RemoteContext {
    zone: TimeZone,
}

impl ValueContext for RemoteContext {
    fn now(&self) -> Timestamp {
        clock::now()
    }

    fn time_zone(&self) -> &TimeZone {
        &self.zone
    }

    fn is_root(&self) -> bool {
        false
    }

    fn user_id(&self, _: &str) -> Option<u32> {
        None
    }

    fn group_id(&self, _: &str) -> Option<u32> {
        None
    }

    fn read_file(&self, _: &str) -> io::Result<String> {
        Err(io::ErrorKind::PermissionDenied.into())
    }
}

/// A script, with the options and variables that came beside it.
#[derive(Default)]
pub struct BatchScript<'s> {
    pub script: &'s str,
    /// As on `sbatch`'s command line.
    pub options: Vec<String>,
    /// Beside the usual ones, or instead of them.
    pub variables: Vec<(String, String)>,
}

/// Who submits, and from where.
pub struct Origin<'s> {
    pub by: &'s Principal,
    /// What the server knows of his account; nothing for one without.
    pub login: Option<Login>,
    pub host: &'s str,
}

impl<'s> Origin<'s> {
    pub fn of(shared: &'s Shared, by: &'s Principal) -> Self {
        Self { by, login: shared.volatile.logins.find(by.uid), host: &shared.setup.hostname }
    }
}

/// The job of a script, and what there is to say about it.
pub fn read(wanted: &BatchScript<'_>, origin: Origin<'_>) -> Result<Draft, Vec<String>> {
    let found = draft(wanted, wanted.script.as_bytes(), &submitter(Command::Sbatch, origin));
    found.map_err(|fault| match fault {
        Fault::Option(error) => said(Command::Sbatch, &error),
        Fault::Line(line) => vec![line],
    })
}

/// The same for a script alone, which is edited: every line that is wrong is told with its place in `file`, and what is passed over is
/// noted too.
pub fn check(file: &str, script: &str, origin: Origin<'_>) -> Result<Draft, Vec<String>> {
    let (wanted, submitter) = (BatchScript::default(), submitter(Command::Sbatch, origin));
    let read = |script: &[u8]| draft(&wanted, script, &submitter);
    match read(script.as_bytes()) {
        Ok(mut draft) => {
            draft.notes.extend(script_faults::not_read(file, script.as_bytes()));
            Ok(draft)
        }
        Err(Fault::Line(line)) => Err(vec![line]),
        Err(Fault::Option(first)) => {
            if script.len() > LOOKED_THROUGH_MAX {
                return Err(said(Command::Sbatch, &first));
            }
            let again = |script: Vec<u8>| match read(&script) {
                Err(Fault::Option(error)) => Err(error),
                Ok(_) | Err(Fault::Line(_)) => Ok(()),
            };
            Err(script_faults::lines(file, script.as_bytes(), first, READS_MAX, again))
        }
    }
}

/// Why there is no job: an option that is wrong, or a line about the whole.
enum Fault {
    Option(OptionError),
    Line(String),
}

impl From<OptionError> for Fault {
    fn from(error: OptionError) -> Self {
        Self::Option(error)
    }
}

/// The job of this script, with the options and variables that are `wanted` beside it.
fn draft(wanted: &BatchScript<'_>, script: &[u8], origin: &Submitter) -> Result<Draft, Fault> {
    let context = RemoteContext { zone: timezone::local() };
    let load = |_: Option<&str>| Ok(script.to_vec());
    let caller = Caller { variable: &|_| None, context: &context, load: &load };
    let options: Vec<String> = wanted.options.iter().cloned().map(os_text::from_text).collect();
    let batch = match invocation::batch(&options, &caller)? {
        Invocation::Submission(batch) => batch,
        Invocation::Question(_) => {
            return Err(Fault::Line("the script asks for help only".to_owned()));
        }
    };
    if batch.components.iter().any(|options| options.export_file.is_some()) {
        let text = "--export-file: there is no such file here; use sbatch";
        return Err(Fault::Line(text.to_owned()));
    }
    let mut submitter = origin.clone();
    for (name, value) in &wanted.variables {
        let (name, value) = (os_text::from_text(name.clone()), os_text::from_text(value.clone()));
        submitter.variables.retain(|(known, _)| *known != name);
        submitter.variables.push((name, value));
    }
    let mut draft = request::batch(&batch, &submitter)?;
    draft.notes.splice(0..0, batch.notes);
    Ok(draft)
}

/// The allocation that options of `salloc` ask for. Nothing holds it: it lasts until it is cancelled or its time has passed.
pub fn allocation(options: Vec<String>, origin: Origin<'_>) -> Result<Draft, Vec<String>> {
    let mut options: Vec<String> = options.into_iter().map(os_text::from_text).collect();
    options.insert(0, "--no-shell".to_owned());
    let context = RemoteContext { zone: timezone::local() };
    let load = |_: Option<&str>| Ok(Vec::new());
    let caller = Caller { variable: &|_| None, context: &context, load: &load };
    let lines = |error: OptionError| said(Command::Salloc, &error);
    let read = match invocation::launch(Command::Salloc, &options, &caller).map_err(lines)? {
        Invocation::Submission(read) => read,
        Invocation::Question(_) => return Err(vec!["the options ask for help only".to_owned()]),
    };
    let [(options, _), others @ ..] = read.components.as_slice() else {
        return Err(vec!["expected a job".to_owned()]);
    };
    let submitter = submitter(Command::Salloc, origin);
    let mut draft = request::allocation(options, &[], &submitter).map_err(lines)?;
    let others = others.iter().map(|(options, _)| (options, NAME_OF_COMPONENT));
    draft.add_components(others, &submitter).map_err(lines)?;
    Ok(draft)
}

/// The lines that the command would print, without its name.
fn said(command: Command, error: &OptionError) -> Vec<String> {
    let printed = error.render(command);
    let lines = printed.lines().filter(|line| !line.starts_with("Try "));
    let named = format!("{}: ", command.name());
    let plain = |line: &str| {
        let line = line.strip_prefix(&named).unwrap_or(line);
        line.strip_prefix("error: ").unwrap_or(line).to_owned()
    };
    lines.map(plain).collect()
}

fn submitter(command: Command, origin: Origin<'_>) -> Submitter {
    let Origin { by, login, host } = origin;
    let known =
        login.unwrap_or_else(|| Login { home: "/".to_owned(), shell: "/bin/sh".to_owned() });
    let login = LoginUser { name: by.name.clone(), home: known.home, shell: known.shell };
    let variables = [
        ("HOME", &login.home),
        ("USER", &login.name),
        ("LOGNAME", &login.name),
        ("SHELL", &login.shell),
        ("PATH", &PATH.to_owned()),
    ];
    Submitter {
        command,
        words: vec![command.name().to_owned()],
        owner: by.clone(),
        work_dir: login.home.clone(),
        host: host.to_owned(),
        session: 0,
        umask: UMASK,
        nice: 0,
        rlimits: Vec::new(),
        variables: variables.map(|(name, value)| (name.to_owned(), value.clone())).into(),
        login,
        now: clock::now(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::user;

    fn origin(by: &Principal) -> Origin<'_> {
        Origin { by, login: None, host: "head" }
    }

    fn read_script(script: &str) -> Result<Draft, Vec<String>> {
        read(&BatchScript { script, ..BatchScript::default() }, origin(&user()))
    }

    #[test]
    fn account_that_the_server_knows_says_home_and_shell() {
        let login = Login { home: "/home/ada".to_owned(), shell: "/bin/zsh".to_owned() };
        let script = BatchScript { script: "#!/bin/sh\nhostname\n", ..BatchScript::default() };
        let draft = read(&script, Origin { login: Some(login), ..origin(&user()) });
        let environment = draft.expect("a job").submission.environment.expect("an environment");
        for line in ["HOME=/home/ada", "SHELL=/bin/zsh"] {
            assert!(environment.split('\0').any(|one| one == line), "{environment:?}");
        }
    }

    #[test]
    fn every_line_that_is_wrong_is_told_with_its_place_at_a_bounded_price() {
        let by = user();
        let lines = |script: &str| check("script", script, origin(&by)).expect_err("faults");
        let said = lines("#!/bin/sh\n#SBATCH --nodes=lots\n#SBATCH -J ok\n#SBATCH --tme=5\ntrue\n");
        assert!(said.iter().any(|line| line.starts_with("script:2:9: ")), "{said:?}");
        assert!(said.iter().any(|line| line.starts_with("script:4:9: ")), "{said:?}");
        let many = format!("#!/bin/sh\n{}", "#SBATCH --tme=5\n".repeat(400));
        let many = lines(&many).len();
        assert!((1..=2 * READS_MAX as usize).contains(&many), "{many}");
        let long = format!("#!/bin/sh\n#SBATCH --tme=5\n{}", "# long\n".repeat(20_000));
        assert!(!lines(&long)[0].starts_with("script:"), "{:?}", lines(&long));
        let passed_over = format!("#!/bin/sh\ntrue\n{}", "#SBATCH -N2\n".repeat(50_000));
        let draft = check("script", &passed_over, origin(&by)).expect("a job");
        assert!(draft.notes.len() < 200, "{}", draft.notes.len());
        assert!(draft.notes.iter().any(|note| note.starts_with("script:3: ")), "{:?}", draft.notes);
    }

    #[test]
    fn options_and_variables_beside_the_script_count() {
        let script = "#!/bin/sh\n#SBATCH -J inside\n";
        let options = vec!["--job-name=beside".to_owned(), "--chdir=/tmp".to_owned()];
        let variables = vec![("HOME".to_owned(), "/other".to_owned())];
        let draft = read(&BatchScript { script, options, variables }, origin(&user()));
        let submission = draft.expect("a job").submission;
        assert_eq!(&*submission.spec.name, "beside");
        let environment = submission.environment.expect("an environment");
        assert_eq!(environment.split('\0').filter(|line| *line == "HOME=/other").count(), 1);
    }

    #[test]
    fn script_is_read_as_sbatch_reads_it() {
        let script = "#!/bin/sh\n#SBATCH -J train --cpus-per-task=2 -t 10\nhostname\n";
        let draft = read_script(script).expect("a job");
        assert_eq!(&*draft.submission.spec.name, "train");
        assert_eq!(draft.submission.script, Some(script.into()));
        let environment = draft.submission.environment.expect("an environment");
        assert!(environment.contains("USER=ada\0"), "{environment:?}");
    }

    #[test]
    fn allocation_has_no_script_and_no_client_that_holds_it() {
        let options = vec!["--ntasks=2".to_owned(), "--time=5".to_owned()];
        let draft = allocation(options, origin(&user())).expect("an allocation");
        let submission = draft.submission;
        assert_eq!((&*submission.spec.name, submission.script), ("interactive", None));
        assert!(submission.spec.launch.unattended);
        let refused = allocation(vec!["--array=1-4".to_owned()], origin(&user()));
        let said = refused.expect_err("salloc has no arrays");
        assert!(said.iter().any(|line| line.contains("array")), "{said:?}");
    }

    #[test]
    fn short_script_stands_for_no_more_than_the_server_holds() {
        let long_names = format!("#SBATCH -w {}[1-65536]\n", "n".repeat(4000));
        let components = "#SBATCH hetjob\n#SBATCH -w n[1-65536]\n".repeat(200);
        let arrays = "#SBATCH -a 0-9\n#SBATCH hetjob\n#SBATCH -a 0-9\n".to_owned();
        let indices = "#SBATCH --array=0-4294967292:1000\n".to_owned();
        for lines in [long_names, components, arrays, indices] {
            assert!(read_script(&format!("#!/bin/sh\n{lines}hostname\n")).is_err());
        }
    }

    #[test]
    fn bad_lines_are_refused_in_sbatchs_words_and_no_file_is_read() {
        for (line, word) in [
            ("--no-such-option", "no-such-option"),
            ("--uid=0", "root"),
            ("--nodefile=/etc/hostname", "ermission denied"),
            ("--export-file=/etc/hostname", "export-file"),
        ] {
            let script = format!("#!/bin/sh\n#SBATCH {line}\n");
            let refused = read_script(&script).expect_err(line);
            assert!(refused.iter().any(|said| said.contains(word)), "{line}: {refused:?}");
        }
        assert!(read_script("hostname\n").is_err(), "no interpreter");
    }
}
