//! The meters of one machine, and after how many inputs they are read.

use std::time::Duration;

use super::{Effect, Meters, Options, Reading};
use crate::settings::OptionError;
use crate::time::{Instant, Lead};

/// Meters that are read after every so many inputs, and whenever time alone
/// moves the machine on.
#[derive(Debug)]
pub(crate) struct Panel {
    meters: Meters,
    options: Vec<Options>,
    read_after: u32,
    unread: u32,
}

/// Every sixteenth input is read by the meters.
pub(crate) const READ_AFTER: u32 = 16;

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
        self.meters.deadline()
    }

    /// Nobody wants a reading.
    pub(crate) fn is_empty(&self) -> bool {
        self.meters.is_empty()
    }

    /// One more input came. Says whether a reading is due.
    pub(crate) fn count(&mut self) -> bool {
        if self.is_empty() {
            return false;
        }
        self.unread += 1;
        self.unread >= self.read_after
    }

    /// Feed the meters after an input that was sent at `sent`.
    pub(crate) fn feed<E: From<Effect>>(
        &mut self,
        lead: Lead,
        sent: Instant,
        now: Instant,
        effects: &mut Vec<E>,
    ) {
        self.unread = 0;
        let reading = Reading {
            queue_delay: now.since(sent),
            process_delay: Duration::ZERO,
            lead,
            backlog: 0,
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
        Ok(())
    }

    pub(crate) fn end<E: From<Effect>>(&mut self, effects: &mut Vec<E>) {
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
