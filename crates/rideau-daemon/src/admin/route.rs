//! One address of the API: what it needs, takes and answers.

use std::fmt;
use std::pin::Pin;

use axum::routing::MethodFilter;

use super::answer::Answer;
use super::request::AdminRequest;
use Method::{Delete, Get, Post};
use Needs::{Action, Nothing, Right, Session, User};

/// One method of one address.
pub(super) struct Route {
    pub(super) method: Method,
    /// `{name}` is one part of the address, `{*name}` the rest of it.
    pub(super) path: &'static str,
    pub(super) needs: Needs,
    pub(super) summary: &'static str,
    /// The names of a query as `?name`, and the shape of the body.
    pub(super) takes: &'static str,
    /// `status:shape` for all that is particular to it; see `openapi.rs`.
    pub(super) answers: &'static str,
    pub(super) run: Run,
}

type Run = fn(AdminRequest) -> Pin<Box<dyn Future<Output = Answer> + Send>>;

/// The method of a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Method {
    Get,
    Post,
    Delete,
}

/// The right that a request needs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Needs {
    Nothing,
    /// Where there are users, it must be one. What a client holds it may give back,
    /// whatever else it may do by now.
    User,
    /// The same, in a session; the command checks the rights.
    Session,
    /// A user that may do this.
    Right(&'static str),
    /// The same, and proof that no page of another site sends it.
    Action(&'static str),
}

pub(super) const fn about(
    method: Method,
    path: &'static str,
    needs: Needs,
    summary: &'static str,
    takes: &'static str,
    answers: &'static str,
    run: Run,
) -> Route {
    Route {
        method,
        path,
        needs,
        summary,
        takes,
        answers,
        run,
    }
}

impl Route {
    /// The right that a user needs for it.
    pub(super) const fn right(&self) -> Option<&'static str> {
        match self.needs {
            Right(right) | Action(right) => Some(right),
            Nothing | User | Session => None,
        }
    }

    /// The names that its query may have.
    pub(super) fn known(&self) -> Vec<&'static str> {
        let words = self.takes.split_whitespace();
        words.filter_map(|word| word.strip_prefix('?')).collect()
    }
}

impl Method {
    pub(super) const fn filter(self) -> MethodFilter {
        match self {
            Get => MethodFilter::GET,
            Post => MethodFilter::POST,
            Delete => MethodFilter::DELETE,
        }
    }
}

impl fmt::Display for Method {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Get => "GET",
            Post => "POST",
            Delete => "DELETE",
        })
    }
}
