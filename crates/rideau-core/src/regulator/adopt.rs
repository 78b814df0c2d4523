//! Leases that come from another regulator.

use super::{Effect, Regulator};
use crate::ids::Ticket;
use crate::ledger::Reply;
use crate::time::Instant;
use crate::valve::Valve;

impl<R: Reply> Regulator<R> {
    /// A lease goes on here that another regulator has granted. It counts, whether or not
    /// the valve is open; the law of the valve begins anew.
    pub fn adopt(&mut self, reply: R, now: Instant, effects: &mut Vec<Effect<R>>) -> Ticket {
        self.tell_time(now);
        let (ticket, reply) = self.waiting.pass_holding(reply, self.told);
        self.waiting.count_served(now, now);
        effects.extend(reply.map(Effect::Forget));
        let size = self.valve.size() + 1;
        self.valve =
            Valve::new(&self.valve_options, size, self.told).expect("the options were checked");
        self.settle(now, now, effects);
        self.finish(now, now, effects);
        ticket
    }
}
