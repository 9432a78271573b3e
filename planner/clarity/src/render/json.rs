//! What is said of a run, a running view or a forecast as JSON, under a version.
//!
//! ```json
//! {"version": 1, "profile": {"planning": .., "end": .., "machine": {..}, "stages": [..]}, "analysis": {"verdict": "..", ..}}
//! {"version": 1, "view": {..}, "analysis": {..}}
//! {"version": 1, "views": [{"relation": .., "name": "..", "analysis": {..}}]}
//! {"version": 1, "forecast": {..}}
//! {"version": 1, "view_forecast": {..}}
//! ```
//!
//! The fields are those of the types; times are nanoseconds, sizes bytes. A change that a reader of the old form would misread
//! raises the version; a new field does not.

use serde::{Deserialize, Serialize};

use crate::analysis::Analysis;
use crate::forecast::query::Forecast;
use crate::forecast::view::ViewForecast;
use crate::profile::Profile;
use crate::view::{ViewAnalysis, ViewProfile};

/// The version that this release writes.
pub const VERSION: u32 = 1;

/// The document.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Document<T> {
    pub version: u32,
    #[serde(flatten)]
    pub content: T,
}

impl<T> Document<T> {
    pub fn new(content: T) -> Document<T> {
        Document {
            version: VERSION,
            content,
        }
    }
}

/// A query that ran.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Run {
    /// The number under which it is kept; `None`: it is not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<u64>,
    pub profile: Profile,
    pub analysis: Analysis,
}

/// A view that was watched.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Watched {
    /// As a run's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<u64>,
    pub view: ViewProfile,
    pub analysis: ViewAnalysis,
}

/// Views that were watched at the same time.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct WatchedViews {
    pub views: Vec<WatchedView>,
}

/// One of them, without what was counted.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct WatchedView {
    /// Its identity, as `mr_catalog.relations` has it.
    pub relation: u64,
    pub name: String,
    /// Why it does not run; then there is no analysis.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure: Option<String>,
    pub analysis: Option<ViewAnalysis>,
}

/// A query that did not run yet.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Predicted {
    pub forecast: Forecast,
}

/// A view that is not there yet.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PredictedView {
    pub view_forecast: ViewForecast,
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
        let document = serde_json::to_string_pretty(&Document::new(Run {
            id: Some(3),
            profile,
            analysis,
        }))
        .unwrap();
        insta::assert_snapshot!(document);
        let back: Document<Run> = serde_json::from_str(&document).unwrap();
        assert_eq!(back.version, VERSION);
        assert_eq!(back.content.profile.stages.len(), 2);
    }
}
