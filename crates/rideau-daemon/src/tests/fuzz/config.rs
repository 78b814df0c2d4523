//! Configs with mistakes in them: all are read to their end, and what is good is
//! the same again when it is written out.

use std::fs;
use std::path::Path;

use crate::Source;
use rideau_config::{Config, Member, all_keys, plan, text};
use rideau_core::Rng;

use super::server::alone;
use rideau_testing::fuzz::{self, Tried, below, is_once_in, one};

const USUAL: u64 = 3000;

/// What a text is made worse, or other, with.
const PARTS: &[&str] = &[
    "\n",
    "\"",
    "'",
    "\"\"\"",
    "'''",
    "[",
    "]",
    "[[",
    "{",
    "}",
    "=",
    ",",
    ".",
    "#",
    "\\",
    "\\u00",
    "$",
    "${",
    "${A",
    "${A:-b}",
    "${é}",
    "$$",
    "é",
    "ß",
    "\u{130}",
    "\u{2028}",
    "\0",
    "\t",
    " ",
    "0",
    "1",
    "-1",
    "1_0",
    "0x1",
    "1e9",
    "1.5",
    "nan",
    "inf",
    "true",
    "18446744073709551615",
    "9223372036854775807",
    "9223372036854775808",
    "1979-05-27T07:32:00Z",
    "\"none\"",
    "\"\"",
    "\"0s\"",
    "\"1ns\"",
    "\"5m\"",
    "\"584542046090y\"",
    "\"999999999h\"",
    "\"18446744073709551615s\"",
    "\"16EiB\"",
    "\"64KiB\"",
    "\"18446744073709551615B\"",
    "\"10m@1s\"",
    "\"1s@10m\"",
    "\"0s@0s\"",
    "\"127.0.0.1:1\"",
    "\"unix:/a\"",
    "\"[::]:0\"",
    "\"0.0.0.0/0\"",
    "\"::/129\"",
    "\"1-9\"",
    "\"9-1\"",
    "\"0-340282366920938463463374607431768211455\"",
    "\"@all\"",
    "\"pool:*\"",
    "\"*\"",
    "password = \"é",
    "password = \"$argon2id$\"",
    "password=",
    "like = \"a\"",
    "[pool.a]\n",
    "[pool.\"é\"]\n",
    "[lock.\"*\"]\n",
    "[user.a]\n",
    "[app.a]\n",
    "[range.a]\n",
    "[view.a]\n",
    "kind = \"codel\"",
    "member = { list = [\"a\"] }\n",
    "values = [\"1-9\"]\n",
];

#[test]
fn no_config_panics_and_a_good_one_is_the_same_again() {
    let _alone = alone();
    let texts = texts();
    let paths: Vec<String> = all_keys().into_iter().map(|(path, _)| path).collect();
    let (mut good, mut bad) = (0_u32, 0_u32);
    let make = |rng: &mut Rng| made(rng, &texts, &paths);
    fuzz::run("config", USUAL, make, |input| {
        let input = String::from_utf8_lossy(input);
        let is_good = read(&input)?;
        good += u32::from(is_good);
        bad += u32::from(!is_good);
        Ok(())
    });
    // Chance that makes only good ones, or only bad ones, shows nothing.
    assert!(
        good > bad / 100 && bad > good / 100,
        "{good} good, {bad} bad"
    );
}

/// Read a config. Says whether it is good.
fn read(input: &str) -> Result<bool, String> {
    let env = |name: &str| (name == "A").then(|| "a".to_owned());
    let parsed = Config::parse(input, "a.toml", &env);
    // What is at fault may be anywhere, so it is looked for in everything.
    for line in [0, 1, 2, usize::MAX] {
        let _ = text::table_at(input, line);
    }
    let path = input.lines().next().unwrap_or_default();
    let _ = text::get(input, path);
    let _ = text::set(input, path, input.lines().last().unwrap_or_default());
    let config = match parsed {
        Ok(config) => config,
        Err(faults) => {
            faults.render(true);
            if faults.errors() == 0 || faults.is_empty() {
                return Err("it is bad without a fault".into());
            }
            let is_within = |at: &std::ops::Range<usize>| at.start <= at.end;
            if faults.iter().any(|fault| !is_within(&fault.at)) {
                return Err(format!("a fault is nowhere: {faults}"));
            }
            return Ok(false);
        }
    };
    again(&config)?;
    let other = Config::default();
    plan(&config, &other, None).render("a.toml");
    plan(&other, &config, None).render("a.toml");
    let same = plan(&config, &config, None);
    match same.is_empty() {
        true => Ok(true),
        false => Err(format!("it differs from itself: {}", same.render("a.toml"))),
    }
}

/// A config that is written out is the same when it is read again.
fn again(config: &Config) -> Tried {
    let text = Source::of(config).text;
    // Passwords and environments are never shown.
    let pools = config.pools.iter().map(|pool| &pool.member);
    let has_env = config.apps.iter().any(|app| !app.run.env.is_empty())
        || pools.into_iter().any(|member| match member {
            Member::Exec(exec) => !exec.env.is_empty(),
            _ => false,
        });
    if !config.users.is_empty() || has_env {
        return Ok(());
    }
    let read = Config::parse(&text, "again.toml", &|_| None);
    let read = read.map_err(|faults| format!("what was written is bad: {faults}\n{text}"))?;
    if read == *config {
        return Ok(());
    }
    let changed = plan(config, &read, None).render("again.toml");
    Err(format!("it is another one: {changed}\n{text}"))
}

/// Texts that people wrote: the examples, and those with every known fault.
fn texts() -> Vec<String> {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut all = Vec::new();
    for name in ["apps.toml", "minimal.toml", "rideau.toml"] {
        let path = here.join("../../config").join(name);
        let text = fs::read_to_string(path).unwrap();
        // A part of it is enough for most mistakes, and is read faster.
        all.extend(text.split("\n[").skip(1).map(|part| format!("[{part}\n")));
        all.push(text);
    }
    for name in ["faults.txt", "faults-apps.txt"] {
        let text =
            fs::read_to_string(here.join("../rideau-config/tests/config").join(name)).unwrap();
        for case in text.split("\n== ") {
            let (_, body) = case.split_once('\n').unwrap();
            all.push(body.split("\n--\n").next().unwrap_or_default().to_owned());
        }
    }
    all
}

fn made(rng: &mut Rng, texts: &[String], paths: &[String]) -> Vec<u8> {
    let mut text = String::new();
    for _ in 0..1 + below(rng, 2) {
        text += &texts[below(rng, texts.len())];
        if text.len() > 10_000 && !is_once_in(rng, 20) {
            text = String::new();
        }
    }
    for _ in 0..below(rng, 3) {
        let path = paths[below(rng, paths.len())].replace('*', one(rng, &["a", "pg", "é", "*"]));
        let line = format!("{path} = {}\n", one(rng, PARTS));
        // What stands above all sections is of none.
        text.insert_str(0, &line);
    }
    let mut bytes = text.into_bytes();
    let parts: Vec<&[u8]> = PARTS.iter().map(|part| part.as_bytes()).collect();
    if !is_once_in(rng, 4) {
        fuzz::damage(&mut bytes, rng, &parts);
    }
    bytes
}
