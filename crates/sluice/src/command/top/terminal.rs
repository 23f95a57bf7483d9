//! The terminal while the screen is ours: its other screen, raw, without a cursor. Every end gives it back as it was: the
//! program's own, a panic of any thread, and a signal.

use nix::sys::signal::{SigSet, Signal};
use ratatui::Terminal;
use ratatui::backend::CrosstermBackend;
use ratatui::buffer::Buffer;
use ratatui::crossterm::cursor::Show;
use ratatui::crossterm::execute;
use ratatui::crossterm::terminal::{
    EnterAlternateScreen, LeaveAlternateScreen, disable_raw_mode, enable_raw_mode,
};
use ratatui::layout::Rect;
use std::io::{self, Stdout, stdout};
use std::sync::{Mutex, PoisonError};

/// The exit code of a program that panicked.
const PANICKED: i32 = 101;
/// A shell adds this to the number of the signal that ended a program.
const SIGNAL_BASE: i32 = 128;

/// Held while a frame is written, and by a signal from the terminal's return to the program's end: no part of a frame follows that.
static WRITING: Mutex<()> = Mutex::new(());

pub struct Screen {
    terminal: Terminal<CrosstermBackend<Stdout>>,
}

impl Screen {
    /// `resized` is called when the terminal has another size.
    pub fn enter(resized: impl Fn() + Send + 'static) -> io::Result<Self> {
        take_signals(resized)?;
        restore_on_panic();
        enable_raw_mode()?;
        let entered = execute!(stdout(), EnterAlternateScreen)
            .and_then(|()| Terminal::new(CrosstermBackend::new(stdout())))
            .and_then(|mut terminal| terminal.hide_cursor().map(|()| terminal));
        if entered.is_err() {
            restore();
        }
        Ok(Self { terminal: entered? })
    }

    /// Writes what differs from the last frame.
    pub fn draw(&mut self, draw: impl FnOnce(Rect, &mut Buffer)) -> io::Result<()> {
        let _writing = WRITING.lock().unwrap_or_else(PoisonError::into_inner);
        self.terminal.draw(|frame| draw(frame.area(), frame.buffer_mut())).map(|_| ())
    }

    /// The next frame is drawn whole.
    pub fn clear(&mut self) -> io::Result<()> {
        let _writing = WRITING.lock().unwrap_or_else(PoisonError::into_inner);
        self.terminal.clear()
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        restore();
    }
}

/// A terminal that is gone needs no restoring.
fn restore() {
    let _ = execute!(stdout(), LeaveAlternateScreen, Show);
    let _ = disable_raw_mode();
}

/// Columns and rows.
pub fn size() -> Option<(u16, u16)> {
    ratatui::crossterm::terminal::size().ok()
}

fn restore_on_panic() {
    let usual = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        restore();
        usual(panic);
        std::process::exit(PANICKED);
    }));
}

/// Ctrl-C is a key while the terminal is raw; these come from elsewhere. SIGWINCH must not reach the reader of keys, which
/// forgets a key that comes together with it until the next one is typed.
fn take_signals(resized: impl Fn() + Send + 'static) -> io::Result<()> {
    let ends = [Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP, Signal::SIGQUIT];
    let signals: SigSet = ends.into_iter().chain([Signal::SIGWINCH]).collect();
    // Blocked in every thread, so that the one that waits for them gets them.
    signals.thread_block()?;
    std::thread::spawn(move || {
        while let Ok(signal) = signals.wait() {
            if signal == Signal::SIGWINCH {
                resized();
                continue;
            }
            let _writing = WRITING.lock().unwrap_or_else(PoisonError::into_inner);
            restore();
            std::process::exit(SIGNAL_BASE + signal as i32);
        }
    });
    Ok(())
}
