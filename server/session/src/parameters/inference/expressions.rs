//! The types of expressions, and what they ask of the parameters in them.

use datafusion::sql::sqlparser::ast::{
    self, AccessExpr, BinaryOperator, Expr, FunctionArg, FunctionArgExpr, FunctionArguments, Subscript,
    UnaryOperator, Value,
};
use millrace_postgres::error::{SqlError, SqlResult, SqlState};
use millrace_postgres::types;
use millrace_postgres::types::resolution::{self, Choice, Known, array_of, element_of};
use postgres_types::Type;

use super::{Inference, Typed};
use crate::names;
use crate::parameters::number_of;

impl Inference<'_> {
    pub(super) fn expression(&mut self, expr: &Expr) -> SqlResult<Typed> {
        Ok(match expr {
            Expr::Value(value) => self.value(&value.value),
            Expr::Identifier(name) => self.column(None, &millrace_parser::fold(name)),
            Expr::CompoundIdentifier(parts) => {
                let parts: Vec<String> = parts.iter().map(millrace_parser::fold).collect();
                match parts.as_slice() {
                    [.., relation, name] => self.column(Some(relation), name),
                    _ => Typed::Hidden,
                }
            }
            Expr::Nested(inner) => self.expression(inner)?,
            Expr::Cast { expr, data_type, .. } => {
                // The elements of an array that is written out are cast each.
                if let (Expr::Array(array), ast::DataType::Array(of)) = (expr.as_ref(), data_type)
                    && let Ok(wanted) = types::from_sql(data_type)
                {
                    let pg = types::pg_type(&wanted.field("cast", true));
                    if let Some(element) = element_of(&pg).filter(|_| !is_nested(of)) {
                        for part in &array.elem {
                            let typed = self.expression(part)?;
                            self.give(&typed, &element)?;
                        }
                        return Ok(Typed::As(pg));
                    }
                }
                let typed = self.expression(expr)?;
                let Ok(wanted) = types::from_sql(data_type) else {
                    self.hide(&typed);
                    return Ok(Typed::Hidden);
                };
                let pg = types::pg_type(&wanted.field("cast", true));
                self.give(&typed, &pg)?;
                Typed::As(pg)
            }
            Expr::TypedString(typed) => match types::from_sql(&typed.data_type) {
                Ok(sql_type) => Typed::As(types::pg_type(&sql_type.field("literal", true))),
                Err(_) => Typed::Hidden,
            },
            Expr::Interval(interval) => {
                let typed = self.expression(&interval.value)?;
                self.give(&typed, &Type::TEXT)?;
                Typed::As(Type::INTERVAL)
            }
            Expr::BinaryOp { left, op, right } => self.binary(left, op, right)?,
            Expr::UnaryOp { op, expr } => {
                let typed = self.expression(expr)?;
                match op {
                    UnaryOperator::Not => {
                        self.give(&typed, &Type::BOOL)?;
                        Typed::As(Type::BOOL)
                    }
                    op => self.operator(&op.to_string(), vec![typed])?,
                }
            }
            Expr::IsNull(inner) | Expr::IsNotNull(inner) => {
                self.expression(inner)?;
                Typed::As(Type::BOOL)
            }
            Expr::IsTrue(inner)
            | Expr::IsNotTrue(inner)
            | Expr::IsFalse(inner)
            | Expr::IsNotFalse(inner)
            | Expr::IsUnknown(inner)
            | Expr::IsNotUnknown(inner) => {
                let typed = self.expression(inner)?;
                self.give(&typed, &Type::BOOL)?;
                Typed::As(Type::BOOL)
            }
            Expr::IsDistinctFrom(left, right) | Expr::IsNotDistinctFrom(left, right) => {
                self.compared("=", left, right)?
            }
            Expr::Between { expr, low, high, .. } => {
                self.compared(">=", expr, low)?;
                self.compared("<=", expr, high)?
            }
            Expr::InList { expr, list, .. } => self.in_list(expr, list)?,
            Expr::InSubquery { expr, subquery, .. } => {
                let left = self.expression(expr)?;
                let right = self.subquery(subquery)?;
                match expr.as_ref() {
                    Expr::Tuple(_) => Typed::As(Type::BOOL),
                    _ => self.operator("=", vec![left, right])?,
                }
            }
            Expr::AnyOp {
                left,
                compare_op,
                right,
                ..
            }
            | Expr::AllOp {
                left,
                compare_op,
                right,
            } => self.quantified(left, compare_op, right)?,
            Expr::Like { expr, pattern, .. } => self.compared("~~", expr, pattern)?,
            Expr::ILike { expr, pattern, .. } => self.compared("~~*", expr, pattern)?,
            Expr::SimilarTo { expr, pattern, .. } => {
                let pattern = self.expression(pattern)?;
                self.give(&pattern, &Type::TEXT)?;
                let left = self.expression(expr)?;
                self.operator("~", vec![left, Typed::As(Type::TEXT)])?
            }
            Expr::Case {
                operand,
                conditions,
                else_result,
                ..
            } => self.case(operand.as_deref(), conditions, else_result.as_deref())?,
            Expr::Function(function) => self.function(function)?,
            Expr::Extract { expr, .. } => {
                let typed = self.expression(expr)?;
                self.called("extract", vec![Typed::As(Type::TEXT), typed])?
            }
            Expr::AtTimeZone { timestamp, time_zone } => {
                let zone = self.expression(time_zone)?;
                let time = self.expression(timestamp)?;
                self.called("timezone", vec![zone, time])?
            }
            Expr::Ceil { expr, .. } => self.call_of("ceil", [Some(expr.as_ref())])?,
            Expr::Floor { expr, .. } => self.call_of("floor", [Some(expr.as_ref())])?,
            Expr::Position { expr, r#in } => {
                self.call_of("position", [Some(r#in.as_ref()), Some(expr.as_ref())])?
            }
            Expr::Substring {
                expr,
                substring_from,
                substring_for,
                ..
            } => self.call_of(
                "substring",
                [
                    Some(expr.as_ref()),
                    substring_from.as_deref(),
                    substring_for.as_deref(),
                ],
            )?,
            Expr::Trim {
                expr,
                trim_what,
                trim_characters,
                ..
            } => {
                let characters = trim_characters.as_ref().and_then(|characters| characters.first());
                self.call_of(
                    "btrim",
                    [Some(expr.as_ref()), trim_what.as_deref().or(characters)],
                )?
            }
            Expr::Overlay {
                expr,
                overlay_what,
                overlay_from,
                overlay_for,
            } => self.call_of(
                "overlay",
                [
                    Some(expr.as_ref()),
                    Some(overlay_what.as_ref()),
                    Some(overlay_from.as_ref()),
                    overlay_for.as_deref(),
                ],
            )?,
            Expr::Collate { expr, .. } => {
                let typed = self.expression(expr)?;
                self.give(&typed, &Type::TEXT)?;
                Typed::As(typed.known().unwrap_or(Type::TEXT))
            }
            Expr::Tuple(parts) => {
                for part in parts {
                    self.expression(part)?;
                }
                Typed::As(Type::RECORD)
            }
            Expr::Array(array) => {
                let mut elements = vec![];
                for element in &array.elem {
                    elements.push(self.expression(element)?);
                }
                match self.agreed(elements)? {
                    Typed::As(array) if element_of(&array).is_some() => Typed::As(array),
                    Typed::As(element) => array_of(&element).map_or(Typed::Hidden, Typed::As),
                    other => other,
                }
            }
            Expr::CompoundFieldAccess { root, access_chain } => self.access(root, access_chain)?,
            Expr::Subquery(query) => self.subquery(query)?,
            Expr::Exists { subquery, .. } => {
                self.query(subquery, true)?;
                Typed::As(Type::BOOL)
            }
            Expr::Rollup(sets) | Expr::Cube(sets) | Expr::GroupingSets(sets) => {
                for expr in sets.iter().flatten() {
                    self.sorted(expr)?;
                }
                Typed::Hidden
            }
            _ => Typed::Hidden,
        })
    }

    fn value(&self, value: &Value) -> Typed {
        match value {
            Value::Placeholder(name) => match number_of(name) {
                Some(number) => match self.found.types.get(&number) {
                    Some(pg) => Typed::As(pg.clone()),
                    None => Typed::Parameter(number),
                },
                None => Typed::Hidden,
            },
            Value::Number(digits, _) => Typed::As(if digits.parse::<i32>().is_ok() {
                Type::INT4
            } else if digits.parse::<i64>().is_ok() {
                Type::INT8
            } else {
                Type::NUMERIC
            }),
            Value::Boolean(_) => Typed::As(Type::BOOL),
            _ => Typed::Literal,
        }
    }

    fn binary(&mut self, left: &Expr, op: &BinaryOperator, right: &Expr) -> SqlResult<Typed> {
        match op {
            BinaryOperator::And | BinaryOperator::Or => {
                for side in [left, right] {
                    let typed = self.expression(side)?;
                    self.give(&typed, &Type::BOOL)?;
                }
                Ok(Typed::As(Type::BOOL))
            }
            BinaryOperator::PGCustomBinaryOperator(parts) => {
                let name = parts.last().cloned().unwrap_or_default();
                self.compared(&name, left, right)
            }
            op => self.compared(&op.to_string(), left, right),
        }
    }

    /// Two sides of an operator; rows are compared part by part.
    fn compared(&mut self, name: &str, left: &Expr, right: &Expr) -> SqlResult<Typed> {
        if let (Expr::Tuple(lefts), Expr::Tuple(rights)) = (left, right) {
            for (left, right) in lefts.iter().zip(rights) {
                self.compared(name, left, right)?;
            }
            return Ok(Typed::As(Type::BOOL));
        }
        let left = self.expression(left)?;
        let right = self.expression(right)?;
        self.operator(name, vec![left, right])
    }

    fn operator(&mut self, name: &str, sides: Vec<Typed>) -> SqlResult<Typed> {
        if sides.contains(&Typed::Hidden) {
            sides.iter().for_each(|side| self.hide(side));
            return Ok(Typed::Hidden);
        }
        let known: Vec<Known> = sides.iter().map(Typed::known).collect();
        let chosen = resolution::operator(name, &known);
        self.check_chosen("operator", name, &chosen, &sides)?;
        self.settle(chosen, &sides, &known)
    }

    /// Refuses a call that could mean several because of a parameter without a type.
    fn check_chosen(&self, what: &str, name: &str, chosen: &Choice, given: &[Typed]) -> SqlResult<()> {
        let mut parameters = given.iter().filter_map(|typed| match typed {
            Typed::Parameter(number) => Some(*number),
            _ => None,
        });
        match (chosen, parameters.next()) {
            (Choice::Several, Some(number)) => Err(SqlError::new(
                SqlState::AmbiguousFunction,
                format!("{what} is not unique: {name} with parameter ${number} of unknown type"),
            )
            .with_hint(format!("Say the type with a cast, as in ${number}::integer."))),
            _ => Ok(()),
        }
    }

    /// Gives the arguments what the chosen operator or function takes; the type of its result.
    fn settle(&mut self, chosen: Choice, arguments: &[Typed], known: &[Known]) -> SqlResult<Typed> {
        let Choice::One(chosen) = chosen else {
            arguments.iter().for_each(|argument| self.hide(argument));
            return Ok(Typed::Hidden);
        };
        let mut settled = chosen.settled(known);
        let result = settled.pop().flatten();
        for (argument, pg) in arguments.iter().zip(settled) {
            if let Some(pg) = pg {
                self.give(argument, &pg)?;
            }
        }
        Ok(result.map_or(Typed::Hidden, Typed::As))
    }

    fn in_list(&mut self, expr: &Expr, list: &[Expr]) -> SqlResult<Typed> {
        if let Expr::Tuple(_) = expr {
            for item in list {
                self.compared("=", expr, item)?;
            }
            return Ok(Typed::As(Type::BOOL));
        }
        if let [single] = list {
            return self.compared("=", expr, single);
        }
        let mut all = vec![self.expression(expr)?];
        for item in list {
            all.push(self.expression(item)?);
        }
        self.agreed(all)?;
        Ok(Typed::As(Type::BOOL))
    }

    /// `x = ANY (array)`, or a query in the array's place.
    fn quantified(&mut self, left: &Expr, op: &BinaryOperator, right: &Expr) -> SqlResult<Typed> {
        let name = op.to_string();
        let left = self.expression(left)?;
        let right = match right {
            Expr::Nested(inner) => inner.as_ref(),
            right => right,
        };
        if let Expr::Subquery(query) = right {
            let column = self.subquery(query)?;
            return self.operator(&name, vec![left, column]);
        }
        let array = self.expression(right)?;
        let element = match &array {
            Typed::As(array) => element_of(array).map_or(Typed::Hidden, Typed::As),
            Typed::Literal | Typed::Parameter(_) => Typed::Literal,
            Typed::Hidden => Typed::Hidden,
        };
        if element == Typed::Hidden || left == Typed::Hidden {
            self.hide(&array);
            self.hide(&left);
            return Ok(Typed::As(Type::BOOL));
        }
        let known = [left.known(), element.known()];
        if let Choice::One(chosen) = resolution::operator(&name, &known) {
            let settled = chosen.settled(&known);
            if let Some(pg) = &settled[0] {
                self.give(&left, pg)?;
            }
            if let Some(of_arrays) = settled[1].as_ref().and_then(array_of) {
                self.give(&array, &of_arrays)?;
            }
        }
        Ok(Typed::As(Type::BOOL))
    }

    fn case(
        &mut self,
        operand: Option<&Expr>,
        conditions: &[ast::CaseWhen],
        otherwise: Option<&Expr>,
    ) -> SqlResult<Typed> {
        let operand = match operand {
            Some(operand) => {
                let typed = self.expression(operand)?;
                // It is compared several times: without a type of its own it is a text.
                self.give(&typed, &Type::TEXT)?;
                Some(match typed {
                    Typed::Literal | Typed::Parameter(_) => Typed::As(Type::TEXT),
                    typed => typed,
                })
            }
            None => None,
        };
        let mut results = vec![];
        for when in conditions {
            let condition = self.expression(&when.condition)?;
            match &operand {
                Some(operand) => {
                    self.operator("=", vec![operand.clone(), condition])?;
                }
                None => self.give(&condition, &Type::BOOL)?,
            }
            results.push(self.expression(&when.result)?);
        }
        if let Some(otherwise) = otherwise {
            let typed = self.expression(otherwise)?;
            results.insert(0, typed);
        }
        self.agreed(results)
    }

    fn access(&mut self, root: &Expr, chain: &[AccessExpr]) -> SqlResult<Typed> {
        if let (Expr::Identifier(relation), [AccessExpr::Dot(Expr::Identifier(name))]) = (root, chain) {
            let (relation, name) = (millrace_parser::fold(relation), millrace_parser::fold(name));
            return Ok(self.column(Some(&relation), &name));
        }
        let mut typed = self.expression(root)?;
        for access in chain {
            match access {
                AccessExpr::Subscript(Subscript::Index { index }) => {
                    let index = self.expression(index)?;
                    let is_object = typed == Typed::As(Type::JSONB);
                    self.give(&index, if is_object { &Type::TEXT } else { &Type::INT4 })?;
                    typed = match typed.known() {
                        Some(pg) if pg == Type::JSONB => typed,
                        Some(pg) => element_of(&pg).map_or(Typed::Hidden, Typed::As),
                        None => Typed::Hidden,
                    };
                }
                AccessExpr::Subscript(Subscript::Slice {
                    lower_bound,
                    upper_bound,
                    ..
                }) => {
                    for bound in [lower_bound, upper_bound].into_iter().flatten() {
                        let bound = self.expression(bound)?;
                        self.give(&bound, &Type::INT4)?;
                    }
                }
                AccessExpr::Dot(_) => return Ok(Typed::Hidden),
            }
        }
        Ok(typed)
    }

    fn function(&mut self, function: &ast::Function) -> SqlResult<Typed> {
        let name = names::last(&function.name);
        let result = match &function.args {
            FunctionArguments::None => self.call(&name, &[])?,
            FunctionArguments::Subquery(query) => {
                self.query(query, true)?;
                Typed::Hidden
            }
            FunctionArguments::List(list) => {
                let result = self.call(&name, &list.args)?;
                for clause in &list.clauses {
                    if let ast::FunctionArgumentClause::OrderBy(order) = clause {
                        for sorted in order {
                            self.sorted(&sorted.expr)?;
                        }
                    }
                }
                result
            }
        };
        self.condition(function.filter.as_deref())?;
        for sorted in &function.within_group {
            self.sorted(&sorted.expr)?;
        }
        if let Some(ast::WindowType::WindowSpec(window)) = &function.over {
            self.window(window)?;
        }
        Ok(result)
    }

    /// A call by its name and arguments.
    pub(super) fn call(&mut self, name: &str, arguments: &[FunctionArg]) -> SqlResult<Typed> {
        let mut typed = vec![];
        for argument in arguments {
            let (FunctionArg::Unnamed(argument)
            | FunctionArg::Named { arg: argument, .. }
            | FunctionArg::ExprNamed { arg: argument, .. }) = argument;
            match argument {
                FunctionArgExpr::Expr(expr) => typed.push(self.expression(expr)?),
                // count(*)
                _ => return Ok(Typed::As(Type::INT8)),
            }
        }
        self.called(name, typed)
    }

    fn call_of<const N: usize>(&mut self, name: &str, arguments: [Option<&Expr>; N]) -> SqlResult<Typed> {
        let mut typed = vec![];
        for argument in arguments.into_iter().flatten() {
            typed.push(self.expression(argument)?);
        }
        self.called(name, typed)
    }

    fn called(&mut self, name: &str, arguments: Vec<Typed>) -> SqlResult<Typed> {
        match name {
            "coalesce" | "greatest" | "least" => return self.agreed(arguments),
            "nullif" => {
                let first = arguments.first().cloned().unwrap_or(Typed::Hidden);
                self.operator("=", arguments)?;
                return Ok(match first {
                    Typed::Parameter(number) => {
                        let found = self.found.types.get(&number).cloned();
                        found.map_or(Typed::Hidden, Typed::As)
                    }
                    first => first,
                });
            }
            _ => {}
        }
        let known: Vec<Known> = arguments.iter().map(Typed::known).collect();
        let is_hidden = arguments.contains(&Typed::Hidden) && !self.is_sure(name, &arguments);
        if is_hidden || !resolution::is_function(name) {
            arguments.iter().for_each(|argument| self.hide(argument));
            return Ok(Typed::Hidden);
        }
        let chosen = resolution::function(name, &known);
        self.check_chosen("function", name, &chosen, &arguments)?;
        self.settle(chosen, &arguments, &known)
    }

    /// Whether there is one function of the name for so many arguments, so that it does not matter what type some of them have.
    fn is_sure(&self, name: &str, arguments: &[Typed]) -> bool {
        let chosen = resolution::function(name, &vec![None; arguments.len()]).one();
        chosen.is_some_and(|chosen| {
            resolution::function_count(name, arguments.len()) == 1
                && !chosen.arguments.iter().any(resolution::is_generic)
        })
    }
}

/// Whether an array's elements are arrays.
fn is_nested(of: &ast::ArrayElemTypeDef) -> bool {
    match of {
        ast::ArrayElemTypeDef::AngleBracket(inner)
        | ast::ArrayElemTypeDef::SquareBracket(inner, _)
        | ast::ArrayElemTypeDef::Parenthesis(inner) => matches!(**inner, ast::DataType::Array(_)),
        ast::ArrayElemTypeDef::None => false,
    }
}
