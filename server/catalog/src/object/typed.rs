//! Types that somebody made, as objects, and the columns that are of them.

use std::sync::Arc;

use arrow::datatypes::{FieldRef, Schema};
use millrace_planner::RelationTable;
use millrace_postgres::types::composite::{CompositeType, named};
use millrace_postgres::types::enumeration::{EnumType, VALUES};
use millrace_postgres::types::named::{Domain, NamedType};
use millrace_postgres::types::{ANNOTATION, element};
use millrace_storage::ObjectId;

use super::{Definition, Object, Relation};
use crate::user_type::{TypeDef, id_of, type_oid};

impl Relation {
    /// The same, whose columns of an enum know these values.
    fn with_values(&self, of: &EnumType) -> Relation {
        let told = |field: &FieldRef| -> FieldRef {
            let element = element(field);
            let known = EnumType::of(element.as_deref().unwrap_or(field));
            if known.is_none_or(|known| known.oid != of.oid) {
                return Arc::clone(field);
            }
            let mut metadata = field.metadata().clone();
            metadata.extend(of.sql_type().values.map(|values| (VALUES.to_owned(), values)));
            Arc::new(field.as_ref().clone().with_metadata(metadata))
        };
        let mut relation = self.clone();
        for column in &mut relation.columns {
            column.field = told(&column.field);
        }
        let fields: Vec<FieldRef> = self.schema().fields().iter().map(told).collect();
        relation.info.schema = Arc::new(Schema::new(fields));
        relation.provider = Arc::new(RelationTable::new(relation.info.clone()));
        relation
    }
}

impl Object {
    /// The type that it is.
    pub fn named_type(&self) -> Option<NamedType> {
        let Definition::Type(of) = &self.definition else {
            return None;
        };
        Some(match of.as_ref() {
            TypeDef::Enum(values) => NamedType::Enum(EnumType {
                oid: type_oid(self.id),
                schema: self.schema.clone(),
                name: self.name.clone(),
                values: values.clone(),
            }),
            TypeDef::Composite(attributes) => NamedType::Composite(CompositeType {
                oid: type_oid(self.id),
                schema: self.schema.clone(),
                name: self.name.clone(),
                attributes: attributes.clone(),
            }),
            TypeDef::Domain(domain) => NamedType::Domain(Box::new(Domain {
                id: self.id.0,
                schema: self.schema.clone(),
                name: self.name.clone(),
                base: domain.base.clone(),
                not_null: domain.not_null,
                default: domain.default.clone(),
                checks: (domain.checks.iter())
                    .map(|check| (check.name.clone(), check.expression.clone()))
                    .collect(),
            })),
        })
    }

    /// The same, if it has columns of an enum or is a view, with these values of the enum.
    pub fn with_values(&self, of: &EnumType) -> Option<Object> {
        let definition = match &self.definition {
            Definition::Relation(relation) => Definition::Relation(Box::new(relation.with_values(of))),
            // Its plan is made again.
            Definition::View(query) => Definition::View(Arc::new(query.with_names(query.names.clone()))),
            _ => return None,
        };
        Some(Object {
            definition,
            ..self.clone()
        })
    }

    /// What it cannot be there without: what it names, and the types of its columns.
    pub fn needs(&self) -> impl Iterator<Item = ObjectId> + '_ {
        let columns = self.relation().map(|relation| relation.columns.as_slice());
        let types = columns.unwrap_or_default().iter().flat_map(|column| {
            let element = element(&column.field);
            let field = element.as_deref().unwrap_or(&column.field);
            let of_enum = EnumType::of(field).map(|known| known.oid);
            // What it is made of it keeps itself.
            let composite = field.metadata().get(ANNOTATION).and_then(|known| named(known));
            let oids = of_enum.into_iter().chain(composite.map(|(oid, ..)| oid));
            column.domain.into_iter().chain(oids.filter_map(id_of))
        });
        self.depends.iter().copied().chain(types)
    }
}
