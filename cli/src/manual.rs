//! `profrec completions` and `profrec man`: what the definition of the command line says, for shells and for `man`.

use crate::args::{Completions, Man, definition};
use crate::ending::Ending;
use crate::error::Error;
use crate::output::to_standard_output;
use crate::pending::{PendingFile, reason};
use clap_mangen::Man as Page;

/// Prints the completions of a shell.
pub(crate) fn completions(completions: &Completions) -> Result<Ending, Error> {
    let mut script = Vec::new();
    clap_complete::generate(completions.shell, &mut definition(), "profrec", &mut script);
    to_standard_output(|out| out.write_all(&script))?;
    Ok(Ending::Code(0))
}

/// Writes a page for `profrec` and one for each of its commands.
pub(crate) fn man(man: &Man) -> Result<Ending, Error> {
    let directory = &man.directory;
    std::fs::create_dir_all(directory)
        .map_err(|e| Error::failure(format!("cannot make the directory '{}': {}", directory.display(), reason(&e))))?;
    let mut whole = definition().disable_help_subcommand(true);
    whole.build();
    let commands: Vec<clap::Command> = whole.get_subcommands().cloned().collect();
    for command in std::iter::once(whole).chain(commands) {
        let name = match command.get_name() {
            "profrec" => "profrec".to_owned(),
            name => format!("profrec-{name}"),
        };
        let page = Page::new(command.display_name(&name)).title(&name);
        let file = PendingFile::create(directory.join(format!("{name}.1")))?;
        file.finish(|out| {
            let mut text = Vec::new();
            page.render(&mut text)?;
            out.write_all(as_readers_expect(&String::from_utf8_lossy(&text), &name).as_bytes())
        })?;
    }
    Ok(Ending::Code(0))
}

/// The page with a heading that keeps its empty date in its place, and without line breaks around paragraphs.
fn as_readers_expect(page: &str, name: &str) -> String {
    let heading = concat!(" 1 \"\" \"profrec ", env!("CARGO_PKG_VERSION"), "\" \"Profile Recorder\"");
    let line = |line: &str| match line.strip_prefix(".TH ") {
        Some(_) => format!(".TH {name}{heading}\n"),
        None => format!("{line}\n"),
    };
    let page: String = page.lines().map(line).collect();
    with_examples_as_they_are(&page.replace("\n.br\n\n.br\n", "\n.sp\n"))
}

/// Examples are columns: their lines are not to be filled.
fn with_examples_as_they_are(page: &str) -> String {
    let Some((before, extra)) = page.split_once("\n.SH EXTRA\n") else { return page.to_owned() };
    let extra = extra.strip_prefix("Examples:\n").unwrap_or(extra);
    let (examples, after) = extra.find("\n.SH ").map_or((extra, ""), |end| extra.split_at(end));
    format!("{before}\n.SH EXAMPLES\n.nf\n{}\n.fi{after}", examples.trim_end())
}
