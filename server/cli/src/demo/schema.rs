//! What the demo changes midway.

/// The airline that changes its name: it joined American at the end of 2013.
const RENAMED: &str = "US";
/// Its names, as it was and as it became; the second is another airline's too.
pub const RENAMED_FROM_TO: [&str; 2] = ["US Airways Inc.", "American Airlines Inc."];

/// What a server that was killed is asked.
pub const COUNT: &str = "SELECT count(*) FROM flights";

/// The change that is made midway: in the first pass the two airlines become one, in the second two again.
pub fn rename(pass: u64) -> String {
    let name = RENAMED_FROM_TO[usize::from(pass.is_multiple_of(2))];
    format!("UPDATE airlines SET name = '{name}' WHERE carrier = '{RENAMED}'")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_airlines_become_one_and_two_again() {
        assert!(rename(0).contains("'American Airlines Inc.'"));
        assert!(rename(1).contains("'US Airways Inc.'"));
        assert_eq!(rename(0), rename(2));
    }
}
