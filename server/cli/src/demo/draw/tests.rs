//! Screens at the sizes that people have.

use std::time::Duration;

use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::style::Color;

use super::super::acts::Policy;
use super::super::frame::{Addresses, Beside, Sample};
use super::super::replay::{Checked, Killed, Renamed};
use super::*;
use crate::table::ResultTable;

const SIZES: [(u16, u16); 2] = [(80, 24), (200, 60)];

fn table(columns: &[&str], rows: &[&[&str]]) -> ResultTable {
    ResultTable {
        columns: columns.iter().map(|name| (*name).to_owned()).collect(),
        rows: rows
            .iter()
            .map(|row| row.iter().map(|value| Some((*value).to_owned())).collect())
            .collect(),
    }
}

/// A frame in that act, with everything that is known by then.
fn frame(act: usize) -> Frame {
    let mut frame = Frame::new(Addresses {
        pg: "127.0.0.1:5433".parse().unwrap(),
        http: "127.0.0.1:40123".parse().unwrap(),
        taken: vec!["127.0.0.1:8033".parse().unwrap()],
    });
    frame.act = act;
    frame.clock = Some("2013-01-03T09:15:00".parse().unwrap());
    frame.rows = 2_160;
    frame.rows_a_pass = 27_004;
    frame.rows_per_second = 449.7;
    let tables = [
        table(
            &["carrier", "departed", "delay", "late"],
            &[
                &["UA", "415", "5.8", "66"],
                &["B6", "377", "2.1", "41"],
                &["EV", "311", "14.0", "88"],
            ],
        ),
        table(
            &["airline", "departed", "delay"],
            &[
                &["United Air Lines Inc.", "415", "5.8"],
                &["ExpressJet Airlines Inc.", "311", "14.0"],
                &["JetBlue Airways", "377", "2.1"],
            ],
        ),
        table(
            &["class", "airlines", "departed"],
            &[&["punctual", "9", "1082"], &["late", "5", "311"]],
        ),
        table(
            &["maker", "flights", "planes", "miles"],
            &[
                &["BOEING", "803", "389", "1123456"],
                &["MCDONNELL DOUGLAS AIRCRAFT CO", "402", "98", "498765"],
            ],
        ),
    ];
    let at = Duration::from_secs;
    for (panel, table) in frame.panels.iter_mut().zip(tables) {
        panel.lights.observe(&table, at(1));
        panel.table = table;
    }
    let beside = |second| match second {
        33..39 => Beside::Alone,
        39..45 => Beside::Heavy(Policy::Pausing),
        45..51 => Beside::Heavy(Policy::InTurn),
        51 => Beside::Kill,
        _ => Beside::Nothing,
    };
    let end = [8, 15, 20, 25, 33, 39, 45, 51, 56, 60][act];
    frame.samples = (0..end)
        .map(|second| Sample {
            at: at(second),
            freshness: match beside(second) {
                Beside::Heavy(Policy::Pausing) => Duration::from_micros(3_900),
                Beside::Heavy(Policy::InTurn) => Duration::from_millis(210),
                Beside::Kill => Duration::from_millis(433),
                _ => Duration::from_micros(2_100),
            },
            beside: beside(second),
        })
        .collect();
    frame.elapsed = at(end);
    frame.outcome = match ACTS[act].event {
        Event::Rename => Some(Outcome::Renamed(Renamed {
            took: Duration::from_micros(5_500),
            departed: [[Some(802), Some(1_341)], [None, Some(2_143)]],
        })),
        Event::Kill => Some(Outcome::Killed(
            Killed {
                process: 4711,
                acknowledged: 22_140,
                on_its_way: (45, false),
                ready_after: Duration::from_millis(412),
                down_for: Duration::from_millis(433),
            },
            Checked {
                took: Duration::from_millis(61),
                same: 4,
                changed: vec![],
            },
        )),
        _ => None,
    };
    frame
}

fn terminal(shown: &Frame, (width, height): (u16, u16)) -> Terminal<TestBackend> {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
    terminal.draw(|target| draw(shown, target)).unwrap();
    terminal
}

fn text(shown: &Frame, size: (u16, u16)) -> String {
    let buffer = terminal(shown, size).backend().buffer().clone();
    let lines = buffer.content.chunks(usize::from(size.0).max(1)).map(|line| {
        let line: String = line.iter().map(ratatui::buffer::Cell::symbol).collect();
        line.trim_end().to_owned()
    });
    lines.collect::<Vec<_>>().join("\n")
}

#[test]
fn a_view_its_query_and_its_freshness_at_80x24() {
    insta::assert_snapshot!(text(&frame(0), (80, 24)));
}

#[test]
fn the_update_at_80x24() {
    insta::assert_snapshot!(text(&frame(4), (80, 24)));
}

#[test]
fn heavy_queries_at_80x24() {
    insta::assert_snapshot!(text(&frame(7), (80, 24)));
}

#[test]
fn the_killed_server_at_80x24() {
    insta::assert_snapshot!(text(&frame(8), (80, 24)));
}

#[test]
fn all_views_and_the_update_at_200x60() {
    insta::assert_snapshot!(text(&frame(4), (200, 60)));
}

/// Every word of the SQL is there, behind the one before it, wherever it was wrapped.
fn sql_is_whole(act: usize, screen: &str) {
    let mut rest = screen.split_once("───").unwrap().1;
    for word in ACTS[act].sql().split_whitespace() {
        rest = rest
            .split_once(word)
            .unwrap_or_else(|| panic!("{word} of act {act} is missing\n{screen}"))
            .1;
    }
}

#[test]
fn the_longest_query_has_the_whole_width_at_80x24() {
    insta::assert_snapshot!(text(&frame(3), (80, 24)));
}

#[test]
fn every_act_has_its_words_its_sql_and_where_to_connect() {
    for (number, act) in ACTS.iter().enumerate() {
        for size in SIZES {
            let mut shown = frame(number);
            shown.outcome = None;
            let screen = text(&shown, size);
            let squeezed: String = screen.split_whitespace().collect::<Vec<_>>().join(" ");
            assert!(
                squeezed.contains(&act.words_on_screen()),
                "act {number} at {size:?}\n{screen}"
            );
            for expected in [
                "psql -h 127.0.0.1 -p 5433 -U millrace millrace",
                "http://127.0.0.1:40123/",
                " ms alone",
                "2013-01-03 09:15   2,160 of 27,004 flights",
            ] {
                assert!(
                    screen.contains(expected),
                    "{expected} in act {number} at {size:?}\n{screen}"
                );
            }
            sql_is_whole(number, &screen);
            // With what came of it, too, and that is whole.
            let screen = text(&frame(number), size);
            sql_is_whole(number, &screen);
            for expected in ["45 flights, not arrived, sent again", "433 ms kill -9"] {
                assert!(
                    act.event != Event::Kill || screen.contains(expected),
                    "{expected} at {size:?}\n{screen}"
                );
            }
        }
    }
}

#[test]
fn what_changed_is_lit() {
    for size in SIZES {
        let mut shown = frame(0);
        let lit = |shown: &Frame| {
            let terminal = terminal(shown, size);
            let cells = terminal.backend().buffer().content.clone();
            let lit = cells.iter().filter(|cell| cell.bg == Color::Yellow);
            lit.map(|cell| cell.symbol().to_owned()).collect::<String>()
        };
        assert_eq!(lit(&shown), "");
        let mut changed = ResultTable {
            columns: shown.panels[0].table.columns.clone(),
            rows: shown.panels[0].table.rows.clone(),
        };
        changed.rows[1][1] = Some("378".into());
        let now = shown.elapsed;
        shown.panels[0].lights.observe(&changed, now);
        shown.panels[0].table = changed;
        assert_eq!(lit(&shown).trim(), "378", "{size:?}");
    }
}

#[test]
fn what_others_have_changed_is_told() {
    for size in [(40, 15), (80, 24), (200, 60)] {
        let mut shown = frame(0);
        shown.changed = vec!["carrier_delays: changed by you (it is gone)".into()];
        shown.panels[0].is_changed = true;
        let screen = text(&shown, size);
        assert!(screen.contains("changed by you: carrier_delays"), "{screen}");
        if size != (40, 15) {
            assert!(screen.contains(" carrier_delays: changed by you "), "{screen}");
        }
    }
}

#[test]
fn any_size_is_drawn() {
    for act in 0..ACTS.len() {
        for size in [
            (0, 0),
            (1, 1),
            (10, 3),
            (1, 60),
            (200, 1),
            (40, 15),
            (49, 17),
            (50, 18),
            (50, 60),
            (200, 18),
            (79, 23),
            (139, 80),
            (140, 40),
            (300, 100),
        ] {
            text(&frame(act), size);
        }
    }
    // What matters most is on small ones, too.
    for (words, size) in [
        ("psql -h 127.0.0.1 -p 5433 -U millrace millrace", (40, 15)),
        ("2,160 of 27,004 flights", (40, 15)),
        ("q ends", (40, 15)),
        ("A view is a query that stays answered", (20, 6)),
    ] {
        let screen = text(&frame(0), size);
        let squeezed: String = screen.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(squeezed.contains(words), "{words} at {size:?}\n{screen}");
    }
    // Before anything was sent.
    let empty = Frame::new(frame(0).addresses);
    for size in SIZES {
        assert!(text(&empty, size).contains("0 flights"));
    }
}
