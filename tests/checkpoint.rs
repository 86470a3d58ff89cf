//! Checkpoints: bit for bit through any number of ranks, and never half of one.

mod support;

use dgmrf::checkpoint::{self, Fingerprint, State};
use dgmrf::comm::World;
use dgmrf::partition::{self, Part, Partition, order::Order};
use std::path::{Path, PathBuf};
use support::{graphs, on_ranks};

const NODES: usize = 60;

fn part(world: &World) -> Part {
    let graph = graphs::random(NODES, 50, false, 1);
    let owner = partition::divide(&graph, world.size(), &Default::default()).unwrap();
    Partition::new(&graph, owner, world.size(), Order::Locality).unwrap().part(world.rank())
}

/// Values that only survive if every bit does, as a function of the node.
fn value(id: u32, step: u64) -> f64 {
    [f64::MIN_POSITIVE, -0.0, 0.1, 1.0 / 3.0, f64::MAX, 5e-324][(id as usize + step as usize) % 6]
        * (1.0 + f64::from(id) * 1e-16)
}

fn state(part: &Part, step: u64) -> State {
    let field = |shift: u64| part.owned_ids().iter().map(|&id| value(id, step + shift)).collect();
    State {
        step,
        numbers: [("theta".to_owned(), vec![0.1, -1e-310, step as f64]), ("empty".into(), vec![])]
            .into(),
        fields: [("nu".to_owned(), field(0)), ("adam m".to_owned(), field(1))].into(),
    }
}

fn fingerprint() -> Fingerprint {
    [("dataset".to_owned(), "abc".to_owned())].into()
}

/// Equal including the sign of zero.
fn same(a: &State, b: &State) -> bool {
    let bits = |s: &State| -> Vec<(String, Vec<u64>)> {
        let all = s.numbers.iter().chain(&s.fields);
        all.map(|(k, v)| (k.clone(), v.iter().map(|v| v.to_bits()).collect())).collect()
    };
    a.step == b.step && bits(a) == bits(b)
}

/// A directory that all worlds of one test share.
fn shared() -> PathBuf {
    let result = std::env::var_os("DGMRF_TEST_RESULT").expect("set by on_ranks");
    Path::new(&result).parent().unwrap().join("checkpoints")
}

#[test]
fn any_number_of_ranks_reads_what_another_wrote() {
    // Every world finds the checkpoint of the one before and leaves its own.
    let test = "any_number_of_ranks_reads_what_another_wrote";
    for ranks in [[2, 3, 1], [1, 4, 2]] {
        on_ranks(test, &ranks, |world| {
            let (part, dir) = (part(world), shared());
            let before = checkpoint::latest(world, &dir, &part).unwrap();
            let step = before.as_ref().map_or(0, |loaded| loaded.state.step);
            if let Some(loaded) = before {
                assert!(same(&loaded.state, &state(&part, step)));
                assert_eq!(loaded.fingerprint, fingerprint());
                assert_ne!(loaded.ranks, world.size());
            }
            checkpoint::save(world, &dir, &part, &fingerprint(), &state(&part, step + 7)).unwrap();
            // And its own, straight from the shard.
            let again = checkpoint::latest(world, &dir, &part).unwrap().unwrap();
            assert!(same(&again.state, &state(&part, step + 7)) && again.ranks == world.size());
            Vec::new()
        });
    }
}

fn steps(dir: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(dir).unwrap();
    let mut names: Vec<String> =
        entries.map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[test]
fn the_last_two_are_kept_and_the_previous_one_serves_where_the_last_is_damaged() {
    let world = World::solo();
    let (part, temporary) = (part(&world), tempfile::tempdir().unwrap());
    let dir = temporary.path().join("checkpoints");
    assert!(checkpoint::latest(&world, &dir, &part).unwrap().is_none());
    for step in [10, 20, 30] {
        checkpoint::save(&world, &dir, &part, &fingerprint(), &state(&part, step)).unwrap();
    }
    assert_eq!(steps(&dir), ["step-000000020", "step-000000030"]);
    let latest = |dir: &Path| checkpoint::latest(&world, dir, &part).unwrap().map(|l| l.state.step);
    assert_eq!(latest(&dir), Some(30));

    // One flipped byte is found before HDF5 sees the file.
    let shard = dir.join("step-000000030/shard-0000.h5");
    let mut bytes = std::fs::read(&shard).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    std::fs::write(&shard, &bytes).unwrap();
    let error = checkpoint::load(&world, &dir.join("step-000000030"), &part).unwrap_err();
    assert!(error.to_string().contains("damaged"), "{error}");
    assert_eq!(latest(&dir), Some(20));

    // A directory without a manifest was being written when the run died.
    std::fs::create_dir(dir.join("step-000000040")).unwrap();
    std::fs::write(dir.join("step-000000040/shard-0000.h5"), "half").unwrap();
    assert_eq!(latest(&dir), Some(20));

    // Going on from 20 leaves nothing of the future that was not continued.
    checkpoint::save(&world, &dir, &part, &fingerprint(), &state(&part, 25)).unwrap();
    assert_eq!(steps(&dir), ["step-000000020", "step-000000025"]);
}

#[test]
fn what_cannot_be_read_says_why() {
    let world = World::solo();
    let (part, temporary) = (part(&world), tempfile::tempdir().unwrap());
    let dir = temporary.path();
    let path = checkpoint::save(&world, dir, &part, &fingerprint(), &state(&part, 1)).unwrap();
    let manifest = path.join("manifest.json");
    let text = std::fs::read_to_string(&manifest).unwrap();
    let cases = [
        (text.replace("\"version\": 1", "\"version\": 2"), "version 2"),
        (text.replace("\"nodes\": 60", "\"nodes\": 61"), "a checkpoint of 61 nodes"),
        (text.replace("shards", "shard"), "manifest.json:"),
        (String::new(), "manifest.json"),
    ];
    for (text, expected) in cases {
        std::fs::write(&manifest, text).unwrap();
        let error = checkpoint::load(&world, &path, &part).unwrap_err().to_string();
        assert!(error.contains(expected), "no `{expected}` in: {error}");
    }
    let blocked = dir.join("file");
    std::fs::write(&blocked, "").unwrap();
    let error =
        checkpoint::save(&world, &blocked, &part, &fingerprint(), &state(&part, 2)).unwrap_err();
    assert!(error.to_string().contains("file"), "{error}");
}
