//! `sluice top`: nodes, queue and the log of a job on the whole screen; keys cancel, hold, release and explain jobs.
//!
//! - `look`: what the server is asked when something has changed, on threads of their own
//! - `snapshot`: one answer of the cluster, and its totals
//! - `screen`: what is selected, filtered and sorted, and what a key does to it
//! - `row_order`: which rows are shown, in which order
//! - `draw`, `table`, `columns`: the picture of it
//! - `log_lines`: the end of a log as lines for a screen
//! - `terminal`: the terminal while the screen is ours, and as it was afterwards

mod columns;
mod draw;
mod log_lines;
mod look;
mod row_order;
mod screen;
mod snapshot;
mod table;
mod terminal;
#[cfg(test)]
mod tests;

use super::verb::{ServerLocationArgs, VerbError, VerbResult};
use clap::Args;
use look::{Looker, Reply, Request, Scope};
use ratatui::buffer::Buffer;
use ratatui::crossterm::event::{self, Event};
use ratatui::layout::Rect;
use screen::{Effect, Screen};
use std::io::{IsTerminal, Write};
use std::process::ExitCode;
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::time::Duration;

/// The size of a frame that is printed where neither the terminal nor the environment says one.
const PLAIN_SIZE: (u16, u16) = (120, 40);
/// How often a frame is drawn without news: running jobs are timed in it.
const CLOCK_INTERVAL: Duration = Duration::from_secs(1);
/// The largest size that the environment may ask for.
const SIDE_MAX: u16 = 1000;

#[derive(Args)]
pub struct TopArgs {
    #[command(flatten)]
    server: ServerLocationArgs,
    /// Print one frame as plain text, and end
    #[arg(long)]
    once: bool,
    /// Begin with your own jobs alone
    #[arg(long)]
    mine: bool,
    /// The fewest seconds between two looks at the cluster, which is looked at when something has changed; a large one less often
    #[arg(short, long, value_name = "SECONDS", default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=3600))]
    interval: u64,
}

pub fn run(args: TopArgs) -> VerbResult {
    let is_terminal = std::io::stdin().is_terminal() && std::io::stdout().is_terminal();
    if !args.once && !is_terminal {
        let text = "top needs a terminal; `sluice top --once` prints one frame as text";
        return Err(VerbError::Message(text.into()));
    }
    let mut client = args.server.client()?;
    let user = crate::command::dstack::own_name(&mut client)?;
    let mut screen = Screen::new(user, args.mine);
    // The first look is made before the screen is taken, so that a server that is not there is said in a line.
    let scope = screen.scope();
    // One frame may be of any height, and is not asked for again.
    let rows = scope.rows.filter(|_| !args.once);
    screen.show(look::snapshot(&mut client, Scope { rows, ..scope })?);
    if args.once {
        if let Some(job) = screen.scope().log {
            screen.show_log(job, look::log(&client, job));
        }
        return print_frame(&mut screen);
    }
    let color = std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
    screen.color = color;
    let (replies, inputs) = mpsc::channel();
    let (ask, requests) = mpsc::channel();
    let pause = Duration::from_secs(args.interval);
    let watching = args.server.client()?;
    let commits = screen.snapshot.as_ref().and_then(|snapshot| snapshot.commits);
    let resized = replies.clone();
    let told = move || drop(resized.send(Input::Resized));
    let mut terminal = terminal::Screen::enter(told).map_err(VerbError::file("the terminal"))?;
    let scope = screen.scope();
    let looking = replies.clone();
    let (looks, looked) = mpsc::channel();
    let changed = ask.clone();
    std::thread::spawn(move || look::watch(watching, pause, &looked, &changed));
    std::thread::spawn(move || {
        let reply = |reply| looking.send(Input::Reply(Box::new(reply))).is_ok();
        let looker = Looker { client, scope, pause, looks, reply: &reply };
        looker.run(commits, &requests);
    });
    std::thread::spawn(move || read_keys(&replies));
    let done = serve(&mut terminal, &mut screen, &inputs, &ask);
    drop(terminal);
    done.map(|()| ExitCode::SUCCESS).map_err(VerbError::file("the terminal"))
}

enum Input {
    Terminal(Event),
    /// The next frame has another size.
    Resized,
    Reply(Box<Reply>),
    /// The terminal is gone.
    Closed,
}

fn read_keys(inputs: &Sender<Input>) {
    loop {
        let input = event::read().map_or(Input::Closed, Input::Terminal);
        let is_last = matches!(input, Input::Closed);
        if inputs.send(input).is_err() || is_last {
            return;
        }
    }
}

/// Draws, and does what keys ask for, until one of them quits.
fn serve(
    terminal: &mut terminal::Screen,
    screen: &mut Screen,
    inputs: &mpsc::Receiver<Input>,
    ask: &Sender<Request>,
) -> std::io::Result<()> {
    let mut scope = screen.scope();
    loop {
        terminal.draw(|area, buffer| draw::draw(screen, area, buffer))?;
        let first = match inputs.recv_timeout(CLOCK_INTERVAL) {
            Ok(first) => Some(first),
            Err(RecvTimeoutError::Timeout) => None,
            Err(RecvTimeoutError::Disconnected) => return Ok(()),
        };
        // What has come meanwhile is drawn in one frame.
        for input in first.into_iter().chain(inputs.try_iter()) {
            let effect = match input {
                Input::Terminal(Event::Key(key)) => screen.key(key),
                Input::Terminal(_) | Input::Resized => Effect::None,
                Input::Reply(reply) => {
                    screen.take(*reply);
                    Effect::None
                }
                Input::Closed => return Ok(()),
            };
            match effect {
                Effect::None => {}
                Effect::Quit => return Ok(()),
                Effect::Redraw => terminal.clear()?,
                Effect::Ask(request) => drop(ask.send(request)),
            }
        }
        let next: Scope = screen.scope();
        if next != scope {
            scope = next.clone();
            // The thread that looks ends only with the program.
            let _ = ask.send(Request::Look(next));
        }
    }
}

fn print_frame(screen: &mut Screen) -> VerbResult {
    let from_variable = |name: &str| {
        let value: u16 = std::env::var(name).ok()?.parse().ok()?;
        (1..=SIDE_MAX).contains(&value).then_some(value)
    };
    let known = std::io::stdout().is_terminal().then(terminal::size).flatten();
    let (width, height) = known.unwrap_or(PLAIN_SIZE);
    let width = from_variable("COLUMNS").unwrap_or(width);
    let height = from_variable("LINES").unwrap_or(height);
    let text = plain(screen, width, height);
    let mut out = std::io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => {
            Err(VerbError::file("standard output")(error))
        }
        _ => Ok(ExitCode::SUCCESS),
    }
}

/// A frame as lines of text, without the help line and without empty lines at the end.
fn plain(screen: &mut Screen, width: u16, height: u16) -> String {
    let area = Rect::new(0, 0, width, height);
    let mut buffer = Buffer::empty(area);
    screen.is_plain = true;
    draw::draw(screen, area, &mut buffer);
    let row = |y: u16| {
        let cells = (0..width).filter_map(|x| buffer.cell((x, y)));
        cells.map(|cell| cell.symbol()).collect::<String>()
    };
    let text = (0..height).map(|y| format!("{}\n", row(y).trim_end())).collect::<String>();
    format!("{}\n", text.trim_end())
}
