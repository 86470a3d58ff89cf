//! Settings with a fixed list of words, as arguments of the command line.

use crate::words::{Word, parse};
use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};

/// Reads one of the words of a setting; their documentation is the help.
pub(super) fn words<T: Word + Send + Sync>() -> impl TypedValueParser<Value = T> {
    let possible = T::ALL.iter().map(|(_, name, help)| {
        let help = help.trim();
        PossibleValue::new(*name).help(help.strip_suffix('.').unwrap_or(help))
    });
    PossibleValuesParser::new(possible).try_map(|word| parse::<T>(&word))
}
