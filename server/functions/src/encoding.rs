//! `convert_from` and `convert_to`: bytes as text and back. Text is UTF-8 always, so that is the one encoding there is.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, BinaryArray, StringArray};
use arrow::compute::cast;
use arrow::datatypes::DataType;
use datafusion::common::Result;
use datafusion::logical_expr::{
    ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};
use datafusion::scalar::ScalarValue;
use millrace_postgres::error::{SqlError, SqlState};

#[derive(Debug, PartialEq, Eq, Hash)]
struct Convert {
    from_bytes: bool,
    signature: Signature,
}

/// The functions.
pub fn udfs() -> Vec<Arc<ScalarUDF>> {
    [true, false]
        .into_iter()
        .map(|from_bytes| {
            let value = if from_bytes {
                DataType::Binary
            } else {
                DataType::Utf8
            };
            let signature = Signature::exact(vec![value, DataType::Utf8], Volatility::Immutable);
            Arc::new(ScalarUDF::from(Convert {
                from_bytes,
                signature,
            }))
        })
        .collect()
}

impl ScalarUDFImpl for Convert {
    fn name(&self) -> &str {
        if self.from_bytes {
            "convert_from"
        } else {
            "convert_to"
        }
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(if self.from_bytes {
            DataType::Utf8
        } else {
            DataType::Binary
        })
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let scalar = (args.args.iter()).all(|value| matches!(value, ColumnarValue::Scalar(_)));
        let arrays = ColumnarValue::values_to_arrays(&args.args)?;
        let encodings = cast(&arrays[1], &DataType::Utf8)?;
        for name in encodings.as_string::<i32>().iter().flatten() {
            known(name)?;
        }
        let is_there = |row: usize| arrays[0].is_valid(row) && encodings.is_valid(row);
        let rows = 0..arrays[0].len();
        let out: ArrayRef = if self.from_bytes {
            let bytes = cast(&arrays[0], &DataType::Binary)?;
            let bytes = bytes.as_binary::<i32>();
            let texts = rows.map(|row| is_there(row).then(|| text(bytes.value(row))).transpose());
            Arc::new(texts.collect::<Result<StringArray>>()?)
        } else {
            let texts = cast(&arrays[0], &DataType::Utf8)?;
            let texts = texts.as_string::<i32>();
            let bytes = rows.map(|row| is_there(row).then(|| texts.value(row).as_bytes()));
            Arc::new(BinaryArray::from_iter(bytes))
        };
        match scalar {
            true => Ok(ColumnarValue::Scalar(ScalarValue::try_from_array(&out, 0)?)),
            false => Ok(ColumnarValue::Array(out)),
        }
    }
}

fn known(name: &str) -> Result<()> {
    let plain: String = (name.chars())
        .filter(char::is_ascii_alphanumeric)
        .map(|letter| letter.to_ascii_lowercase())
        .collect();
    match plain.as_str() {
        "utf8" | "unicode" => Ok(()),
        _ => Err(
            SqlError::unsupported(format!("encoding \"{name}\" is not supported"))
                .with_hint("The one encoding is UTF8.")
                .into(),
        ),
    }
}

fn text(bytes: &[u8]) -> Result<&str> {
    let (text, broken) = match std::str::from_utf8(bytes) {
        Ok(text) => (text, text.find('\0')),
        Err(error) => ("", Some(error.valid_up_to())),
    };
    match broken {
        None => Ok(text),
        Some(at) => Err(SqlError::new(
            SqlState::CharacterNotInRepertoire,
            format!("invalid byte sequence for encoding \"UTF8\": 0x{:02x}", bytes[at]),
        )
        .into()),
    }
}
