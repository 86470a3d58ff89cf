//! Some of the nodes of a graph, in words: `0,17,100-120`, or a file with one such word per line.

use crate::error::{Error, Result, WithPath};
use std::path::Path;

/// The nodes that `words` name in a graph of `nodes` nodes, ascending, each once.
///
/// ```
/// assert_eq!(dgmrf::run::parse_nodes("7,2-4,3", 10)?, [2, 3, 4, 7]);
/// assert!(dgmrf::run::parse_nodes("7,10", 10).is_err());
/// # Ok::<(), dgmrf::Error>(())
/// ```
pub fn parse_nodes(words: &str, nodes: usize) -> Result<Vec<u32>> {
    let path = Path::new(words);
    let text = if path.is_file() {
        std::fs::read_to_string(path).with_path(path, "")?
    } else {
        words.to_owned()
    };
    let mut ids = Vec::new();
    for word in text.split([',', '\n']).map(str::trim).filter(|w| !w.is_empty()) {
        let (from, to) = word.split_once('-').unwrap_or((word, word));
        let range = from.trim().parse::<u32>().ok().zip(to.trim().parse::<u32>().ok());
        let Some((from, to)) = range.filter(|(from, to)| from <= to) else {
            let why = "is neither an id, nor a range of ids, nor a file of them";
            return Err(Error::Setting(format!("--nodes: `{word}` {why}")));
        };
        if to as usize >= nodes {
            return Err(Error::Setting(format!("--nodes: {to} is not below {nodes}, the nodes")));
        }
        ids.extend(from..=to);
    }
    if ids.is_empty() {
        return Err(Error::Setting("--nodes: no node".into()));
    }
    ids.sort_unstable();
    ids.dedup();
    Ok(ids)
}
