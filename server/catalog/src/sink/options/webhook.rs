//! What CREATE SINK says of a webhook.

use std::collections::BTreeMap;
use std::time::Duration;

use millrace_parser::ast::FormatEncode;
use millrace_postgres::error::{SqlError, SqlResult};

use super::{SinkOptions, Wanted};
use crate::connector::options::Given;
use crate::connector::webhook::WebhookTarget;
use crate::secret::Secrets;
use crate::sink::{SinkType, WebhookSink};

/// The time between two steps, unless an option says otherwise: others count requests.
const ROLLOVER: Duration = Duration::from_secs(1);

impl SinkOptions {
    pub(super) fn webhook(
        all: &BTreeMap<String, String>,
        format: Option<&FormatEncode>,
        id: String,
    ) -> SqlResult<SinkOptions> {
        if let Some(format) = format
            && (format.format.as_str(), format.encode.as_str()) != ("plain", "json")
        {
            let message = format!(
                "FORMAT {} ENCODE {} is not supported for a sink to a webhook",
                format.format.to_uppercase(),
                format.encode.to_uppercase()
            );
            return Err(SqlError::unsupported(message).with_hint(
                "Rows are sent as JSON. With type = 'changelog' every change of each row is sent.",
            ));
        }
        let mut given = Given::new("webhook", all);
        WebhookTarget::new(&mut given)?;
        let types = [SinkType::AppendOnly, SinkType::Changelog];
        let sink_type = given.one_of("type", &types.map(|named| (named.name(), named)))?;
        let target = Wanted::Webhook(WebhookSink {
            webhook: all.clone(),
            secrets: Secrets::default(),
            id,
        });
        Self::common(given, target, sink_type, ROLLOVER)
    }
}
