//! The commands of the program. The name it is called by, or its first word, says which one.
//!
//! - `slurm/`: Slurm's commands
//! - `dstack/`: `apply`, `ps`, `run`, `logs`, `stop`, `delete`, `event`, `metrics`, `offer`, `fleet`, `project`, `secret`, `volume`
//! - `daemon/`: `up`, `down`, `server`, `agent`, `gateway`, and the state folder
//! - `explain/`, `demo/`, `token/`, `convert/`, `check`, `doctor`, `links`, `login`, `node`, `machine`, `attach`, `port`, `key`, `top/`, `help_topic/`, `backup`, `restore`, `store`, `sim/`, `version`: one verb each
//! - `port_mapping`: ports of a job on this machine, for `attach` and `port`
//! - `configuration_files`: the files of a configuration folder that are sent to a server
//! - `progress`: how far a file is read, on a terminal, for `restore`
//! - `command_line`: all names of the program and their options, for `completion` and `man`
//! - `other_language`: `sluice apply` of a batch script, `sbatch` of a `.dstack.yml`
//! - `verb`: what the verbs of `sluice` share; `verb_examples`: the examples of their help

mod attach;
mod backup;
mod check;
mod command_line;
mod completion;
mod configuration_files;
mod convert;
mod daemon;
mod demo;
mod doctor;
mod dstack;
mod explain;
mod help_topic;
mod key;
mod links;
mod login;
mod machine;
mod man;
mod node;
mod other_language;
mod port;
mod port_forward;
mod port_mapping;
mod program_name;
mod progress;
mod restore;
mod sim;
mod slurm;
mod store;
mod token;
mod top;
mod verb;
mod verb_examples;
mod version;
mod web_link;

use daemon::{agent, down, gateway, server, up};
use dstack::published_options;

use crate::printing;
use ::slurm::option::Command as SlurmCommand;
use clap::{Parser, Subcommand};
use model::os_text;
use std::process::ExitCode;

/// The exit code of a command line that cannot be read, as clap has it.
const USAGE: u8 = 2;

/// Turns machines into one GPU cluster that speaks Slurm's language and dstack's.
#[derive(Parser)]
#[command(name = "sluice", version, disable_help_subcommand = true)]
struct Cli {
    #[command(subcommand)]
    verb: Verb,
}

// The options of a verb are built when it is called, and not those of forty others with them. A doc comment on the type of a verb's
// options would then stand in place of the verb's own line of help: such types have plain comments.
#[derive(Subcommand)]
#[command(defer = true)]
enum Verb {
    /// Start the embedded cluster on this machine: a server and an agent
    #[command(after_help = verb_examples::UP)]
    Up(up::UpArgs),
    /// Stop server and agent; running jobs go on unless --jobs ends them
    #[command(after_help = verb_examples::DOWN)]
    Down(down::DownArgs),
    /// Run a server alone, for several machines
    #[command(after_help = verb_examples::SERVER)]
    Server(server::ServerVerb),
    /// Run this machine's agent alone
    #[command(after_help = verb_examples::AGENT)]
    Agent(agent::AgentArgs),
    /// Pass requests to services on, at another address than the server's
    #[command(after_help = verb_examples::GATEWAY)]
    Gateway(gateway::GatewayArgs),
    /// Make, list and revoke tokens of users and join files of nodes
    #[command(after_help = verb_examples::TOKEN)]
    Token(token::TokenArgs),
    /// The machines and their agents: list, show, remove, let join again
    #[command(after_help = verb_examples::NODE)]
    Node(node::NodeArgs),
    /// Machines on demand, their sources and what they cost
    #[command(after_help = verb_examples::MACHINE)]
    Machine(machine::MachineArgs),
    /// Use a server on another machine: keep its address, its authority and a token
    #[command(after_help = verb_examples::LOGIN)]
    Login(login::LoginArgs),
    /// Forget the server of the login
    #[command(after_help = verb_examples::LOGOUT)]
    Logout,
    /// The guided tour, in a scratch cluster with declared GPUs
    #[command(after_help = verb_examples::DEMO)]
    Demo(demo::DemoArgs),
    /// What this machine can and cannot enforce, and how to mend it
    #[command(after_help = verb_examples::DOCTOR)]
    Doctor(doctor::DoctorArgs),
    /// Submit a run that a .dstack.yml file describes, and stay with it; or a batch script
    #[command(after_help = verb_examples::APPLY)]
    Apply(dstack::apply::ApplyArgs),
    /// List runs and jobs
    #[command(after_help = verb_examples::PS)]
    Ps(dstack::ps::PsArgs),
    /// A shell, a command or a port inside a running job, by ssh
    #[command(after_help = verb_examples::ATTACH)]
    Attach(attach::AttachArgs),
    /// Ports of a running job on this machine
    #[command(after_help = verb_examples::PORT)]
    Port(port::PortArgs),
    /// Public keys with which one comes in by ssh
    #[command(after_help = verb_examples::KEY)]
    Key(key::KeyArgs),
    /// Print what a run has written
    #[command(after_help = verb_examples::LOGS)]
    Logs(dstack::logs::LogsArgs),
    /// End runs
    #[command(after_help = verb_examples::STOP)]
    Stop(dstack::stop::StopArgs),
    /// Take runs that have ended out of the list
    #[command(after_help = verb_examples::DELETE)]
    Delete(dstack::delete::DeleteArgs),
    /// Projects, which are accounts, and their members
    #[command(after_help = verb_examples::PROJECT)]
    Project(dstack::project::ProjectArgs),
    /// What happened to runs, nodes, projects and users
    #[command(after_help = verb_examples::EVENT)]
    Event(dstack::event::EventArgs),
    /// One run by its name or its id
    #[command(after_help = verb_examples::RUN)]
    Run(dstack::run::RunArgs),
    /// The load of a running run, and of its GPUs
    #[command(after_help = verb_examples::METRICS)]
    Metrics(dstack::metrics::MetricsArgs),
    /// The shares of nodes that would serve a request
    #[command(after_help = verb_examples::OFFER)]
    Offer(dstack::offer::OfferArgs),
    /// Fleets, which are partitions, and the state of their nodes
    #[command(after_help = verb_examples::FLEET)]
    Fleet(dstack::fleet::FleetArgs),
    /// Set, list and delete the secrets of a project
    #[command(after_help = verb_examples::SECRET)]
    Secret(dstack::secret::SecretArgs),
    /// The volumes of a project
    #[command(after_help = verb_examples::VOLUME)]
    Volume(dstack::volume::VolumeArgs),
    /// Nodes, queue and logs on the whole screen, with keys to cancel, hold and explain jobs
    #[command(after_help = verb_examples::TOP)]
    Top(top::TopArgs),
    /// Why a job waits and when it is expected to start, or why it ended
    #[command(after_help = verb_examples::EXPLAIN)]
    Explain(explain::ExplainArgs),
    /// Say what is wrong with batch scripts, slurm.conf folders and .dstack.yml files
    #[command(after_help = verb_examples::CHECK)]
    Check(check::CheckArgs),
    /// Turn a batch script into a .dstack.yml, or the other way
    #[command(after_help = verb_examples::CONVERT)]
    Convert(convert::ConvertArgs),
    /// Replay a trace of jobs through the same scheduler, in virtual time
    #[command(after_help = verb_examples::SIM)]
    Sim(sim::SimArgs),
    /// Short texts on resources, limits, states, exit codes and reasons; or the help of a verb
    #[command(after_help = verb_examples::HELP)]
    Help(help_topic::HelpArgs),
    /// Copy the whole state of a running server into one file
    #[command(after_help = verb_examples::BACKUP)]
    Backup(backup::BackupArgs),
    /// Make a state folder from a backup
    #[command(after_help = verb_examples::RESTORE)]
    Restore(restore::RestoreArgs),
    /// Look at a stored state
    #[command(after_help = verb_examples::STORE)]
    Store(store::StoreArgs),
    /// Which versions run where: this program, the server, the agents
    #[command(after_help = verb_examples::VERSION)]
    Version(version::VersionArgs),
    /// Put links for all Slurm commands into a folder
    #[command(after_help = verb_examples::LINKS)]
    Links(links::LinksArgs),
    /// Print what a shell completes command lines with
    #[command(after_help = verb_examples::COMPLETION)]
    Completion(completion::CompletionArgs),
    /// Write the manual pages into a folder
    #[command(after_help = verb_examples::MAN)]
    Man(man::ManArgs),
}

/// Runs the command that the program was called as, or `sluice VERB`.
pub fn run(name: &str, args: Vec<String>) -> ExitCode {
    if args.first().is_some_and(|word| word == ::agent::container::VERB) {
        return ExitCode::from(::agent::container::run(&args[1..]) as u8);
    }
    if args.first().is_some_and(|word| word == ::agent::container_init::VERB) {
        return ExitCode::from(::agent::container_init::run() as u8);
    }
    if let Some(code) = ::agent::in_job::run(&args) {
        return ExitCode::from(code as u8);
    }
    if let Some(command) = SlurmCommand::from_name(name) {
        return slurm_command(command, &args);
    }
    // `sluice squeue …` is `squeue …`, for users without links.
    if let Some(command) = args.first().and_then(|word| SlurmCommand::from_name(word)) {
        return slurm_command(command, &args[1..]);
    }
    // What is said of a wrong line names the program as it was called.
    let called = program_name::note(name);
    printing::set_command(called);
    let words: Vec<String> = std::iter::once(called.to_string()).chain(args).collect();
    let cli = match Cli::try_parse_from(words.iter().map(|word| os_text::to_os(word))) {
        Ok(cli) => cli,
        Err(error) => match published_options::refusal(&words[1..], &error) {
            Some(why) => {
                eprintln!("{called}: error: {why}");
                return ExitCode::from(USAGE);
            }
            None => {
                let (done, code) = (error.print(), error.exit_code());
                // Help and versions are what was asked for.
                if !error.use_stderr() {
                    printing::written(done);
                }
                return ExitCode::from(code as u8);
            }
        },
    };
    if matches!(
        cli.verb,
        Verb::Check(_)
            | Verb::Doctor(_)
            | Verb::Ps(_)
            | Verb::Event(_)
            | Verb::Run(_)
            | Verb::Metrics(_)
            | Verb::Offer(_)
            | Verb::Fleet(_)
            | Verb::Project(_)
            | Verb::Secret(_)
            | Verb::Key(_)
            | Verb::Links(_)
            | Verb::Help(_)
            | Verb::Apply(_)
            | Verb::Logs(_)
            | Verb::Stop(_)
            | Verb::Delete(_)
            | Verb::Volume(_)
            | Verb::Completion(_)
            | Verb::Node(_)
            | Verb::Machine(_)
            | Verb::Token(_)
            | Verb::Sim(_)
            | Verb::Version(_)
    ) {
        end_on_broken_pipe();
    }
    let done = match cli.verb {
        Verb::Up(args) => up::run(args),
        Verb::Down(args) => down::run(&args),
        Verb::Server(verb) => server::run_verb(verb),
        Verb::Agent(args) => agent::run(args),
        Verb::Gateway(args) => gateway::run(args),
        Verb::Token(args) => token::run(args),
        Verb::Node(args) => node::run(args),
        Verb::Machine(args) => machine::run(args),
        Verb::Login(args) => login::login(args),
        Verb::Logout => login::logout(),
        Verb::Demo(args) => demo::run(args),
        Verb::Doctor(args) => doctor::run(args),
        Verb::Apply(args) => other_language::apply(args),
        Verb::Ps(args) => dstack::ps::run(args),
        Verb::Attach(args) => attach::run(&args),
        Verb::Port(args) => port::run(&args),
        Verb::Key(args) => key::run(args),
        Verb::Logs(args) => dstack::logs::run(args),
        Verb::Stop(args) => dstack::stop::run(args),
        Verb::Delete(args) => dstack::delete::run(args),
        Verb::Project(args) => dstack::project::run(args),
        Verb::Event(args) => dstack::event::run(args),
        Verb::Run(args) => dstack::run::run(args),
        Verb::Metrics(args) => dstack::metrics::run(args),
        Verb::Offer(args) => dstack::offer::run(args),
        Verb::Fleet(args) => dstack::fleet::run(args),
        Verb::Secret(args) => dstack::secret::run(args),
        Verb::Volume(args) => dstack::volume::run(args),
        Verb::Top(args) => top::run(args),
        Verb::Explain(args) => explain::run(args),
        Verb::Check(args) => check::run(args),
        Verb::Convert(args) => convert::run(args),
        Verb::Sim(args) => sim::run(args),
        Verb::Help(args) => help_topic::run::<Cli>(&args),
        Verb::Backup(args) => backup::run(&args),
        Verb::Restore(args) => restore::run(&args),
        Verb::Store(args) => store::run(&args),
        Verb::Version(args) => version::run(&args),
        Verb::Links(args) => links::run(&args),
        Verb::Completion(args) => completion::run(&args),
        Verb::Man(args) => man::run(&args),
    };
    match done {
        Ok(code) => code,
        Err(error) => {
            error.print();
            ExitCode::FAILURE
        }
    }
}

fn slurm_command(command: SlurmCommand, args: &[String]) -> ExitCode {
    printing::set_command(command.name());
    let other = (command == SlurmCommand::Sbatch).then(|| other_language::sbatch(args)).flatten();
    other.unwrap_or_else(|| slurm::run(command, args))
}

/// Makes a verb that only prints end quietly when its reader has gone, as in `sluice doctor | head -n 1`.
fn end_on_broken_pipe() {
    use nix::sys::signal::{SigHandler, Signal, signal};
    // SAFETY: the default disposition runs no code of ours. If this fails, a panic reports the broken pipe.
    let _ = unsafe { signal(Signal::SIGPIPE, SigHandler::SigDfl) };
}
