//! What operators see: tables, numbers, metrics, history, and sentences that explain.

pub(crate) mod explain;
pub(crate) mod facts;
pub(crate) mod history;
pub(crate) mod metrics;
pub(crate) mod report;
pub(crate) mod resources;
pub(crate) mod tables;
