//! The result of an ask that does not block: its answer, or how to wait for it.

/// An answer if there was one at once, else the wait for it.
#[derive(Debug)]
pub enum Now<T, W> {
    /// The answer.
    Answered(T),
    /// It has to be waited for.
    Waiting(W),
}
