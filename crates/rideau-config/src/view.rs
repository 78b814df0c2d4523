//! Views of the file: names for values that are only counted.

use rideau_core::allocator::Span;

use super::kinds::List;
use super::range::{check_name, is_empty, spans};
use super::section::Section;
use super::table::section;

section! {
    /// Some values, of whatever ranges, that are counted under one name. Nothing
    /// can be had of it.
    #[derive(Clone, PartialEq, Eq, Debug)]
    pub struct ViewConfig {
        plain {
            /// The name.
            name: String = String::new();
            /// The parsed values.
            spans: Vec<Span> = Vec::new();
        }
        /// Its values, written as those of a range. They may be of any ranges and of other views.
        values: Vec<String> = Vec::new(), List, Live, usual = "required",
            sample = r#"["10.20.1.0/24", "10.21.1.0/24"]"#;
    }
}

impl ViewConfig {
    /// None if it has no values that can be read; that is noted.
    pub(super) fn read(name: &str, section: &Section<'_>) -> Option<Self> {
        check_name("view", name, section);
        let all = spans(section, "values");
        if !section.has("values") {
            let message = format!("view `{name}` has no values");
            let hint = "write values = [\"10.20.0.0/24\"], or numbers as [\"1-99\"]";
            section.notes.error(section.at.clone(), message, hint);
        } else if is_empty(section, "values") {
            let at = section.at("values");
            let hint = "name at least one";
            section.notes.error(at, "`values` is empty", hint);
        }
        let (values, spans): (Vec<_>, Vec<_>) = all?.into_iter().unzip();
        let name = name.into();
        (!spans.is_empty()).then_some(Self {
            name,
            values,
            spans,
        })
    }
}
