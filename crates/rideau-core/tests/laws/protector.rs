//! The protector against a model that knows how many are on their way in.

use proptest::prelude::*;
use rideau_core::Side;
use rideau_core::protector::{Chance, Refusal, Row};

proptest! {
    #![proptest_config(crate::cases(5_000))]

    #[test]
    fn a_door_admits_what_the_numbers_allow(row in row(), comers in comers()) {
        let mut inside = Vec::new();
        for (side, draw) in comers {
            let len = row.backlog as usize + inside.len();
            let parts = match side {
                Side::Ask => row.p_ask.parts(),
                Side::Offer => row.p_offer.parts(),
            };
            let expected = if row.max.is_some_and(|max| len >= max as usize) {
                Err(Refusal::Full)
            } else if len < row.min as usize || parts == 0 {
                Ok(())
            } else if parts == 1 << 27 && inside.len() >= row.probes as usize {
                Err(Refusal::Closed)
            } else if parts < 1 << 27 && draw / (1 << 37) < u64::from(parts) {
                Err(Refusal::Chance)
            } else {
                Ok(())
            };
            let admitted = u32::try_from(inside.len()).unwrap();
            prop_assert_eq!(row.admits(side, admitted, draw), expected);
            if expected.is_ok() {
                inside.push(side);
            }
        }
    }

    #[test]
    fn a_closed_door_lets_the_larger_of_minimum_and_probes_pass(
        min in 0_u32..5, probes in 0_u32..5, draws in prop::collection::vec(any::<u64>(), 10),
    ) {
        let closed = Chance::ALWAYS;
        let row = Row { min, max: None, probes, backlog: 0, p_ask: closed, p_offer: closed };
        let mut admitted = 0;
        for draw in draws {
            admitted += u32::from(row.admits(Side::Ask, admitted, draw).is_ok());
        }
        prop_assert_eq!(admitted, min.max(probes));
    }
}

fn row() -> impl Strategy<Value = Row> {
    let max = prop::option::of(0_u32..8);
    (0_u32..4, max, 0_u32..4, 0_u32..4, chance(), chance()).prop_map(
        |(min, max, probes, backlog, p_ask, p_offer)| Row {
            min,
            max,
            probes,
            backlog,
            p_ask,
            p_offer,
        },
    )
}

fn chance() -> impl Strategy<Value = Chance> {
    prop_oneof![
        Just(Chance::NEVER),
        Just(Chance::ALWAYS),
        (0_u32..=1 << 27).prop_map(Chance::from_parts),
    ]
}

fn comers() -> impl Strategy<Value = Vec<(Side, u64)>> {
    let side = prop_oneof![Just(Side::Ask), Just(Side::Offer)];
    prop::collection::vec((side, any::<u64>()), 0..20)
}
