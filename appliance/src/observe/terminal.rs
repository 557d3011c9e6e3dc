//! `gnomon stats` and `gnomon top`: a running gnomon's metrics, for scripts and for people.
//!
//! In: where it serves them. Out: lines, or screens until their reader has gone. Fails when
//! no server answers.

use crate::observe::metrics::{Reading, families, fetch, reference, samples, screen};
use crate::startup::flags::{StatsFlags, TopFlags};
use std::error::Error;
use std::io::{self, Write};
use std::time::{Duration, Instant};

/// Clears the screen and goes to its first line.
const CLEAR: &str = "\x1b[H\x1b[2J";

/// Prints all metrics, or those of one name. False when there are none of that name.
///
/// # Errors
/// [`crate::observe::metrics::FetchError`]. A reader that has gone is no error.
pub fn stats(flags: &StatsFlags) -> Result<bool, Box<dyn Error>> {
    if flags.list {
        print(&reference())?;
        return Ok(true);
    }
    let page = fetch(&flags.at.address())?;
    let text = match &flags.name {
        None => page,
        Some(name) => samples(&page, name),
    };
    if let (Some(name), true) = (&flags.name, text.is_empty()) {
        let known = families().iter().any(|family| family.name == name);
        return Err(match known {
            true => format!("{name} has no samples here: what it is about is not in use").into(),
            false => {
                format!("there is no metric {name}; `gnomon stats --list` has them all").into()
            }
        });
    }
    print(&text)?;
    Ok(true)
}

/// Shows screens, each about the time since the one before; the first about the first interval.
///
/// # Errors
/// [`crate::observe::metrics::FetchError`]. A reader that has gone is no error.
pub fn top(flags: &TopFlags) -> Result<(), Box<dyn Error>> {
    let address = flags.at.address();
    let look = || fetch(&address).map(|page| (Instant::now(), Reading::new(&page)));
    let mut before = look()?;
    loop {
        std::thread::sleep(Duration::from_secs(flags.interval.into()));
        let now = look()?;
        let passed = now.0.saturating_duration_since(before.0);
        let text = screen(&before.1, &now.1, passed);
        let clear = if flags.once { "" } else { CLEAR };
        if !print(&format!("{clear}{text}"))? || flags.once {
            return Ok(());
        }
        before = now;
    }
}

/// False: the reader has gone, which is no error.
fn print(text: &str) -> io::Result<bool> {
    let mut out = io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(e) if e.kind() == io::ErrorKind::BrokenPipe => Ok(false),
        printed => printed.map(|()| true),
    }
}
