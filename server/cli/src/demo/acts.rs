//! The story that the demo tells: its acts, in order, with the words that explain each. Pure text; what happens in them is in
//! [`super::story`].

use std::time::Duration;

use millrace_console::flights::VIEWS;

use super::heavy::HEAVY;
use super::schema::{COUNT, rename};

/// What the acts are about, as the top of the screen names it.
pub const STEPS: [&str; 5] = ["views", "UPDATE", "heavy SELECTs", "kill -9", "yours"];

/// What happens in an act beside the flights that come in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event {
    /// Nothing: a view is looked at.
    Watch,
    /// In the middle an airline gets another's name.
    Rename,
    /// Batches are sent as they are beside heavy queries, beside nothing.
    Alone,
    /// Heavy queries run, under this policy.
    Heavy(Policy),
    /// In the middle the server is killed.
    Kill,
}

/// Who goes first where a view's change and a heavy query want the same core.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Policy {
    /// The change: the query is paused.
    Pausing,
    /// Whoever came first.
    InTurn,
}

impl Policy {
    /// Its name in `scheduler_policy`.
    pub fn name(self) -> &'static str {
        match self {
            Policy::Pausing => "lma",
            Policy::InTurn => "fifo",
        }
    }
}

/// An act.
pub struct Act {
    /// Which of [`STEPS`] it belongs to.
    pub step: usize,
    /// What is to be seen, in a line.
    pub title: &'static str,
    /// The same in a few sentences.
    pub words: &'static str,
    /// What only a screen shows.
    pub look: &'static str,
    /// Which of the views it is about.
    pub view: usize,
    /// What happens.
    pub event: Event,
    /// Its part of the minute.
    pub seconds: u64,
}

/// How long each of the acts lasts that are compared with each other.
const COMPARED_SECONDS: u64 = 6;
/// The same where nobody watches.
const COMPARED_UNWATCHED: Duration = Duration::from_secs(3);

/// The acts, in order; a minute together.
pub const ACTS: [Act; 10] = [
    Act {
        step: 0,
        title: "A view is a query that stays answered",
        words: "The flights from New York in January 2013 come in as a stream. This view counts them by carrier. Nobody asks it \
                again: each flight moves the one row that it touches.",
        look: "What changed just now is lit.",
        view: 0,
        event: Event::Watch,
        seconds: 8,
    },
    Act {
        step: 0,
        title: "The stream joined with a table",
        words: "The same by the airline's name, which stands in the table airlines.",
        look: "The line below is the time from sending flights to reading them in the view, over a connection as yours would be.",
        view: 1,
        event: Event::Watch,
        seconds: 7,
    },
    Act {
        step: 0,
        title: "A view over a view",
        words: "The airlines above, sorted into punctual and late ones. When a flight makes an airline late, the airline moves \
                from one row to the other here, in the same step.",
        look: "",
        view: 2,
        event: Event::Watch,
        seconds: 5,
    },
    Act {
        step: 0,
        title: "Distinct counts, kept too",
        words: "Who built the planes, how many different ones flew, and how far. All four views answer from one moment: a SELECT \
                over several of them never mixes an older one with a newer one.",
        look: "",
        view: 3,
        event: Event::Watch,
        seconds: 5,
    },
    Act {
        step: 1,
        title: "One UPDATE, and the past is right",
        words: "US Airways joined American. One row of the table airlines gets another name, and thousands of flights that came \
                before belong to another airline. No job runs again, and nothing is rebuilt: the view moves these two rows.",
        look: "",
        view: 1,
        event: Event::Rename,
        seconds: 8,
    },
    Act {
        step: 2,
        title: "First, nothing beside the view",
        words: "Twenty flights at a time, for as long as in the next two parts, which differ from this one in nothing but what runs \
                beside it.",
        look: "",
        view: 0,
        event: Event::Alone,
        seconds: COMPARED_SECONDS,
    },
    Act {
        step: 2,
        title: "Heavy SELECTs on all cores, paused for the view",
        words: "Now more analysts than there are cores sort and group four million rows each, again and again. When a flight comes \
                in, a SELECT is paused in the middle, the view gets its change, and the SELECT goes on.",
        look: "",
        view: 0,
        event: Event::Heavy(Policy::Pausing),
        seconds: COMPARED_SECONDS,
    },
    Act {
        step: 2,
        title: "The same SELECTs, first come first served",
        words: "The same again with the pausing switched off: whoever came first has the core, and a flight waits until a SELECT's task \
                leaves one.",
        look: "Compare the lines of the table, and the line below.",
        view: 0,
        event: Event::Heavy(Policy::InTurn),
        seconds: COMPARED_SECONDS,
    },
    Act {
        step: 3,
        title: "kill -9, and back",
        words: "The server is a process of its own. It is killed while flights are on their way to it, started again over the same \
                directory, and asked for what it had acknowledged.",
        look: "",
        view: 0,
        event: Event::Kill,
        seconds: 5,
    },
    Act {
        step: 4,
        title: "The rest of the month: look for yourself",
        words: "At the end every view is compared with its query, run once over all of the flights.",
        look: "The lines at the bottom work now: paste the first into another terminal, open the second in a browser.",
        view: 0,
        event: Event::Watch,
        seconds: 4,
    },
];

impl Act {
    /// The words for a screen.
    pub fn words_on_screen(&self) -> String {
        let words = self.words.split_whitespace().chain(self.look.split_whitespace());
        words.collect::<Vec<_>>().join(" ")
    }

    /// The statements that it is about, as they are sent.
    pub fn sql(&self) -> String {
        match self.event {
            Event::Watch | Event::Alone => format!("{};", VIEWS[self.view].create()),
            Event::Rename => format!("{};", rename(0)),
            Event::Kill => format!("{COUNT};"),
            Event::Heavy(policy) => format!(
                "ALTER SYSTEM SET scheduler_policy = '{}';\n{HEAVY};",
                policy.name()
            ),
        }
    }

    /// Whether its freshness is compared with that of others: then it is the time that ends it, and not its share of the flights.
    pub fn is_compared(&self) -> bool {
        matches!(self.event, Event::Alone | Event::Heavy(_))
    }

    /// For how long it lasts where the month takes so long; where nobody watches, no time at all.
    pub fn lasts(&self, month: Duration) -> Duration {
        if self.is_compared() {
            return match month.is_zero() {
                true => COMPARED_UNWATCHED,
                false => Duration::from_secs(COMPARED_SECONDS),
            };
        }
        let minute = Duration::from_secs(ACTS.iter().map(|act| act.seconds).sum());
        let own = Duration::from_secs(self.seconds);
        own.max(own.mul_f64(month.as_secs_f64() / minute.as_secs_f64()))
    }
}

/// How many of so many flights are to be sent when this act is over.
pub fn flights_until(act: usize, flights: usize) -> usize {
    let seconds = |acts: &[Act]| acts.iter().map(|act| act.seconds as usize).sum::<usize>();
    flights * seconds(&ACTS[..=act]) / seconds(&ACTS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_acts_are_a_minute_and_all_of_the_flights() {
        assert_eq!(ACTS.iter().map(|act| act.seconds).sum::<u64>(), 60);
        assert_eq!(flights_until(ACTS.len() - 1, 27_004), 27_004);
        assert!(ACTS.is_sorted_by_key(|act| act.step));
        assert_eq!(ACTS[ACTS.len() - 1].step, STEPS.len() - 1);
        let (minute, hour) = (Duration::from_secs(60), Duration::from_secs(3600));
        assert_eq!(ACTS[0].lasts(minute / 10), Duration::from_secs(8));
        assert_eq!(ACTS[0].lasts(hour), Duration::from_secs(8 * 60));
        // What is compared lasts as long, whatever the pace.
        for month in [Duration::ZERO, minute, hour] {
            let compared = ACTS.iter().filter(|act| act.is_compared());
            let lengths: Vec<Duration> = compared.map(|act| act.lasts(month)).collect();
            assert!(
                lengths.len() == 3 && lengths.iter().all(|length| *length == lengths[0]),
                "{lengths:?}"
            );
        }
    }
}
