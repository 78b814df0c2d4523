//! Facts of an alarm.

use crate::state::alarms::AlarmState;
use crate::state::daemon::Daemon;
use crate::state::viewer::Viewer;

use super::facts;

/// An alarm at one moment.
pub(crate) struct AlarmNow(pub(crate) AlarmState);

impl AlarmNow {
    /// Every alarm about something that one may see, those of the node first.
    pub(crate) fn all(daemon: &Daemon, viewer: Viewer<'_>) -> Vec<Self> {
        let all = daemon.alarms.all().into_iter();
        let seen = all.filter(|alarm| sees(viewer, alarm));
        seen.map(Self).collect()
    }
}

fn sees(viewer: Viewer<'_>, alarm: &AlarmState) -> bool {
    match alarm.rule.kind {
        // Their names are hosts of apps, and those of views say what there is of ranges.
        "certificate" | "view" => viewer.sees_all_names(),
        kind => viewer.sees(kind, &alarm.rule.name),
    }
}

facts! { AlarmNow: "alarm" by "alarm", joined {};
    name: Text, [SHOW], |it| &*it.0.name, "Its name.";
    state: Text, [SHOW], |it| it.0.word,
        "`off`, `pending` if its rule has not been true for long enough, or `on`.";
    since_ms: Instant|null, [SHOW], |it| it.0.since,
        "Since when it is so, if it was ever on.";
    value: Ratio|null, [SHOW], |it| it.0.value.filter(|value| value.is_finite()),
        "The number now, in the unit of its name; a part is from 0 to 1.";
    when: Text, [SHOW], |it| it.0.rule.to_string(), "The rule.";
}
