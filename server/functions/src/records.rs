//! Rows as values, and their attributes (see [`millrace_sql::postgres::records`] for where the calls come from).

use std::collections::HashMap;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, BooleanArray, new_null_array};
use arrow::buffer::NullBuffer;
use arrow::datatypes::{DataType, Field, FieldRef, Fields};
use datafusion::common::{Result, exec_datafusion_err};
use datafusion::logical_expr::simplify::{ExprSimplifyResult, SimplifyContext};
use datafusion::logical_expr::{
    ColumnarValue, Expr, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature,
    TypeSignature, Volatility,
};
use datafusion::scalar::ScalarValue;
use datafusion::sql::sqlparser::ast;
use millrace_postgres::error::{SqlError, SqlResult, SqlState};
use millrace_postgres::types::composite::structs;
use millrace_postgres::types::enumeration::VALUES;
use millrace_postgres::types::{ANNOTATION, plain_name, sql_name};
use millrace_sql::postgres::records::{FIELD, NAMED_ROW, ROW};

use crate::arguments::on_arrays;
use crate::syntax::{self, arguments, call, text};

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Kind {
    Row,
    NamedRow,
    Field,
    WithAttribute,
}

/// `pg_with_attribute(row, value, 'a', 'b')`: the row with another value of `a.b`.
const WITH_ATTRIBUTE: &str = "pg_with_attribute";
/// The function around the value of `SET a.b = v`, whose other arguments are the names behind that of the column.
const ASSIGN_ATTRIBUTE: &str = "assign attribute";

#[derive(Debug, PartialEq, Eq, Hash)]
struct RecordFunction {
    kind: Kind,
    signature: Signature,
}

/// The functions.
pub fn udfs() -> Vec<Arc<ScalarUDF>> {
    let any = TypeSignature::OneOf(vec![TypeSignature::VariadicAny, TypeSignature::Nullary]);
    [
        (Kind::Row, any.clone()),
        (Kind::NamedRow, any),
        (Kind::Field, TypeSignature::Any(2)),
        (Kind::WithAttribute, TypeSignature::VariadicAny),
    ]
    .into_iter()
    .map(|(kind, signature)| {
        Arc::new(ScalarUDF::from(RecordFunction {
            kind,
            signature: Signature::new(signature, Volatility::Immutable),
        }))
    })
    .collect()
}

/// An attribute of a row: what is known of the type of its values, under another name.
fn attribute(name: &str, of: &Field) -> FieldRef {
    let kept = [ANNOTATION, VALUES].into_iter();
    let kept = kept.filter_map(|key| Some((key.to_owned(), of.metadata().get(key)?.clone())));
    let data_type = match of.data_type() {
        DataType::Null => DataType::Utf8,
        other => other.clone(),
    };
    Arc::new(Field::new(name, data_type, true).with_metadata(kept.collect::<HashMap<_, _>>()))
}

/// The text that an argument is.
fn literal<'a>(args: &[Option<&'a ScalarValue>], position: usize) -> Result<&'a str> {
    match args.get(position).copied().flatten() {
        Some(ScalarValue::Utf8(Some(text))) => Ok(text),
        _ => Err(exec_datafusion_err!("the name of an attribute is no constant")),
    }
}

/// Where an attribute of a value stands.
fn position(of: &Field, name: &str) -> Result<(usize, FieldRef)> {
    let DataType::Struct(fields) = of.data_type() else {
        let message = match of.data_type().is_null() {
            true => format!("could not identify column \"{name}\" in record data type"),
            false => format!(
                "column notation .{name} applied to type {}, which is not a composite type",
                plain_name(of)
            ),
        };
        let code = match of.data_type().is_null() {
            true => SqlState::UndefinedColumn,
            false => SqlState::WrongObjectType,
        };
        return Err(SqlError::new(code, message).into());
    };
    if let Some((position, field)) = fields.find(name) {
        return Ok((position, Arc::clone(field)));
    }
    let message = match plain_name(of).as_str() {
        "record" => format!("could not identify column \"{name}\" in record data type"),
        composite => format!("column \"{name}\" not found in data type {composite}"),
    };
    Err(SqlError::new(SqlState::UndefinedColumn, message).into())
}

impl RecordFunction {
    /// How many arguments stand before each value.
    fn names(&self) -> usize {
        usize::from(self.kind == Kind::NamedRow)
    }
}

impl ScalarUDFImpl for RecordFunction {
    fn name(&self) -> &str {
        match self.kind {
            Kind::Row => ROW,
            Kind::NamedRow => NAMED_ROW,
            Kind::Field => FIELD,
            Kind::WithAttribute => WITH_ATTRIBUTE,
        }
    }

    fn schema_name(&self, args: &[Expr]) -> Result<String> {
        crate::names::called(self.name(), args)
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Err(exec_datafusion_err!(
            "{} tells its type by its arguments",
            self.name()
        ))
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs) -> Result<FieldRef> {
        if self.kind == Kind::Field {
            let (_, field) = position(&args.arg_fields[0], literal(args.scalar_arguments, 1)?)?;
            return Ok(Arc::new(field.as_ref().clone().with_nullable(true)));
        }
        if self.kind == Kind::WithAttribute {
            return Ok(Arc::new(args.arg_fields[0].as_ref().clone().with_nullable(true)));
        }
        let mut fields: Vec<FieldRef> = vec![];
        let width = 1 + self.names();
        for (index, field) in args
            .arg_fields
            .iter()
            .enumerate()
            .skip(self.names())
            .step_by(width)
        {
            fields.push(match self.kind {
                Kind::NamedRow => attribute(literal(args.scalar_arguments, index - 1)?, field),
                _ => attribute(&format!("f{}", fields.len() + 1), field),
            });
        }
        Ok(Arc::new(Field::new(
            self.name(),
            DataType::Struct(Fields::from(fields)),
            false,
        )))
    }

    fn simplify(&self, args: Vec<Expr>, _: &SimplifyContext) -> Result<ExprSimplifyResult> {
        // The attribute of a row that is written down is what stands there.
        if let (
            Kind::Field,
            [
                Expr::ScalarFunction(row),
                Expr::Literal(ScalarValue::Utf8(Some(name)), _),
            ],
        ) = (self.kind, args.as_slice())
            && row.func.name() == NAMED_ROW
        {
            let found = row.args.chunks_exact(2).find(
                |pair| matches!(&pair[0], Expr::Literal(ScalarValue::Utf8(Some(known)), _) if known == name),
            );
            if let Some([_, value]) = found {
                return Ok(ExprSimplifyResult::Simplified(value.clone()));
            }
        }
        Ok(ExprSimplifyResult::Original(args))
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        if self.kind == Kind::Field {
            let wanted = match &args.args[1] {
                ColumnarValue::Scalar(ScalarValue::Utf8(Some(name))) => name.clone(),
                _ => return Err(exec_datafusion_err!("the name of an attribute is no constant")),
            };
            let (position, _) = position(&args.arg_fields[0], &wanted)?;
            return on_arrays(&args, |arrays, _| {
                let rows = arrays[0].as_struct();
                let values = rows.column(position);
                match rows.nulls().filter(|nulls| nulls.null_count() > 0) {
                    None => Ok(ArrayRef::clone(values)),
                    Some(nulls) => without(values, nulls),
                }
            });
        }
        if self.kind == Kind::WithAttribute {
            let path = args.args.iter().skip(2).map(|name| match name {
                ColumnarValue::Scalar(ScalarValue::Utf8(Some(name))) => Ok(name.as_str()),
                _ => Err(exec_datafusion_err!("the name of an attribute is no constant")),
            });
            let path = path.collect::<Result<Vec<&str>>>()?;
            return on_arrays(&args, |arrays, _| {
                with_attribute(&args.arg_fields[0], &arrays[0], &path, &arrays[1])
            });
        }
        let DataType::Struct(fields) = args.return_field.data_type() else {
            return Err(exec_datafusion_err!("{} makes rows", self.name()));
        };
        let width = 1 + self.names();
        on_arrays(&args, |arrays, rows| {
            let values = arrays.iter().skip(self.names()).step_by(width);
            let columns = values
                .zip(fields)
                .map(|(values, field)| match values.data_type() {
                    DataType::Null => new_null_array(field.data_type(), rows),
                    _ => ArrayRef::clone(values),
                });
            Ok(structs(fields, columns.collect(), rows, None)?)
        })
    }
}

/// Values that are NULL where their rows are.
fn without(values: &ArrayRef, nulls: &NullBuffer) -> Result<ArrayRef> {
    let is_null: BooleanArray = nulls.iter().map(|is_valid| Some(!is_valid)).collect();
    Ok(arrow::compute::nullif(values, &is_null)?)
}

/// Rows with other values of the attribute at the end of a path. A row that is NULL becomes one that has nothing else.
fn with_attribute(of: &Field, rows: &ArrayRef, path: &[&str], values: &ArrayRef) -> Result<ArrayRef> {
    let [name, rest @ ..] = path else {
        return Ok(ArrayRef::clone(values));
    };
    let (changed, attribute) = position(of, name)?;
    let (DataType::Struct(fields), rows) = (of.data_type(), rows.as_struct()) else {
        return Err(exec_datafusion_err!("{WITH_ATTRIBUTE} is of rows"));
    };
    let nulls = rows.nulls().filter(|nulls| nulls.null_count() > 0);
    let mut columns = vec![];
    for (index, column) in rows.columns().iter().enumerate() {
        let column = match nulls {
            Some(nulls) => without(column, nulls)?,
            None => ArrayRef::clone(column),
        };
        columns.push(match index == changed {
            true => with_attribute(&attribute, &column, rest, values)?,
            false => column,
        });
    }
    Ok(structs(fields, columns, rows.len(), None)?)
}

/// An assignment to the attribute of a column whose names stand behind the column's.
pub fn assignment(value: ast::Expr, names: &[String]) -> ast::Expr {
    let names = names.iter().map(|name| text(name));
    call(ASSIGN_ATTRIBUTE, std::iter::once(value).chain(names).collect())
}

/// What is assigned to a column by the value of an assignment, if that is one to an attribute of it. `before`: what the column is before.
///
/// # Errors
/// There is no such attribute, or the column has none.
pub fn assigned(value: &ast::Expr, before: &ast::Expr, column: &Field) -> SqlResult<Option<ast::Expr>> {
    let ast::Expr::Function(function) = value else {
        return Ok(None);
    };
    if function.name.to_string().trim_matches('"') != ASSIGN_ATTRIBUTE {
        return Ok(None);
    }
    let arguments: Vec<&ast::Expr> = arguments(function);
    let [given, path @ ..] = arguments.as_slice() else {
        return Ok(None);
    };
    if matches!(given, ast::Expr::Identifier(name)
        if name.quote_style.is_none() && name.value.eq_ignore_ascii_case("default"))
    {
        return Err(SqlError::unsupported("cannot set a subfield to DEFAULT"));
    }
    let mut of = Arc::new(column.clone());
    for name in path {
        let ast::Expr::Value(name) = name else {
            return Ok(None);
        };
        let (ast::Value::SingleQuotedString(name) | ast::Value::EscapedStringLiteral(name)) = &name.value
        else {
            return Ok(None);
        };
        let refused = |code: SqlState, why: String| {
            let column = column.name();
            let message = format!("cannot assign to field \"{name}\" of column \"{column}\" because {why}");
            SqlError::new(code, message)
        };
        let DataType::Struct(fields) = of.data_type() else {
            let why = format!("its type {} is not a composite type", plain_name(&of));
            return Err(refused(SqlState::DatatypeMismatch, why));
        };
        let found = fields.find(name).map(|(_, field)| Arc::clone(field));
        of = found.ok_or_else(|| {
            let why = format!("there is no such column in data type {}", plain_name(&of));
            refused(SqlState::UndefinedColumn, why)
        })?;
    }
    let given = syntax::assigned(given, &sql_name(&of), of.name());
    let path = path.iter().map(|name| (*name).clone());
    let all = [before.clone(), given].into_iter().chain(path).collect();
    Ok(Some(call(WITH_ATTRIBUTE, all)))
}
