//! Calls of an engine that have a deadline: its daemon may hang.

use super::Engine;
use std::fs::File;
use std::io::Read;
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

const POLL: Duration = Duration::from_millis(20);
/// Bytes of an answer that are read.
const ANSWER_BYTES_MAX: u64 = 4 << 20;

/// What an engine said before it ended.
pub(super) struct Answer {
    pub is_success: bool,
    pub output: Vec<u8>,
    pub errors: Vec<u8>,
}

/// How long an engine is waited for.
#[derive(Debug, Clone, Copy)]
pub(super) enum Patience {
    Until(Instant),
    /// As long as it says something new within this time.
    WhileItSpeaks(Duration),
}

impl Engine {
    /// Calls the engine, and kills the call when it is waited for no longer. What it says goes to files of `folder` that begin with `name`:
    /// the end of a pipe may be awaited for as long as anything that the engine started.
    pub(super) fn ask(
        &self,
        folder: &Path,
        name: &str,
        words: &[&str],
        patience: Patience,
    ) -> Result<Answer, String> {
        let failed = |e: std::io::Error| format!("{}: {e}", self.program.display());
        let paths = ["output", "errors"].map(|stream| folder.join(format!("{name}-{stream}")));
        let [output, errors] = &paths;
        let mut command = self.call(folder);
        command.args(words).stdin(Stdio::null());
        command.stdout(File::create(output).map_err(failed)?);
        command.stderr(File::create(errors).map_err(failed)?);
        let mut child = command.spawn().map_err(failed)?;
        let (mut heard, mut heard_bytes) = (Instant::now(), 0);
        let status = loop {
            let said: u64 = paths.iter().filter_map(|path| Some(path.metadata().ok()?.len())).sum();
            if said != heard_bytes {
                (heard, heard_bytes) = (Instant::now(), said);
            }
            let late = match patience {
                Patience::Until(deadline) if Instant::now() < deadline => None,
                Patience::Until(_) => Some("it does not answer".to_owned()),
                Patience::WhileItSpeaks(silence) if heard.elapsed() < silence => None,
                Patience::WhileItSpeaks(silence) => {
                    Some(format!("no progress for {} s", silence.as_secs()))
                }
            };
            match (child.try_wait(), late) {
                (Ok(Some(status)), _) => break status,
                (Ok(None), None) => std::thread::sleep(POLL),
                (_, late) => {
                    let _ = child.kill();
                    let _ = child.wait();
                    let why = late.unwrap_or_else(|| "it cannot be waited for".to_owned());
                    return Err(format!("{}: {why}", self.program.display()));
                }
            }
        };
        let read = |path: &Path| {
            let mut said = Vec::new();
            File::open(path)?.take(ANSWER_BYTES_MAX).read_to_end(&mut said)?;
            Ok(said)
        };
        Ok(Answer {
            is_success: status.success(),
            output: read(output).map_err(failed)?,
            errors: read(errors).map_err(failed)?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::site::EngineKind;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn call_is_waited_for_as_long_as_it_says_something() {
        let folder = tempfile::tempdir().expect("scratch folder");
        let program = folder.path().join("engine");
        let text = "#!/bin/sh\ncase $1 in\nspeaks) for i in 1 2 3 4 5 6 7 8; do echo $i; sleep 0.1; done;;\n\
                    fails) echo no such image >&2; exit 3;;\n*) exec sleep 600;;\nesac\n";
        std::fs::write(&program, text).expect("written");
        std::fs::set_permissions(&program, PermissionsExt::from_mode(0o755)).expect("a mode");
        let engine = Engine { kind: EngineKind::Docker, program };
        let ask = |word: &str, silence: Duration| {
            engine.ask(folder.path(), "pull", &[word], Patience::WhileItSpeaks(silence))
        };
        let long = Duration::from_secs(60);
        let said = ask("speaks", long).expect("it ends");
        assert!(said.is_success && said.output.ends_with(b"8\n"));
        let said = ask("fails", long).expect("it ends");
        assert!(!said.is_success && said.errors == b"no such image\n");
        let silent = ask("hangs", Duration::from_millis(200)).err().expect("it is killed");
        assert!(silent.ends_with("engine: no progress for 0 s"), "{silent}");
    }
}
