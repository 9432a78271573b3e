//! Names that are there without being made.

/// The database that exists at the start.
pub const DEFAULT_DATABASE: &str = "millrace";
/// The schema that every database has at the start.
pub const DEFAULT_SCHEMA: &str = "public";
/// The user that exists at the start.
pub const DEFAULT_USER: &str = "millrace";
/// Another name of [`DEFAULT_DATABASE`], for clients of RisingWave.
pub const DATABASE_ALIAS: &str = "dev";
/// Other names of [`DEFAULT_USER`], for clients of RisingWave.
pub const USER_ALIASES: [&str; 2] = ["dev", "root"];
/// Schemas that are there without being made: they hold the system's own relations.
pub const SYSTEM_SCHEMAS: [&str; 3] = ["information_schema", "mr_catalog", "pg_catalog"];
