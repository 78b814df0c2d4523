//! The sample file and the tables of keys in the documents are what the tables of the
//! config make of them. `UPDATE_DOCS=1` writes them anew.

#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

use std::path::{Path, PathBuf};
use std::{env, fs};

use rideau_config::{Config, sample, tables, with_tables};

#[test]
fn the_sample_file_is_made_of_the_tables() {
    compare(&root().join("config/rideau.toml"), &sample());
}

#[test]
fn the_tables_of_the_documents_are_those_of_the_config() {
    for page in pages() {
        let text = fs::read_to_string(&page).unwrap();
        compare(&page, &with_tables(&text));
    }
}

#[test]
fn every_section_has_a_table_in_the_documents() {
    let texts = pages()
        .into_iter()
        .map(|page| fs::read_to_string(page).unwrap());
    let texts: String = texts.collect();
    for table in tables() {
        let mark = format!("<!-- keys: {table} -->");
        assert_eq!(texts.matches(&mark).count(), 1, "{mark}");
    }
}

/// A key whose value in the sample is not the default says so.
#[test]
fn the_sample_file_says_where_it_differs_from_the_defaults() {
    let text = sample();
    let default = Config::default();
    let shown = Config::parse(&text, "rideau.toml", &|_| None).unwrap();
    let lines: Vec<&str> = text.lines().collect();
    let mut section = "";
    let mut compared = 0;
    for (at, line) in lines.iter().enumerate() {
        if let Some(name) = line
            .strip_prefix('[')
            .and_then(|line| line.strip_suffix(']'))
        {
            section = name;
        }
        let Some((key, _)) = line.split_once(" = ").filter(|_| !line.starts_with('#')) else {
            continue;
        };
        let path = format!("{section}.{}", key.trim());
        let Some(usual) = default.value(&path) else {
            continue;
        };
        let above = lines[..at].iter().rev();
        let above = above.take_while(|line| line.starts_with('#'));
        let below = lines[at + 1..].iter();
        let below = below.take_while(|line| line.starts_with(' '));
        let said: String = above.chain(below).chain([line]).copied().collect();
        // What this machine would have may be what the sample has, and so may a variable.
        if !["front.max", "front.starts_max", "server.name"].contains(&path.as_str()) {
            let is_usual = shown.value(&path).as_ref() == Some(&usual);
            assert_eq!(is_usual, !said.contains("Default:"), "{line}");
            compared += 1;
        }
    }
    assert!(compared > 30, "{compared}");
}

#[track_caller]
fn compare(path: &Path, made: &str) {
    if env::var_os("UPDATE_DOCS").is_some() {
        fs::write(path, made).unwrap();
    }
    let text = fs::read_to_string(path).unwrap();
    let differs = text.lines().zip(made.lines()).find(|(old, new)| old != new);
    let path = path.display();
    assert!(
        text == made,
        "{path} is old: run with UPDATE_DOCS=1\n{differs:#?}"
    );
}

fn pages() -> Vec<PathBuf> {
    let pages = fs::read_dir(root().join("docs")).unwrap();
    let pages = pages.map(|page| page.unwrap().path());
    let is_page = |page: &PathBuf| page.extension().is_some_and(|end| end == "md");
    pages.filter(is_page).collect()
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}
