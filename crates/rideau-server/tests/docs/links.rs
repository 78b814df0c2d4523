//! That links in the documents lead somewhere, and that the book has every page.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use super::root;

#[test]
fn every_link_leads_to_a_file_and_a_heading() {
    let mut wrong = Vec::new();
    for page in pages() {
        let text = fs::read_to_string(&page).unwrap();
        for link in links(&text) {
            if let Err(fault) = follow(&page, link) {
                wrong.push(format!("{}: {link}: {fault}", page.display()));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn a_broken_link_is_found() {
    let page = root().join("README.md");
    for (link, is_right) in [
        ("docs/locks.md", true),
        ("#promises", true),
        ("docs/config.md#queue", true),
        ("docs/no-such-page.md", false),
        ("#no-such-heading", false),
        ("docs/config.md#no-such-heading", false),
    ] {
        assert_eq!(follow(&page, link).is_ok(), is_right, "{link}");
    }
    let text = "[a](b.md) `[no](code.md)`\n```\n[no](block.md)\n```\n![c](d.png)";
    assert_eq!(links(text), ["b.md", "d.png"]);
    assert_eq!(
        anchor("`[pool.NAME]` and its *keys*"),
        "poolname-and-its-keys"
    );
}

#[test]
fn the_book_has_every_page_once_and_links_to_no_file_outside_of_it() {
    let docs = root().join("docs");
    let summary = fs::read_to_string(docs.join("SUMMARY.md")).unwrap();
    let listed = links(&summary);
    let in_book: BTreeSet<_> = listed.iter().copied().collect();
    assert_eq!(in_book.len(), listed.len(), "a page is listed twice");
    for page in pages().iter().filter(|page| page.starts_with(&docs)) {
        let name = page.strip_prefix(&docs).unwrap().to_str().unwrap();
        assert!(
            name == "SUMMARY.md" || in_book.contains(name),
            "{name} is missing in SUMMARY.md"
        );
        let text = fs::read_to_string(page).unwrap();
        for link in links(&text) {
            assert!(!link.starts_with("../"), "{name}: {link}");
        }
    }
}

#[test]
fn the_glossary_is_short() {
    let text = fs::read_to_string(root().join("docs/glossary.md")).unwrap();
    let rows = text.lines().filter(|line| line.starts_with("| **"));
    assert!((15..=25).contains(&rows.count()));
}

/// The documents of the project, and the pages of the book.
fn pages() -> Vec<PathBuf> {
    let mut pages = Vec::new();
    for folder in [root(), root().join("docs")] {
        let files = fs::read_dir(folder)
            .unwrap()
            .map(|file| file.unwrap().path());
        pages.extend(files.filter(|path| path.extension().is_some_and(|end| end == "md")));
    }
    pages
}

/// Does a link of this page lead somewhere? What is not on this machine is not followed.
fn follow(page: &Path, link: &str) -> Result<(), String> {
    if link.contains("://") || link.starts_with("mailto:") {
        return Ok(());
    }
    let (path, heading) = link.split_once('#').unwrap_or((link, ""));
    let target = match path {
        "" => page.to_owned(),
        path => page.parent().unwrap().join(path),
    };
    if !target.exists() {
        return Err("there is no such file".to_owned());
    }
    if heading.is_empty() {
        return Ok(());
    }
    let text = fs::read_to_string(&target).map_err(|error| error.to_string())?;
    let found = headings(&text).any(|there| anchor(there) == heading);
    found
        .then_some(())
        .ok_or("there is no such heading".to_owned())
}

/// What the links of a text lead to, those in code left out.
fn links(text: &str) -> Vec<&str> {
    let prose = prose(text).flat_map(|line| line.split('`').step_by(2));
    let links = prose.flat_map(|part| part.split("](").skip(1));
    links.filter_map(|rest| rest.split(')').next()).collect()
}

fn headings(text: &str) -> impl Iterator<Item = &str> {
    let lines = prose(text).filter(|line| line.starts_with('#'));
    lines.map(|line| line.trim_start_matches('#').trim())
}

/// The lines that are in no block of code.
fn prose(text: &str) -> impl Iterator<Item = &str> {
    let mut in_code = false;
    text.lines().filter(move |line| {
        let is_fence = line.trim_start().starts_with("```");
        in_code ^= is_fence;
        !in_code && !is_fence
    })
}

/// How a heading is called in a link.
fn anchor(heading: &str) -> String {
    let kept = heading.chars().filter_map(|char| match char {
        ' ' => Some('-'),
        '-' | '_' => Some(char),
        char if char.is_alphanumeric() => Some(char.to_ascii_lowercase()),
        _ => None,
    });
    kept.collect()
}
