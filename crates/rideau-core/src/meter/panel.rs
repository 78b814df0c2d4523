//! The meters of one machine, and after how many inputs they are read.

use std::time::Duration;

use super::{Effect, Meters, Options, Reading};
use crate::settings::OptionError;
use crate::time::{Instant, Lead};

/// Meters that are read after every `read_after` inputs, and whenever time
/// alone moves the machine on.
#[derive(Debug)]
pub(crate) struct Panel {
    meters: Meters,
    options: Vec<Options>,
    read_after: u32,
    unread: u32,
    /// When the first unread input came.
    since: Instant,
    /// The longest that an unread input waited before the machine took it.
    delay: Duration,
}

/// Every sixteenth input is read by the meters.
pub(crate) const READ_AFTER: u32 = 16;

/// An input is read at the latest after this long, if no others follow.
const READ_WITHIN: Duration = Duration::from_millis(100);

impl Panel {
    /// Zero inputs between two readings count as one.
    pub(crate) fn new<E: From<Effect>>(
        options: Vec<Options>,
        read_after: u32,
        now: Instant,
        effects: &mut Vec<E>,
    ) -> Result<Self, OptionError> {
        let mut panel = Self {
            meters: Meters::new(Vec::new(), now, &mut Vec::new())?,
            options: Vec::new(),
            read_after,
            unread: 0,
            since: now,
            delay: Duration::ZERO,
        };
        panel.reconfigure(options, read_after, now, effects)?;
        Ok(panel)
    }

    pub(crate) fn options(&self) -> &[Options] {
        &self.options
    }

    pub(crate) fn read_after(&self) -> u32 {
        self.read_after
    }

    pub(crate) fn deadline(&self) -> Option<Instant> {
        let unread = (self.unread > 0).then(|| self.since + READ_WITHIN);
        self.meters.deadline().into_iter().chain(unread).min()
    }

    /// No meter wants a reading.
    pub(crate) fn is_empty(&self) -> bool {
        self.meters.is_empty()
    }

    /// One more input came, which was sent at `sent`. Says whether a reading is
    /// due.
    pub(crate) fn count(&mut self, sent: Instant, now: Instant) -> bool {
        if self.is_empty() {
            return false;
        }
        if self.unread == 0 {
            self.since = now;
        }
        self.unread += 1;
        self.delay = self.delay.max(now.since(sent));
        self.unread >= self.read_after
    }

    /// The longest delay of the inputs that time alone makes us read.
    pub(crate) fn unread_delay(&self) -> Duration {
        self.delay
    }

    /// Feed the meters.
    pub(crate) fn feed<E: From<Effect>>(
        &mut self,
        lead: Lead,
        is_deserted: bool,
        queue_delay: Duration,
        now: Instant,
        effects: &mut Vec<E>,
    ) {
        (self.unread, self.delay) = (0, Duration::ZERO);
        let reading = Reading {
            queue_delay,
            process_delay: Duration::ZERO,
            lead,
            backlog: 0,
            is_deserted,
        };
        self.tell(effects, |meters, said| meters.feed(&reading, now, said));
    }

    /// All or nothing, as [`Meters::reconfigure`].
    pub(crate) fn reconfigure<E: From<Effect>>(
        &mut self,
        options: Vec<Options>,
        read_after: u32,
        now: Instant,
        effects: &mut Vec<E>,
    ) -> Result<(), OptionError> {
        let changed = options.clone();
        self.tell(effects, |meters, said| {
            meters.reconfigure(changed, now, said)
        })?;
        self.options = options;
        self.read_after = read_after.max(1);
        if self.is_empty() {
            (self.unread, self.delay) = (0, Duration::ZERO);
        }
        Ok(())
    }

    pub(crate) fn end<E: From<Effect>>(&mut self, effects: &mut Vec<E>) {
        (self.unread, self.delay) = (0, Duration::ZERO);
        self.tell(effects, |meters, said| meters.end(said));
    }

    fn tell<E: From<Effect>, T>(
        &mut self,
        effects: &mut Vec<E>,
        work: impl FnOnce(&mut Meters, &mut Vec<Effect>) -> T,
    ) -> T {
        let mut said = Vec::new();
        let result = work(&mut self.meters, &mut said);
        effects.extend(said.into_iter().map(E::from));
        result
    }
}
