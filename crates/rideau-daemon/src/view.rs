//! Views for operators: tables, numbers, metrics, history, and explanations.

pub(crate) mod alarms;
pub(crate) mod explain;
pub(crate) mod facts;
pub(crate) mod history;
pub(crate) mod metrics;
pub(crate) mod pages;
pub(crate) mod report;
pub(crate) mod resources;
pub(crate) mod tables;
pub(crate) mod worst;
