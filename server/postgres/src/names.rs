//! "Perhaps you meant ...": the nearest of the names that exist.

/// The candidate that is nearest to `name`, when it is near enough to be what the user meant.
///
/// Near enough is a Damerau-Levenshtein distance of at most a third of the longer name, and at least one edit.
pub fn nearest<'a>(name: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let wanted = name.to_lowercase();
    candidates
        .into_iter()
        .map(|candidate| {
            (
                strsim::damerau_levenshtein(&wanted, &candidate.to_lowercase()),
                candidate,
            )
        })
        .filter(|(distance, candidate)| {
            let longer = wanted.chars().count().max(candidate.chars().count());
            *distance <= (longer / 3).max(1) && *distance < longer
        })
        .min()
        .map(|(_, candidate)| candidate)
}

/// The hint made from [`nearest`].
pub fn did_you_mean<'a>(name: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<String> {
    nearest(name, candidates).map(|found| format!("Perhaps you meant \"{found}\"."))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slip_of_the_finger_is_recognised() {
        assert_eq!(
            nearest("fligths", ["airlines", "flights", "planes"]),
            Some("flights")
        );
        assert_eq!(nearest("Flights", ["flights"]), Some("flights"));
    }

    #[test]
    fn something_else_is_not_suggested() {
        assert_eq!(nearest("weather", ["airlines", "flights"]), None);
        assert_eq!(nearest("x", ["y"]), None);
    }
}
