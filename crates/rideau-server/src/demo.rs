//! What a person sees first.

pub(crate) mod overload;
mod screen;
