//! From a file and `--set` words to a checked [`Config`], with errors that name the line.

use super::{Config, Logdet, Marginal, Model, Posterior, Run, Source, Train, Variational};
use crate::error::{Error, Result, WithPath};
use serde::Deserialize;
use serde::de::{DeserializeOwned, Visitor};
use std::path::{Path, PathBuf};
use toml::de::{DeTable, DeValue};

impl Config {
    /// Reads the file, applies overrides of the form `section.key=value` in their order, and
    /// checks everything. The value of an override is TOML, or else a string without quotes.
    pub fn load<S: AsRef<str>>(path: &Path, overrides: &[S]) -> Result<Self> {
        let text = std::fs::read_to_string(path).with_path(path, "")?;
        let lines = Lines { path, text: &text };
        let document =
            DeTable::parse(&text).map_err(|e| lines.error(e.span(), e.message().to_owned()))?;
        check_keys(document.get_ref(), "", &lines)?;
        let mut config: Config = toml::from_str(&text).map_err(|e| {
            let key = e.span().and_then(|span| key_at(document.get_ref(), "", span.start));
            lines.error(e.span(), explain(key.as_deref(), e.message()))
        })?;

        let mut table: toml::Table =
            toml::from_str(&text).map_err(|e| lines.error(e.span(), e.message().to_owned()))?;
        let mut chosen = Vec::new();
        for word in overrides.iter().map(AsRef::as_ref) {
            let (key, value) = split_override(word)?;
            config = apply(&mut table, key, value)
                .map_err(|why| Error::Setting(format!("--set {word}: {}", explain(None, &why))))?;
            chosen.push((key, word));
        }

        config.check().map_err(|(key, why)| {
            let message = format!("`{key}` {why}");
            match chosen.iter().rev().find(|(k, _)| *k == key) {
                Some((_, word)) => Error::Setting(format!("--set {word}: {message}")),
                None => lines.error(span_of(document.get_ref(), key), message),
            }
        })?;
        config.data = locate(&config.data, path);
        config.resolve()
    }
}

/// Where a relative data path leads; see [`Config::data`].
fn locate(data: &Path, config: &Path) -> PathBuf {
    let beside = config.parent().unwrap_or(Path::new("")).join(data);
    if !data.exists() && beside.exists() { beside } else { data.to_owned() }
}

// ---- keys ---------------------------------------------------------------------------------------

/// The sections and their keys, taken from the types themselves.
fn sections() -> [(&'static str, &'static [&'static str]); 8] {
    [
        ("source", fields::<Source>()),
        ("model", fields::<Model>()),
        ("train", fields::<Train>()),
        ("marginal", fields::<Marginal>()),
        ("variational", fields::<Variational>()),
        ("logdet", fields::<Logdet>()),
        ("posterior", fields::<Posterior>()),
        ("run", fields::<Run>()),
    ]
}

/// The valid keys of a section; of the top level for `""`.
fn keys_of(section: &str) -> &'static [&'static str] {
    match section {
        "" => fields::<Config>(),
        _ => sections().iter().find(|(name, _)| *name == section).map_or(&[], |(_, keys)| keys),
    }
}

fn join(section: &str, key: &str) -> String {
    if section.is_empty() { key.to_owned() } else { format!("{section}.{key}") }
}

/// The field names that `derive(Deserialize)` knows of a struct: it tells them to its
/// deserializer, and this one does nothing but remember them.
fn fields<T: DeserializeOwned>() -> &'static [&'static str] {
    struct Listener<'a>(&'a mut &'static [&'static str]);
    impl<'de> serde::Deserializer<'de> for Listener<'_> {
        type Error = serde::de::value::Error;
        fn deserialize_struct<V: Visitor<'de>>(
            self,
            _: &'static str,
            fields: &'static [&'static str],
            visitor: V,
        ) -> Result<V::Value, Self::Error> {
            *self.0 = fields;
            self.deserialize_any(visitor)
        }
        fn deserialize_any<V: Visitor<'de>>(self, _: V) -> Result<V::Value, Self::Error> {
            Err(serde::de::Error::custom("only the names are wanted"))
        }
        serde::forward_to_deserialize_any! {
            bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf
            option unit unit_struct newtype_struct seq tuple tuple_struct map enum identifier
            ignored_any
        }
    }
    let mut names: &'static [&'static str] = &[];
    let _ = T::deserialize(Listener(&mut names));
    names
}

/// What to say of a key that does not exist.
fn unknown(section: &str, key: &str) -> String {
    let given = join(section, key);
    let all: Vec<String> = (fields::<Config>().iter().map(|k| (*k).to_owned()))
        .chain(sections().iter().flat_map(|(s, keys)| keys.iter().map(move |k| join(s, k))))
        .collect();
    // A key in the wrong section is as likely as a slip of the finger.
    let likeness = |valid: &str| {
        let last = |k: &str| k.rsplit('.').next().unwrap_or_default().to_owned();
        strsim::normalized_damerau_levenshtein(valid, &given)
            .max(0.95 * strsim::normalized_damerau_levenshtein(&last(valid), &last(&given)))
    };
    let nearest = all
        .iter()
        .rev() // the first of equals wins
        .map(|valid| (likeness(valid), valid))
        .max_by(|a, b| a.0.total_cmp(&b.0))
        .filter(|(likeness, _)| *likeness > 0.5);
    let hint = nearest.map_or(String::from("."), |(_, k)| format!(": did you mean `{k}`?"));
    // An unknown section has no keys of its own: show the top level.
    let (place, valid) = match keys_of(section) {
        [] => ("at the top level".to_owned(), keys_of("")),
        keys if section.is_empty() => ("at the top level".to_owned(), keys),
        keys => (format!("in [{section}]"), keys),
    };
    format!("unknown key `{given}`{hint} Valid {place}: {}", valid.join(", "))
}

/// Refuses the first unknown key of the document, sections included.
fn check_keys(table: &DeTable, section: &str, lines: &Lines) -> Result<()> {
    for (key, value) in table {
        let name: &str = key.get_ref();
        if !keys_of(section).contains(&name) {
            return Err(lines.error(Some(key.span()), unknown(section, name)));
        }
        if let (DeValue::Table(inner), true) = (value.get_ref(), section.is_empty()) {
            check_keys(inner, name, lines)?;
        }
    }
    Ok(())
}

/// The key whose value covers a byte of the document.
fn key_at(table: &DeTable, section: &str, byte: usize) -> Option<String> {
    table.iter().find_map(|(key, value)| {
        let path = join(section, key.get_ref());
        match value.get_ref() {
            DeValue::Table(inner) => key_at(inner, &path, byte),
            _ => (value.span().start <= byte && byte < value.span().end).then_some(path),
        }
    })
}

/// Where the value of a key stands.
fn span_of(table: &DeTable, key: &str) -> Option<std::ops::Range<usize>> {
    let (first, rest) = key.split_once('.').map_or((key, None), |(a, b)| (a, Some(b)));
    let value = table.iter().find(|(k, _)| k.get_ref() == first)?.1;
    match (value.get_ref(), rest) {
        (DeValue::Table(inner), Some(rest)) => span_of(inner, rest),
        (_, None) => Some(value.span()),
        _ => None,
    }
}

// ---- overrides ----------------------------------------------------------------------------------

/// `key=value`, the value as TOML or else as a string.
fn split_override(word: &str) -> Result<(&str, toml::Value)> {
    let Some((key, text)) = word.split_once('=') else {
        return Err(Error::Setting(format!("--set {word}: expected key=value")));
    };
    let (key, text) = (key.trim(), text.trim());
    let parsed = toml::from_str::<toml::Table>(&format!("value = {text}"))
        .ok()
        .filter(|table| table.len() == 1)
        .and_then(|mut table| table.remove("value"));
    Ok((key, parsed.unwrap_or_else(|| toml::Value::String(text.to_owned()))))
}

/// Puts one override into the table and reads the whole again.
fn apply(table: &mut toml::Table, key: &str, value: toml::Value) -> Result<Config, String> {
    let (section, name) = key.split_once('.').unwrap_or(("", key));
    if !keys_of(section).contains(&name) {
        return Err(unknown(section, name));
    }
    if section.is_empty() && !keys_of(name).is_empty() {
        return Err(format!(
            "[{name}] is a section: set one of its keys ({})",
            keys_of(name).join(", ")
        ));
    }
    // `name=2024` reads as a number but means a string: where the number does not fit, the text
    // as it stands may.
    let spelled = match &value {
        toml::Value::String(_) => None,
        other => Some(toml::Value::String(other.to_string())),
    };
    let mut put = |value: toml::Value| {
        let inner = match section {
            "" => &mut *table,
            _ => table
                .entry(section)
                .or_insert_with(|| toml::Value::Table(toml::Table::new()))
                .as_table_mut()
                .ok_or_else(|| format!("[{section}] is not a section in the file"))?,
        };
        inner.insert(name.to_owned(), value);
        Config::deserialize(table.clone()).map_err(|e| e.message().to_owned())
    };
    put(value).or_else(|why| spelled.map_or(Err(why.clone()), put).map_err(|_| why))
}

// ---- messages -----------------------------------------------------------------------------------

/// The text of the file, to turn bytes into lines.
struct Lines<'a> {
    path: &'a Path,
    text: &'a str,
}

impl Lines<'_> {
    fn error(&self, span: Option<std::ops::Range<usize>>, message: String) -> Error {
        match span {
            Some(span) => {
                let before = &self.text.as_bytes()[..span.start.min(self.text.len())];
                let line = 1 + before.iter().filter(|&&b| b == b'\n').count() as u64;
                Error::parse(self.path, line, message)
            }
            None => Error::file(self.path, message),
        }
    }
}

/// A message of serde in the words of a user.
fn explain(key: Option<&str>, message: &str) -> String {
    let mut text = message.replace('\n', " ");
    for (rust, plain) in [
        ("expected usize", "expected a whole number, at least 0"),
        ("expected u64", "expected a whole number, at least 0"),
        ("expected f64", "expected a number"),
        ("expected a boolean", "expected true or false"),
        ("expected path string", "expected a string"),
        ("unknown variant", "unknown word"),
    ] {
        text = text.replace(rust, plain);
    }
    key.map_or(text.clone(), |key| format!("`{key}`: {text}"))
}
