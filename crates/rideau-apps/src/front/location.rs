//! Where a client is sent.

use std::fmt::Write;

use rideau_config::{RedirectTarget, TargetPart};

use super::host::host_name;

/// Sends clients elsewhere.
#[derive(PartialEq, Eq, Debug)]
pub(super) struct Redirect {
    pub(super) target: RedirectTarget,
    pub(super) status: u16,
}

impl Redirect {
    /// Where a request for this host and path finds what it wants. `rest` is what follows the
    /// path of the route.
    pub(super) fn location(&self, host: &[u8], path: &[u8], rest: &[u8]) -> String {
        let mut location = String::new();
        for part in self.target.parts() {
            match part {
                TargetPart::Text(text) => location.push_str(text),
                TargetPart::Host => push_path(&mut location, host_name(host)),
                TargetPart::Path => push_path(&mut location, rooted(path)),
                TargetPart::Rest => push_path(&mut location, rest),
            }
        }
        // What begins with two slashes would be another host.
        let beyond = location.trim_start_matches(['/', '\\']);
        if beyond.len() < location.len() {
            location = format!("/{beyond}");
        }
        if location.is_empty() || location.starts_with('?') {
            location.insert(0, '/');
        }
        location
    }
}

/// A path, from the root on.
fn rooted(path: &[u8]) -> &[u8] {
    match path {
        b"" | b"*" => b"/",
        path => path,
    }
}

/// Write what a client sent so that it is one word of a URL, whatever is in it.
pub(super) fn push_path(out: &mut String, path: &[u8]) {
    for byte in path {
        match byte {
            b'"' | b'<' | b'>' | b'\\' | b'^' | b'`' | b'{' | b'|' | b'}' => {
                let _ = write!(out, "%{byte:02X}");
            }
            0x21..=0x7e => out.push(char::from(*byte)),
            _ => {
                let _ = write!(out, "%{byte:02X}");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rideau_config::Config;

    fn redirect(target: &str) -> Redirect {
        let text = format!("[front]\n[route.a]\nredirect = {target:?}\n");
        let config = Config::parse(&text, "a.toml", &|_| None).expect("it is right");
        let route = config
            .front
            .routes
            .into_iter()
            .next()
            .expect("there is one");
        Redirect {
            target: route.redirect.expect("it leads elsewhere"),
            status: route.status,
        }
    }

    #[test]
    fn what_was_asked_for_is_put_where_it_belongs() {
        let to = |target: &str, path: &str, rest: &str| {
            redirect(target).location(b"Shop.example:8080", path.as_bytes(), rest.as_bytes())
        };
        assert_eq!(to("https://a{path}", "/b?c=d", ""), "https://a/b?c=d");
        assert_eq!(to("https://a{path}", "*", ""), "https://a/");
        assert_eq!(to("https://a/new{rest}", "/old/b", "/b"), "https://a/new/b");
        assert_eq!(to("https://a/new{rest}", "/old", ""), "https://a/new");
        assert_eq!(to("https://{host}/a", "/", ""), "https://Shop.example/a");
        assert_eq!(to("{rest}", "/old?a", "?a"), "/?a");
        assert_eq!(to("{rest}", "/old", ""), "/");
    }

    #[test]
    fn no_client_can_add_a_field_or_choose_another_host() {
        let to = |target: &str, rest: &str| {
            redirect(target).location(b"a.example", rest.as_bytes(), rest.as_bytes())
        };
        assert_eq!(to("{rest}", "//evil.example/a"), "/evil.example/a");
        assert_eq!(to("{rest}", "/\\evil.example"), "/%5Cevil.example");
        assert_eq!(to("/{rest}", "/evil.example"), "/evil.example");
        let odd = to("https://a{path}", "/%0d%0aSet-Cookie: a\r\nb: c");
        assert_eq!(odd, "https://a/%0d%0aSet-Cookie:%20a%0D%0Ab:%20c");
    }
}
