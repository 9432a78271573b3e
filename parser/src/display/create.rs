//! CREATE statements as text.

use std::fmt::{self, Display, Formatter};

use super::{joined, option_name, option_value, when, with};
use crate::ast::{
    ColumnDefinition, CreateExternalTable, CreateMaterializedView, CreateSink, CreateStream,
    CreateSubscription, CreateTable, Emit, FormatEncode, Ident, Include, LikePart, OnCommit, SinkInput,
    TableConstraint, TableLike, Watermark,
};
use crate::identifier::quote_literal;

impl Display for ColumnDefinition {
    /// Without `PRIMARY KEY`, which is printed after the columns.
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.name, self.data_type)?;
        if self.not_null {
            f.write_str(" NOT NULL")?;
        }
        if let Some(expr) = &self.default {
            write!(f, " DEFAULT {expr}")?;
        }
        if let Some(identity) = &self.identity {
            let how = if identity.always { "ALWAYS" } else { "BY DEFAULT" };
            write!(f, " GENERATED {how} AS IDENTITY")?;
            if !identity.options.is_empty() {
                let options: String = identity.options.iter().map(ToString::to_string).collect();
                write!(f, " ({})", options.trim())?;
            }
        }
        if let Some(expr) = &self.generated {
            write!(f, " GENERATED ALWAYS AS ({expr}) STORED")?;
        }
        if self.proctime {
            f.write_str(" AS PROCTIME()")?;
        }
        if let Some(comment) = &self.comment {
            write!(f, " COMMENT {}", quote_literal(comment))?;
        }
        Ok(())
    }
}

impl Display for TableLike {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "LIKE {}", self.relation)?;
        for (_, word) in LikePart::ALL
            .iter()
            .filter(|(part, _)| self.including.contains(part))
        {
            write!(f, " INCLUDING {word}")?;
        }
        Ok(())
    }
}

/// The list in parentheses.
fn elements(
    all_columns: bool,
    columns: &[ColumnDefinition],
    like: &[TableLike],
    primary_key: &[Ident],
    constraints: &[TableConstraint],
    watermark: Option<&Watermark>,
) -> String {
    let star = all_columns.then(|| "*".to_owned());
    let mut elements: Vec<String> = star
        .into_iter()
        .chain(columns.iter().map(ToString::to_string))
        .collect();
    for like in like.iter().rev() {
        elements.insert(like.at.min(elements.len()), like.to_string());
    }
    if let Some(watermark) = watermark {
        elements.push(format!(
            "WATERMARK FOR {} AS {}",
            watermark.column, watermark.expr
        ));
    }
    if !primary_key.is_empty() {
        elements.push(format!("PRIMARY KEY ({})", joined(primary_key)));
    }
    elements.extend(constraints.iter().map(ToString::to_string));
    format!("({})", elements.join(", "))
}

fn format_encode(f: &mut Formatter<'_>, format: Option<&FormatEncode>) -> fmt::Result {
    let Some(format) = format else { return Ok(()) };
    write!(f, " FORMAT {} ENCODE {}", format.format, format.encode)?;
    if format.options.0.is_empty() {
        Ok(())
    } else {
        write!(f, " {}", format.options)
    }
}

impl Display for CreateStream {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let replace = when(self.or_replace, "OR REPLACE ");
        let exists = when(self.if_not_exists, "IF NOT EXISTS ");
        let elements = elements(
            self.all_columns,
            &self.columns,
            &[],
            &self.primary_key,
            &self.constraints,
            self.watermark.as_ref(),
        );
        write!(f, "CREATE {replace}STREAM {exists}{} {elements}", self.name)?;
        included(f, &self.include)?;
        with(f, &self.options)?;
        format_encode(f, self.format.as_ref())
    }
}

fn included(f: &mut Formatter<'_>, include: &[Include]) -> fmt::Result {
    for include in include {
        write!(f, " INCLUDE {} AS {}", include.member, include.column)?;
    }
    Ok(())
}

impl Display for CreateTable {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let replace = when(self.or_replace, "OR REPLACE ");
        let temporary = when(self.temporary, "TEMPORARY ");
        let exists = when(self.if_not_exists, "IF NOT EXISTS ");
        write!(f, "CREATE {replace}{temporary}TABLE {exists}{}", self.name)?;
        if !self.column_names.is_empty() {
            write!(f, " ({})", joined(&self.column_names))?;
        } else if self.as_query.is_none()
            || !self.columns.is_empty()
            || !self.like.is_empty()
            || self.all_columns
        {
            let list = elements(
                self.all_columns,
                &self.columns,
                &self.like,
                &self.primary_key,
                &self.constraints,
                self.watermark.as_ref(),
            );
            write!(f, " {list}")?;
        }
        f.write_str(when(self.append_only, " APPEND ONLY"))?;
        if let Some(rule) = self.on_conflict {
            write!(f, " ON CONFLICT {}", rule.clause())?;
        }
        included(f, &self.include)?;
        with(f, &self.options)?;
        format_encode(f, self.format.as_ref())?;
        f.write_str(match self.on_commit {
            None => "",
            Some(OnCommit::PreserveRows) => " ON COMMIT PRESERVE ROWS",
            Some(OnCommit::DeleteRows) => " ON COMMIT DELETE ROWS",
            Some(OnCommit::Drop) => " ON COMMIT DROP",
        })?;
        if let Some(query) = &self.as_query {
            write!(f, " AS {query}{}", when(self.with_no_data, " WITH NO DATA"))?;
        }
        Ok(())
    }
}

impl Display for CreateMaterializedView {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let replace = when(self.or_replace, "OR REPLACE ");
        let exists = when(self.if_not_exists, "IF NOT EXISTS ");
        write!(f, "CREATE {replace}MATERIALIZED VIEW {exists}{}", self.name)?;
        if !self.columns.is_empty() {
            write!(f, " ({})", joined(&self.columns))?;
        }
        with(f, &self.options)?;
        write!(f, " AS {}{}", self.query_text, self.emit)
    }
}

impl Display for Emit {
    /// With a space in front; nothing for the default.
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Emit::Changes => Ok(()),
            Emit::OnWindowClose { delay: None } => f.write_str(" EMIT ON WINDOW CLOSE"),
            Emit::OnWindowClose { delay: Some(delay) } => {
                write!(f, " EMIT ON WINDOW CLOSE WITH DELAY {delay}")
            }
            Emit::Every(interval) => write!(f, " EMIT EVERY {interval}"),
        }
    }
}

impl Display for CreateSink {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "CREATE SINK {}{}",
            when(self.if_not_exists, "IF NOT EXISTS "),
            self.name
        )?;
        match &self.input {
            SinkInput::Relation(name) => write!(f, " FROM {name}")?,
            SinkInput::Query(query) => write!(f, " AS {query}")?,
        }
        self.emit.fmt(f)?;
        with(f, &self.options)?;
        format_encode(f, self.format.as_ref())
    }
}

impl Display for CreateSubscription {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let exists = when(self.if_not_exists, "IF NOT EXISTS ");
        write!(f, "CREATE SUBSCRIPTION {exists}{} ", self.name)?;
        match &self.input {
            SinkInput::Relation(name) => write!(f, "FROM {name}")?,
            SinkInput::Query(query) => write!(f, "AS {query}")?,
        }
        with(f, &self.options)
    }
}

impl Display for CreateExternalTable {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let replace = when(self.or_replace, "OR REPLACE ");
        let exists = when(self.if_not_exists, "IF NOT EXISTS ");
        write!(f, "CREATE {replace}EXTERNAL TABLE {exists}{}", self.name)?;
        if !self.columns.is_empty() {
            write!(f, " ({})", joined(&self.columns))?;
        }
        write!(f, " STORED AS {}", self.stored_as)?;
        if !self.partitioned_by.is_empty() {
            write!(f, " PARTITIONED BY ({})", joined(&self.partitioned_by))?;
        }
        write!(f, " LOCATION {}", quote_literal(&self.location))?;
        if self.options.0.is_empty() {
            return Ok(());
        }
        let entry = |e: &crate::ast::OptionEntry| format!("{} {}", option_name(&e.name), option_value(e));
        let entries: Vec<String> = self.options.0.iter().map(entry).collect();
        write!(f, " OPTIONS ({})", entries.join(", "))
    }
}
