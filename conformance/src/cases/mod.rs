//! The cases, a module for each group of the catalogue. A case's number is the catalogue's.

pub mod lifecycle;
