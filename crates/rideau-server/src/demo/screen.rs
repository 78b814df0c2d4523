//! Where the demo is shown: redrawn in place on a terminal, line by line
//! elsewhere.

use std::env;
use std::io::{self, IsTerminal, Write};

/// Standard output, and what it can show.
pub(in crate::demo) struct Screen {
    out: io::Stdout,
    /// It is a terminal that can move its cursor.
    live: bool,
    colours: bool,
    /// Lines that the next redraw replaces.
    drawn: usize,
}

/// How words stand out.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::demo) enum Paint {
    Bold,
    Good,
    Bad,
}

impl Screen {
    pub(in crate::demo) fn stdout() -> Self {
        let out = io::stdout();
        let dumb = env::var_os("TERM").is_some_and(|term| term == "dumb");
        let live = out.is_terminal() && !dumb;
        let no_color = env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
        Self {
            out,
            live,
            colours: live && !no_color,
            drawn: 0,
        }
    }

    /// Print a line that stays.
    pub(in crate::demo) fn line(&mut self, line: &str) -> io::Result<()> {
        self.drawn = 0;
        writeln!(self.out, "{line}")
    }

    /// Print lines that replace those of the last redraw, if this is a terminal.
    pub(in crate::demo) fn redraw(&mut self, lines: &[String]) -> io::Result<()> {
        if !self.live {
            return lines.iter().try_for_each(|line| self.line(line));
        }
        if self.drawn > 0 {
            write!(self.out, "\x1b[{}A\r", self.drawn)?;
        }
        for line in lines {
            writeln!(self.out, "\x1b[2K{line}")?;
        }
        self.drawn = lines.len();
        self.out.flush()
    }

    /// The words in a colour, where there are colours.
    pub(in crate::demo) fn paint(&self, paint: Paint, words: &str) -> String {
        if !self.colours {
            return words.into();
        }
        let code = match paint {
            Paint::Bold => 1,
            Paint::Good => 32,
            Paint::Bad => 31,
        };
        format!("\x1b[{code}m{words}\x1b[0m")
    }
}
