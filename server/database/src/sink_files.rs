//! The files of a sink: written under hidden names, committed, and read again to know what was delivered.

pub mod base;
pub mod decode;
pub mod directory;
pub mod draft;
pub mod encode;
