//! UNNEST in plans as it was written: DataFusion calls a list `__unnest_placeholder(list)`, and its elements
//! `__unnest_placeholder(list,depth=1)`.

const CALLED: &str = "__unnest_placeholder(";

/// A line of a plan, with lists by their expressions and elements as UNNEST of them.
pub(super) fn as_written(line: &str) -> String {
    let Some((before, rest)) = line.split_once(CALLED) else {
        return line.to_owned();
    };
    let (named, after) = match end_of(rest) {
        Some(end) => (&rest[..end], &rest[end + 1..]),
        // The line was cut off.
        None => (rest, ""),
    };
    let (named, after) = (as_written(named), as_written(after));
    match named.rsplit_once(",depth=") {
        Some((list, depth)) if depth.bytes().all(|byte| byte.is_ascii_digit()) => {
            format!("{before}UNNEST({list}){after}")
        }
        _ => format!("{before}{named}{after}"),
    }
}

/// Where the parenthesis closes that was open before.
fn end_of(text: &str) -> Option<usize> {
    let mut open = 1;
    text.bytes().position(|byte| {
        match byte {
            b'(' => open += 1,
            b')' => open -= 1,
            _ => {}
        }
        open == 0
    })
}

#[cfg(test)]
mod tests {
    use super::as_written;

    #[test]
    fn lists_and_elements_are_called_as_they_were_written() {
        for (line, shown) in [
            ("  SnapshotScan: relation=t", "  SnapshotScan: relation=t"),
            (
                "Project: id@0 as id, __unnest_placeholder(t.tags,depth=1)@1 as tag",
                "Project: id@0 as id, UNNEST(t.tags)@1 as tag",
            ),
            (
                "Project: range(1, n@0) as __unnest_placeholder(range(Int64(1),t.n)), n@0 as n",
                "Project: range(1, n@0) as range(Int64(1),t.n), n@0 as n",
            ),
            (
                "__unnest_placeholder(__unnest_placeholder(t.l,depth=1),depth=1)@0",
                "UNNEST(UNNEST(t.l))@0",
            ),
            (
                "Projection: tags@1 as __unnest_placeholder(t.ta ..",
                "Projection: tags@1 as t.ta ..",
            ),
        ] {
            assert_eq!(as_written(line), shown);
        }
    }
}
