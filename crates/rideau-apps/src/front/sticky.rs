//! A cookie that leads back to the process that served a client before.
//!
//! It names the process and its generation, and a keyed hash shows that we said
//! so. A cookie that we did not make, or whose process is gone, is no harm: the
//! request goes where any other would.

use std::fmt;

use rideau_core::apps::ProcessId;
use ring::hmac;

use crate::http1::fields::Fields;

/// The secret of the cookies.
pub(super) struct Sticky {
    secret: StickyKey,
    key: hmac::Key,
}

/// What cookies are signed with.
#[derive(Clone, PartialEq, Eq)]
pub struct StickyKey(pub [u8; 32]);

/// How many bytes of the hash are told.
const PROOF: usize = 16;

impl StickyKey {
    /// A new one.
    ///
    /// # Panics
    ///
    /// If the system has no random bits.
    pub fn new() -> Self {
        let mut bytes = [0; 32];
        getrandom::fill(&mut bytes).expect("the system has random bits");
        Self(bytes)
    }
}

impl Default for StickyKey {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for StickyKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StickyKey").finish_non_exhaustive()
    }
}

impl Sticky {
    /// Its cookies count as long as the key, which the server that comes next may have.
    pub(super) fn new(secret: StickyKey) -> Self {
        let key = hmac::Key::new(hmac::HMAC_SHA256, &secret.0);
        Self { secret, key }
    }

    pub(super) const fn key(&self) -> &StickyKey {
        &self.secret
    }

    /// The process that a client was with.
    pub(super) fn find(&self, app: &str, cookie: &str, fields: Fields<'_>) -> Option<ProcessId> {
        let lines = fields.all("cookie");
        let mut values = lines
            .filter_map(|line| str::from_utf8(line).ok())
            .flat_map(|line| line.split(';'))
            .filter_map(|pair| pair.trim().split_once('='))
            .filter(|(name, _)| *name == cookie)
            .map(|(_, value)| value);
        values.find_map(|value| self.read(app, value))
    }

    /// The cookie for a client; with `is_tls` it is only sent within TLS.
    pub(super) fn cookie(
        &self,
        app: &str,
        cookie: &str,
        process: ProcessId,
        generation: u64,
        is_tls: bool,
    ) -> String {
        let value = self.value(app, process, generation);
        let secure = if is_tls { "; Secure" } else { "" };
        format!("{cookie}={value}; Path=/; HttpOnly; SameSite=Lax{secure}")
    }

    fn value(&self, app: &str, process: ProcessId, generation: u64) -> String {
        let said = format!("{}.{generation}", process.0);
        let proof = hmac::sign(&self.key, format!("{app}.{said}").as_bytes());
        let proof: String = proof.as_ref()[..PROOF]
            .iter()
            .map(|byte| format!("{byte:02x}"))
            .collect();
        format!("{said}.{proof}")
    }

    fn read(&self, app: &str, value: &str) -> Option<ProcessId> {
        let mut words = value.split('.');
        let process = words.next()?.parse().ok()?;
        let generation = words.next()?.parse().ok()?;
        let made = self.value(app, ProcessId(process), generation);
        let is_ours = made.len() == value.len() && is_same(made.as_bytes(), value.as_bytes());
        is_ours.then_some(ProcessId(process))
    }
}

/// Takes as long whatever is different, so that no client finds out what is.
fn is_same(one: &[u8], other: &[u8]) -> bool {
    let differences = one.iter().zip(other).map(|(one, other)| one ^ other);
    differences.fold(0, |sum, difference| sum | difference) == 0
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http1::fields::Span;

    /// The process that these cookies lead to.
    fn led(sticky: &Sticky, app: &str, cookie: &str, cookies: &str) -> Option<ProcessId> {
        let text = format!("cookie: {cookies}");
        let span = Span::new(0, text.as_bytes(), 6).expect("it is short");
        sticky.find(app, cookie, Fields::new(text.as_bytes(), &[span]))
    }

    #[test]
    fn a_cookie_leads_back_to_its_process() {
        let sticky = Sticky::new(StickyKey::new());
        let cookie = sticky.cookie("shop", "seat", ProcessId(7), 3, true);
        assert!(cookie.ends_with("; Path=/; HttpOnly; SameSite=Lax; Secure"));
        let pair = cookie.split(';').next().expect("a pair");
        let said = format!("other=1; {pair}; more=2");
        assert_eq!(led(&sticky, "shop", "seat", &said), Some(ProcessId(7)));
        assert_eq!(led(&sticky, "cart", "seat", &said), None);
        assert_eq!(led(&sticky, "shop", "other", &said), None);
        assert_eq!(
            led(&Sticky::new(StickyKey::new()), "shop", "seat", &said),
            None
        );
    }

    #[test]
    fn a_forged_cookie_leads_nowhere() {
        let sticky = Sticky::new(StickyKey::new());
        let good = sticky.value("shop", ProcessId(7), 3);
        let forged = good.replacen('7', "8", 1);
        let longer = format!("{good}0");
        for value in ["", "7", "7.3", "7.3.", "x.y.z", &forged, &longer] {
            let said = format!("seat={value}");
            assert_eq!(led(&sticky, "shop", "seat", &said), None, "{value}");
        }
    }
}
