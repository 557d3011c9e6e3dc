//! Manual pages, a reference in Markdown and shell completions, made from the flags.

mod reference;

pub use reference::reference;

use crate::startup::flags::Cli;
use clap::{Command, CommandFactory};
use std::fs::File;
use std::io::{self, Write};
use std::path::Path;

/// Writes `gnomon.1` and a page for each command into `dir`.
///
/// # Errors
/// What the system says about a file.
pub fn manual(dir: &Path) -> io::Result<()> {
    let mut root = Cli::command();
    root.build();
    page(&root, "gnomon", dir)?;
    for command in root.get_subcommands().filter(|c| c.get_name() != "help") {
        page(command, &format!("gnomon-{}", command.get_name()), dir)?;
    }
    Ok(())
}

fn page(command: &Command, name: &str, dir: &Path) -> io::Result<()> {
    let file = File::create(dir.join(format!("{name}.1")))?;
    let mut out = io::BufWriter::new(file);
    clap_mangen::Man::new(command.clone()).title(name).render(&mut out)?;
    out.flush()
}

/// What `shell` needs to complete flags.
pub fn completions(shell: clap_complete::Shell) -> Vec<u8> {
    let mut text = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "gnomon", &mut text);
    text
}
