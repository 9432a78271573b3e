//! A run as JSON: its profile and what follows from it, under a version.
//!
//! ```json
//! {"version": 1, "profile": {"planning": .., "end": .., "machine": {..}, "stages": [..]}, "analysis": {"verdict": "..", ..}}
//! ```
//!
//! The fields are those of [`Profile`] and [`Analysis`]; times are nanoseconds, sizes bytes. A change that a reader of the old
//! form would misread raises the version; a new field does not.

use serde::{Deserialize, Serialize};

use crate::analysis::Analysis;
use crate::profile::Profile;

/// The version that this release writes.
pub const VERSION: u32 = 1;

/// The document.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Document {
    pub version: u32,
    pub profile: Profile,
    pub analysis: Analysis,
}

impl Document {
    pub fn new(profile: Profile, analysis: Analysis) -> Document {
        Document {
            version: VERSION,
            profile,
            analysis,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::analysis::analyse;
    use crate::fixtures::two_stages;

    /// The schema: a change of this snapshot that takes a field away or gives it another meaning raises the version.
    #[test]
    fn the_schema_is_as_documented() {
        let mut profile = two_stages();
        profile.stages[0].tasks.truncate(1);
        let analysis = analyse(&profile, None);
        let document = serde_json::to_string_pretty(&Document::new(profile, analysis)).unwrap();
        insta::assert_snapshot!(document);
        let back: Document = serde_json::from_str(&document).unwrap();
        assert_eq!(back.version, VERSION);
        assert_eq!(back.profile.stages.len(), 2);
    }
}
