//! Names with `*` in them: any letters, or none; and patterns as Redis has them.

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

/// Whether a pattern of Redis fits the name: `*` for any bytes, `?` for one, `[a-c]` for
/// one of some, `[^a-c]` for one of all others, and `\\` before a byte that means itself.
pub fn globs(pattern: &[u8], name: &[u8]) -> bool {
    let (mut at, mut place) = (0, 0);
    let mut retry: Option<(usize, usize)> = None;
    while place < name.len() {
        if pattern.get(at) == Some(&b'*') {
            retry = Some((at, place));
            at += 1;
            continue;
        }
        match fitting(&pattern[at..], name[place]) {
            Some(len) => {
                at += len;
                place += 1;
            }
            None => match retry {
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

/// How much of a pattern stands for one byte, if what it begins with fits it.
fn fitting(pattern: &[u8], byte: u8) -> Option<usize> {
    match pattern {
        [] => None,
        [b'?', ..] => Some(1),
        [b'[', rest @ ..] => {
            let (is_one, len) = one_of(rest, byte);
            is_one.then_some(1 + len)
        }
        [b'\\', letter, ..] => (*letter == byte).then_some(2),
        [letter, ..] => (*letter == byte).then_some(1),
    }
}

/// Whether a byte is one of those before the `]`, and where the pattern goes on. If
/// there is no `]`, all of it is meant.
fn one_of(pattern: &[u8], byte: u8) -> (bool, usize) {
    let is_not = pattern.first() == Some(&b'^');
    let (mut at, mut is_in) = (usize::from(is_not), false);
    loop {
        match &pattern[at..] {
            [] => break,
            [b']', ..] => {
                at += 1;
                break;
            }
            [b'\\', letter, ..] => {
                is_in |= *letter == byte;
                at += 2;
            }
            [one, b'-', other, ..] => {
                is_in |= (one.min(other)..=one.max(other)).contains(&&byte);
                at += 3;
            }
            [letter, ..] => {
                is_in |= *letter == byte;
                at += 1;
            }
        }
    }
    (is_in != is_not, at)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_are_those_of_redis() {
        for (pattern, name) in [
            ("*", ""),
            ("rideau:events:*", "rideau:events:pool:pg-1"),
            ("h?llo", "hallo"),
            ("h[ae]llo", "hello"),
            ("h[^e]llo", "hallo"),
            ("h[a-b]llo", "hbllo"),
            ("h[b-a]llo", "hallo"),
            (r"h\*llo", "h*llo"),
            (r"h[\]x]llo", "h]llo"),
            ("*a*b?d", "xxaxxbcd"),
            ("h[ab", "hb"),
            ("***", "x"),
        ] {
            assert!(
                globs(pattern.as_bytes(), name.as_bytes()),
                "{pattern} {name}"
            );
        }
        for (pattern, name) in [
            ("", "x"),
            ("h?llo", "hllo"),
            ("h[ae]llo", "hillo"),
            ("h[^e]llo", "hello"),
            ("h[a-b]llo", "hcllo"),
            (r"h\*llo", "hallo"),
            ("rideau:events:pool:?", "rideau:events:pool:pg"),
            ("x*", "y"),
        ] {
            assert!(
                !globs(pattern.as_bytes(), name.as_bytes()),
                "{pattern} {name}"
            );
        }
    }

    #[test]
    fn a_pattern_of_many_stars_takes_no_longer() {
        let pattern = "a*".repeat(128) + "b";
        assert!(!globs(pattern.as_bytes(), "a".repeat(4096).as_bytes()));
    }

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
