//! The variables of the image that a pod has, which its agent was started with: jobs there have them too, as in any container of
//! the image.

use model::pod::{PROGRAM_DIR, USER_VARIABLE};
use std::collections::HashSet;

/// The agent's own.
const OF_AGENT: [&str; 2] = ["SLUICE_STATE", "POD_IP"];

/// Where programs are looked for, where neither the job nor the image says it.
const USUAL_PATH: &str = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// Adds the image's variables to a job's, whose own count before.
pub(super) fn add(entries: &mut Vec<String>, image: impl Iterator<Item = (String, String)>) {
    let name_of = |entry: &String| entry.split('=').next().unwrap_or_default().to_owned();
    let known: HashSet<String> = entries.iter().map(name_of).collect();
    let added = image.filter(|(name, _)| !known.contains(name));
    let added = added.filter(|(name, _)| !OF_AGENT.contains(&name.as_str()));
    entries.extend(added.map(|(name, value)| format!("{name}={value}")));
}

/// Adds what Slurm's commands need in a pod: the folder that has the links to them, after all others of the job, and whose job it is.
pub(super) fn add_commands(entries: &mut Vec<String>, user: &str) {
    let at = entries.iter().position(|entry| entry.starts_with("PATH=")).unwrap_or_else(|| {
        entries.push(USUAL_PATH.to_owned());
        entries.len() - 1
    });
    entries[at] += &format!(":{PROGRAM_DIR}");
    entries.push(format!("{USER_VARIABLE}={user}"));
}

/// What this process was started with, as far as it is text.
pub(super) fn of_this_process() -> impl Iterator<Item = (String, String)> {
    std::env::vars_os()
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables_of_the_image_are_added_to_those_of_the_job() {
        let text = |text: &str| text.to_owned();
        let mut entries = vec![text("MODE=a=b"), text("EMPTY=")];
        let image = [
            (text("PATH"), text("/opt/bin:/bin")),
            (text("MODE"), text("c")),
            (text("EMPTY"), text("x")),
            (text("SLUICE_STATE"), text("/tmp/sluice")),
        ];
        add(&mut entries, image.into_iter());
        assert_eq!(entries, ["MODE=a=b", "EMPTY=", "PATH=/opt/bin:/bin"]);
        add_commands(&mut entries, "ada");
        assert_eq!(entries[2..], ["PATH=/opt/bin:/bin:/sluice", "SLUICE_USER=ada"]);
        let mut none = Vec::new();
        add_commands(&mut none, "ada");
        assert_eq!(none[0], format!("{USUAL_PATH}:/sluice"));
    }
}
