//! The terminal: a screen of its own for the demo, and the user's back when it ends, however it ends.

use std::io::{self, Write};

use crossterm::cursor::{Hide, MoveTo, Show};
use crossterm::style::{Attribute, Print, SetAttribute};
use crossterm::terminal::{Clear, ClearType, EnterAlternateScreen, LeaveAlternateScreen, size};
use crossterm::{execute, queue};

/// The size where the terminal does not tell it.
const SIZE_DEFAULT: (u16, u16) = (80, 24);

/// The demo's screen. Dropping it gives the terminal back.
pub struct Screen {
    out: io::Stdout,
}

impl Screen {
    /// Takes the terminal.
    ///
    /// # Errors
    /// It cannot be written to.
    pub fn open() -> io::Result<Self> {
        let mut screen = Screen { out: io::stdout() };
        execute!(screen.out, EnterAlternateScreen, Hide, Clear(ClearType::All))?;
        Ok(screen)
    }

    /// Columns and lines, as they are now.
    pub fn size(&self) -> (usize, usize) {
        let (width, height) = size().unwrap_or(SIZE_DEFAULT);
        (usize::from(width), usize::from(height))
    }

    /// Shows these lines in place of the last ones.
    ///
    /// # Errors
    /// The terminal cannot be written to.
    pub fn draw(&mut self, lines: &[String]) -> io::Result<()> {
        for (row, line) in (0..).zip(lines) {
            queue!(self.out, MoveTo(0, row))?;
            if row == 0 {
                queue!(self.out, SetAttribute(Attribute::Bold))?;
            }
            queue!(
                self.out,
                Print(line),
                SetAttribute(Attribute::Reset),
                Clear(ClearType::UntilNewLine)
            )?;
        }
        let end = u16::try_from(lines.len()).unwrap_or(u16::MAX);
        if usize::from(end) < self.size().1 {
            queue!(self.out, MoveTo(0, end), Clear(ClearType::FromCursorDown))?;
        }
        self.out.flush()
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        restore();
    }
}

/// Gives the terminal back. Harmless where it was not taken.
pub fn restore() {
    // Nothing can be done for a terminal that is gone.
    let _ = execute!(io::stdout(), Show, LeaveAlternateScreen);
}
