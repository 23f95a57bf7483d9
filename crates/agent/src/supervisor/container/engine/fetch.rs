//! The image of a process in its engine: what the engine has of that name, or pulls. What goes wrong is one line, whichever
//! engine of whichever version says it.

use super::Engine;
use super::call::Patience;
use super::inspect::EngineImage;
use super::login::LOGIN;
use image::Reference;
use model::site::EngineKind;
use std::path::Path;
use std::time::{Duration, Instant};

/// How long an engine may take to say what it knows of an image; it may be busy with pulls.
pub(super) const INSPECT_TIMEOUT: Duration = Duration::from_secs(120);
/// How long a pull may say nothing. Engines say a line when a layer is whole, and layers are large.
const PULL_SILENCE_MAX: Duration = Duration::from_secs(30 * 60);
/// How lines begin that say where to read on.
const HINTS: [&str; 3] = ["See '", "Run '", "Usage:"];

/// What an engine is asked for.
pub(super) struct ImageQuery<'a> {
    pub reference: &'a Reference,
    /// Root's own, with the user's login.
    pub folder: &'a Path,
    /// Other tasks of the step ask at the same time.
    pub process: u32,
    /// The registry is asked without TLS.
    pub is_insecure: bool,
    pub inspect_timeout: Duration,
}

impl Engine {
    pub(super) fn image(
        &self,
        query: &ImageQuery<'_>,
        progress: &mut (dyn FnMut(&str) + Send),
    ) -> Result<EngineImage, String> {
        let name = query.reference.to_string();
        if let Some(image) = self.inspect(&name, query)? {
            return Ok(image);
        }
        progress(&format!("sluice: image {name}: pulling"));
        self.pull(&name, query)?;
        self.inspect(&name, query)?
            .ok_or_else(|| format!("{}: image {name}: it is not there", self.program.display()))
    }

    /// The image; `None` if the engine does not have it.
    fn inspect(&self, image: &str, query: &ImageQuery<'_>) -> Result<Option<EngineImage>, String> {
        let deadline = Instant::now() + query.inspect_timeout;
        let words = ["image", "inspect", image];
        let name = format!("inspect-{}", query.process);
        let said = self.ask(query.folder, &name, &words, Patience::Until(deadline))?;
        if said.is_success {
            let found =
                EngineImage::read(&said.output).map_err(|why| format!("image {image}: {why}"))?;
            // A volume could cover Sluice's own program in the container; Podman can be told to make none.
            if let (EngineKind::Docker, Some(path)) = (self.kind, found.volumes.first()) {
                let why = "it declares a volume, with which Docker as runtime does not run it";
                return Err(format!("image {image}: {why}: {path}"));
            }
            return Ok(Some(found));
        }
        // Whatever else is wrong, the pull says it.
        Ok(None)
    }

    fn pull(&self, image: &str, query: &ImageQuery<'_>) -> Result<(), String> {
        let login = format!("--authfile={}", query.folder.join(LOGIN).display());
        let mut words = vec!["pull"];
        if self.kind == EngineKind::Podman {
            words.push(&login);
            if query.is_insecure {
                words.push("--tls-verify=false");
            }
        }
        words.push(image);
        let name = format!("pull-{}", query.process);
        let patience = Patience::WhileItSpeaks(PULL_SILENCE_MAX);
        let said = self.ask(query.folder, &name, &words, patience)?;
        if said.is_success {
            return Ok(());
        }
        Err(format!("{}: image {image}: {}", self.program.display(), last_line(&said.errors)))
    }
}

/// An error of an engine is several lines; the last one that is no hint says most.
fn last_line(text: &[u8]) -> String {
    let text = String::from_utf8_lossy(text);
    let is_hint = |line: &str| HINTS.iter().any(|hint| line.starts_with(hint));
    let mut lines = text.lines().map(str::trim).filter(|line| !line.is_empty() && !is_hint(line));
    lines.next_back().unwrap_or("it says nothing").to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use image::Source;
    use std::os::unix::fs::PermissionsExt;

    const IMAGE: &str = "registry.lab/tools:1";

    /// What is said of an image where a script plays the engine: what it does to inspect one, and to pull one.
    fn refused(kind: EngineKind, inspect: &str, pull: &str, inspect_timeout: Duration) -> String {
        let folder = tempfile::tempdir().expect("scratch folder");
        let program = folder.path().join("engine");
        let text = format!(
            "#!/bin/sh\ncase \"$*\" in\n*inspect*) {inspect} ;;\n*pull*) {pull} ;;\nesac\n"
        );
        std::fs::write(&program, text).expect("written");
        std::fs::set_permissions(&program, PermissionsExt::from_mode(0o755)).expect("a mode");
        let Ok(Source::Registry(reference)) = IMAGE.parse() else { panic!("an image") };
        let query = ImageQuery {
            reference: &reference,
            folder: folder.path(),
            process: 0,
            is_insecure: false,
            inspect_timeout,
        };
        let engine = Engine { kind, program: program.clone() };
        let said = engine.image(&query, &mut |_: &str| {}).err().expect("refused");
        assert_eq!(said.lines().count(), 1, "{said}");
        said.replace(&program.display().to_string(), "engine")
    }

    #[test]
    fn engine_that_is_gone_refuses_or_speaks_otherwise_is_one_line() {
        let unknown = "echo 'Error: No such image' >&2; exit 1";
        let says = |lines: &str| format!("printf '{lines}' >&2; exit 1");
        let gone =
            says("Cannot connect to the Docker daemon at unix:///d. Is the daemon running?\\n");
        let denied = says(
            "Trying to pull registry.lab/tools:1...\\nError response from daemon: pull access denied\\n",
        );
        let newer = says("Error response from daemon: client version 1.99 is too new\\n");
        // \047 is the quotation mark of a hint.
        let option = says("Error: unknown flag: --authfile\\nSee \\047podman pull --help\\047\\n");
        let hint = says("unknown flag: --x\\n\\nUsage:  docker pull NAME\\n");
        let docker = EngineKind::Docker;
        let table = [
            (
                docker,
                gone.as_str(),
                gone.as_str(),
                "Cannot connect to the Docker daemon at unix:///d. Is the daemon running?",
            ),
            (docker, unknown, &denied, "Error response from daemon: pull access denied"),
            (docker, &newer, &newer, "Error response from daemon: client version 1.99 is too new"),
            (EngineKind::Podman, unknown, &option, "Error: unknown flag: --authfile"),
            (docker, unknown, &hint, "unknown flag: --x"),
            (docker, unknown, "exit 1", "it says nothing"),
            (docker, unknown, "exit 0", "it is not there"),
        ];
        for (kind, inspect, pull, why) in table {
            let said = refused(kind, inspect, pull, INSPECT_TIMEOUT);
            assert_eq!(said, format!("engine: image {IMAGE}: {why}"));
        }
        let described = refused(docker, "echo '{}'", "exit 1", INSPECT_TIMEOUT);
        let expected = format!("image {IMAGE}: the engine's description of it cannot be read");
        assert_eq!(described, expected);
    }

    #[test]
    fn engine_that_hangs_is_given_up_in_one_line() {
        let said =
            refused(EngineKind::Docker, "exec sleep 600", "exit 0", Duration::from_millis(200));
        assert_eq!(said, "engine: it does not answer");
    }
}
