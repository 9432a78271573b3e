//! Whether the matrix has a case for everything that there is, read from the sources: statements, what they are about, connectors,
//! functions that do more than read, endpoints.

use std::collections::BTreeSet;
use std::fmt::Debug;
use std::path::Path;

use millrace_parser::ast::{CopyDirection, GrantTarget, Options, Statement};
use syn::Item;

use super::{CASES, ENDPOINTS, OPEN};

fn source(path: &str) -> String {
    std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(path)).unwrap()
}

/// The variants of an enum.
fn variants(path: &str, of: &str) -> BTreeSet<String> {
    let file = syn::parse_file(&source(path)).unwrap();
    let found = file.items.iter().find_map(|item| match item {
        Item::Enum(item) if item.ident == of => Some(&item.variants),
        _ => None,
    });
    let found = found.unwrap_or_else(|| panic!("{path} has no {of}"));
    found.iter().map(|variant| variant.ident.to_string()).collect()
}

/// The texts of a list that a source has under a name.
fn list(path: &str, name: &str) -> BTreeSet<String> {
    let text = source(path);
    let from = text
        .find(&format!("const {name}:"))
        .unwrap_or_else(|| panic!("{path} has no {name}"));
    let rest = &text[from..];
    let rest = &rest[rest.find('=').unwrap()..rest.find("];").unwrap()];
    rest.split('"').skip(1).step_by(2).map(str::to_owned).collect()
}

/// The kinds of statements: those of the parser, and those of sqlparser's that are executed.
fn statements() -> BTreeSet<String> {
    let mut kinds = variants("parser/src/ast.rs", "Statement");
    let executed = source("server/session/src/statement.rs");
    for (at, found) in executed.match_indices("ast::Statement::") {
        let rest = &executed[at + found.len()..];
        let end = rest.find(|character: char| !character.is_alphanumeric()).unwrap();
        kinds.insert(rest[..end].to_owned());
    }
    kinds
}

/// What statements are about, each with the name of its list.
fn required() -> BTreeSet<String> {
    let lists = [
        ("alter", variants("parser/src/ast/alter.rs", "AlterOperation")),
        ("grant", variants("parser/src/ast/grant.rs", "GrantKind")),
        ("drop", variants("parser/src/ast/object.rs", "ObjectKind")),
        ("role", variants("parser/src/ast/role.rs", "RoleChange")),
        ("explain", variants("parser/src/ast/explain.rs", "ExplainTarget")),
        ("copy", variants("parser/src/ast/copy.rs", "CopySource")),
        ("copy end", variants("parser/src/ast/copy.rs", "CopyEnd")),
        ("source", list("server/catalog/src/connector.rs", "CONNECTORS")),
        ("acts", list("server/session/src/effects.rs", "ACTING")),
    ];
    let each = lists.into_iter().flat_map(|(list, names)| {
        let named = move |name: String| format!("{list} {name}");
        names.into_iter().map(named)
    });
    each.collect()
}

/// The name of the variant that a value is.
fn variant(value: &impl Debug) -> String {
    let text = format!("{value:?}");
    text.chars()
        .take_while(|character| character.is_alphanumeric())
        .collect()
}

fn connector(options: &Options) -> Option<String> {
    let mut options = options.0.iter();
    let named = options.find(|option| option.name.value == "connector");
    named.map(|option| format!("source {}", option.value))
}

/// What a statement of a case is about.
fn about(statement: &Statement, found: &mut BTreeSet<String>) {
    let mut add = |list: &str, value: String| found.insert(format!("{list} {value}"));
    match statement {
        Statement::AlterRelation(alter) => {
            for operation in &alter.operations {
                add("alter", variant(operation));
            }
        }
        Statement::Grant(grant) => {
            let (GrantTarget::Named(kind, _) | GrantTarget::AllIn(kind, _)) = &grant.on;
            add("grant", variant(kind));
        }
        Statement::Drop(drop) => {
            add("drop", variant(&drop.kind));
        }
        Statement::AlterRole(alter) => {
            add("role", variant(&alter.change));
        }
        Statement::Explain(explain) => {
            add("explain", variant(&explain.target));
        }
        Statement::Copy(copy) => {
            add("copy", variant(&copy.source));
            let (CopyDirection::From(end) | CopyDirection::To(end)) = &copy.direction;
            add("copy end", variant(end));
        }
        Statement::CreateStream(create) => found.extend(connector(&create.options)),
        Statement::CreateTable(create) => found.extend(connector(&create.options)),
        _ => {}
    }
}

fn missing<'a>(wanted: &'a BTreeSet<String>, found: &'a BTreeSet<String>) -> Vec<&'a String> {
    wanted.difference(found).collect()
}

#[test]
fn every_statement_and_endpoint_has_a_case() {
    let cases: BTreeSet<String> = CASES.iter().map(|case| case.kind.to_owned()).collect();
    let kinds = statements();
    assert_eq!(
        missing(&kinds, &cases),
        Vec::<&String>::new(),
        "statements without a case"
    );

    let mut found = BTreeSet::new();
    for case in CASES {
        for statement in case.sql.split("; ") {
            let parsed =
                millrace_parser::parse(statement).unwrap_or_else(|error| panic!("{statement}: {error}"));
            parsed
                .iter()
                .for_each(|parsed| about(&parsed.statement, &mut found));
        }
        let called = list("server/session/src/effects.rs", "ACTING").into_iter();
        found.extend(
            called
                .filter(|name| case.sql.contains(&format!("{name}(")))
                .map(|name| format!("acts {name}")),
        );
    }
    let wanted = required();
    assert_eq!(missing(&wanted, &found), Vec::<&String>::new(), "without a case");

    let routes = source("server/wire/src/http.rs");
    let known: Vec<&str> = ENDPOINTS
        .iter()
        .map(|endpoint| endpoint.route)
        .chain(OPEN)
        .collect();
    let mut count = 0;
    for (at, found) in routes.match_indices(".route(") {
        let rest = routes[at + found.len()..].trim_start().trim_start_matches('"');
        let route = rest.split('"').next().unwrap();
        assert!(known.contains(&route), "no case for {route}");
        count += 1;
    }
    assert!(count >= known.len() - 1, "{count} routes");
}
