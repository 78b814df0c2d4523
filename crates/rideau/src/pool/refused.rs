//! Why a taker got no member, with all that is known.

use std::error::Error;
use std::fmt;
use std::ops::Deref;
use std::panic::Location;
use std::sync::Arc;
use std::time::Duration;

use rideau_core::pool::MemberId;
use rideau_core::{Brief, OptionError, Refusal};

pub(super) type Fault = Arc<dyn Error + Send + Sync>;

/// No member, and why. Its parts are those of [`WhyNot`].
///
/// In a box, for it is large, and most takes are not refused.
#[derive(Clone, Debug)]
pub struct NotTaken(Box<WhyNot>);

/// Why there was no member.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct WhyNot {
    /// The name of the pool, if it has one.
    pub pool: Option<Arc<str>>,
    /// The reason, after how long, how many wait, and when to come back.
    pub refusal: Refusal,
    /// Why members cannot be started, if they cannot.
    pub start_error: Option<Fault>,
    /// The holder that has held a member longest.
    pub longest: Option<Holder>,
}

/// A member that is held.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Holder {
    /// The member.
    pub id: MemberId,
    /// How long it has been held.
    pub held: Duration,
    /// How often it has been taken so far.
    pub uses: u64,
    /// The note of the holder.
    pub note: Option<String>,
    /// Where in the program it was taken.
    pub taken_at: Option<&'static Location<'static>>,
}

/// A pool did not come to be.
#[derive(Clone, Debug)]
pub enum StartError {
    /// An option breaks a rule.
    Option(OptionError),
    /// The first members could not be started.
    Start(Fault),
}

impl NotTaken {
    pub(crate) fn new(
        pool: Option<Arc<str>>,
        refusal: Refusal,
        start_error: Option<Fault>,
        longest: Option<Holder>,
    ) -> Self {
        Self(Box::new(WhyNot {
            pool,
            refusal,
            start_error,
            longest,
        }))
    }

    /// The same, for a take that had waited for so long.
    #[must_use]
    pub(crate) fn after(mut self, waited: Duration) -> Self {
        self.0.refusal.waited = waited;
        self
    }
}

impl Deref for NotTaken {
    type Target = WhyNot;

    fn deref(&self) -> &WhyNot {
        &self.0
    }
}

impl fmt::Display for NotTaken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(pool) = &self.pool {
            write!(f, "pool `{pool}`: ")?;
        }
        write!(f, "{}", self.refusal)?;
        if let Some(error) = &self.start_error {
            write!(f, "; starting members fails: {error}")?;
        }
        if let Some(holder) = &self.longest {
            write!(f, "; {holder}")?;
        }
        Ok(())
    }
}

impl Error for NotTaken {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        // Its own words are among ours already.
        self.start_error.as_ref()?.source()
    }
}

impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.note, self.taken_at) {
            (Some(note), _) => f.write_str(note)?,
            (None, Some(at)) => write!(f, "a holder at {}:{}", at.file(), at.line())?,
            (None, None) => f.write_str("a holder")?,
        }
        write!(f, " has held member {} for {}", self.id, Brief(self.held))
    }
}

impl fmt::Display for StartError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Option(error) => write!(f, "{error}"),
            Self::Start(error) => write!(f, "the first members could not be started: {error}"),
        }
    }
}

impl Error for StartError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            // Their own words are among ours already.
            Self::Option(error) => error.source(),
            Self::Start(error) => error.source(),
        }
    }
}

impl From<OptionError> for StartError {
    fn from(error: OptionError) -> Self {
        Self::Option(error)
    }
}
