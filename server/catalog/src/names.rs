//! Names that are there without being made.

use millrace_storage::ObjectId;

/// The database that exists at the start.
pub const DEFAULT_DATABASE: &str = "millrace";
/// The schema that every database has at the start.
pub const DEFAULT_SCHEMA: &str = "public";
/// The identity of the role that is there from the start, can do everything and cannot be dropped: PostgreSQL's of its own.
pub const BOOTSTRAP: ObjectId = ObjectId(10);
/// The user that exists at the start.
pub const DEFAULT_USER: &str = "millrace";
/// Another name of [`DEFAULT_DATABASE`], for clients of RisingWave.
pub const DATABASE_ALIAS: &str = "dev";
/// Other names of [`DEFAULT_USER`], for clients of RisingWave.
pub const USER_ALIASES: [&str; 2] = ["dev", "root"];
/// Schemas that are there without being made: they hold the system's own relations.
pub const SYSTEM_SCHEMAS: [&str; 3] = ["information_schema", "mr_catalog", "pg_catalog"];
