//! The fewest servers with which a goal is reached.

/// The result of a search.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Found {
    /// With this many, and not with one less.
    Fewest(u32),
    /// Not even with this many.
    NotWith(u32),
}

/// Look for the fewest servers that are enough, from `guess` on and up to `most`. More servers
/// are never worse, as far as this search knows.
///
/// # Errors
///
/// What trying a number ended with.
pub fn fewest_servers<E>(
    guess: u32,
    most: u32,
    mut is_enough: impl FnMut(u32) -> Result<bool, E>,
) -> Result<Found, E> {
    let mut enough = guess.clamp(1, most.max(1));
    let mut too_few = 0;
    while !is_enough(enough)? {
        if enough >= most {
            return Ok(Found::NotWith(enough));
        }
        too_few = enough;
        // By a quarter: near the guess each probe is cheap, and no probe is far beyond.
        enough = enough.saturating_add(enough / 4 + 1).min(most);
    }
    while enough - too_few > 1 {
        let middle = too_few + (enough - too_few) / 2;
        match is_enough(middle)? {
            true => enough = middle,
            false => too_few = middle,
        }
    }
    Ok(Found::Fewest(enough))
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use super::*;

    #[test]
    fn the_fewest_are_found_from_any_guess() {
        for wanted in [1, 2, 3, 17, 100] {
            for guess in [0, 1, 5, 16, 64, 100, 500] {
                let found = fewest_servers(guess, 100, |n| Ok::<_, Infallible>(n >= wanted));
                assert_eq!(found, Ok(Found::Fewest(wanted)), "{guess}");
            }
        }
        let found = fewest_servers(3, 100, |_| Ok::<_, Infallible>(false));
        assert_eq!(found, Ok(Found::NotWith(100)));
    }
}
