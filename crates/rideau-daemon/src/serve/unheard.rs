//! Why the server cannot listen somewhere, and what to do about it.

use std::fmt;
use std::io;

use rideau_apps::inherited;

/// Why no client can be heard there, and what to do about it.
pub(super) fn unheard(place: impl fmt::Display, key: &str, error: &io::Error) -> io::Error {
    let passed = port_of(&place.to_string()).and_then(inherited::unused_at);
    let advice = match error.kind() {
        io::ErrorKind::AddrInUse if passed.is_some() => {
            "the socket that was passed to the server has another address: choose that one with"
        }
        io::ErrorKind::AddrInUse => {
            "another program uses this address: stop it, or choose another \
            address with"
        }
        io::ErrorKind::AddrNotAvailable => "this machine has no such address: choose another with",
        io::ErrorKind::PermissionDenied => {
            "the server lacks the permission: give it, or choose \
            another address with"
        }
        _ => "choose another address with",
    };
    let passed = passed.map_or_else(String::new, |passed| format!(" ({passed})"));
    let text = format!("cannot listen at {place}: {error}; {advice} {key}{passed}");
    io::Error::new(error.kind(), text)
}

/// The port of a place as it is shown.
pub(super) fn port_of(place: &str) -> Option<u16> {
    place.rsplit(':').next()?.parse().ok()
}
