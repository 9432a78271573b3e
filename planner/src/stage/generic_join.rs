//! The join of three or more relations at once.

use std::fmt::Write;

use arrow::datatypes::{DataType, SchemaRef};

use super::description::{Description, Note, State};
use super::flow::{Explosion, Faucet};
use super::operator::Operator;
use super::origins::{Origin, Origins, at};

/// An inner join of three or more relations by equal columns, all at once: attribute after attribute, where binary joins would
/// make pairs that a third relation drops. Columns that are equal are one attribute; a column that equals no other is one too.
#[derive(Debug, Clone)]
pub struct GenericJoin {
    /// Its relations.
    pub inputs: Vec<Operator>,
    pub shape: GenericJoinShape,
}

/// What a [`GenericJoin`] is but for its relations.
#[derive(Debug, Clone)]
pub struct GenericJoinShape {
    /// For each relation, the attribute of each of its columns.
    pub attributes: Vec<Vec<usize>>,
    /// By attribute: what it is called, to be shown, and its type.
    pub names: Vec<String>,
    pub types: Vec<DataType>,
    /// The attribute of each column of the output.
    pub output: Vec<usize>,
    pub schema: SchemaRef,
}

impl Description for GenericJoin {
    fn schema(&self) -> &SchemaRef {
        &self.shape.schema
    }

    fn inputs(&self) -> Vec<&Operator> {
        self.inputs.iter().collect()
    }

    fn line(&self) -> String {
        let shape = &self.shape;
        let inputs: Vec<String> = (shape.attributes.iter())
            .map(|attributes| {
                let names = attributes.iter().map(|of| shape.names[*of].as_str());
                format!("({})", names.collect::<Vec<_>>().join(", "))
            })
            .collect();
        format!("GenericJoin: {}", inputs.join(", "))
    }

    fn origins(&self, inputs: &[Vec<Origin>]) -> Vec<Origin> {
        // An attribute is what its first relation says.
        let origin_of = |attribute: usize| {
            let relations = inputs.iter().zip(&self.shape.attributes);
            for (input, attributes) in relations {
                if let Some(column) = attributes.iter().position(|of| *of == attribute) {
                    return at(input, column);
                }
            }
            Origin::Computed
        };
        self.shape.output.iter().map(|of| origin_of(*of)).collect()
    }

    fn state(&self, inputs: &[Origins]) -> Option<State> {
        let mut text = String::from("of");
        for (input, attributes) in inputs.iter().zip(&self.shape.attributes) {
            let _ = write!(text, " ({}) as {attributes:?}", input.all());
        }
        Some(State {
            kind: "generic join",
            version: 1,
            text,
        })
    }

    fn grows(&self, inputs: &[Option<String>], note: &mut Note<'_>) -> Option<String> {
        let stream = inputs.iter().flatten().next()?;
        let names = self.shape.names.join(", ");
        note(format!("JOIN ({names})"), "every row", stream);
        Some(stream.clone())
    }

    fn takes_parts(&self) -> bool {
        true
    }

    fn multiplies(&self) -> Option<Faucet> {
        Some(Faucet::placed(Explosion::CyclicJoin))
    }
}
