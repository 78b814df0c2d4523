//! Names with `*` in them: any letters, or none.

/// Whether the pattern fits the name.
///
/// A `*` in the name is fitted by `*` alone: so a pattern fits another one if
/// it fits every name that the other does.
pub fn fits(pattern: &str, name: impl AsRef<[u8]>) -> bool {
    pattern == "*" || fits_letters(pattern.as_bytes(), name.as_ref())
}

fn fits_letters(pattern: &[u8], name: &[u8]) -> bool {
    let (mut at, mut place) = (0, 0);
    // Where to go on with one letter more for the last `*`.
    let mut retry: Option<(usize, usize)> = None;
    while place < name.len() {
        match pattern.get(at) {
            Some(b'*') => {
                retry = Some((at, place));
                at += 1;
            }
            Some(letter) if *letter == name[place] => {
                at += 1;
                place += 1;
            }
            _ => match retry {
                Some((star, taken)) => {
                    retry = Some((star, taken + 1));
                    (at, place) = (star + 1, taken + 1);
                }
                None => return false,
            },
        }
    }
    pattern[at..].iter().all(|letter| *letter == b'*')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_star_fits_any_letters() {
        for (pattern, name) in [
            ("*", ""),
            ("*", "a"),
            ("pg-*", "pg-1"),
            ("*/x/*", "a/x/x/b"),
            ("a*b*c", "a1b2b3c"),
            ("*", "tenant/*"),
            ("tenant/*", "tenant/a*"),
        ] {
            assert!(fits(pattern, name), "{pattern} {name}");
        }
        for (pattern, name) in [
            ("", "a"),
            ("pg", "pg-1"),
            ("pg-*", "pg"),
            ("a*b", "abc"),
            ("tenant/*", "*"),
            ("a*", "*a"),
        ] {
            assert!(!fits(pattern, name), "{pattern} {name}");
        }
    }
}
