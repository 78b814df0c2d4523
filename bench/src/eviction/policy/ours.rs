//! Policy: the worth that ships.

use std::time::Duration;

use rideau_core::eviction_score::EvictionScore;

use super::{Ask, Policy};

pub(super) struct Ours {
    max: usize,
    here: Vec<(u32, Duration)>,
    worth: EvictionScore,
}

impl Ours {
    pub(super) fn new(max: usize) -> Self {
        Self {
            max,
            here: Vec::new(),
            worth: EvictionScore::new(max, false),
        }
    }
}

impl Policy for Ours {
    fn ask(&mut self, ask: &Ask) -> bool {
        let start_time = Duration::from_secs_f64(ask.cost);
        self.worth.asked(ask.app, start_time, ask.at);
        let miss = self.here.iter().all(|(app, _)| *app != ask.app);
        if miss {
            if self.here.len() == self.max {
                let value = |at: &usize| {
                    let (app, start_time) = self.here[*at];
                    self.worth.value(app, start_time, ask.at)
                };
                let victims = 0..self.max;
                let victim = victims.min_by(|one, other| value(one).total_cmp(&value(other)));
                self.here.swap_remove(victim.expect("there is a place"));
            }
            self.here.push((ask.app, start_time));
        }
        miss
    }
}
