//! EXPLAIN and SHOW as text.

use std::fmt::{self, Display, Formatter};

use super::settings::variable;
use crate::ast::{
    Explain, ExplainFormat, ExplainTarget, ExplainType, ShowStatement, ShowTarget, Speed, WhatIf,
};
use crate::identifier::quote_literal;

impl Display for Explain {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(if self.analyze {
            "EXPLAIN ANALYZE"
        } else {
            "EXPLAIN"
        })?;
        let options = &self.options;
        let mut entries = Vec::new();
        if options.verbose {
            entries.push("VERBOSE".to_string());
        }
        match options.plan_type {
            ExplainType::Logical => entries.push("TYPE LOGICAL".to_string()),
            ExplainType::Physical => {}
            ExplainType::Stages => entries.push("TYPE STAGES".to_string()),
        }
        match options.format {
            ExplainFormat::Text => {}
            ExplainFormat::Json => entries.push("FORMAT JSON".to_string()),
            ExplainFormat::Dot => entries.push("FORMAT DOT".to_string()),
        }
        if options.predict {
            entries.push("PREDICT".to_string());
        }
        entries.extend(
            options
                .duration
                .as_ref()
                .map(|text| format!("DURATION {}", quote_literal(text))),
        );
        entries.extend(options.what_if.as_ref().map(ToString::to_string));
        if !entries.is_empty() {
            write!(f, " ({})", entries.join(", "))?;
        }
        match &self.target {
            ExplainTarget::Statement(statement) => write!(f, " {statement}"),
            ExplainTarget::MaterializedView(name) => write!(f, " MATERIALIZED VIEW {name}"),
            ExplainTarget::MaterializedViews => f.write_str(" MATERIALIZED VIEWS"),
            ExplainTarget::Profile(id) => write!(f, " PROFILE {id}"),
            ExplainTarget::Sink(name) => write!(f, " SINK {name}"),
        }
    }
}

impl Display for WhatIf {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let changes: Vec<String> = [
            self.cores.map(|cores| format!("cores = {cores}")),
            self.disks.map(|disks| format!("disks = {disks}")),
            self.disk.map(|speed| format!("disk = '{speed}'")),
            self.network.map(|speed| format!("network = '{speed}'")),
            (self.memory.as_ref()).map(|memory| format!("memory = {}", quote_literal(memory))),
            self.input_in_memory.then(|| "input = 'memory'".to_string()),
        ]
        .into_iter()
        .flatten()
        .collect();
        write!(f, "WHAT IF ({})", changes.join(", "))
    }
}

impl Display for Speed {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Speed::Times(factor) => write!(f, "x{factor}"),
            Speed::Infinite => f.write_str("infinite"),
        }
    }
}

impl Display for ShowStatement {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "SHOW {}", self.target)?;
        if let Some(schema) = &self.schema {
            write!(f, " FROM {schema}")?;
        }
        match &self.like {
            Some(pattern) => write!(f, " LIKE {}", quote_literal(pattern)),
            None => Ok(()),
        }
    }
}

impl Display for ShowTarget {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let words = match self {
            ShowTarget::Columns(name) => return write!(f, "COLUMNS FROM {name}"),
            ShowTarget::Create(object) => return write!(f, "CREATE {object}"),
            ShowTarget::Indexes(Some(name)) => return write!(f, "INDEXES FROM {name}"),
            ShowTarget::Variable(name) => return f.write_str(&variable(name)),
            ShowTarget::Streams => "STREAMS",
            ShowTarget::Sources => "SOURCES",
            ShowTarget::Tables => "TABLES",
            ShowTarget::Views => "VIEWS",
            ShowTarget::MaterializedViews => "MATERIALIZED VIEWS",
            ShowTarget::Sinks => "SINKS",
            ShowTarget::Indexes(None) => "INDEXES",
            ShowTarget::Subscriptions => "SUBSCRIPTIONS",
            ShowTarget::Secrets => "SECRETS",
            ShowTarget::Functions => "FUNCTIONS",
            ShowTarget::Databases => "DATABASES",
            ShowTarget::Schemas => "SCHEMAS",
            ShowTarget::Cursors => "CURSORS",
            ShowTarget::Jobs => "JOBS",
            ShowTarget::Processlist => "PROCESSLIST",
            ShowTarget::Watermarks => "WATERMARKS",
            ShowTarget::Backpressure => "BACKPRESSURE",
            ShowTarget::Batches => "BATCHES",
            ShowTarget::Suspended => "SUSPENDED",
            ShowTarget::Workers => "WORKERS",
            ShowTarget::Parameters => "PARAMETERS",
            ShowTarget::All => "ALL",
        };
        f.write_str(words)
    }
}
