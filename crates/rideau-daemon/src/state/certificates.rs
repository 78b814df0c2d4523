//! The certificates of the front, as operators see them.

use std::time::SystemTime;

use parking_lot::Mutex;
use rideau_core::acme::AcmeHostState;

/// The certificates of the front.
#[derive(Debug, Default)]
pub(crate) struct CertificateBook(Mutex<CertificateRows>);

/// All of a moment.
#[derive(Clone, Debug, Default)]
pub(crate) struct CertificateRows {
    /// Those that clients are shown.
    pub(crate) shown: Vec<CertificateRow>,
    /// The hosts that certificates are ordered for.
    pub(crate) ordered: Vec<OrderedHost>,
    /// Why none is ordered at all.
    pub(crate) fault: Option<String>,
}

/// A certificate that clients are shown.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct CertificateRow {
    /// Its name in the config, or the host that it was ordered for.
    pub(crate) name: String,
    /// It was ordered from an authority.
    pub(crate) is_ordered: bool,
    /// The hosts in it.
    pub(crate) hosts: Vec<String>,
    /// From when to when it is valid.
    pub(crate) life: (SystemTime, SystemTime),
}

/// A host that certificates are ordered for.
#[derive(Clone, Debug)]
pub(crate) struct OrderedHost {
    pub(crate) name: String,
    /// How it is.
    pub(crate) state: AcmeHostState,
    /// What went wrong last.
    pub(crate) fault: Option<String>,
}

impl CertificateBook {
    pub(crate) fn rows(&self) -> CertificateRows {
        self.0.lock().clone()
    }

    pub(crate) fn set_shown(&self, shown: Vec<CertificateRow>) {
        self.0.lock().shown = shown;
    }

    pub(crate) fn set_ordered(&self, ordered: Vec<OrderedHost>, fault: Option<String>) {
        let mut rows = self.0.lock();
        (rows.ordered, rows.fault) = (ordered, fault);
    }
}
