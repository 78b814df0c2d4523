//! Tables of keys: each key is one row, and all that is said of it comes from there.
//!
//! A row has the name of a key, the kind of its value, its default, when a change of it
//! counts, its bounds and a sentence. Reading, rows, plans, the sample file, the tables
//! of the docs and the schema are made of it.

/// A struct whose fields are keys of the config. Each row is
///
/// ```text
/// /// What it is for.
/// name: Type = default, Kind, Effect, attribute = value;
/// ```
///
/// and becomes a field, its default, and a [`Key`](crate::key::Key). The attributes are
/// fields of the key. A row `name => (path): Type, …` is a key whose value lies deeper,
/// and the path `self` one whose kind knows the whole struct. What stands in
/// `plain { … }` is a field without a key, and what stands in `flatten { … }` a field
/// whose keys stand in the same table, behind the others.
macro_rules! section {
    (
        $(#[$meta:meta])*
        $vis:vis struct $thing:ident {
            $(plain {
                $($(#[$plain_meta:meta])* $plain:ident: $plain_type:ty = $plain_default:expr;)*
            })?
            $(flatten {
                $($(#[$flat_meta:meta])* $flat:ident: $flat_type:ty = $flat_default:expr;)*
            })?
            $(
                $(#[doc = $help:literal])+
                $name:ident $(: $type:ty = $default:expr)? $(=> ($($path:tt)+): $at:ty)?,
                $kind:ty, $effect:ident $(, $attribute:ident = $value:expr)*;
            )*
        }
    ) => {
        $crate::table::section! { @struct [$vis]
            ($(#[$meta])* $vis struct $thing)
            (
                $($($(#[$plain_meta])* $vis $plain: $plain_type,)*)?
                $($($(#[$flat_meta])* $vis $flat: $flat_type,)*)?
            )
            $(
                $(#[doc = $help])+
                $name $(: $type = $default)? $(=> ($($path)+): $at)?,
                $kind, $effect $(, $attribute = $value)*;
            )*
        }

        impl Default for $thing {
            fn default() -> Self {
                Self {
                    $($($plain: $plain_default,)*)?
                    $($($flat: $flat_default,)*)?
                    $($($name: $default,)?)*
                }
            }
        }

        $crate::table::section! { impl ($thing) [$($($flat: $flat_type)*)?] {
            $(
                $(#[doc = $help])+
                $name [$($type)?] [$(($($path)+): $at)?],
                $kind, $effect $(, $attribute = $value)*;
            )*
        } }
    };
    // The same for what is a struct already.
    (
        for $($thing:ident)::+ {
            $(
                $(#[doc = $help:literal])+
                $name:ident => ($($path:tt)+): $at:ty,
                $kind:ty, $effect:ident $(, $attribute:ident = $value:expr)*;
            )*
        }
    ) => {
        $crate::table::section! { impl ($($thing)::+) [] {
            $(
                $(#[doc = $help])+
                $name [] [($($path)+): $at],
                $kind, $effect $(, $attribute = $value)*;
            )*
        }
            fn reset_key(&mut self, name: &str, from: &Self) {
                $(
                    if name == stringify!($name) {
                        self.$($path)+ = from.$($path)+.clone();
                    }
                )*
            }
        }
    };
    (
        impl ($thing:ty) [$($flat:ident: $flat_type:ty)*] {
            $(
                $(#[doc = $help:literal])+
                $name:ident [$($type:ty)?] [$($path:tt : $at:ty)?],
                $kind:ty, $effect:ident $(, $attribute:ident = $value:expr)*;
            )*
        }
        $($more:item)?
    ) => {
        impl $crate::keyed::Keyed for $thing {
            const KEYS: &'static [$crate::key::Key] = $crate::key::joined!(
                &[$(
                    $crate::key::Key {
                        $($attribute: $value,)*
                        ..$crate::key::Key {
                            name: stringify!($name),
                            form: <$kind as $crate::kinds::Kind<$($type)? $($at)?>>::FORM,
                            effect: $crate::key::Effect::$effect,
                            help: &[$($help),+],
                            ..$crate::key::Key::BARE
                        }
                    },
                )*]
                $(, <$flat_type as $crate::keyed::Keyed>::KEYS)*
            );

            fn read_keys(&mut self, section: &$crate::section::Section<'_>) {
                let mut keys = Self::KEYS.iter();
                $(
                    let key = keys.next().expect("each row is a key");
                    let place = &mut $crate::table::section!(@place self $name [$($path)?]);
                    let read = <$kind as $crate::kinds::Kind<$($type)? $($at)?>>::read_into;
                    read(place, section, key);
                )*
                $($crate::keyed::Keyed::read_keys(&mut self.$flat, section);)*
            }

            fn show_keys(&self, rows: &mut $crate::shown::Rows) {
                let mut keys = Self::KEYS.iter();
                $(
                    let key = keys.next().expect("each row is a key");
                    let value = &$crate::table::section!(@place self $name [$($path)?]);
                    <$kind as $crate::kinds::Kind<$($type)? $($at)?>>::show(value, key, rows);
                )*
                $($crate::keyed::Keyed::show_keys(&self.$flat, rows);)*
            }

            $($more)?
        }
    };
    (@struct [$vis:vis] ($($head:tt)*) ($($fields:tt)*)) => {
        $($head)* { $($fields)* }
    };
    (
        @struct [$vis:vis] $head:tt ($($fields:tt)*)
        $(#[doc = $help:literal])+
        $name:ident: $type:ty = $default:expr,
        $kind:ty, $effect:ident $(, $attribute:ident = $value:expr)*;
        $($more:tt)*
    ) => {
        $crate::table::section! { @struct [$vis]
            $head ($($fields)* $(#[doc = $help])+ $vis $name: $type,) $($more)*
        }
    };
    (
        @struct [$vis:vis] $head:tt $fields:tt
        $(#[doc = $help:literal])+
        $name:ident => ($($path:tt)+): $at:ty,
        $kind:ty, $effect:ident $(, $attribute:ident = $value:expr)*;
        $($more:tt)*
    ) => {
        $crate::table::section! { @struct [$vis] $head $fields $($more)* }
    };
    (@place $thing:ident $name:ident []) => { $thing.$name };
    (@place $thing:ident $name:ident [(self)]) => { *$thing };
    (@place $thing:ident $name:ident [($($path:tt)+)]) => { $thing.$($path)+ };
}

/// Keys of options of the core that are of several kinds. The first row is `kind`, with
/// the word for what is there; the others say where a value lies, if the kind has it.
macro_rules! kinds_section {
    (
        for $($thing:ident)::+ {
            $(#[doc = $kind_help:literal])+
            kind: $kinds:expr, |$it:ident| $kind_of:expr $(, $kind_attribute:ident = $said:expr)*;
            $(
                $(#[doc = $help:literal])+
                $name:ident: $type:ty = $place:expr,
                $kind:ty $(, $attribute:ident = $value:expr)*;
            )*
        }
    ) => {
        impl $crate::keyed::Keyed for $($thing)::+ {
            const KEYS: &'static [$crate::key::Key] = &[
                $crate::key::Key {
                    $($kind_attribute: $said,)*
                    ..$crate::key::Key {
                        name: "kind",
                        form: $crate::key::Form::Words($kinds),
                        help: &[$($kind_help),+],
                        ..$crate::key::Key::BARE
                    }
                },
                $(
                    $crate::key::Key {
                        $($attribute: $value,)*
                        ..$crate::key::Key {
                            name: stringify!($name),
                            form: <$kind as $crate::kinds::Kind<$type>>::FORM,
                            help: &[$($help),+],
                            ..$crate::key::Key::BARE
                        }
                    },
                )*
            ];

            fn read_keys(&mut self, section: &$crate::section::Section<'_>) {
                $(
                    let key = Self::key(stringify!($name));
                    let place: fn(&mut Self) -> Option<&mut $type> = $place;
                    if section.has(key.name) {
                        let read = <$kind as $crate::kinds::Kind<$type>>::read_into;
                        match place(self) {
                            Some(place) => read(place, section, key),
                            None => $crate::core_read::note_misfit::<Self>(section, key.name),
                        }
                    }
                )*
            }

            fn show_keys(&self, rows: &mut $crate::shown::Rows) {
                let $it = self;
                rows.text("kind", $kind_of);
                let mut thing = self.clone();
                $(
                    let place: fn(&mut Self) -> Option<&mut $type> = $place;
                    if let Some(place) = place(&mut thing) {
                        let key = Self::key(stringify!($name));
                        <$kind as $crate::kinds::Kind<$type>>::show(place, key, rows);
                    }
                )*
            }

            fn reset_key(&mut self, name: &str, from: &Self) {
                let mut from = from.clone();
                $(
                    let place: fn(&mut Self) -> Option<&mut $type> = $place;
                    if name == stringify!($name)
                        && let (Some(place), Some(usual)) = (place(self), place(&mut from))
                    {
                        *place = usual.clone();
                    }
                )*
            }
        }

        impl $crate::core_read::OfKinds for $($thing)::+ {
            const KINDS: &'static [&'static str] = $kinds;

            fn has(&mut self, name: &str) -> bool {
                $(
                    let place: fn(&mut Self) -> Option<&mut $type> = $place;
                    if name == stringify!($name) {
                        return place(self).is_some();
                    }
                )*
                false
            }
        }
    };
}

pub(crate) use {kinds_section, section};

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use toml_edit::Document;

    use crate::fault::Faults;
    use crate::key::Effect;
    use crate::keyed::Keyed;
    use crate::kinds::{Maybe, Number, OrNone, Positive, Table, Text};
    use crate::section::{Notes, Section};

    section! {
        /// A kettle.
        #[derive(Clone, PartialEq, Debug)]
        struct Kettle {
            plain {
                /// Its name, which is no key.
                name: String = "a".into();
            }
            flatten {
                /// Its lid.
                lid: Lid = Lid::default();
            }
            /// The maker.
            maker: Option<String> = None, Maybe<Text>, Live;
            /// How much fits in,
            /// in cups.
            cups: u32 = 4, Number, Restart, bounds = (1, 9), name = "size";
            /// When it is done.
            done: Option<Duration> = None, OrNone<Positive>, Requests, sample = "\"5m\"";
            /// What it stands on.
            stand: Stand = Stand::default(), Table, Live;
            /// How hot the stand is, said once more.
            heat => (stand.heat): u32, Number, Live;
        }
    }

    section! {
        /// A lid.
        #[derive(Clone, PartialEq, Debug)]
        struct Lid {
            /// Holes in it.
            holes: u32 = 1, Number, Live;
        }
    }

    section! {
        /// What a kettle stands on.
        #[derive(Clone, PartialEq, Debug)]
        struct Stand {
            /// How hot it is.
            heat: u32 = 0, Number, Live, bounds = (0, 100);
        }
    }

    fn read(text: &str) -> (Kettle, String) {
        let notes = Notes::new(text, &|_| None, |_, _| None);
        let document = Document::parse(text).unwrap();
        let section = Section::open(&notes, document.as_table(), 0..0, "a kettle", Kettle::KEYS);
        let mut kettle = Kettle::default();
        kettle.read_keys(&section);
        let (faults, more) = notes.into_faults();
        let faults = Faults::new("a.toml", faults, more);
        let said = faults.iter().map(|fault| {
            let (line, column) = (fault.line, fault.column);
            format!("{line}:{column} {}: {}\n", fault.message, fault.hint)
        });
        (kettle, said.collect())
    }

    #[test]
    fn a_row_is_a_field_a_default_and_a_key() {
        let kettle = Kettle::default();
        assert_eq!((kettle.cups, kettle.name.as_str()), (4, "a"));
        let names: Vec<_> = Kettle::KEYS.iter().map(|key| key.name).collect();
        assert_eq!(names, ["maker", "size", "done", "stand", "heat", "holes"]);
        let size = Kettle::key("size");
        assert_eq!(size.sentence(), "How much fits in, in cups.");
        assert_eq!((size.bounds, size.effect), ((1, 9), Effect::Restart));
        assert_eq!(Kettle::key("done").sample, "\"5m\"");
        assert_eq!(Kettle::key("stand").below()[0].name, "heat");
    }

    #[test]
    fn rows_are_read_and_shown() {
        let (kettle, faults) = read("size = 9\ndone = \"1m\"\nstand = { heat = 7 }\nholes = 3");
        assert_eq!(faults, "");
        assert_eq!(
            (kettle.cups, kettle.stand.heat, kettle.lid.holes),
            (9, 7, 3)
        );
        let rows = kettle.rows();
        let rows: Vec<_> = rows
            .iter()
            .map(|(key, value)| format!("{key}={value}"))
            .collect();
        assert_eq!(
            rows.join(" "),
            "size=9 done=\"1m\" stand.heat=7 heat=7 holes=3"
        );
        let (none, _) = read("done = \"none\"");
        assert_eq!(none, Kettle::default());
    }

    #[test]
    fn every_row_that_is_wrong_is_told_and_the_others_are_read() {
        let text = "maker = 5\nsize = 10\ndone = \"0s\"\nstand = 3\nlids = 1\nholes = 2";
        let (kettle, faults) = read(text);
        assert_eq!(kettle.lid.holes, 2);
        assert_eq!(kettle.cups, 4);
        assert_eq!(
            faults,
            "1:9 `maker` is a number, and has to be text: write it in quotes\n\
             2:8 `size` is out of range: write a whole number from 1 to 9\n\
             3:8 `done` is zero: it has to be more\n\
             4:9 `stand` is a number, and has to be a table: write { … } with heat\n\
             5:1 unknown key `lids` in a kettle: known keys: maker, size, done, stand, heat, \
             holes\n"
        );
    }
}
