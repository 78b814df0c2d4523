//! The HTTP side of a real server on ports of its own.

mod actions;
mod alarms;
mod asks;
mod audit;
mod document;
mod exposition;
mod guard;
mod limits;
mod live;
mod metrics;
mod pages;
mod rights;
mod streams;
mod surfaces;
mod values;
mod web;
