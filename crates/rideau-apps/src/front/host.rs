//! The host that a request is for.

/// The name of a host, without the port and without dots at its end.
pub(super) fn host_name(host: &[u8]) -> &[u8] {
    let mut host = without_port(host);
    while let Some(rest) = host.strip_suffix(b".") {
        host = rest;
    }
    host
}

fn without_port(host: &[u8]) -> &[u8] {
    // Colons within brackets are part of the address. What follows the last colon
    // of others is short.
    let end = host.iter().rposition(|byte| matches!(byte, b':' | b']'));
    match end {
        Some(end) if host[end] == b':' => &host[..end],
        _ => host,
    }
}
