//! `.dstack.yml` files in, typed tasks or one clear line out.

mod environment;
mod faults;
mod fleets;
mod layers;
mod rules;
mod types;
mod values;

use dstack::configuration::resources::Resources;
use dstack::configuration::task::Task;
use dstack::configuration::{Configuration, Loaded, parse};
use model::amount::Bytes;

fn load(text: &str) -> Loaded {
    parse("t.dstack.yml", text.as_bytes()).unwrap_or_else(|e| panic!("{e}\n{text}"))
}

fn task(text: &str) -> Task {
    match load(text).configuration {
        Configuration::Task(task) => *task,
        other => panic!("{other:?}"),
    }
}

/// The task with these lines beside its type and its one command.
fn task_with(lines: &str) -> Task {
    task(&format!("type: task\ncommands: [x]\n{lines}\n"))
}

fn resources(lines: &str) -> Resources {
    task_with(&format!("resources: {lines}")).resources
}

/// Why the configuration is not taken: it is wrong, or something in it is not available yet.
fn refusal(text: &str) -> String {
    match parse("t.dstack.yml", text.as_bytes()) {
        Ok(loaded) => match loaded.applicable() {
            Ok(_) => panic!("accepted: {loaded:?}"),
            Err(fault) => fault.in_file("t.dstack.yml"),
        },
        Err(e) => e.to_string(),
    }
}

/// The error line, without its start, of a task whose third line is this one.
fn refusal_with(line: &str) -> String {
    let text = format!("type: task\ncommands: [x]\n{line}\n");
    let message = refusal(&text);
    assert!(!message.contains('\n'), "{message}");
    let rest = message.strip_prefix("t.dstack.yml:3:");
    rest.unwrap_or_else(|| panic!("{message}")).to_owned()
}

fn gib(n: u64) -> Bytes {
    Bytes::from_gib(n)
}
