//! `lag` and `lead`. A default that is wider than their values gives its type. DataFusion takes constants alone for the offset and the
//! default: others are computed here.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, UInt32Array};
use arrow::compute::{cast, interleave, is_null};
use arrow::datatypes::{DataType, FieldRef, Int64Type};
use datafusion::common::{Result, plan_err};
use datafusion::functions_window::lead_lag::{lag_udwf, lead_udwf};
use datafusion::logical_expr::binary::comparison_coercion;
use datafusion::logical_expr::function::{ExpressionArgs, PartitionEvaluatorArgs, WindowUDFFieldArgs};
use datafusion::logical_expr::{
    Documentation, LimitEffect, PartitionEvaluator, ReversedUDWF, Signature, Volatility, WindowUDF,
    WindowUDFImpl,
};
use datafusion::physical_expr::expressions::Literal;
use datafusion::physical_plan::PhysicalExpr;

/// The functions.
pub fn udwfs() -> [Arc<WindowUDF>; 2] {
    [(lag_udwf(), true), (lead_udwf(), false)].map(|(inner, is_back)| {
        Arc::new(WindowUDF::from(Shifted {
            inner,
            is_back,
            signature: Signature::user_defined(Volatility::Immutable),
        }))
    })
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Shifted {
    inner: Arc<WindowUDF>,
    /// `lag`.
    is_back: bool,
    signature: Signature,
}

/// Whether the offset and the default are constants.
fn is_constant(arguments: &[Arc<dyn PhysicalExpr>]) -> bool {
    let mut others = arguments.iter().skip(1);
    others.all(|argument| argument.is::<Literal>())
}

impl WindowUDFImpl for Shifted {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn coerce_types(&self, types: &[DataType]) -> Result<Vec<DataType>> {
        let mut types = types.to_vec();
        match types.as_mut_slice() {
            [_] | [_, _] => {}
            // A number without a point is of the values' type, whatever it is.
            [value, _, default] if !default.is_integer() => {
                if let Some(common) = comparison_coercion(value, default) {
                    (*value, *default) = (common.clone(), common);
                }
            }
            [_, _, _] => {}
            _ => {
                return plan_err!(
                    "function {} with {} arguments does not exist",
                    self.name(),
                    types.len()
                );
            }
        }
        Ok(types)
    }

    fn expressions(&self, args: ExpressionArgs) -> Vec<Arc<dyn PhysicalExpr>> {
        match is_constant(args.input_exprs()) {
            true => self.inner.expressions(args),
            false => args.input_exprs().to_vec(),
        }
    }

    fn partition_evaluator(&self, args: PartitionEvaluatorArgs) -> Result<Box<dyn PartitionEvaluator>> {
        if is_constant(args.input_exprs()) {
            return self.inner.partition_evaluator_factory(args);
        }
        Ok(Box::new(Computed {
            is_back: self.is_back != args.is_reversed(),
            ignores_nulls: args.ignore_nulls(),
        }))
    }

    fn field(&self, args: WindowUDFFieldArgs) -> Result<FieldRef> {
        self.inner.field(args)
    }

    fn reverse_expr(&self) -> ReversedUDWF {
        ReversedUDWF::Reversed(Arc::new(WindowUDF::from(self.clone())))
    }

    fn documentation(&self) -> Option<&Documentation> {
        self.inner.documentation()
    }

    fn limit_effect(&self, args: &[Arc<dyn PhysicalExpr>]) -> LimitEffect {
        match is_constant(args) {
            true => self.inner.inner().limit_effect(args),
            false => LimitEffect::Unknown,
        }
    }
}

/// One whose offset or default is a value of each row.
#[derive(Debug)]
struct Computed {
    is_back: bool,
    ignores_nulls: bool,
}

impl PartitionEvaluator for Computed {
    fn evaluate_all(&mut self, values: &[ArrayRef], rows: usize) -> Result<ArrayRef> {
        let shifted = &values[0];
        let offsets = match values.get(1) {
            Some(offsets) => cast(offsets, &DataType::Int64)?,
            None => return plan_err!("lag and lead without an offset have one"),
        };
        let offsets = offsets.as_primitive::<Int64Type>();
        let default = match values.get(2) {
            Some(default) => cast(default, shifted.data_type())?,
            None => arrow::array::new_null_array(shifted.data_type(), rows),
        };
        let nothing = arrow::array::new_null_array(shifted.data_type(), 1);
        // The rows that are counted.
        let counted: UInt32Array = match self.ignores_nulls {
            true => {
                let nulls = is_null(shifted)?;
                let rows = 0..u32::try_from(rows).unwrap_or(u32::MAX);
                rows.zip(nulls.values())
                    .filter(|(_, null)| !null)
                    .map(|(row, _)| row)
                    .collect()
            }
            false => (0..u32::try_from(rows).unwrap_or(u32::MAX)).collect(),
        };
        let counted = counted.values();
        let picked = |row: usize| {
            if offsets.is_null(row) {
                return (2, 0);
            }
            let offset = i128::from(offsets.value(row)) * if self.is_back { -1 } else { 1 };
            if offset == 0 {
                return (0, row);
            }
            // How many counted rows stand before this one, and with it.
            let before = counted.partition_point(|counted| (*counted as usize) < row);
            let with = counted.partition_point(|counted| (*counted as usize) <= row);
            let place = match offset < 0 {
                true => i128::try_from(before).map(|before| before + offset),
                false => i128::try_from(with).map(|with| with + offset - 1),
            };
            let place = place.ok().and_then(|place| usize::try_from(place).ok());
            match place.and_then(|place| counted.get(place)) {
                Some(found) => (0, *found as usize),
                None => (1, row),
            }
        };
        let picked: Vec<(usize, usize)> = (0..rows).map(picked).collect();
        let sources = [shifted.as_ref(), default.as_ref(), nothing.as_ref()];
        Ok(interleave(&sources, &picked)?)
    }
}
