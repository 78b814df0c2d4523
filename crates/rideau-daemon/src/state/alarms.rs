//! The alarms of the config and those of every node of a cluster: how each is, and which
//! messages have to be sent.
//!
//! What the numbers are is for `view`, which looks at them; how a message is sent, for `net`.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant as StdInstant, SystemTime};

use parking_lot::Mutex;
use rideau_apps::Events;
use rideau_config::human::{Size, Span};
use rideau_config::{AlarmConfig, AlarmRule, AlarmUnit, Config, PostUrl};
use rideau_core::Instant;
use rideau_core::alarm::{Alarm, AlarmEffect, AlarmOptions, AlarmPhase};
use tokio::sync::Notify;

/// Messages of an alarm are at least this far apart.
const GAP: Duration = Duration::from_secs(30);
/// This many messages may wait to be sent.
const POSTS_MAX: usize = rideau_config::ALARMS_MAX;

/// The alarms of a node of a cluster, with their rules and for how long these have to hold. One
/// of the config with the same name takes the place of such a one.
const OF_A_NODE: [(&str, &str, Duration); 6] = [
    (
        "partition without owner",
        "cluster.partitions_unowned > 0",
        Duration::from_secs(10),
    ),
    ("unsure", "cluster.unsure > 0", Duration::from_secs(3)),
    (
        "etcd almost full",
        "cluster.etcd_part >= 80%",
        Duration::ZERO,
    ),
    (
        "etcd filling up",
        "cluster.etcd_part >= 60%",
        Duration::ZERO,
    ),
    ("peer cut", "cluster.cut > 0", Duration::from_secs(5)),
    (
        "epochs almost used up",
        "cluster.epochs_part > 90%",
        Duration::ZERO,
    ),
];

/// All alarms.
pub(crate) struct Alarms {
    began: StdInstant,
    entries: Mutex<Vec<AlarmEntry>>,
    events: Arc<Events>,
    posts: PostQueue,
}

/// An alarm, and how it is.
#[derive(Debug)]
struct AlarmEntry {
    config: AlarmConfig,
    machine: Alarm,
    value: Option<f64>,
}

/// An alarm at one moment.
#[derive(Clone, Debug)]
pub(crate) struct AlarmState {
    /// Its name.
    pub(crate) name: String,
    /// Its rule.
    pub(crate) rule: AlarmRule,
    /// `off`, `pending` or `on`.
    pub(crate) word: &'static str,
    /// Since when, if it was not always so.
    pub(crate) since: Option<SystemTime>,
    /// The value that was looked at last.
    pub(crate) value: Option<f64>,
}

/// Messages that wait to be sent.
#[derive(Default)]
pub(crate) struct PostQueue {
    waiting: Mutex<VecDeque<AlarmPost>>,
    came: Notify,
}

/// A message to be sent.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct AlarmPost {
    /// Where to.
    pub(crate) to: PostUrl,
    /// The alarm.
    pub(crate) name: String,
    /// Whether it is on.
    pub(crate) is_on: bool,
    /// Since when.
    pub(crate) since: SystemTime,
    /// The value.
    pub(crate) value: Option<f64>,
    /// The rule as it is written.
    pub(crate) when: String,
    /// The rule and the value in words.
    pub(crate) text: String,
}

impl AlarmState {
    /// Whether it is on.
    pub(crate) fn is_on(&self) -> bool {
        self.word == "on"
    }
}

impl Alarms {
    pub(crate) fn new(config: &Config, events: Arc<Events>) -> Self {
        let alarms = Self {
            began: StdInstant::now(),
            entries: Mutex::default(),
            events,
            posts: PostQueue::default(),
        };
        alarms.follow(config);
        alarms
    }

    /// Watch from now on what a config says. An alarm whose rule is about the same number goes
    /// on as it is.
    pub(crate) fn follow(&self, config: &Config) {
        let wanted = wanted(config);
        let mut entries = self.entries.lock();
        let mut old = std::mem::take(&mut *entries);
        for config in wanted {
            let options = options(&config);
            let known = old.iter().position(|entry| entry.is_about(&config));
            let mut entry = match known {
                Some(known) => old.swap_remove(known),
                None => AlarmEntry {
                    machine: Alarm::new(options),
                    value: None,
                    config: config.clone(),
                },
            };
            entry.machine.change(options);
            entry.config = config;
            entries.push(entry);
        }
        drop(entries);
        for entry in old.iter().filter(|entry| entry.machine.is_on()) {
            let name = &entry.config.name;
            let text = format!("alarm {name} is watched no more");
            self.events.add("alarm", name, text, None);
        }
    }

    /// The rules, in the order of the alarms.
    pub(crate) fn rules(&self) -> Vec<AlarmRule> {
        let entries = self.entries.lock();
        entries
            .iter()
            .map(|entry| entry.config.when.clone())
            .collect()
    }

    /// The values of all rules now.
    pub(crate) fn step(&self, values: &[(AlarmRule, Option<f64>)]) {
        let now = self.now();
        let mut effects = Vec::new();
        let mut said = Vec::new();
        for (entry, (rule, value)) in self.entries.lock().iter_mut().zip(values) {
            // The config may have changed meanwhile.
            if *rule != entry.config.when {
                continue;
            }
            entry.value = *value;
            entry.machine.step(*value, now, &mut effects);
            for effect in effects.drain(..) {
                match effect {
                    AlarmEffect::Begin => said.push((entry.config.name.clone(), entry.said("on"))),
                    AlarmEffect::End => said.push((entry.config.name.clone(), entry.said("off"))),
                    AlarmEffect::Tell { is_on, since } => {
                        if let Some(to) = &entry.config.post {
                            let since = wall(since, now);
                            let lost = self.posts.push(entry.post(to, is_on, since));
                            said.extend(lost.map(|lost| {
                                let text = format!(
                                    "alarm {}: a message was not sent, as too many wait",
                                    lost.name
                                );
                                (lost.name, text)
                            }));
                        }
                    }
                }
            }
        }
        for (name, text) in said {
            self.events.add("alarm", &name, text, None);
        }
    }

    /// All of them.
    pub(crate) fn all(&self) -> Vec<AlarmState> {
        let now = self.now();
        let entries = self.entries.lock();
        let states = entries.iter().map(|entry| {
            let (word, since) = match entry.machine.phase() {
                AlarmPhase::Off { since } => ("off", since),
                AlarmPhase::Pending { since, .. } => ("pending", Some(since)),
                AlarmPhase::On { since } => ("on", Some(since)),
            };
            AlarmState {
                name: entry.config.name.clone(),
                rule: entry.config.when.clone(),
                word,
                since: since.map(|since| wall(since, now)),
                value: entry.value,
            }
        });
        states.collect()
    }

    /// Messages that wait to be sent.
    pub(crate) const fn posts(&self) -> &PostQueue {
        &self.posts
    }

    /// A message was not sent.
    pub(crate) fn not_sent(&self, post: &AlarmPost, why: &str) {
        let (name, host) = (&post.name, post.to.host());
        let text = format!("alarm {name}: the message to {host} was not sent: {why}");
        self.events.add("alarm", name, text, None);
    }

    fn now(&self) -> Instant {
        Instant::START + self.began.elapsed()
    }
}

impl AlarmEntry {
    /// It is the alarm of this name, and about the same number.
    fn is_about(&self, config: &AlarmConfig) -> bool {
        let (one, other) = (&self.config.when, &config.when);
        let is_same = (one.kind, &one.name, one.number) == (other.kind, &other.name, other.number);
        self.config.name == config.name && is_same
    }

    fn said(&self, state: &str) -> String {
        let AlarmConfig { name, when, .. } = &self.config;
        format!("alarm {name} is {state}: {}", in_words(when, self.value))
    }

    fn post(&self, to: &PostUrl, is_on: bool, since: SystemTime) -> AlarmPost {
        AlarmPost {
            to: to.clone(),
            name: self.config.name.clone(),
            is_on,
            since,
            value: self.value.filter(|value| value.is_finite()),
            when: self.config.when.to_string(),
            text: self.said(if is_on { "on" } else { "off" }),
        }
    }
}

impl PostQueue {
    /// A message has to be sent; an older one of the same alarm that waits is left out. Returns
    /// one that there is no room for.
    fn push(&self, post: AlarmPost) -> Option<AlarmPost> {
        let mut waiting = self.waiting.lock();
        waiting.retain(|other| other.name != post.name);
        let lost = (waiting.len() >= POSTS_MAX).then(|| waiting.pop_front());
        waiting.push_back(post);
        drop(waiting);
        self.came.notify_one();
        lost.flatten()
    }

    /// The next message.
    pub(crate) async fn next(&self) -> AlarmPost {
        loop {
            let next = self.waiting.lock().pop_front();
            match next {
                Some(next) => return next,
                None => self.came.notified().await,
            }
        }
    }
}

/// The alarms that a config wants.
fn wanted(config: &Config) -> Vec<AlarmConfig> {
    let of_a_node = OF_A_NODE.iter().filter(|_| config.cluster.is_some());
    let of_a_node = of_a_node.filter(|(name, ..)| {
        let mut all = config.alarms.iter();
        all.all(|alarm| alarm.name != *name)
    });
    let of_a_node = of_a_node.map(|(name, rule, hold)| AlarmConfig {
        name: (*name).into(),
        when: AlarmRule::parse(rule).expect("the rule is one that there is"),
        hold: *hold,
        post: None,
    });
    of_a_node.chain(config.alarms.iter().cloned()).collect()
}

const fn options(config: &AlarmConfig) -> AlarmOptions {
    AlarmOptions {
        comparison: config.when.comparison,
        limit: config.when.limit,
        hold: config.hold,
        gap: GAP,
    }
}

/// When that was, by the clock on the wall.
fn wall(at: Instant, now: Instant) -> SystemTime {
    let ago = now.since(at);
    SystemTime::now()
        .checked_sub(ago)
        .unwrap_or(SystemTime::UNIX_EPOCH)
}

/// The thing, the number and its limit: `broker checkout: drop_rate is 1.8 % (> 1%)`.
pub(crate) fn in_words(rule: &AlarmRule, value: Option<f64>) -> String {
    let thing = match rule.name.as_str() {
        "" => rule.kind.to_owned(),
        name => format!("{} {name}", rule.written_kind()),
    };
    format!("{thing}: {}", number_in_words(rule, value))
}

/// The number and its limit: `drop_rate is 1.8 % (> 1%)`.
pub(crate) fn number_in_words(rule: &AlarmRule, value: Option<f64>) -> String {
    let value = value.map_or_else(|| "not known".to_owned(), |value| shown(rule.unit, value));
    format!("{} is {value} ({})", rule.number, rule.limit_in_words())
}

fn shown(unit: AlarmUnit, value: f64) -> String {
    match unit {
        _ if !value.is_finite() => "not known".into(),
        AlarmUnit::Share => format!("{:.1} %", value * 100.0),
        AlarmUnit::Bytes => Size(value as u64).to_string(),
        AlarmUnit::Count if value.fract() == 0.0 => format!("{value:.0}"),
        AlarmUnit::Count => format!("{value:.1}"),
        _ => {
            let span = unit.span(value).unwrap_or_default();
            Span(span).to_string()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(text: &str) -> Config {
        let parsed = Config::parse(text, "test", &|_| None);
        parsed.unwrap_or_else(|faults| panic!("{}", faults.render(false)))
    }

    fn alarms(text: &str) -> (Alarms, Arc<Events>) {
        let events = Arc::new(Events::default());
        (Alarms::new(&config(text), Arc::clone(&events)), events)
    }

    fn texts(events: &Events) -> Vec<String> {
        let newest = events.newest(10);
        newest
            .iter()
            .rev()
            .map(|event| event.text.clone())
            .collect()
    }

    const WAITING: &str = "[[alarm]]\nname = \"many wait\"\nwhen = \"server.waiting > 10\"\n\
                           post = \"http://127.0.0.1:1/\"\n";

    #[test]
    fn an_alarm_is_an_event_when_it_begins_and_when_it_ends() {
        let (alarms, events) = alarms(WAITING);
        let rule = alarms.rules().remove(0);
        let step = |value: f64| alarms.step(&[(rule.clone(), Some(value))]);
        step(4.0);
        assert_eq!(alarms.all()[0].word, "off");
        step(14.0);
        step(15.0);
        let on = alarms.all().remove(0);
        assert!(on.is_on() && on.since.is_some());
        assert_eq!(on.value, Some(15.0));
        step(2.5);
        let said = [
            "alarm many wait is on: server: waiting is 14 (> 10)",
            "alarm many wait is off: server: waiting is 2.5 (> 10)",
        ];
        assert_eq!(texts(&events), said);
        let post = alarms.posts.waiting.lock().pop_front().unwrap();
        assert!(post.is_on && post.when == "server.waiting > 10");
        assert!(
            alarms.posts.waiting.lock().is_empty(),
            "the end is told later"
        );
    }

    #[test]
    fn an_alarm_goes_on_when_its_limit_is_changed_and_ends_when_it_is_removed() {
        let (alarms, events) = alarms(WAITING);
        alarms.step(&[(alarms.rules().remove(0), Some(14.0))]);
        alarms.follow(&config(&WAITING.replace("> 10", "> 5")));
        assert!(alarms.all()[0].is_on());
        alarms.follow(&Config::default());
        assert!(alarms.all().is_empty());
        assert_eq!(
            texts(&events).last().unwrap(),
            "alarm many wait is watched no more"
        );
    }

    #[test]
    fn a_queue_of_messages_has_a_limit_and_one_of_each_alarm() {
        let queue = PostQueue::default();
        let (alarms, _) = alarms(WAITING);
        let entry = &alarms.entries.lock()[0];
        let to = entry.config.post.clone().unwrap();
        let post = |name: String| AlarmPost {
            name,
            ..entry.post(&to, true, SystemTime::now())
        };
        for at in 0..POSTS_MAX {
            assert_eq!(queue.push(post(at.to_string())), None);
        }
        assert_eq!(
            queue.push(post("5".into())),
            None,
            "it takes the place of the other"
        );
        let lost = queue.push(post("new".into())).unwrap();
        assert_eq!(lost.name, "0");
        assert_eq!(queue.waiting.lock().len(), POSTS_MAX);
    }

    #[test]
    fn rules_of_a_node_are_rules() {
        for (_, rule, _) in OF_A_NODE {
            let parsed = AlarmRule::parse(rule).unwrap();
            assert_eq!(parsed.to_string(), rule);
        }
        assert!(wanted(&Config::default()).is_empty());
    }
}
