//! The pages for those that come from another server say where each key went.

use std::collections::BTreeSet;

use rideau_config::Config;

/// Pages, and names in their files that a user chooses.
const PAGES: [(&str, &[&str]); 3] = [
    (
        include_str!("../../../../docs/from-gunicorn-behind-nginx.md"),
        &[],
    ),
    (include_str!("../../../../docs/from-passenger.md"), &[]),
    (
        include_str!("../../../../docs/from-nginx-unit.md"),
        &[
            "*:443",
            "plain",
            "shop",
            "DJANGO_SETTINGS_MODULE",
            "Cache-Control",
        ],
    ),
];

#[test]
fn every_key_of_another_server_is_mapped() {
    for (page, chosen) in PAGES {
        let rows = page.lines().filter(|line| line.starts_with('|'));
        let rows = rows.collect::<Vec<_>>().join("\n");
        let said: BTreeSet<_> = crate::code(&rows).into_iter().flat_map(words).collect();
        let mut keys = BTreeSet::new();
        blocks(page, "nginx").for_each(|text| keys.extend(directives(text)));
        blocks(page, "ini").for_each(|text| keys.extend(settings(text)));
        blocks(page, "json").for_each(|text| {
            collect(&serde_json::from_str(text).unwrap(), &mut keys);
        });
        assert!(keys.len() > 10, "{keys:?}");
        keys.retain(|key| !said.contains(&**key) && !chosen.contains(&&**key));
        assert!(keys.is_empty(), "where did {keys:?} go?");
    }
}

#[test]
fn every_key_that_takes_the_place_of_another_is_there() {
    for (page, _) in PAGES {
        for text in blocks(page, "toml") {
            let (_, faults) = Config::check(text, "docs", &|_| None);
            // The files of the example are not here.
            let wrong: Vec<_> = (faults.to_string().lines())
                .filter(|line| line.contains("  error  ") && !is_about_a_file(line))
                .map(str::to_owned)
                .collect();
            assert!(wrong.is_empty(), "{wrong:?}");
        }
    }
}

fn is_about_a_file(line: &str) -> bool {
    let known = ["there is no folder", "cannot be read", "cannot be used"];
    known.iter().any(|known| line.contains(known))
}

/// The blocks of code of a language.
fn blocks<'a>(page: &'a str, language: &str) -> impl Iterator<Item = &'a str> {
    let fence = format!("```{language}\n");
    let found: Vec<_> = page.split(&*fence).skip(1).collect();
    let texts = found.into_iter().map(|text| text.split_once("```"));
    texts.map(|found| found.unwrap().0)
}

/// What a text between backticks may name.
fn words(code: &str) -> impl Iterator<Item = &str> {
    let is_of_name = |c: char| c.is_alphanumeric() || "_-*:".contains(c);
    code.split(move |c| !is_of_name(c))
        .map(|word| word.trim_end_matches(':'))
}

/// The names of directives in a file of nginx.
fn directives(text: &str) -> impl Iterator<Item = String> {
    let lines = text.lines().map(str::trim);
    let lines = lines.filter(|line| line.starts_with(|c: char| c.is_ascii_lowercase()));
    lines.map(|line| line.split([' ', ';']).next().unwrap().to_owned())
}

/// The keys of a unit, and the options of what it runs.
fn settings(text: &str) -> impl Iterator<Item = String> {
    let pairs = text.lines().filter_map(|line| line.split_once('='));
    pairs.flat_map(|(key, value)| {
        let options = value.split(' ').filter(|word| word.starts_with("--"));
        options.chain([key]).map(str::to_owned).collect::<Vec<_>>()
    })
}

/// All keys of a value of JSON.
fn collect(value: &serde_json::Value, keys: &mut BTreeSet<String>) {
    match value {
        serde_json::Value::Object(pairs) => {
            for (key, value) in pairs {
                keys.insert(key.clone());
                collect(value, keys);
            }
        }
        serde_json::Value::Array(values) => values.iter().for_each(|value| collect(value, keys)),
        _ => (),
    }
}
