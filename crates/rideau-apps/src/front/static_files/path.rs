//! Which file a path means.

/// What a path means to files that are served for the paths below another.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(in crate::front) enum FilePath {
    /// This file or folder.
    Below {
        /// From their folder on, without a slash before or behind it.
        path: Vec<u8>,
        /// It ends with a slash.
        is_folder: bool,
    },
    /// What no client may see, whether it is there or not.
    Hidden,
    /// No file.
    Elsewhere,
}

/// The longest path that the system opens.
const PATH_MAX: usize = 4096;
/// The longest name.
const NAME_MAX: usize = 255;

/// Find out what a path means, which has no query, for files for the paths below `prefix`.
///
/// Each part of it is decoded once, after the path was parted at its slashes. A part that begins
/// with a dot is hidden, and `..` with it: clients take such parts out before they ask. Only
/// `/.well-known` is there to be found (RFC 8615).
pub(in crate::front) fn file_path(prefix: &str, path: &[u8]) -> FilePath {
    let Some(whole) = path.strip_prefix(b"/") else {
        return FilePath::Elsewhere;
    };
    let mut parts = whole.split(|byte| *byte == b'/').map(decoded).enumerate();
    for wanted in prefix.split('/').filter(|part| !part.is_empty()) {
        match parts.next() {
            Some((_, Some(part))) if part == wanted.as_bytes() => (),
            _ => return FilePath::Elsewhere,
        }
    }
    let (mut below, mut is_folder, mut is_file) = (Vec::new(), false, true);
    for (at, part) in parts {
        // Only the last part may be empty.
        is_file &= !is_folder;
        is_folder = false;
        match part {
            Some(part) if at == 0 && part == b".well-known" => below.extend_from_slice(&part),
            Some(part) if is_hidden(&part) => return FilePath::Hidden,
            Some(part) if part.is_empty() => is_folder = true,
            Some(part) => {
                is_file &= !part.contains(&b'/') && part.len() <= NAME_MAX;
                if !below.is_empty() {
                    below.push(b'/');
                }
                below.extend_from_slice(&part);
            }
            None => is_file = false,
        }
    }
    match is_file && below.len() < PATH_MAX {
        true => FilePath::Below {
            path: below,
            is_folder,
        },
        false => FilePath::Elsewhere,
    }
}

/// Whether a part of a path is hidden; one that was parted by an escape is several.
fn is_hidden(part: &[u8]) -> bool {
    let mut pieces = part.split(|byte| matches!(byte, b'/' | b'\\'));
    part.contains(&0) || pieces.any(|piece| piece.starts_with(b"."))
}

/// The bytes of a part, without escapes; none if one is malformed.
fn decoded(part: &[u8]) -> Option<Vec<u8>> {
    let digit = |byte: Option<&u8>| char::from(*byte?).to_digit(16);
    let mut bytes = Vec::with_capacity(part.len());
    let mut rest = part;
    while let Some((first, behind)) = rest.split_first() {
        rest = behind;
        bytes.push(*first);
        if *first == b'%' {
            let (high, low) = (digit(rest.first())?, digit(rest.get(1))?);
            *bytes.last_mut()? = u8::try_from(high * 16 + low).ok()?;
            rest = &rest[2..];
        }
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use rideau_core::Rng;

    use super::*;

    fn below(path: &str, is_folder: bool) -> FilePath {
        FilePath::Below {
            path: path.into(),
            is_folder,
        }
    }

    #[test]
    fn what_follows_the_beginning_of_a_path_is_the_path_of_a_file() {
        for (prefix, path, expected) in [
            ("/", "/", below("", true)),
            ("/", "/a.css", below("a.css", false)),
            ("/", "/a/b/", below("a/b", true)),
            ("/assets", "/assets", below("", false)),
            ("/assets", "/assets/", below("", true)),
            ("/assets", "/assets/a/b.css", below("a/b.css", false)),
            ("/a/b", "/a/b/c", below("c", false)),
            ("/assets", "/%61ssets/%62", below("b", false)),
            ("/", "/caf%C3%A9", below("café", false)),
            ("/", "/a%20b", below("a b", false)),
            ("/", "/%252e%252e/a", below("%2e%2e/a", false)),
            (
                "/",
                "/.well-known/security.txt",
                below(".well-known/security.txt", false),
            ),
            ("/", "/a..b/c...", below("a..b/c...", false)),
        ] {
            assert_eq!(file_path(prefix, path.as_bytes()), expected, "{path}");
        }
    }

    #[test]
    fn dots_are_hidden_in_every_spelling() {
        for path in [
            "/assets/../../etc/passwd",
            "/assets/..",
            "/assets/%2e%2e/x",
            "/assets/%2E./x",
            "/assets/..%2fx",
            "/assets/x%2f..%2fy",
            "/assets/..%5cx",
            "/assets/..\\x",
            "/assets/./x",
            "/assets/.env",
            "/assets/.git/config",
            "/assets/a/.well-known/x",
            "/assets/.well-known/x",
            "/assets/x%00.css",
            "/assets//../x",
            "/assets/%zz/../x",
        ] {
            assert_eq!(
                file_path("/assets", path.as_bytes()),
                FilePath::Hidden,
                "{path}"
            );
        }
        assert_eq!(file_path("/", b"/.well-known/.x"), FilePath::Hidden);
    }

    #[test]
    fn what_can_be_no_file_goes_elsewhere() {
        let long = format!("/assets/{}", "x".repeat(256));
        for path in [
            "*",
            "",
            "/",
            "/other/a",
            "/assetsx",
            "/Assets/a",
            "/assets//a",
            "/assets/a//",
            "/assets/a%2fb",
            "/assets/%",
            "/assets/%4",
            "/assets/%4x",
            "/../assets/a",
            "/..%2fassets/a",
            &long,
        ] {
            assert_eq!(
                file_path("/assets", path.as_bytes()),
                FilePath::Elsewhere,
                "{path}"
            );
        }
        assert_eq!(file_path("/", b"//etc/passwd"), FilePath::Elsewhere);
    }

    #[test]
    fn no_path_leads_above_the_folder() {
        let pieces = [
            "/", "..", ".", "%2e", "%2F", "\\", "a", "%00", "%", ";", "assets", "%5c", "//",
        ];
        let mut rng = Rng::new(7);
        for _ in 0..200_000 {
            let mut path = String::from("/");
            for _ in 0..rng.below(9) {
                path += pieces[rng.below(pieces.len() as u64) as usize];
            }
            for prefix in ["/", "/assets"] {
                let FilePath::Below { path: below, .. } = file_path(prefix, path.as_bytes()) else {
                    continue;
                };
                assert!(!below.starts_with(b"/") && !below.ends_with(b"/"), "{path}");
                assert!(!below.contains(&0), "{path}");
                let mut parts = below.split(|byte| *byte == b'/');
                let is_plain = |part: &[u8]| !part.is_empty() && !part.starts_with(b".");
                assert!(below.is_empty() || parts.all(is_plain), "{path}");
            }
        }
    }
}
