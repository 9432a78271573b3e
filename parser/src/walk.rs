//! Walks over the syntax tree: [`Walk::walk`] and [`Walk::walk_mut`] lead a visitor of sqlparser's traits through a node.
//!
//! sqlparser's own `visit` is compiled once for each type of visitor, all of the tree each time: some 25 visitors were a
//! tenth of the binary. Here the tree is walked by code that is compiled once, which calls the visitor through a
//! table of functions. Everybody who visits a tree does it by this module.

use std::ops::ControlFlow;

use sqlparser::ast::{
    Expr, Function, FunctionArg, LimitClause, NamedWindowDefinition, ObjectName, OrderBy, Query, Select,
    SelectItem, SetExpr, Statement, TableFactor, TableWithJoins, ValueWithSpan, Values, Visit, VisitMut,
    Visitor, VisitorMut, With,
};

/// A node of the tree, or several, through which a visitor can be led.
pub trait Walk {
    #[doc(hidden)]
    fn lead(&self, guide: &mut Guide<'_>) -> ControlFlow<()>;

    #[doc(hidden)]
    fn lead_mut(&mut self, guide: &mut GuideMut<'_>) -> ControlFlow<()>;

    /// Calls the visitor before and after each node inside, until it breaks.
    fn walk<V: Visitor>(&self, visitor: &mut V) -> ControlFlow<V::Break> {
        let mut caught = Caught { visitor, broke: None };
        let _ = self.lead(&mut Guide(&mut caught));
        caught.outcome()
    }

    /// As [`Walk::walk`], with a visitor that may change the nodes.
    fn walk_mut<V: VisitorMut>(&mut self, visitor: &mut V) -> ControlFlow<V::Break> {
        let mut caught = CaughtMut { visitor, broke: None };
        let _ = self.lead_mut(&mut GuideMut(&mut caught));
        caught.outcome()
    }
}

/// Calls `f` for each expression inside a node, before those within the expression, until it breaks.
pub fn walk_expressions<B, F>(node: &impl Walk, f: F) -> ControlFlow<B>
where
    F: FnMut(&Expr) -> ControlFlow<B>,
{
    struct Expressions<F>(F);
    impl<B, F: FnMut(&Expr) -> ControlFlow<B>> Visitor for Expressions<F> {
        type Break = B;

        fn pre_visit_expr(&mut self, expr: &Expr) -> ControlFlow<B> {
            (self.0)(expr)
        }
    }
    node.walk(&mut Expressions(f))
}

/// Calls `f` for each expression inside a node, after those within the expression, until it breaks.
pub fn walk_expressions_mut<B, F>(node: &mut impl Walk, f: F) -> ControlFlow<B>
where
    F: FnMut(&mut Expr) -> ControlFlow<B>,
{
    struct Expressions<F>(F);
    impl<B, F: FnMut(&mut Expr) -> ControlFlow<B>> VisitorMut for Expressions<F> {
        type Break = B;

        fn post_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<B> {
            (self.0)(expr)
        }
    }
    node.walk_mut(&mut Expressions(f))
}

macro_rules! nodes {
    ($($node:ty),* $(,)?) => {$(
        #[expect(clippy::disallowed_methods, reason = "the one place")]
        impl Walk for $node {
            fn lead(&self, guide: &mut Guide<'_>) -> ControlFlow<()> {
                self.visit(guide)
            }

            fn lead_mut(&mut self, guide: &mut GuideMut<'_>) -> ControlFlow<()> {
                VisitMut::visit(self, guide)
            }
        }
    )*};
}

nodes!(
    Expr,
    Function,
    FunctionArg,
    LimitClause,
    NamedWindowDefinition,
    OrderBy,
    Query,
    Select,
    SelectItem,
    SetExpr,
    Statement,
    TableFactor,
    TableWithJoins,
    Values,
    With,
);

impl<T: Walk> Walk for Option<T> {
    fn lead(&self, guide: &mut Guide<'_>) -> ControlFlow<()> {
        self.iter().try_for_each(|node| node.lead(guide))
    }

    fn lead_mut(&mut self, guide: &mut GuideMut<'_>) -> ControlFlow<()> {
        self.iter_mut().try_for_each(|node| node.lead_mut(guide))
    }
}

impl<T: Walk> Walk for Vec<T> {
    fn lead(&self, guide: &mut Guide<'_>) -> ControlFlow<()> {
        self.iter().try_for_each(|node| node.lead(guide))
    }

    fn lead_mut(&mut self, guide: &mut GuideMut<'_>) -> ControlFlow<()> {
        self.iter_mut().try_for_each(|node| node.lead_mut(guide))
    }
}

impl<T: Walk> Walk for Box<T> {
    fn lead(&self, guide: &mut Guide<'_>) -> ControlFlow<()> {
        (**self).lead(guide)
    }

    fn lead_mut(&mut self, guide: &mut GuideMut<'_>) -> ControlFlow<()> {
        (**self).lead_mut(guide)
    }
}

/// The methods of a visitor behind a table of functions, and the one visitor that sqlparser's `visit` is compiled for.
macro_rules! guide {
    (
        $(#[$what:meta])* $guide:ident: $hooks:ident, $caught:ident of $visitor:ident,
        $($method:ident($node:ty)),* $(,)?
    ) => {
        trait $hooks {
            $(fn $method(&mut self, node: $node) -> ControlFlow<()>;)*
        }

        /// A visitor, and what it broke with.
        struct $caught<'a, V: $visitor> {
            visitor: &'a mut V,
            broke: Option<V::Break>,
        }

        impl<V: $visitor> $caught<'_, V> {
            fn outcome(self) -> ControlFlow<V::Break> {
                self.broke.map_or(ControlFlow::Continue(()), ControlFlow::Break)
            }

            fn keep(&mut self, step: ControlFlow<V::Break>) -> ControlFlow<()> {
                step.map_break(|broke| self.broke = Some(broke))
            }
        }

        impl<V: $visitor> $hooks for $caught<'_, V> {
            $(fn $method(&mut self, node: $node) -> ControlFlow<()> {
                let step = self.visitor.$method(node);
                self.keep(step)
            })*
        }

        $(#[$what])*
        #[doc(hidden)]
        pub struct $guide<'a>(&'a mut dyn $hooks);

        impl $visitor for $guide<'_> {
            type Break = ();

            $(fn $method(&mut self, node: $node) -> ControlFlow<()> {
                self.0.$method(node)
            })*
        }
    };
}

guide!(
    /// Leads a visitor that looks.
    Guide: Hooks, Caught of Visitor,
    pre_visit_query(&Query),
    post_visit_query(&Query),
    pre_visit_select(&Select),
    post_visit_select(&Select),
    pre_visit_relation(&ObjectName),
    post_visit_relation(&ObjectName),
    pre_visit_table_factor(&TableFactor),
    post_visit_table_factor(&TableFactor),
    pre_visit_expr(&Expr),
    post_visit_expr(&Expr),
    pre_visit_statement(&Statement),
    post_visit_statement(&Statement),
    pre_visit_value(&ValueWithSpan),
    post_visit_value(&ValueWithSpan),
);

guide!(
    /// Leads a visitor that may change what it sees.
    GuideMut: HooksMut, CaughtMut of VisitorMut,
    pre_visit_query(&mut Query),
    post_visit_query(&mut Query),
    pre_visit_select(&mut Select),
    post_visit_select(&mut Select),
    pre_visit_relation(&mut ObjectName),
    post_visit_relation(&mut ObjectName),
    pre_visit_table_factor(&mut TableFactor),
    post_visit_table_factor(&mut TableFactor),
    pre_visit_expr(&mut Expr),
    post_visit_expr(&mut Expr),
    pre_visit_statement(&mut Statement),
    post_visit_statement(&mut Statement),
    pre_visit_value(&mut ValueWithSpan),
    post_visit_value(&mut ValueWithSpan),
);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parse_expression;

    #[test]
    fn a_visitor_sees_what_is_inside_and_ends_with_what_it_broke_with() {
        let mut expression = parse_expression("a + (SELECT max(b) FROM t WHERE c = 1)").expect("valid");
        let mut names = vec![];
        let _: ControlFlow<()> = walk_expressions(&expression, |expr| {
            if let Expr::Identifier(name) = expr {
                names.push(name.value.clone());
            }
            ControlFlow::Continue(())
        });
        assert_eq!(names, ["a", "b", "c"]);
        let broke = walk_expressions_mut(&mut expression, |expr| match expr {
            Expr::Identifier(name) if name.value == "b" => ControlFlow::Break("found"),
            Expr::Identifier(name) => {
                name.value.push('x');
                ControlFlow::Continue(())
            }
            _ => ControlFlow::Continue(()),
        });
        assert_eq!(broke, ControlFlow::Break("found"));
        assert_eq!(expression.to_string(), "ax + (SELECT max(b) FROM t WHERE c = 1)");
    }
}
