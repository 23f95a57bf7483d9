//! What the program prints, in one place: the macros of this name stand for those of the standard library, which panic where nothing
//! can be written.
//!
//! Where standard output is lost, a command ends: quietly if its reader has gone, as in `sluice doctor | head -n 1`, else with one line.
//! What it has begun is cleaned up on the way, so that it unwinds as from a panic. Where standard error is lost nobody can be told, and
//! the command goes on. The long-lived processes (`up`, `server`, `agent`, `gateway`) log, and print no lines of theirs by these macros
//! once they serve.

use std::fmt::Arguments;
use std::io::{self, ErrorKind, Write};
use std::panic::{self, AssertUnwindSafe};
use std::process::ExitCode;
use std::sync::OnceLock;

macro_rules! print {
    ($($words:tt)*) => { $crate::printing::print(format_args!($($words)*)) };
}

macro_rules! println {
    () => { $crate::printing::print(format_args!("\n")) };
    ($($words:tt)*) => { $crate::printing::print_line(format_args!($($words)*)) };
}

macro_rules! eprint {
    ($($words:tt)*) => { $crate::printing::say(format_args!($($words)*)) };
}

macro_rules! eprintln {
    () => { $crate::printing::say(format_args!("\n")) };
    ($($words:tt)*) => { $crate::printing::say_line(format_args!($($words)*)) };
}

/// The command whose output it is, for the line that says that it is lost.
static COMMAND: OnceLock<&'static str> = OnceLock::new();

/// What a command unwinds with once its output is lost.
struct OutputLost;

pub fn set_command(name: &'static str) {
    // A process is one command: the first name holds.
    let _ = COMMAND.set(name);
}

pub fn print(words: Arguments<'_>) {
    written(io::stdout().lock().write_fmt(words));
}

pub fn print_line(words: Arguments<'_>) {
    let mut out = io::stdout().lock();
    let done = out.write_fmt(words).and_then(|()| out.write_all(b"\n"));
    drop(out);
    written(done);
}

pub fn say(words: Arguments<'_>) {
    let _ = io::stderr().lock().write_fmt(words);
}

pub fn say_line(words: Arguments<'_>) {
    let mut out = io::stderr().lock();
    let _ = out.write_fmt(words).and_then(|()| out.write_all(b"\n"));
}

/// Ends the command if this is a failure to write to standard output.
pub fn written(done: io::Result<()>) {
    if let Err(error) = done {
        tell(&error);
        // The cause is told already: the hook of panics has nothing to say.
        panic::resume_unwind(Box::new(OutputLost));
    }
}

/// Says that standard output is lost, unless its reader has gone.
fn tell(error: &io::Error) {
    if error.kind() != ErrorKind::BrokenPipe {
        let command = COMMAND.get().copied().unwrap_or("sluice");
        eprintln!("{command}: error: standard output: {error}");
    }
}

/// Runs a command, and gives its exit code: that of a failure if its output is lost.
pub fn run(command: impl FnOnce() -> ExitCode) -> ExitCode {
    let code = match panic::catch_unwind(AssertUnwindSafe(command)) {
        Ok(code) => code,
        Err(cause) if cause.is::<OutputLost>() => return ExitCode::FAILURE,
        Err(cause) => panic::resume_unwind(cause),
    };
    // What stands behind the last line's end is written only now.
    match io::stdout().flush() {
        Ok(()) => code,
        Err(error) => {
            tell(&error);
            ExitCode::FAILURE
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn command_whose_output_is_lost_fails_after_what_it_has_begun_is_cleaned_up() {
        struct Begun<'a>(&'a mut bool);
        impl Drop for Begun<'_> {
            fn drop(&mut self) {
                *self.0 = true;
            }
        }
        let mut is_cleaned_up = false;
        let code = run(|| {
            let _begun = Begun(&mut is_cleaned_up);
            written(Err(ErrorKind::BrokenPipe.into()));
            ExitCode::SUCCESS
        });
        assert_eq!(format!("{code:?}"), format!("{:?}", ExitCode::FAILURE));
        assert!(is_cleaned_up);
    }
}
