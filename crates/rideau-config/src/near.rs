//! Which of the known words was probably meant.

/// Names that others use for what has another name here.
const SYNONYMS: &[(&str, &str)] = &[
    ("ask", "asks"),
    ("ask_r", "offers"),
    ("bind", "listen"),
    ("cmd", "exec"),
    ("command", "exec"),
    ("cull_after", "idle_age_max"),
    ("cwd", "root"),
    ("destroy", "replace"),
    ("dir", "root"),
    ("discard", "replace"),
    ("drop", "timeout"),
    ("encode", "compress"),
    ("file_server", "static"),
    ("force_https", "redirect_https"),
    ("force_ssl", "redirect_https"),
    ("global_queue", "queue"),
    ("gzip", "compress"),
    ("gzip_min_length", "compress_min"),
    ("idle_timeout", "idle_age_max"),
    ("idle_timeout", "idle_after"),
    ("keepalive", "dead_peer"),
    ("limit_conn", "client_connections_max"),
    ("limit_req", "rate_limit"),
    ("log_format", "access_format"),
    ("max_age", "life_max"),
    ("max_apps", "max"),
    ("max_clients", "connections_max"),
    ("max_instances", "max"),
    ("max_lifetime", "life_max"),
    ("max_pool_size", "max"),
    ("max_queue", "queue"),
    ("max_request_time", "request_timeout"),
    ("maxclients", "connections_max"),
    ("memory_limit", "memory_soft"),
    ("min_instances", "min"),
    ("nofile", "files_max"),
    ("nproc", "processes_max"),
    ("offer", "offers"),
    ("order", "reuse"),
    ("pool_idle_time", "idle_after"),
    ("probe", "ready"),
    ("return", "reuse"),
    ("sessions_per", "concurrency"),
    ("size", "max"),
    ("spawn_timeout", "start_timeout"),
    ("start", "started"),
    ("trust_header", "trust"),
    ("ttl", "life_max"),
    ("upgrades", "streams"),
    ("websockets", "streams"),
];

/// The one of `known` that is nearest to `word`, if any is near.
pub(super) fn near<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let lower = word.to_lowercase().replace('-', "_");
    let known: Vec<&str> = known.into_iter().collect();
    let named = |name: &str| known.iter().copied().find(|known| *known == name);
    let mut synonyms = SYNONYMS.iter().filter(|(other, _)| *other == lower);
    if let Some(found) = synonyms.find_map(|(_, ours)| named(ours)) {
        return Some(found);
    }
    let parts = sorted_parts(&lower);
    if let Some(found) = known.iter().find(|known| sorted_parts(known) == parts) {
        return Some(found);
    }
    known
        .into_iter()
        .map(|known| (edits(&lower, &known.replace('-', "_")), known))
        .min_by_key(|(edits, _)| *edits)
        .filter(|(edits, known)| *edits <= far(&lower, known) && *edits < known.len())
        .map(|(_, known)| known)
}

/// With this many edits it is another word; with two, if it is short.
pub fn far(one: &str, other: &str) -> usize {
    1 + one.len().min(other.len()) / 4
}

/// `max_wait` and `wait_max` have the same parts.
fn sorted_parts(word: &str) -> Vec<&str> {
    let mut parts: Vec<&str> = word.split('_').collect();
    parts.sort_unstable();
    parts
}

/// How many letters have to be put in, taken out, changed or swapped with
/// their neighbour.
pub fn edits(one: &str, other: &str) -> usize {
    let (one, other): (Vec<char>, Vec<char>) = (one.chars().collect(), other.chars().collect());
    let mut before: Vec<usize> = Vec::new();
    let mut row: Vec<usize> = (0..=other.len()).collect();
    for i in 1..=one.len() {
        let mut next = vec![i; other.len() + 1];
        for j in 1..=other.len() {
            let changed = row[j - 1] + usize::from(one[i - 1] != other[j - 1]);
            next[j] = changed.min(row[j] + 1).min(next[j - 1] + 1);
            let is_swap =
                i > 1 && j > 1 && one[i - 1] == other[j - 2] && one[i - 2] == other[j - 1];
            if is_swap {
                next[j] = next[j].min(before[j - 2] + 1);
            }
        }
        before = std::mem::replace(&mut row, next);
    }
    row[other.len()]
}

/// Which word was probably meant, and which there are unless they are many.
pub(super) fn suggest_word(word: &str, known: &[&str]) -> String {
    const MANY: usize = 10;
    let all = known.join(", ");
    match near(word, known.iter().copied()) {
        Some(near) if known.len() > MANY => format!("did you mean {near:?}?"),
        Some(near) => format!("did you mean {near:?}? one of: {all}"),
        None => format!("one of: {all}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_swap_of_neighbours_is_one_edit() {
        assert_eq!(edits("tiemout", "timeout"), 1);
        assert_eq!(edits("codell", "codel"), 1);
        assert_eq!(edits("", "abc"), 3);
    }

    #[test]
    fn the_nearest_word_is_found_by_letters_by_parts_and_by_meaning() {
        let known = ["wait_max", "wait_default", "idle_age_max", "init"];
        assert_eq!(near("wait_mxa", known), Some("wait_max"));
        assert_eq!(near("max_wait", known), Some("wait_max"));
        assert_eq!(near("cull_after", known), Some("idle_age_max"));
        assert_eq!(near("colour", known), None);
        assert_eq!(near("foo", ["cool", "ttl"]), None);
    }
}
