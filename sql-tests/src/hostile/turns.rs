//! Expressions in which a few operations take turns, dozens of times within each other: what asks twice about what is within it takes
//! twice as long, or as much memory, with each turn.

use rand::Rng;
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;

/// What each step takes and gives (i: integer, n: numeric, s: text, o: boolean, d: date, t: timestamp), and how it is written.
const STEPS: [(char, char, &str); 44] = [
    ('i', 'i', "({} + 1)"),
    ('i', 'i', "(2 * {} - id)"),
    ('i', 'i', "({} / 2)"),
    ('i', 'i', "(-{})"),
    ('i', 'i', "abs({})"),
    ('i', 'i', "coalesce({}, id, 1)"),
    ('i', 'i', "nvl({}, 1 / id)"),
    ('i', 'i', "greatest({}, id)"),
    ('i', 'i', "nullif({}, 5)"),
    ('i', 'i', "CASE WHEN id > 3 THEN {} ELSE 2 END"),
    ('i', 'i', "CASE {} WHEN 1 THEN id ELSE 3 END"),
    ('i', 'i', "({}::bigint)::int"),
    ('i', 'i', "(SELECT {})"),
    ('i', 'i', "(ARRAY[{}, 1])[1]"),
    ('i', 'n', "({} + 1.5)"),
    ('i', 'n', "coalesce({}, 1.25)"),
    ('i', 'n', "CASE WHEN id > 3 THEN {} ELSE 2.5 END"),
    ('i', 's', "{}::text"),
    ('i', 'o', "({} > 1)"),
    ('i', 'o', "({} IN (1, 2, id))"),
    ('i', 'o', "({} BETWEEN 1 AND 4)"),
    ('i', 'o', "({} IS DISTINCT FROM 3)"),
    ('i', 'd', "(date '2020-01-01' + {})"),
    ('n', 'n', "({} + 1)"),
    ('n', 'n', "({} / 3)"),
    ('n', 'n', "round({}, 2)"),
    ('n', 'n', "{}::numeric(10, 3)"),
    ('n', 'n', "coalesce({}, 1.125, id)"),
    ('n', 'i', "{}::int"),
    ('s', 's', "({} || 'a')"),
    ('s', 's', "substr({}, 1, 3)"),
    ('s', 's', "coalesce({}, v)"),
    ('s', 'i', "length({})"),
    ('s', 'o', "({} LIKE 'a%')"),
    ('o', 'o', "(NOT {})"),
    ('o', 'o', "({} AND id > 3)"),
    ('o', 'o', "({} IS NULL)"),
    ('o', 'i', "{}::int"),
    ('o', 'i', "CASE WHEN {} THEN 1 ELSE id END"),
    ('d', 'd', "({} + 1)"),
    ('d', 'i', "({} - date '2020-01-01')"),
    ('d', 't', "({} + interval '1 day')"),
    ('t', 'd', "{}::date"),
    ('t', 't', "({} + interval '1 s')"),
];

/// An expression over the columns `id` and `v`, in parentheses, or a chain of WITH queries with a step each.
pub fn statement(random: &mut StdRng) -> String {
    let mut cycle: Vec<(char, char, &str)> = vec![];
    let first = *STEPS.choose(random).expect("there are some");
    cycle.push(first);
    // Back to what the first one takes, which is never far.
    while cycle.len() < 6 {
        let (last, begin) = (cycle[cycle.len() - 1].1, cycle[0].0);
        if last == begin && random.random_bool(0.6) {
            break;
        }
        let next: Vec<_> = STEPS.iter().filter(|step| step.0 == last).collect();
        cycle.push(**next.choose(random).expect("each type is taken by some"));
    }
    let times = random.random_range(5..60);
    let steps = (0..times).map(|step| cycle[step % cycle.len()].2);
    let start = match cycle[0].0 {
        'i' => "id",
        'n' => "id::numeric",
        's' => "v",
        'o' => "(id > 1)",
        'd' => "(date '2020-01-01' + id)",
        _ => "(timestamp '2020-01-01' + interval '1 s')",
    };
    if random.random_bool(0.7) {
        let expression = steps.fold(start.to_owned(), |inner, step| step.replace("{}", &inner));
        return format!("SELECT {expression} FROM t");
    }
    let mut sql = format!("WITH c0 AS (SELECT id, v, {start} AS x FROM t)");
    for (number, step) in steps.enumerate() {
        let (this, before) = (number + 1, number);
        let step = step.replace("{}", "x");
        sql.push_str(&format!(
            ", c{this} AS (SELECT id, v, {step} AS x FROM c{before})"
        ));
    }
    format!("{sql} SELECT max(x::text) FROM c{times}")
}
