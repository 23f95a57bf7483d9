//! What the step of an SSH session runs: a shell, a command or a program of Sluice's own, as the job's owner, with the
//! job's variables, in all that the job has of one node.

use crate::dispatch::launch::session_environment;
use crate::shared::Shared;
use model::binding::{CpuBind, CpuBinding};
use model::id::{AttemptId, JobId};
use model::os_text;
use model::reason::Refusal;
use model::step::StepShape;
use ring::rand::{SecureRandom, SystemRandom};
use slurm::environment::Environment;
use wire::step::{OwnProgram, StepInput, StepLaunch, StepStart};

/// Finds the user's shell, or else one that the job's file system has.
const FIND_SHELL: &str = r#"s=${SHELL:-}; case "$s" in */nologin|*/false) s=;; esac; [ -x "$s" ] || s=$(command -v bash) || s=/bin/sh; "#;
const RUN_SHELL: &str = r#"exec "$s" -l"#;
const RUN_COMMAND: &str = r#"exec "$s" -c "$1""#;

/// Variables that a client may set for its session, as Debian's `sshd` has them.
const CLIENT_VARIABLES: [&str; 3] = ["LANG", "COLORTERM", "NO_COLOR"];
const CLIENT_VARIABLES_PREFIX: &str = "LC_";

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Program {
    Shell,
    Command(String),
    Own(OwnProgram),
}

impl Program {
    /// The step's name in listings and in the books.
    fn name(&self) -> &'static str {
        match self {
            Self::Shell | Self::Command(_) => "ssh",
            Self::Own(OwnProgram::Sftp) => "sftp",
            Self::Own(OwnProgram::Forward) => "ssh-forward",
            Self::Own(OwnProgram::ReceiveFile) => "sbcast",
        }
    }

    fn arguments(&self) -> Vec<String> {
        let shell =
            |run: &str| vec!["/bin/sh".to_owned(), "-c".into(), format!("{FIND_SHELL}{run}")];
        match self {
            Self::Shell => shell(RUN_SHELL),
            Self::Command(command) => {
                let mut words = shell(RUN_COMMAND);
                words.extend(["ssh".to_owned(), command.clone()]);
                words
            }
            // The node puts its own program here; one that does not know of it finds nothing to run.
            Self::Own(program) => vec![format!("sluice-{}", program.verb())],
        }
    }
}

/// A terminal as the client has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Terminal {
    pub name: String,
    pub rows: u16,
    pub columns: u16,
}

/// A session as its client asked for it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionRequest {
    pub program: Program,
    pub terminal: Option<Terminal>,
    pub variables: Vec<(String, String)>,
}

/// Whether a client may set this variable.
pub fn is_client_variable(name: &str) -> bool {
    CLIENT_VARIABLES.contains(&name) || name.starts_with(CLIENT_VARIABLES_PREFIX)
}

/// The launch of a session's step on the node of this rank.
pub fn launch(
    shared: &Shared,
    job: JobId,
    rank: u32,
    request: &SessionRequest,
) -> Result<StepLaunch, Refusal> {
    let (attempt, node, spec) = {
        let state = shared.read();
        let found = state.jobs.get(&job).ok_or_else(|| Refusal::UnknownJob(job.to_string()))?;
        let attempt = match found.attempt() {
            Some(attempt) => attempt,
            None if found.has_ended() => return Err(Refusal::JobEnded(job)),
            None => return Err(Refusal::JobNotRunning(job)),
        };
        let node = attempt.allocation.nodes.get(rank as usize);
        let node = node.ok_or_else(|| Refusal::UnknownNode(rank.to_string()))?.node.clone();
        (AttemptId { job, number: attempt.number }, node, found.spec.clone())
    };
    let environment = session_environment(shared, attempt, &node)
        .map_err(|error| Refusal::Other(error.to_string()))?;
    let mut variables = Environment::from_block(&environment);
    for (name, value) in &request.variables {
        variables.set(name, os_text::from_text(value.clone()));
    }
    if let Some(terminal) = &request.terminal {
        variables.set("TERM", &terminal.name);
    }
    let (key, ticket) = key_and_ticket()?;
    Ok(StepLaunch {
        name: request.program.name().into(),
        argv: request.program.arguments().into_iter().map(os_text::from_text).collect(),
        environment: variables.to_block(),
        secret_variables: spec.launch.secret_variables.clone(),
        registry_auth: None,
        work_dir: spec.launch.work_dir.to_string(),
        tasks: Some(1),
        nodes: Some(1),
        tasks_per_node: None,
        cpus_per_task: None,
        node_list: vec![node],
        listen: Vec::new(),
        encrypted_listen: Vec::new(),
        network_stack: None,
        key,
        umask: spec.launch.umask,
        stdin: StepInput::All,
        stdout: None,
        stderr: None,
        submit_line: String::new(),
        overcommit: false,
        pty: request.terminal.is_some(),
        window: request.terminal.as_ref().map(|terminal| (terminal.rows, terminal.columns)),
        shape: StepShape { ticket, overlap: true, ..StepShape::default() },
        distribution: None,
        cpu_bind: CpuBinding { kind: Some(CpuBind::None), ..CpuBinding::default() },
        mem_bind: None,
        cpu_frequency: None,
        rlimits: None,
        gpu_bind: None,
        programs: Vec::new(),
        task_prolog: None,
        task_epilog: None,
        starts: StepStart::AtOnce,
        time_limit: None,
        container: None,
        joins_script: true,
        own_program: match request.program {
            Program::Own(program) => Some(program),
            Program::Shell | Program::Command(_) => None,
        },
        receives_file: false,
    })
}

/// The step's key, as hex, and a number by which the request is told from others.
fn key_and_ticket() -> Result<(String, u64), Refusal> {
    let mut random = [0; 40];
    let failed = |_| Refusal::Other("the machine has no random bytes".into());
    SystemRandom::new().fill(&mut random).map_err(failed)?;
    let (key, ticket) = random.split_at(32);
    let key = key.iter().map(|byte| format!("{byte:02x}")).collect();
    let ticket = ticket.iter().fold(0, |number: u64, byte| number << 8 | u64::from(*byte));
    Ok((key, ticket.max(1)))
}
