//! The terminal: a screen of its own for the demo with somebody at the keys, and the user's back when it ends, however it ends.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use ratatui::DefaultTerminal;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use ratatui::crossterm::terminal;
use tokio::time::{MissedTickBehavior, interval};

use super::changes::Looker;
use super::client::Client;
use super::draw::draw;
use super::stop::Stop;
use super::story::Stage;

/// The time between two screens.
const FRAME_INTERVAL: Duration = Duration::from_millis(66);
/// The time between two looks at the views.
const LOOK_INTERVAL: Duration = Duration::from_millis(100);
/// How soon the keys are left alone when the screen is gone.
const KEYS_INTERVAL: Duration = Duration::from_millis(100);

/// The demo's screen. Dropping it gives the terminal back.
pub struct Screen {
    terminal: DefaultTerminal,
    is_open: Arc<AtomicBool>,
}

impl Screen {
    /// Takes the terminal, and listens to its keys.
    ///
    /// # Errors
    /// It cannot be written to.
    pub fn open(stage: &Arc<Stage>, stop: &Stop) -> io::Result<Self> {
        let screen = Screen {
            terminal: ratatui::try_init()?,
            is_open: Arc::new(AtomicBool::new(true)),
        };
        let (is_open, stage, stop) = (Arc::clone(&screen.is_open), Arc::clone(stage), stop.clone());
        tokio::task::spawn_blocking(move || listen(&is_open, &stage, &stop));
        Ok(screen)
    }

    /// Draws until it is dropped, or the terminal is gone.
    pub async fn show(mut self, stage: Arc<Stage>) -> io::Result<()> {
        let mut ticks = interval(FRAME_INTERVAL);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            let frame = stage.frame();
            self.terminal.draw(|target| draw(&frame, target))?;
        }
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        self.is_open.store(false, Ordering::Relaxed);
        restore();
    }
}

/// Gives the terminal back. Harmless where it was not taken.
pub fn restore() {
    // Nothing can be done for a terminal that is gone.
    let _ = ratatui::try_restore();
}

/// How wide the terminal is; `None`: it does not say.
pub fn width() -> Option<usize> {
    let (width, _) = terminal::size().ok()?;
    (width > 0).then_some(usize::from(width))
}

/// What a key asks for.
#[derive(Debug, PartialEq, Eq)]
enum Wish {
    End,
    Next,
}

fn wish(key: KeyEvent) -> Option<Wish> {
    if key.kind != KeyEventKind::Press {
        return None;
    }
    match key.code {
        KeyCode::Char('c') if key.modifiers.contains(KeyModifiers::CONTROL) => Some(Wish::End),
        KeyCode::Char('q') | KeyCode::Esc => Some(Wish::End),
        KeyCode::Enter | KeyCode::Char(' ' | 'n') | KeyCode::Right => Some(Wish::Next),
        _ => None,
    }
}

fn listen(is_open: &AtomicBool, stage: &Stage, stop: &Stop) {
    while is_open.load(Ordering::Relaxed) {
        match event::poll(KEYS_INTERVAL) {
            Ok(false) => {}
            Ok(true) => match event::read() {
                Ok(Event::Key(key)) => match wish(key) {
                    Some(Wish::End) => stop.ask(),
                    Some(Wish::Next) => stage.skip(),
                    None => {}
                },
                Ok(_) => {}
                Err(_) => return,
            },
            Err(_) => return,
        }
    }
}

/// Reads the views for the screen, again and again, over a connection of its own; a server that is gone is looked for again.
pub async fn look(stage: Arc<Stage>) {
    let pg = stage.frame().addresses.pg;
    let mut ticks = interval(LOOK_INTERVAL);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut looker: Option<Looker> = None;
    loop {
        ticks.tick().await;
        let mut connected = match looker.take() {
            Some(looker) => looker,
            None => match Client::connect(pg).await {
                Ok(client) => Looker::new(client),
                Err(_) => continue,
            },
        };
        if let Ok(seen) = connected.look().await {
            stage.show(seen);
            looker = Some(connected);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_end_it_or_go_on() {
        let key = |code, modifiers| wish(KeyEvent::new(code, modifiers));
        let (none, control) = (KeyModifiers::NONE, KeyModifiers::CONTROL);
        assert_eq!(key(KeyCode::Char('c'), control), Some(Wish::End));
        assert_eq!(key(KeyCode::Char('q'), none), Some(Wish::End));
        assert_eq!(key(KeyCode::Enter, none), Some(Wish::Next));
        assert_eq!(key(KeyCode::Char('c'), none), None);
    }
}
