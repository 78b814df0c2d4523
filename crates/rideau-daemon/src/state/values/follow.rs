//! Ranges that come, change and go with the config, all or nothing.

use std::sync::Arc;

use rideau::allocator::{RangeError, RangeId, RangeOptions, Restore, Span};
use rideau_config::{Config, RangeConfig};

use super::place::{NamedRange, NamedRanges};
use super::{NotOpened, Values, machine_of, ranges_of};

/// A step that undoes a change.
enum Undo {
    Set(String, RangeOptions),
    Remove(RangeId),
}

impl Values {
    /// The ranges of the config that they were opened with.
    pub(crate) fn named_ranges(&self, config: &Config, old: &NamedRanges) -> NamedRanges {
        let place = |range: &RangeConfig| {
            let id = self.ranges.range(&range.name)?;
            let known = old.find(&range.name).filter(|old| old.id == id);
            Some(Arc::new(NamedRange {
                name: range.name.as_str().into(),
                id,
                config: range.clone(),
                counts: known.map_or_else(Arc::default, |old| Arc::clone(&old.counts)),
            }))
        };
        NamedRanges::new(config.ranges.iter().filter_map(place).collect())
    }

    /// Be as a config says from now on. No holder loses a value by it.
    ///
    /// # Errors
    ///
    /// If that cannot be; then nothing has changed.
    pub(crate) fn follow(&self, old: &Config, new: &Config) -> Result<(), NotOpened> {
        if old.ranges == new.ranges {
            return Ok(());
        }
        self.check(new)?;
        self.open_if_needed(new)?;
        let mut undo = Vec::new();
        let followed = self.follow_all(old, new, &mut undo);
        if followed.is_err() {
            for step in undo.into_iter().rev() {
                // It was so a moment ago.
                let _ = match step {
                    Undo::Set(name, options) => self.ranges.set_range(&name, options).map(drop),
                    Undo::Remove(id) => {
                        let _ = self.ranges.remove_range(id);
                        Ok(())
                    }
                };
            }
        }
        followed
    }

    /// Find what cannot be before anything is changed.
    ///
    /// # Errors
    ///
    /// The first thing that cannot be.
    pub(crate) fn check(&self, new: &Config) -> Result<(), NotOpened> {
        let all = Restore::new(&machine_of(new, 0), ranges_of(new));
        all.map_err(|(name, error)| NotOpened::Range { name, error })?;
        for stats in self.ranges.all_stats() {
            let held = stats.reserved + stats.detached + stats.cooling;
            let id = self.ranges.range(&stats.name);
            let Some(before) = id.and_then(|id| self.ranges.options(id)) else {
                continue;
            };
            let after = new.ranges.iter().find(|range| range.name == stats.name);
            let fault = match after {
                Some(_) if stats.is_draining => RangeError::Draining,
                Some(after) if after.options.class != before.class && held > 0 => {
                    RangeError::ClassHeld
                }
                None if held > 0 => {
                    check_taken(&stats.name, &before, new)?;
                    continue;
                }
                _ => continue,
            };
            return Err(NotOpened::Range {
                name: stats.name,
                error: fault,
            });
        }
        Ok(())
    }

    /// The first range that is written down needs the folder.
    fn open_if_needed(&self, new: &Config) -> Result<(), NotOpened> {
        let Some(folder) = &self.folder else {
            return Ok(());
        };
        if folder.is_open() || !new.ranges.iter().any(RangeConfig::is_durable) {
            return Ok(());
        }
        match folder.open_late() {
            Ok(true) => folder.keep(&self.secret).map_err(NotOpened::Store),
            Ok(false) => Err(NotOpened::Unread),
            Err(error) => Err(NotOpened::Store(error)),
        }
    }

    fn follow_all(
        &self,
        old: &Config,
        new: &Config,
        undo: &mut Vec<Undo>,
    ) -> Result<(), NotOpened> {
        let is_gone = |range: &&RangeConfig| new.ranges.iter().all(|one| one.name != range.name);
        for range in old.ranges.iter().filter(is_gone) {
            if let Some(id) = self.ranges.range(&range.name) {
                undo.push(Undo::Set(range.name.clone(), range.options.clone()));
                // It goes when the last of its values has come back.
                let _ = self.ranges.remove_range(id);
            }
        }
        let is_new = |range: &&RangeConfig| !old.ranges.contains(range);
        let mut left: Vec<&RangeConfig> = new.ranges.iter().filter(is_new).collect();
        let mut is_shrunk = false;
        // One may want what another gives up, so those go first that can.
        while !left.is_empty() {
            let before = left.len();
            let mut why = None;
            left.retain(|range| match self.set(range, undo) {
                Ok(()) => false,
                Err(error) => {
                    let name = range.name.clone();
                    why = Some(NotOpened::Range { name, error });
                    true
                }
            });
            match why {
                Some(why) if left.len() == before && is_shrunk => return Err(why),
                Some(_) if left.len() == before => {
                    // They want each other's: first all give up what they will not have.
                    is_shrunk = true;
                    left.iter().for_each(|range| self.shrink(range, undo));
                }
                _ => (),
            }
        }
        Ok(())
    }

    /// Keep only what a range has and will have, if that is anything.
    fn shrink(&self, range: &RangeConfig, undo: &mut Vec<Undo>) {
        let id = self.ranges.range(&range.name);
        let Some(before) = id.and_then(|id| self.ranges.options(id)) else {
            return;
        };
        let mut less = before.clone();
        let olds = before.spans.iter();
        less.spans = olds
            .flat_map(|old| {
                let news = range.options.spans.iter();
                news.filter_map(|new| {
                    let interval = old.interval.intersect(new.interval)?;
                    Some(Span {
                        kind: old.kind,
                        interval,
                    })
                })
            })
            .collect();
        // A range that has nothing of it waits for the others.
        if self.ranges.set_range(&range.name, less).is_ok() {
            undo.push(Undo::Set(range.name.clone(), before));
        }
    }

    fn set(&self, range: &RangeConfig, undo: &mut Vec<Undo>) -> Result<(), RangeError> {
        let before = self.ranges.range(&range.name);
        let before = before.and_then(|id| self.ranges.options(id));
        let id = self.ranges.set_range(&range.name, range.options.clone())?;
        undo.push(match before {
            Some(options) => Undo::Set(range.name.clone(), options),
            None => Undo::Remove(id),
        });
        Ok(())
    }
}

/// A range that drains keeps its values until they have come back.
fn check_taken(name: &str, before: &RangeOptions, new: &Config) -> Result<(), NotOpened> {
    for range in &new.ranges {
        let spans = range.options.spans.iter();
        let mut both = spans.flat_map(|ours| before.spans.iter().map(move |theirs| (ours, theirs)));
        if both.any(|(ours, theirs)| !ours.interval.is_disjoint(theirs.interval)) {
            return Err(NotOpened::Held {
                name: range.name.clone(),
                by: name.to_owned(),
            });
        }
    }
    Ok(())
}
