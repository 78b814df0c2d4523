//! A wait for a member: a future whose drop gives the place or the member up.

use std::panic::Location;
use std::pin::Pin;
use std::ptr;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::thread;

use rideau_core::pool::{Came, Circuit, Grant, Retired, Use};
use rideau_core::{Instant, Lead, Machine, Reason, Refusal, Ticket};
use tokio::task::coop;

use super::caller::CallerId;
use super::held::{Held, Keep, is_broken};
use super::manager::Manager;
use super::refused::{Fault, Holder, NotTaken};
use super::shell::{MemberEntry, NO_CELL, PoolDriver, PoolShell, PoolTables, TakeReply};
use super::slot::{MemberSlot, flag};
use crate::ask_options::AskOptions;

/// A take under way. Dropping it gives the position in the queue up, or the
/// member if it was granted just then.
#[must_use = "a take does nothing until it is awaited"]
pub struct Take<'a, M: Manager> {
    driver: Keep<'a, M>,
    /// None for the usual ones: most takes are on these, and a take that moves
    /// little is fast.
    terms: Option<Box<AskOptions>>,
    /// When it first asked.
    sent: Option<Instant>,
    /// Where in the program.
    at: &'static Location<'static>,
    state: State,
}

enum State {
    Fresh,
    Waiting {
        ticket: Ticket,
        cell: u32,
        mark: Mark,
    },
    /// It has this member, but others should run first.
    Yielding(u32),
    Over,
}

/// Tells the waker that lies with the machine from others, without asking for it.
///
/// Only good until there is an answer. Until then that waker lives, and no other
/// can be where it is.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Mark {
    it: usize,
    kind: usize,
}

impl Mark {
    fn of(waker: &Waker) -> Self {
        Self {
            it: waker.data().addr(),
            kind: ptr::from_ref(waker.vtable()).addr(),
        }
    }
}

/// One in this many takes from the idle cache is measured, and counts for the
/// scheduler's budget.
const MEASURED: u64 = 16;

impl<'a, M: Manager> Take<'a, M> {
    #[inline]
    pub(super) fn new(
        driver: Keep<'a, M>,
        terms: AskOptions,
        at: &'static Location<'static>,
    ) -> Self {
        let is_usual = terms == AskOptions::USUAL;
        Self {
            driver,
            terms: (!is_usual).then(|| Box::new(terms)),
            sent: None,
            at,
            state: State::Fresh,
        }
    }

    /// Take a member at once, or be refused.
    pub(super) fn at_once(mut self) -> Result<Held<'a, M>, NotTaken> {
        loop {
            let unfit = match take_from_shelf(&self.driver, self.at) {
                Shelved::Taken(entry) | Shelved::Counted(entry) => {
                    return Ok(Held::new(self.driver.again(), entry));
                }
                Shelved::Unfit(entry) => Some(lay_down(self.driver.shell(), entry)),
                Shelved::None => None,
            };
            let (came, _) = self.come(unfit, None);
            match came {
                Came::Granted(grant) => {
                    if let Some(entry) = self.collect(&grant, NO_CELL) {
                        return Ok(Held::new(self.driver.again(), entry));
                    }
                }
                Came::Refused(refusal) => return Err(not_taken(&self.driver, refusal)),
                Came::Waits(_) => unreachable!("a take that does not wait is answered at once"),
            }
        }
    }

    /// As `poll`, if something lies in the idle cache; else nothing is asked.
    pub(crate) fn poll_prompt(
        &mut self,
        context: &Context<'_>,
    ) -> Poll<Result<Held<'a, M>, NotTaken>> {
        match take_from_shelf(&self.driver, self.at) {
            Shelved::Taken(entry) | Shelved::Counted(entry) => {
                self.state = State::Over;
                Poll::Ready(Ok(Held::new(self.driver.again(), entry)))
            }
            Shelved::Unfit(entry) => {
                let slot = lay_down(self.driver.shell(), entry);
                self.poll_held(Some(slot), context)
            }
            Shelved::None => Poll::Pending,
        }
    }

    fn terms(&self) -> &AskOptions {
        self.terms.as_deref().unwrap_or(&AskOptions::USUAL)
    }

    /// Nothing was asked of the machine yet.
    pub(crate) fn is_fresh(&self) -> bool {
        matches!(self.state, State::Fresh)
    }

    /// Ask the machine. Also says where the answer will be. Without a way to
    /// be woken it does not wait.
    fn come(&mut self, unfit: Option<u32>, context: Option<&Context<'_>>) -> (Came, u32) {
        let shell = self.driver.shell();
        let terms = self.terms.as_deref().unwrap_or(&AskOptions::USUAL);
        let sent = &mut self.sent;
        self.driver.step(|step| {
            if let Some(slot) = unfit {
                let tables = &mut *step.machine;
                tables.unfit += 1;
                tables.pool.recall(slot, shell.slot(slot).since());
                // It may have to go though nothing else is going to be asked.
                tables.advance(step.now, step.effects);
            }
            let sent = *sent.get_or_insert(step.sent);
            let PoolTables {
                pool, free_slots, ..
            } = &mut *step.machine;
            let wait = context.is_some() && !free_slots.is_full();
            let mut cell = NO_CELL;
            let reply = || {
                cell = shell.reply_slot(free_slots);
                let waker = context
                    .expect("a waiting take can be woken")
                    .waker()
                    .clone();
                TakeReply { waker, cell }
            };
            let priority = terms.priority;
            let terms = terms.since(sent, wait);
            let came = pool.take(&terms, priority, reply, step.now, step.effects);
            if matches!(came, Came::Refused(_)) {
                step.machine.free(cell);
            }
            (came, cell)
        })
    }

    /// Take a granted member into our hands; none if it is broken.
    #[inline]
    fn collect(&self, grant: &Grant, cell: u32) -> Option<Box<MemberEntry<M>>> {
        let shell = self.driver.shell();
        let place = shell.slot(grant.slot);
        let mut entry = place.member.take().expect("a granted member is there");
        if is_broken(&*shell.manager, &mut entry.member) {
            place.member.put(entry);
            discard(&self.driver, grant.slot, cell, |tables| tables.broken += 1);
            return None;
        }
        entry.cell = cell;
        let now = self.driver.clock().now();
        let waited = grant.waited.as_nanos() as u64;
        let by = CallerId::of(self.at);
        place.hold(now, grant.lead, waited, panicking(), by);
        Some(entry)
    }

    /// Find the answer, or be woken when it is there.
    fn poll_answer(&mut self, context: &Context<'_>) -> Poll<Result<Grant, Refusal>> {
        let State::Waiting { ticket, cell, mark } = self.state else {
            unreachable!("only a waiting take is answered");
        };
        let shell = self.driver.shell();
        let answer = || shell.cells.get(cell).answer();
        if let Some(answer) = answer() {
            return Poll::Ready(answer);
        }
        // Polled for another reason: it may be another task that waits now.
        let waker = context.waker();
        if mark == Mark::of(waker) {
            return Poll::Pending;
        }
        let before = self.driver.step(|step| {
            let reply = step.machine.pool.reply_mut(ticket)?;
            let same = reply.waker.will_wake(waker);
            (!same).then(|| std::mem::replace(&mut reply.waker, waker.clone()))
        });
        drop(before);
        let mark = Mark::of(waker);
        self.state = State::Waiting { ticket, cell, mark };
        answer().map_or(Poll::Pending, Poll::Ready)
    }

    /// As `poll_slowly`, with a guard around the member.
    #[inline]
    fn poll_held(
        &mut self,
        unfit: Option<u32>,
        context: &Context<'_>,
    ) -> Poll<Result<Held<'a, M>, NotTaken>> {
        let answer = self.poll_slowly(unfit, context);
        answer.map_ok(|entry| Held::new(self.driver.again(), entry))
    }

    /// Ask until there is a member, a place to wait, or a refusal. What it
    /// answers fits in registers.
    #[inline(never)]
    fn poll_slowly(
        &mut self,
        mut unfit: Option<u32>,
        context: &Context<'_>,
    ) -> Poll<Result<Box<MemberEntry<M>>, NotTaken>> {
        if let State::Yielding(slot) = self.state {
            self.state = State::Over;
            return Poll::Ready(Ok(pick_up(self.driver.shell(), slot)));
        }
        loop {
            assert!(
                !matches!(self.state, State::Over),
                "a wait is not polled after its answer"
            );
            let (answer, cell) = if let State::Waiting { cell, .. } = self.state {
                match self.poll_answer(context) {
                    Poll::Ready(answer) => (answer, cell),
                    Poll::Pending => return Poll::Pending,
                }
            } else {
                match self.come(unfit.take(), Some(context)) {
                    (Came::Granted(grant), _) => (Ok(grant), NO_CELL),
                    (Came::Refused(refusal), _) => (Err(refusal), NO_CELL),
                    (Came::Waits(ticket), cell) => {
                        let mark = Mark::of(context.waker());
                        self.state = State::Waiting { ticket, cell, mark };
                        return Poll::Pending;
                    }
                }
            };
            self.state = State::Over;
            match answer {
                Ok(grant) => {
                    if let Some(entry) = self.collect(&grant, cell) {
                        return Poll::Ready(Ok(entry));
                    }
                    self.state = State::Fresh;
                }
                Err(refusal) => {
                    if cell != NO_CELL {
                        self.driver.step(|step| step.machine.free(cell));
                    }
                    return Poll::Ready(Err(not_taken(&self.driver, refusal)));
                }
            }
        }
    }
}

impl<'a, M: Manager> Future for Take<'a, M> {
    type Output = Result<Held<'a, M>, NotTaken>;

    #[inline]
    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        let unfit = match this.state {
            State::Fresh => match take_from_shelf(&this.driver, this.at) {
                // The member is ours by now: a scheduler's budget is no refusal,
                // it only lets others run first.
                Shelved::Counted(entry) if !has_budget(context) => {
                    let slot = lay_down(this.driver.shell(), entry);
                    this.state = State::Yielding(slot);
                    return Poll::Pending;
                }
                Shelved::Taken(entry) | Shelved::Counted(entry) => {
                    this.state = State::Over;
                    return Poll::Ready(Ok(Held::new(this.driver.again(), entry)));
                }
                Shelved::Unfit(entry) => Some(lay_down(this.driver.shell(), entry)),
                Shelved::None => None,
            },
            _ => None,
        };
        this.poll_held(unfit, context)
    }
}

// Nothing in a take is pinned: its cell has an address of its own.
impl<M: Manager> Unpin for Take<'_, M> {}

impl<M: Manager> Drop for Take<'_, M> {
    #[inline]
    fn drop(&mut self) {
        if !matches!(self.state, State::Fresh | State::Over) {
            self.give_up();
        }
    }
}

impl<M: Manager> Take<'_, M> {
    #[cold]
    fn give_up(&self) {
        match self.state {
            State::Fresh | State::Over => (),
            State::Waiting { ticket, cell, .. } => self.leave(ticket, cell),
            State::Yielding(slot) => {
                let entry = pick_up(self.driver.shell(), slot);
                drop(Held::new(self.driver.again(), entry));
            }
        }
    }

    /// Give the position in the queue up, or the member if it was granted just
    /// then.
    fn leave(&self, ticket: Ticket, cell: u32) {
        let shell = self.driver.shell();
        let gone = self.driver.step(|step| {
            let pool = &mut step.machine.pool;
            let gone = pool.cancel(ticket, step.now, step.effects);
            if gone.is_none()
                && let Some(Ok(grant)) = shell.cells.get(cell).answer()
            {
                pool.decline(grant.slot, step.now, step.effects);
            }
            step.machine.free(cell);
            gone
        });
        // A waker may run anything when it is dropped.
        drop(gone);
    }
}

impl<M: Manager> std::fmt::Debug for Take<'_, M> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Take")
            .field("terms", self.terms())
            .finish_non_exhaustive()
    }
}

/// The result of a look into the idle cache.
enum Shelved<M: Manager> {
    Taken(Box<MemberEntry<M>>),
    /// It counts for the scheduler's budget.
    Counted(Box<MemberEntry<M>>),
    /// A member that no other take can have now, but that has to be looked at.
    Unfit(Box<MemberEntry<M>>),
    None,
}

/// Take an idle member without asking the machine. A call, so that little is
/// left of a take where it is awaited; what it answers fits in registers.
#[inline(never)]
fn take_from_shelf<M: Manager>(
    driver: &PoolDriver<M>,
    at: &'static Location<'static>,
) -> Shelved<M> {
    let shell = driver.shell();
    loop {
        let Some((mut entry, takes)) = shell.cache.take() else {
            return Shelved::None;
        };
        let place = shell.slot(entry.slot);
        let now = driver.clock().recent();
        let idle = now.as_nanos().saturating_sub(place.since().as_nanos());
        if place.until() <= now || shell.rules.is_stale(idle) {
            return Shelved::Unfit(entry);
        }
        if is_broken(&*shell.manager, &mut entry.member) {
            let slot = lay_down(shell, entry);
            discard(driver, slot, NO_CELL, |tables| tables.unfit += 1);
            continue;
        }
        if takes % MEASURED == 0 {
            hold_measured(driver, place, CallerId::of(at));
            return Shelved::Counted(entry);
        }
        let lead = Lead::from_nanos(-idle.cast_signed());
        place.hold(now, lead, 0, panicking(), CallerId::of(at));
        return Shelved::Taken(entry);
    }
}

/// Leave a member in its place that is still ours.
#[cold]
fn lay_down<M: Manager>(shell: &PoolShell<M>, entry: Box<MemberEntry<M>>) -> u32 {
    let slot = entry.slot;
    shell.slot(slot).member.put(entry);
    slot
}

/// Take a member that is ours out of its place.
#[cold]
fn pick_up<M: Manager>(shell: &PoolShell<M>, slot: u32) -> Box<MemberEntry<M>> {
    let entry = shell.slot(slot).member.take();
    entry.expect("a member that is ours is there")
}

#[inline(never)]
fn hold_measured<M: Manager>(
    driver: &PoolDriver<M>,
    place: &MemberSlot<MemberEntry<M>>,
    by: CallerId,
) {
    let now = driver.clock().now();
    let idle = place.since().min(now);
    let flags = panicking() | flag::MEASURED;
    place.hold(now, now.lead_over(idle), 0, flags, by);
}

/// The task may go on; else it is woken when others have run. Most takes need not
/// ask: a task that takes a hundred members in a row makes no other task wait for
/// long.
#[inline(never)]
fn has_budget(context: &mut Context<'_>) -> bool {
    match coop::poll_proceed(context) {
        Poll::Ready(proceed) => {
            proceed.made_progress();
            true
        }
        Poll::Pending => false,
    }
}

/// Whether the thread panics already: then that says nothing of the member.
#[inline]
fn panicking() -> u32 {
    if thread::panicking() {
        flag::PANICKING
    } else {
        0
    }
}

/// Take a member that the machine gave up, whatever its state.
pub(super) fn seize<'a, M: Manager>(
    driver: Keep<'a, M>,
    slot: u32,
    at: &'static Location<'static>,
) -> Held<'a, M> {
    let place = driver.shell().slot(slot);
    let now = driver.clock().now();
    let idle = place.since().min(now);
    place.hold(now, now.lead_over(idle), 0, panicking(), CallerId::of(at));
    let entry = pick_up(driver.shell(), slot);
    Held::new(driver, entry)
}

/// A member was found broken in our hands.
#[cold]
fn discard<M: Manager>(
    driver: &PoolDriver<M>,
    slot: u32,
    cell: u32,
    count: impl FnOnce(&mut PoolTables),
) {
    let uses = driver.shell().slot(slot).uses();
    driver.step(|step| {
        count(step.machine);
        step.machine.free(cell);
        let used = Use::Over(Retired::Broken);
        let held = std::time::Duration::ZERO;
        let pool = &mut step.machine.pool;
        pool.release(slot, used, uses, held, step.now, step.effects);
    });
}

/// A refusal with all that is known.
#[cold]
pub(super) fn not_taken<M: Manager>(driver: &Arc<PoolDriver<M>>, mut refusal: Refusal) -> NotTaken {
    let start_error = match refusal.reason {
        Reason::Closed | Reason::Cancelled => None,
        _ => fault(driver),
    };
    let (longest, is_alone) = longest(driver);
    if let Some(holder) = longest.as_ref().filter(|_| is_alone)
        && refusal.len == 0
        && refusal.reason != Reason::Closed
    {
        // A hold that has lasted for so long is expected to last as long again.
        refusal.retry_after = refusal.retry_after.max(holder.held);
    }
    let pool = driver.shell().name.clone();
    NotTaken::new(pool, refusal, start_error, longest)
}

/// Why members cannot be started, if they cannot. A start that was called off
/// leaves a reason as well, and is none.
pub(super) fn fault<M: Manager>(driver: &Arc<PoolDriver<M>>) -> Option<Fault> {
    let fault = driver.shell().fault()?;
    let circuit = driver.look(|tables, now| tables.pool.circuit(now));
    (circuit != Circuit::Closed).then_some(fault)
}

/// The holder that has held a member longest, and whether there is no other
/// holder.
fn longest<M: Manager>(driver: &Arc<PoolDriver<M>>) -> (Option<Holder>, bool) {
    let now = driver.clock().now();
    let mut held = 0;
    let slots = driver.shell().each_slot();
    let since = slots.filter_map(|slot| Some((slot.held_since()?, slot)));
    let first = since.inspect(|_| held += 1).min_by_key(|(since, _)| *since);
    let longest = first.and_then(|(_, slot)| slot.holder(now));
    (longest, held == 1)
}

/// All holders of members, the longest first.
pub(super) fn holders<M: Manager>(driver: &Arc<PoolDriver<M>>) -> Vec<Holder> {
    let now = driver.clock().now();
    let slots = driver.shell().each_slot();
    let mut holders: Vec<Holder> = slots.filter_map(|slot| slot.holder(now)).collect();
    holders.sort_by_key(|holder| std::cmp::Reverse(holder.held));
    holders
}
