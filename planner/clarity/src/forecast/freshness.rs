//! Whether a new view can keep a target for its freshness.
//!
//! ```text
//! epoch   = what an epoch of its inputs takes now + rows that came for company x processor time a row
//! company = what the target, less a tenth in reserve, leaves of the epoch
//! ```

use serde::{Deserialize, Serialize};

use super::view::ViewForecast;
use crate::profile::Nanoseconds;
use crate::units::{duration, percent};

/// The share of the target that is planned for, as by the scheduler (`schedule/local/pace`); the rest is for what no epoch has shown yet.
const PLANNED: f64 = 0.9;

/// What is forecast of a target.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct FreshnessForecast {
    pub target: Nanoseconds,
    /// What an epoch will take. `None`: its inputs have had none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub epoch: Option<Nanoseconds>,
    /// How long rows will wait for company, at most.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub company: Option<Nanoseconds>,
    /// `None`: nothing is known of the epochs.
    pub is_kept: Option<bool>,
}

/// `epoch`: what an epoch of the view's inputs takes now, in 19 of 20 cases.
pub fn freshness_forecast(
    target: Nanoseconds,
    epoch: Option<Nanoseconds>,
    view: &ViewForecast,
) -> FreshnessForecast {
    let Some(now) = epoch else {
        return FreshnessForecast {
            target,
            epoch: None,
            company: None,
            is_kept: None,
        };
    };
    // Of a second of input, its rows take so many seconds of the cores that are free.
    let busy = view.cpu_high / view.cpu_free.max(1e-9);
    let planned = target as f64 * PLANNED;
    let company = ((planned - now as f64) / (1.0 + busy)).max(0.0);
    let epoch = now as f64 + busy * company;
    FreshnessForecast {
        target,
        epoch: Some(epoch as Nanoseconds),
        company: Some(company as Nanoseconds),
        is_kept: Some(busy < 1.0 && now as f64 <= planned),
    }
}

impl FreshnessForecast {
    /// One line.
    pub fn line(&self) -> String {
        let target = duration(self.target as f64);
        match (self.is_kept, self.epoch, self.company) {
            (Some(true), Some(epoch), Some(company)) => format!(
                "freshness target {target}: can be kept; epochs wait up to {} for company and take {}",
                duration(company as f64),
                duration(epoch as f64)
            ),
            (Some(false), Some(epoch), _) => format!(
                "freshness target {target}: cannot be kept; an epoch takes {} when none waits for company, and {} of the target is for it",
                duration(epoch as f64),
                percent(PLANNED)
            ),
            _ => format!("freshness target {target}: not known, since its inputs have had no epoch yet"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures::view_forecast;

    const MS: Nanoseconds = 1_000_000;

    #[test]
    fn a_target_is_kept_if_epochs_leave_time() {
        let view = ViewForecast {
            cpu_high: 0.1,
            cpu_free: 0.5,
            ..view_forecast()
        };
        let kept = freshness_forecast(100 * MS, Some(6 * MS), &view);
        // 90 = 6 + 70 + 0.2 x 70.
        assert_eq!(
            (kept.is_kept, kept.company, kept.epoch),
            (Some(true), Some(70 * MS), Some(20 * MS))
        );
        assert!(
            kept.line().contains("can be kept; epochs wait up to 70"),
            "{}",
            kept.line()
        );
        let late = freshness_forecast(100 * MS, Some(95 * MS), &view);
        assert_eq!((late.is_kept, late.company), (Some(false), Some(0)));
        assert!(late.line().contains("cannot be kept"), "{}", late.line());
        let unknown = freshness_forecast(100 * MS, None, &view);
        assert_eq!(unknown.is_kept, None);
        assert!(unknown.line().contains("not known"), "{}", unknown.line());
    }

    #[test]
    fn a_view_that_does_not_keep_up_keeps_no_target() {
        let view = ViewForecast {
            cpu_high: 0.9,
            cpu_free: 0.5,
            ..view_forecast()
        };
        assert_eq!(freshness_forecast(100 * MS, Some(MS), &view).is_kept, Some(false));
    }
}
