//! The map of the crate is true: a room calls only rooms that stand before it.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// Rooms in the order of the table in `src/lib.rs`.
fn rooms(lib: &str) -> Vec<String> {
    let row = |line: &str| Some(line.strip_prefix("//! | [`")?.split_once('`')?.0.to_owned());
    lib.lines().filter_map(row).collect()
}

/// The room that a file belongs to: `src/ROOM.rs` or anything in `src/ROOM/`.
fn room_of(source: &Path, file: &Path) -> String {
    let inside = file.strip_prefix(source).expect("a file of the crate");
    let first = inside.components().next().expect("a name").as_os_str().to_string_lossy();
    first.trim_end_matches(".rs").to_owned()
}

fn files(dir: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(dir).expect("a directory").map(|e| e.expect("an entry").path());
    let (dirs, files): (Vec<_>, Vec<_>) = entries.partition(|path| path.is_dir());
    dirs.iter().flat_map(|dir| self::files(dir)).chain(files).collect()
}

/// Modules of the crate that code names; documentation may point anywhere.
fn named(text: &str) -> BTreeSet<String> {
    let code = text.lines().filter(|line| !line.trim_start().starts_with("//"));
    let code: String = code.collect::<Vec<_>>().join("\n");
    let word = |rest: &str| {
        rest.split(|c: char| !(c.is_alphanumeric() || c == '_')).next().map(str::to_owned)
    };
    let mut found: BTreeSet<String> = code.split("crate::").skip(1).filter_map(word).collect();
    for group in code.split("crate::{").skip(1) {
        let (group, _) = group.split_once("};").expect("a closed group");
        let mut depth = 0;
        let outer = group.chars().filter(|c| {
            depth += i32::from(*c == '{') - i32::from(*c == '}');
            depth == 0
        });
        found.extend(outer.collect::<String>().split(',').filter_map(|name| word(name.trim())));
    }
    found
}

#[test]
fn rooms_call_only_rooms_before_them() {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let lib = std::fs::read_to_string(source.join("lib.rs")).expect("lib.rs");
    let rooms = rooms(&lib);
    assert!(rooms.len() > 12 && rooms[0] == "graph", "{rooms:?}");
    for line in lib.lines().filter_map(|line| line.strip_prefix("pub mod ")) {
        let name = line.trim_end_matches(';').to_owned();
        let shared = ["profile", "progress", "random"].contains(&name.as_str());
        assert!(shared || rooms.contains(&name), "{name} is not on the map in lib.rs");
    }
    let place = |name: &str| rooms.iter().position(|room| room == name);
    let mut wrong = Vec::new();
    for file in files(&source) {
        let Some(here) = place(&room_of(&source, &file)) else { continue };
        let text = std::fs::read_to_string(&file).expect("a source file");
        for name in named(&text) {
            if place(&name).is_some_and(|there| there > here) {
                wrong.push(format!("{}: {name} stands after {}", file.display(), rooms[here]));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
