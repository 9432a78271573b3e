//! Statements as SQL text that parses back to them. The catalog stores this text.

mod alter;
mod copy;
mod create;
mod function;
mod inspect;
mod role;
mod secret;
mod settings;
mod user_type;

use std::fmt::{self, Display, Formatter};

use crate::ast::{
    DeclareSubscribeCursor, Fetch, ObjectKind, ObjectReference, OptionEntry, Options, STARS, Statement,
};
use crate::ast::{DeclareSubscriptionCursor, Subscribe, SubscribeTarget, SubscriptionStart};
use crate::identifier::quote_literal;

impl Display for Statement {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Statement::Sql(statement) => sql(f, statement),
            Statement::CreateStream(create) => create.fmt(f),
            Statement::CreateTable(create) => create.fmt(f),
            Statement::CreateMaterializedView(create) => create.fmt(f),
            Statement::CreateSink(create) => create.fmt(f),
            Statement::CreateSubscription(create) => create.fmt(f),
            Statement::CreateExternalTable(create) => create.fmt(f),
            Statement::CreateFunction(create) => create.fmt(f),
            Statement::CreateEnum(create) => create.fmt(f),
            Statement::CreateComposite(create) => create.fmt(f),
            Statement::CreateDomain(create) => create.fmt(f),
            Statement::Copy(copy) => copy.fmt(f),
            Statement::Subscribe(subscribe) => subscribe.fmt(f),
            Statement::DeclareSubscribeCursor(declare) => declare.fmt(f),
            Statement::DeclareSubscriptionCursor(declare) => declare.fmt(f),
            Statement::Fetch(fetch) => fetch.fmt(f),
            Statement::Explain(explain) => explain.fmt(f),
            Statement::Show(show) => show.fmt(f),
            Statement::Describe(name) => write!(f, "DESCRIBE {name}"),
            Statement::SetVariable(set) => set.fmt(f),
            Statement::ResetVariable(None) => f.write_str("RESET ALL"),
            Statement::ResetVariable(Some(name)) => write!(f, "RESET {}", settings::variable(name)),
            Statement::Drop(drop) => drop.fmt(f),
            Statement::AlterRelation(alter) => alter.fmt(f),
            Statement::AlterSystemSet(set) => set.fmt(f),
            Statement::CreateRole(create) => create.fmt(f),
            Statement::AlterRole(alter) => alter.fmt(f),
            Statement::DropRole(drop) => drop.fmt(f),
            Statement::ReassignOwned(reassign) => reassign.fmt(f),
            Statement::DropOwned(drop) => drop.fmt(f),
            Statement::GrantRole(grant) => grant.fmt(f),
            Statement::Grant(grant) => grant.fmt(f),
            Statement::AlterDefaultPrivileges(alter) => alter.fmt(f),
            Statement::CreateToken(create) => create.fmt(f),
            Statement::DropToken(drop) => drop.fmt(f),
            Statement::CreateSecret(create) => create.fmt(f),
            Statement::AlterSecret(alter) => alter.fmt(f),
            Statement::CancelJob(job) => write!(f, "CANCEL JOB {job}"),
            Statement::Pause(object) => write!(f, "PAUSE {object}"),
            Statement::Resume(object) => write!(f, "RESUME {object}"),
            Statement::Wait => f.write_str("WAIT"),
            Statement::Refresh(name) => write!(f, "REFRESH MATERIALIZED VIEW {name}"),
            Statement::SetConstraintsAll { deferred: true } => f.write_str("SET CONSTRAINTS ALL DEFERRED"),
            Statement::SetConstraintsAll { deferred: false } => f.write_str("SET CONSTRAINTS ALL IMMEDIATE"),
            Statement::Flush => f.write_str("FLUSH"),
            Statement::Checkpoint => f.write_str("CHECKPOINT"),
            Statement::AddWorker => f.write_str("ADD WORKER"),
            Statement::DropWorker(worker) => write!(f, "DROP WORKER {worker}"),
            Statement::KillWorker(worker) => write!(f, "KILL WORKER {worker}"),
            Statement::Backup { to } => write!(f, "BACKUP TO {}", quote_literal(to)),
        }
    }
}

/// As sqlparser prints it, but for the comment's text, whose quotes it does not double.
fn sql(f: &mut Formatter<'_>, statement: &sqlparser::ast::Statement) -> fmt::Result {
    match statement {
        sqlparser::ast::Statement::Comment {
            object_type,
            object_name,
            comment: Some(comment),
            if_exists,
        } => {
            let exists = when(*if_exists, "IF EXISTS ");
            write!(
                f,
                "COMMENT {exists}ON {object_type} {object_name} IS {}",
                quote_literal(comment)
            )
        }
        other => other.fmt(f),
    }
}

impl Display for ObjectKind {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            ObjectKind::Stream => "STREAM",
            ObjectKind::Table => "TABLE",
            ObjectKind::View => "VIEW",
            ObjectKind::MaterializedView => "MATERIALIZED VIEW",
            ObjectKind::Sink => "SINK",
            ObjectKind::Index => "INDEX",
            ObjectKind::Schema => "SCHEMA",
            ObjectKind::Database => "DATABASE",
            ObjectKind::Subscription => "SUBSCRIPTION",
            ObjectKind::Function => "FUNCTION",
            ObjectKind::Sequence => "SEQUENCE",
            ObjectKind::Secret => "SECRET",
            ObjectKind::Type => "TYPE",
            ObjectKind::Domain => "DOMAIN",
        })
    }
}

impl Display for ObjectReference {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.kind, self.name)
    }
}

impl Display for Options {
    /// The list in parentheses, without WITH; secrets as stars.
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str("(")?;
        for (i, entry) in self.0.iter().enumerate() {
            let comma = if i > 0 { ", " } else { "" };
            write!(f, "{comma}{} = {}", option_name(&entry.name), option_value(entry))?;
        }
        f.write_str(")")
    }
}

/// An option's value; a secret as stars.
fn option_value(entry: &OptionEntry) -> String {
    match entry.is_secret() {
        true => STARS.to_owned(),
        false => quote_literal(&entry.value),
    }
}

/// An option's key as it may be written.
fn option_name(name: &sqlparser::ast::Ident) -> String {
    match name.quote_style {
        Some(_) => quote_literal(&name.value),
        None => name.value.clone(),
    }
}

/// ` WITH (..)`, or nothing.
fn with(f: &mut Formatter<'_>, options: &Options) -> fmt::Result {
    if options.0.is_empty() {
        Ok(())
    } else {
        write!(f, " WITH {options}")
    }
}

/// `words ` if `condition`.
fn when(condition: bool, words: &'static str) -> &'static str {
    if condition { words } else { "" }
}

/// Items with commas between them.
fn joined<T: Display>(items: &[T]) -> String {
    items.iter().map(T::to_string).collect::<Vec<_>>().join(", ")
}

impl Display for Subscribe {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match &self.target {
            SubscribeTarget::Relation(name) => write!(f, "SUBSCRIBE TO {name}")?,
            SubscribeTarget::Query(query) => write!(f, "SUBSCRIBE ({query})")?,
        }
        match self.upsert.as_deref() {
            None => {}
            Some([]) => f.write_str(" ENVELOPE UPSERT")?,
            Some(key) => write!(f, " ENVELOPE UPSERT (KEY ({}))", joined(key))?,
        }
        write!(
            f,
            " WITH (SNAPSHOT = {}, PROGRESS = {})",
            self.snapshot, self.progress
        )?;
        match &self.as_of {
            Some(epoch) => write!(f, " AS OF {epoch}"),
            None => Ok(()),
        }
    }
}

impl Display for DeclareSubscribeCursor {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "DECLARE {} CURSOR{} FOR {}",
            self.name,
            when(self.hold, " WITH HOLD"),
            self.subscribe
        )
    }
}

impl Display for DeclareSubscriptionCursor {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "DECLARE {} SUBSCRIPTION CURSOR FOR {}",
            self.name, self.subscription
        )?;
        match &self.start {
            SubscriptionStart::Now => Ok(()),
            SubscriptionStart::Full => f.write_str(" FULL"),
            SubscriptionStart::Since(expr) => write!(f, " SINCE {expr}"),
        }
    }
}

impl Display for Fetch {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let verb = if self.only_moves { "MOVE" } else { "FETCH" };
        write!(f, "{verb} {} FROM {}", self.direction, self.cursor)?;
        match &self.timeout {
            Some(timeout) => write!(f, " WITH (timeout = {})", quote_literal(timeout)),
            None => Ok(()),
        }
    }
}
