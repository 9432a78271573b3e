//! The checker finds what is put into a history, and nothing else.

use super::*;

fn write(key: i64, value: i64) -> Operation {
    Operation::Write { key, value }
}

fn seen(list: &[i64]) -> Seen {
    Seen {
        list: list.to_vec(),
        version: list.len(),
        last: list.last().copied().unwrap_or(0),
    }
}

fn read(key: i64, list: &[i64]) -> Operation {
    Operation::Read {
        key,
        seen: seen(list),
    }
}

fn committed(operations: Vec<Operation>) -> Transaction {
    Transaction {
        operations,
        end: End::Committed,
    }
}

/// What both models find.
fn found(history: &[Transaction], last: &[(i64, &[i64])]) -> Vec<Anomaly> {
    let last: BTreeMap<i64, Seen> = last.iter().map(|(key, list)| (*key, seen(list))).collect();
    let [list, register] = [Model::List, Model::Register].map(|model| check(history, &last, model));
    let told: Vec<Anomaly> = list.keys().copied().collect();
    // A register is read less of, so that less is found.
    assert!(
        register.keys().all(|anomaly| told.contains(anomaly)),
        "{register:?}, {list:?}"
    );
    told
}

#[test]
fn a_serial_history_is_well() {
    let history = [
        committed(vec![write(1, 10), read(1, &[10]), write(2, 11)]),
        committed(vec![read(2, &[11]), write(1, 20)]),
        Transaction {
            operations: vec![write(1, 99), read(1, &[10, 20, 99])],
            end: End::Aborted,
        },
        Transaction {
            operations: vec![write(1, 98)],
            end: End::Unknown,
        },
        committed(vec![read(1, &[10, 20]), read(2, &[11])]),
    ];
    assert_eq!(found(&history, &[(1, &[10, 20]), (2, &[11])]), []);
}

#[test]
fn each_anomaly_is_found() {
    // Two transactions write two keys in opposite orders.
    let history = [
        committed(vec![write(1, 10), write(2, 11)]),
        committed(vec![write(1, 20), write(2, 21)]),
    ];
    let of = found(&history, &[(1, &[10, 20]), (2, &[21, 11])]);
    assert_eq!(of, [Anomaly::G0, Anomaly::G1c, Anomaly::G2]);
    // What was aborted.
    let history = [
        Transaction {
            operations: vec![write(1, 10)],
            end: End::Aborted,
        },
        committed(vec![read(1, &[10])]),
    ];
    assert_eq!(found(&history, &[(1, &[10])]), [Anomaly::G1a]);
    assert_eq!(found(&history, &[(1, &[])]), [Anomaly::Lost, Anomaly::G1a]);
    // What was replaced by the same transaction.
    let history = [
        committed(vec![write(1, 10), write(1, 11)]),
        committed(vec![read(1, &[10])]),
    ];
    let of = found(&history, &[(1, &[10, 11])]);
    assert!(of.contains(&Anomaly::G1b), "{of:?}");
    // Each reads what the other wrote.
    let history = [
        committed(vec![write(1, 10), read(2, &[20])]),
        committed(vec![write(2, 20), read(1, &[10])]),
    ];
    assert_eq!(
        found(&history, &[(1, &[10]), (2, &[20])]),
        [Anomaly::G1c, Anomaly::G2]
    );
    // One of two writes of a transaction.
    let history = [
        committed(vec![write(1, 10), write(2, 20)]),
        committed(vec![read(1, &[10]), read(2, &[])]),
    ];
    assert_eq!(
        found(&history, &[(1, &[10]), (2, &[20])]),
        [Anomaly::GSingle, Anomaly::G2]
    );
    // A lost update: both read nothing, and both wrote.
    let history = [
        committed(vec![read(1, &[]), write(1, 10)]),
        committed(vec![read(1, &[]), write(1, 20)]),
    ];
    assert_eq!(
        found(&history, &[(1, &[10, 20])]),
        [Anomaly::GSingle, Anomaly::G2]
    );
    // Write skew.
    let history = [
        committed(vec![read(1, &[]), write(2, 20)]),
        committed(vec![read(2, &[]), write(1, 10)]),
    ];
    assert_eq!(found(&history, &[(1, &[10]), (2, &[20])]), [Anomaly::G2]);
    // What was acknowledged, and is not there.
    let history = [committed(vec![write(1, 10), write(2, 20)])];
    assert_eq!(found(&history, &[(1, &[10]), (2, &[])]), [Anomaly::Lost]);
    let history = [Transaction {
        operations: vec![write(1, 10), write(2, 20)],
        end: End::Unknown,
    }];
    assert_eq!(found(&history, &[(1, &[10]), (2, &[])]), [Anomaly::Lost]);
    // A transaction that does not see itself.
    let history = [committed(vec![write(1, 10), read(1, &[])])];
    assert_eq!(found(&history, &[(1, &[10])]), [Anomaly::Internal]);
    // Two pasts.
    let history = [
        committed(vec![write(1, 10)]),
        committed(vec![write(1, 20)]),
        committed(vec![read(1, &[20, 10])]),
    ];
    let of = found(&history, &[(1, &[10, 20])]);
    assert!(of.contains(&Anomaly::Incompatible), "{of:?}");
}
