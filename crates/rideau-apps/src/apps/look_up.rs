//! The addresses that a name has now.

use std::fs;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use tokio::net::lookup_host;
use tokio::task::spawn_blocking;
use tokio::time::timeout;

/// A lookup that takes longer has failed.
const WITHIN: Duration = Duration::from_secs(10);
/// No more addresses of one name are used.
const ADDRESSES_MAX: usize = 64;
/// A longer file of hosts is not read.
const FILE_LEN_MAX: u64 = 1 << 20;

/// The addresses of a name, in their order and each once: by a file if that has the name, or
/// else as the system knows them. A name with addresses of IPv4 has no others, for those of IPv6
/// are mostly of the same servers.
///
/// # Errors
///
/// If there are none.
pub(super) async fn look_up(
    host: &str,
    port: u16,
    file: Option<PathBuf>,
) -> io::Result<Vec<SocketAddr>> {
    let found = async {
        if let Some(file) = file {
            let wanted = host.to_owned();
            let found = spawn_blocking(move || in_file(&file, &wanted)).await;
            let found = found.map_err(io::Error::other)??;
            if !found.is_empty() {
                return Ok(found);
            }
        }
        let found = lookup_host((host, port)).await?;
        Ok(found.map(|address| address.ip()).collect())
    };
    let found: io::Result<Vec<IpAddr>> = timeout(WITHIN, found)
        .await
        .map_err(|_| io::Error::from(io::ErrorKind::TimedOut))?;
    let mut found = found?;
    if found.iter().any(IpAddr::is_ipv4) {
        found.retain(IpAddr::is_ipv4);
    }
    found.sort();
    found.dedup();
    found.truncate(ADDRESSES_MAX);
    if found.is_empty() {
        return Err(io::Error::other("it has no address"));
    }
    let found = found.into_iter();
    Ok(found.map(|ip| SocketAddr::new(ip, port)).collect())
}

fn in_file(file: &PathBuf, wanted: &str) -> io::Result<Vec<IpAddr>> {
    let bad =
        |error: io::Error| io::Error::new(error.kind(), format!("{}: {error}", file.display()));
    let about = fs::metadata(file).map_err(bad)?;
    if about.len() > FILE_LEN_MAX {
        return Err(bad(io::Error::other("it is longer than 1MiB")));
    }
    let text = fs::read_to_string(file).map_err(bad)?;
    Ok(text
        .lines()
        .filter_map(|line| of_line(line, wanted))
        .collect())
}

/// The address in a line, if it is one for this name.
fn of_line(line: &str, wanted: &str) -> Option<IpAddr> {
    let line = line.split('#').next()?;
    let mut words = line.split_whitespace();
    let address = words.next()?.parse().ok()?;
    words
        .any(|word| word.trim_end_matches('.').eq_ignore_ascii_case(wanted))
        .then_some(address)
}

#[cfg(test)]
mod tests {
    use rideau_testing::Scratch;

    use super::*;

    #[tokio::test]
    async fn a_name_of_the_file_has_its_addresses_and_others_those_of_the_system() {
        let folder = Scratch::new();
        let file = folder.join("hosts");
        let text = "# ours\n10.0.0.9 api.internal other\n\n10.0.0.8\tAPI.internal. # again\n\
                    fd00::1 api.internal six\nnonsense api.internal\n10.0.0.9 api.internal\n";
        fs::write(&file, text).unwrap();
        let found = async |host: &str| look_up(host, 80, Some(file.clone())).await;
        let shown = |found: Vec<SocketAddr>| {
            let found = found.iter().map(ToString::to_string);
            found.collect::<Vec<_>>().join(" ")
        };
        let api = found("api.internal").await.unwrap();
        assert_eq!(shown(api), "10.0.0.8:80 10.0.0.9:80");
        assert_eq!(shown(found("six").await.unwrap()), "[fd00::1]:80");
        assert_eq!(shown(found("localhost").await.unwrap()), "127.0.0.1:80");
        fs::remove_file(&file).unwrap();
        let gone = found("api.internal").await.unwrap_err().to_string();
        assert!(gone.contains("hosts"), "{gone}");
    }
}
