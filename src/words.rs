//! Settings with a fixed list of words: `words!` makes the enum, its names and its parsing.

use crate::error::{Error, Result};

/// A setting that is one of a few words, as configs and command lines spell it.
pub(crate) trait Word: Copy + 'static {
    /// Every value with its word and what it means, in the order in which users are told them.
    const ALL: &'static [(Self, &'static str, &'static str)];
}

/// The value that a word stands for.
pub(crate) fn parse<T: Word>(word: &str) -> Result<T> {
    let found = T::ALL.iter().find(|(_, name, _)| *name == word);
    found.map(|(value, _, _)| *value).ok_or_else(|| {
        let names: Vec<&str> = T::ALL.iter().map(|(_, name, _)| *name).collect();
        Error::Setting(format!("`{word}` is none of {}", names.join(", ")))
    })
}

/// An enum whose values are words: `serde`, `Display`, `FromStr` and `name` all use the same ones.
/// Each value has a line of documentation, which is also its help on the command line.
macro_rules! words {
    (
        $(#[$about:meta])*
        pub enum $Name:ident {
            $(
                $(#[doc = $help:literal])+
                $(#[default $($default:tt)?])?
                $Value:ident = $word:literal
            ),+ $(,)?
        }
    ) => {
        $(#[$about])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Default, serde::Serialize, serde::Deserialize)]
        pub enum $Name {
            $(
                $(#[doc = $help])+
                $(#[default $($default)?])?
                #[serde(rename = $word)]
                $Value
            ),+
        }

        impl $Name {
            /// The word, as it is written in configs.
            pub fn name(self) -> &'static str {
                match self {
                    $($Name::$Value => $word),+
                }
            }
        }

        impl $crate::words::Word for $Name {
            const ALL: &'static [(Self, &'static str, &'static str)] =
                &[$(($Name::$Value, $word, concat!($($help),+))),+];
        }

        impl std::fmt::Display for $Name {
            fn fmt(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
                f.write_str(self.name())
            }
        }

        impl std::str::FromStr for $Name {
            type Err = $crate::Error;

            fn from_str(word: &str) -> $crate::Result<Self> {
                $crate::words::parse(word)
            }
        }
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    words! {
        /// How to go.
        pub enum Way {
            /// On foot,
            /// slowly.
            OnFoot = "on-foot",
            /// By train.
            #[default]
            Train = "train",
        }
    }

    #[test]
    fn a_word_is_spelled_alike_everywhere() {
        assert_eq!(Way::default().to_string(), "train");
        assert_eq!("on-foot".parse::<Way>().unwrap(), Way::OnFoot);
        assert_eq!(serde_json::json!(Way::OnFoot), "on-foot");
        assert_eq!(serde_json::from_str::<Way>("\"train\"").unwrap(), Way::Train);
        let error = "swim".parse::<Way>().unwrap_err().to_string();
        assert_eq!(error, "`swim` is none of on-foot, train");
        let help: Vec<&str> = Way::ALL.iter().map(|(_, _, help)| *help).collect();
        assert_eq!(help, [" On foot, slowly.", " By train."]);
    }
}
