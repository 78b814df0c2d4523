//! Decides at admission whether an ask or an offer may go on to a machine.
//!
//! The decision is one look at a published row, so that a refusal costs the
//! machine nothing. The caller at admission keeps the row and the count of those
//! admitted since it was published.

use std::fmt;

use crate::ids::Side;

/// The numbers of a meter that the admission to a machine uses.
///
/// Publishing a row starts the count of the admitted at zero again.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Row {
    /// Chance refuses nothing while this many or fewer are on their way in.
    pub min: u32,
    /// Nothing is admitted while this many are on their way in.
    pub max: Option<u32>,
    /// How many go in after this publication even where all others are refused,
    /// so that a closed admission finds out when to open.
    pub probes: u32,
    /// How many were on their way in when the row was published.
    pub backlog: u32,
    /// How likely an ask is refused.
    pub p_ask: Chance,
    /// How likely an offer is refused.
    pub p_offer: Chance,
}

/// How likely something happens, in parts of 2^27.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Chance(u32);

/// Why an ask or offer was refused at admission.
///
/// A refused one is not counted as admitted: trying again and again keeps no
/// other out.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Refusal {
    /// The limit of asks that are being admitted is reached.
    Full,
    /// Too many wait too long, and the draw was unlucky.
    Chance,
    /// All but the probes are refused.
    Closed,
}

impl Row {
    /// Whether one more may go in, when `admitted` went in since this row was
    /// published. `draw` is any number, each as likely as every other.
    ///
    /// # Errors
    ///
    /// If the one at admission may not go in, and why.
    pub fn admits(&self, side: Side, admitted: u32, draw: u64) -> Result<(), Refusal> {
        let len = self.backlog.saturating_add(admitted).saturating_add(1);
        let refused = match side {
            Side::Ask => self.p_ask,
            Side::Offer => self.p_offer,
        };
        if self.max.is_some_and(|max| len > max) {
            Err(Refusal::Full)
        } else if len <= self.min {
            Ok(())
        } else if refused == Chance::ALWAYS {
            if admitted < self.probes {
                Ok(())
            } else {
                Err(Refusal::Closed)
            }
        } else if refused.strikes(draw) {
            Err(Refusal::Chance)
        } else {
            Ok(())
        }
    }
}

impl Chance {
    /// It never happens.
    pub const NEVER: Self = Self(0);
    /// It always happens.
    pub const ALWAYS: Self = Self(1 << Self::BITS);

    const BITS: u32 = 27;

    /// The chance nearest below `probability`; what lies outside of 0 and 1
    /// counts as the nearer of them.
    pub fn of(probability: f64) -> Self {
        let parts = probability.clamp(0.0, 1.0) * f64::from(Self::ALWAYS.0);
        Self(parts as u32)
    }

    /// The chance of `parts` in 2^27; more count as always.
    pub const fn from_parts(parts: u32) -> Self {
        if parts > Self::ALWAYS.0 {
            Self::ALWAYS
        } else {
            Self(parts)
        }
    }

    /// The parts of 2^27, as an atomic keeps them.
    pub const fn parts(self) -> u32 {
        self.0
    }

    /// The chance as a number from 0 to 1.
    pub fn probability(self) -> f64 {
        f64::from(self.0) / f64::from(Self::ALWAYS.0)
    }

    /// Whether it happens, given any number.
    const fn strikes(self, draw: u64) -> bool {
        draw >> (u64::BITS - Self::BITS) < self.0 as u64
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Full => "too many asks are being admitted",
            Self::Chance => "waits are too long, and this one was refused at random",
            Self::Closed => "waits are too long, and only probes are admitted",
        })
    }
}

impl std::error::Error for Refusal {}

#[cfg(test)]
mod tests {
    use super::*;

    const OPEN: Row = Row {
        min: 0,
        max: None,
        probes: 0,
        backlog: 0,
        p_ask: Chance::NEVER,
        p_offer: Chance::NEVER,
    };

    #[test]
    fn a_full_door_and_a_closed_door_let_the_least_pass() {
        let mut admission = Admission::new(Row {
            min: 1,
            max: Some(2),
            ..OPEN
        });
        assert_eq!(admission.come(Side::Ask, 0), Ok(()));
        assert_eq!(admission.come(Side::Ask, 0), Ok(()));
        assert_eq!(admission.come(Side::Ask, 0), Err(Refusal::Full));

        let (p_ask, p_offer) = (Chance::ALWAYS, Chance::ALWAYS);
        let mut admission = Admission::new(Row {
            p_ask,
            p_offer,
            ..admission.row
        });
        assert_eq!(admission.come(Side::Ask, u64::MAX), Ok(()));
        assert_eq!(admission.come(Side::Ask, u64::MAX), Err(Refusal::Closed));
        assert_eq!(admission.come(Side::Offer, u64::MAX), Err(Refusal::Closed));
    }

    /// To the 7 on their way come two of three more: 9. sbroker counted the
    /// refused one as well, and had 10.
    #[test]
    fn refused_attempts_are_not_counted_as_admitted() {
        let mut admission = Admission::new(Row {
            backlog: 7,
            p_ask: Chance::of(0.25),
            ..OPEN
        });
        assert_eq!(
            admission.come(Side::Ask, (1 << 25) - 1),
            Err(Refusal::Chance)
        );
        assert_eq!(admission.come(Side::Ask, 1 << 25), Ok(()));
        assert_eq!(admission.come(Side::Offer, 0), Ok(()));
        assert_eq!(admission.row.backlog + admission.admitted, 9);
    }

    #[test]
    fn retries_at_a_full_queue_keep_no_offer_out() {
        let mut admission = Admission::new(Row {
            max: Some(2),
            p_ask: Chance::of(0.5),
            ..OPEN
        });
        for _ in 0..100 {
            assert_eq!(admission.come(Side::Ask, 0), Err(Refusal::Chance));
        }
        assert_eq!(admission.come(Side::Offer, 0), Ok(()));
        assert_eq!(admission.come(Side::Offer, 0), Ok(()));
        assert_eq!(admission.come(Side::Offer, 0), Err(Refusal::Full));
    }

    #[test]
    fn probes_pass_a_closed_door_whatever_the_backlog_but_never_a_full_one() {
        let closed = Row {
            probes: 2,
            backlog: 5,
            p_ask: Chance::ALWAYS,
            ..OPEN
        };
        let mut admission = Admission::new(closed);
        assert_eq!(admission.come(Side::Ask, 0), Ok(()));
        assert_eq!(admission.come(Side::Ask, 0), Ok(()));
        assert_eq!(admission.come(Side::Ask, 0), Err(Refusal::Closed));

        let unlucky = Row {
            p_ask: Chance::of(0.5),
            ..closed
        };
        assert_eq!(unlucky.admits(Side::Ask, 0, 0), Err(Refusal::Chance));

        let mut admission = Admission::new(Row {
            max: Some(6),
            ..closed
        });
        assert_eq!(admission.come(Side::Ask, 0), Ok(()));
        assert_eq!(admission.come(Side::Ask, 0), Err(Refusal::Full));
    }

    #[test]
    fn chances_are_parts_rounded_down_and_held_between_never_and_always() {
        assert_eq!(Chance::of(0.25).parts(), 1 << 25);
        assert_eq!(Chance::of(1.0 - 1e-12).parts(), (1 << 27) - 1);
        assert_eq!(Chance::of(-1.0), Chance::NEVER);
        assert_eq!(Chance::of(2.0), Chance::ALWAYS);
        assert_eq!(Chance::from_parts(u32::MAX), Chance::ALWAYS);
        assert_eq!(Chance::from_parts(1 << 26).probability(), 0.5);
    }

    struct Admission {
        row: Row,
        admitted: u32,
    }

    impl Admission {
        fn new(row: Row) -> Self {
            Self { row, admitted: 0 }
        }

        /// Come with a draw out of 2^27.
        fn come(&mut self, side: Side, draw: u64) -> Result<(), Refusal> {
            self.row.admits(side, self.admitted, draw << 37)?;
            self.admitted += 1;
            Ok(())
        }
    }
}
