//! The exponent `γ` of the degree, and how it is written in settings and files.

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Whether `γ` is a parameter. Written as `"free"` or a number.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub enum Gamma {
    /// Learned, `γ = sigmoid θ₃`.
    #[default]
    Free,
    /// One given value for every layer, in `[0, 1]`.
    Fixed(f64),
}

impl Serialize for Gamma {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Gamma::Free => serializer.serialize_str("free"),
            Gamma::Fixed(value) => serializer.serialize_f64(*value),
        }
    }
}

impl<'de> Deserialize<'de> for Gamma {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visitor;
        impl serde::de::Visitor<'_> for Visitor {
            type Value = Gamma;
            fn expecting(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
                f.write_str("\"free\" or a number")
            }
            fn visit_str<E: serde::de::Error>(self, word: &str) -> Result<Gamma, E> {
                match word {
                    "free" => Ok(Gamma::Free),
                    _ => Err(E::invalid_value(serde::de::Unexpected::Str(word), &self)),
                }
            }
            fn visit_i64<E>(self, value: i64) -> Result<Gamma, E> {
                Ok(Gamma::Fixed(value as f64))
            }
            fn visit_u64<E>(self, value: u64) -> Result<Gamma, E> {
                Ok(Gamma::Fixed(value as f64))
            }
            fn visit_f64<E>(self, value: f64) -> Result<Gamma, E> {
                Ok(Gamma::Fixed(value))
            }
        }
        deserializer.deserialize_any(Visitor)
    }
}
