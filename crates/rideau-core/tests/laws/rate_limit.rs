//! Rates with a burst against what every window of time may have.

use std::time::Duration;

use proptest::prelude::*;
use rideau_core::{Instant, RateLimitOptions, RateLimits};

proptest! {
    #![proptest_config(crate::cases(2_000))]

    #[test]
    fn no_window_has_more_than_the_burst_and_the_rate(
        options in options(), pauses in pauses(),
    ) {
        let mut limits = RateLimits::new(options);
        let mut now = 0;
        let mut passed = Vec::new();
        for pause in pauses {
            now += pause;
            if limits.pass(&(), Instant::from_nanos(now)).is_ok() {
                passed.push(now);
            }
        }
        for (at, first) in passed.iter().enumerate() {
            for (count, last) in (1_u128..).zip(&passed[at..]) {
                // count <= burst + count_per * window / per, without fractions.
                let window = u128::from(last - first);
                let over = (count.saturating_sub(options.burst.into())) * options.per.as_nanos();
                prop_assert!(over <= u128::from(options.count) * window);
            }
        }
    }

    #[test]
    fn one_that_is_refused_passes_when_it_was_told_and_not_before(
        options in options(), pauses in pauses(),
    ) {
        let mut limits = RateLimits::new(options);
        let mut now = 0;
        for pause in pauses {
            now += pause;
            let Err(wait) = limits.pass(&(), Instant::from_nanos(now)) else {
                continue;
            };
            let wait = u64::try_from(wait.as_nanos()).unwrap();
            prop_assert!(wait > 0);
            prop_assert!(limits.pass(&(), Instant::from_nanos(now + wait - 1)).is_err());
            now += wait;
            prop_assert!(limits.pass(&(), Instant::from_nanos(now)).is_ok());
        }
    }

    #[test]
    fn keys_know_nothing_of_each_other_and_are_bounded(
        options in options(), asks in prop::collection::vec((0_u8..20, 0_u64..50), 1..300),
    ) {
        let mut together = RateLimits::new(options);
        let mut apart: Vec<_> = (0..20).map(|_| RateLimits::new(options)).collect();
        let mut now = 0;
        for (key, pause) in asks {
            now += pause;
            let at = Instant::from_nanos(now);
            let passed = together.pass(&key, at);
            let alone = apart[usize::from(key)].pass(&(), at);
            if options.keys_max >= 20 {
                prop_assert_eq!(passed, alone);
            }
            prop_assert!(together.len() <= options.keys_max);
        }
    }
}

fn options() -> impl Strategy<Value = RateLimitOptions> {
    (1_u32..50, 1_u64..200, 1_u32..10, 1_usize..40).prop_map(|(count, per, burst, keys_max)| {
        RateLimitOptions {
            count,
            per: Duration::from_nanos(per),
            burst,
            keys_max,
        }
    })
}

fn pauses() -> impl Strategy<Value = Vec<u64>> {
    prop::collection::vec(prop_oneof![Just(0), 0_u64..20, 0_u64..500], 1..200)
}
