//! How a pool starts, checks and stops its members.
//!
//! When each of these happens is the pool's to say. A manager knows one kind of
//! member and nothing of waiting takes, of holders or of how many members there
//! are.

use std::error::Error;
use std::future::{pending, ready};
use std::time::Duration;

use rideau_core::pool::{MemberId, Retired};

/// How to start, check and stop the members of a pool.
///
/// Only [`start`](Self::start) has to be written; what is left out is the
/// mildest thing that is right for every member.
///
/// ```
/// use rideau::Manager;
/// use std::io;
///
/// /// Lends buffers.
/// struct Buffers;
///
/// impl Manager for Buffers {
///     type Member = Vec<u8>;
///     type Error = io::Error;
///
///     async fn start(&self) -> io::Result<Vec<u8>> {
///         Ok(Vec::with_capacity(4096))
///     }
/// }
/// ```
pub trait Manager: Send + Sync + 'static {
    /// The type of the members.
    type Member: Send + 'static;
    /// Why a member could not be started or is no good any more.
    type Error: Into<Box<dyn Error + Send + Sync>> + Send + 'static;

    /// Start a member.
    ///
    /// The future is dropped when the start takes too long, so what it has
    /// begun by then must end with it.
    fn start(&self) -> impl Future<Output = Result<Self::Member, Self::Error>> + Send;

    /// Is an idle member still good?
    ///
    /// Runs outside every lock, before a member is handed out that was idle for
    /// long, and never while it is held. Every member is good unless this says
    /// otherwise.
    fn check(
        &self,
        member: &mut Self::Member,
        about: &About,
    ) -> impl Future<Output = Result<(), Self::Error>> + Send {
        let _ = (member, about);
        ready(Ok(()))
    }

    /// Is a member known to be broken, without asking anything else?
    ///
    /// Called before each hand-out and at each release, so it must be quick.
    fn is_broken(&self, member: &mut Self::Member) -> bool {
        let _ = member;
        false
    }

    /// Stop a member: drop it, unless there is more to do.
    fn stop(&self, member: Self::Member, why: Retired) -> impl Future<Output = ()> + Send {
        let _ = why;
        drop(member);
        ready(())
    }

    /// Resolves when a member is lost: its socket closed, its task ended.
    ///
    /// Called once, after the start. The future may keep the member's socket
    /// open, so the pool drops it when the member leaves. Never, unless this
    /// says otherwise.
    fn lost(&self, member: &Self::Member) -> impl Future<Output = ()> + Send + 'static {
        let _ = member;
        pending()
    }

    /// How to end a member's work while it is held, such as by shutting its
    /// socket down.
    ///
    /// Called once, after the start, and what it returned is called once or
    /// dropped when the member leaves. The member is stopped after an abort, so
    /// it need not be of any more use.
    fn abort(&self, member: &Self::Member) -> Option<Box<dyn FnOnce() + Send>> {
        let _ = member;
        None
    }
}

/// Facts about a member.
///
/// The default stands for a member that has only just been started, so that a
/// manager can be tried without a pool.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub struct About {
    /// Which one it is.
    pub id: MemberId,
    /// How long ago it was started.
    pub age: Duration,
    /// How long it has been idle.
    pub idle: Duration,
    /// How often it has been lent.
    pub uses: u64,
    /// How many rolling replacements the pool had begun when it was started.
    pub generation: u64,
}

#[cfg(test)]
mod tests {
    use super::{About, Manager, Retired};
    use std::convert::Infallible;
    use std::pin::pin;
    use std::task::{Context, Poll, Waker};

    struct Numbers;

    impl Manager for Numbers {
        type Member = u32;
        type Error = Infallible;

        async fn start(&self) -> Result<u32, Infallible> {
            Ok(7)
        }
    }

    fn poll<F: Future>(future: F) -> Poll<F::Output> {
        pin!(future).poll(&mut Context::from_waker(Waker::noop()))
    }

    #[test]
    fn a_manager_that_only_starts_members_finds_no_fault_with_them() {
        let Poll::Ready(Ok(mut member)) = poll(Numbers.start()) else {
            panic!("a number starts at once");
        };
        assert!(poll(Numbers.check(&mut member, &About::default())).is_ready());
        assert!(!Numbers.is_broken(&mut member));
        assert!(Numbers.abort(&member).is_none());

        // What waits for the loss must not keep the member from being used.
        let lost = Numbers.lost(&member);
        member += 1;
        assert!(poll(Numbers.stop(member, Retired::Closed)).is_ready());
        assert!(poll(lost).is_pending());
    }
}
