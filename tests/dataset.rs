//! The dataset file: what goes in comes out, and nothing damaged gets in.

use dgmrf::dataset::{Dataset, Features, Truth};
use dgmrf::graph::{EdgeList, Graph};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// A ring of `n` nodes with chords.
fn ring(n: u32, weighted: bool) -> Graph {
    let mut edges = if weighted { EdgeList::weighted() } else { EdgeList::unweighted() };
    for i in 0..n {
        edges.push(i, (i + 1) % n, 0.5 + f64::from(i));
        edges.push(i, (i + 3) % n, 2.0);
    }
    edges.into_graph(n as usize).unwrap().0
}

/// `parts` says what is there: w(eights), f(eatures), p(ositions), x, m(ean), s(td).
fn example(n: u32, parts: &str) -> Dataset {
    let has = |part| parts.contains(part);
    let column = |a: f64| (0..n).map(|i| a + (f64::from(i) * 0.7).sin()).collect::<Vec<_>>();
    let mut data = Dataset::new("example", ring(n, has('w')), column(0.0));
    for i in (0..n as usize).step_by(3) {
        data.observed[i] = false;
    }
    if has('n') {
        data.y[3] = f64::NAN;
        data.y[6] = f64::NAN;
    }
    if has('f') {
        let values = column(1.0).into_iter().chain(column(2.0)).collect();
        data.features = Some(Features { names: vec!["height".into(), "π of x".into()], values });
    }
    if has('p') {
        data.position = Some(column(3.0).into_iter().map(|x| [x, -x * x]).collect());
    }
    if parts.contains(['x', 'm', 's']) {
        data.truth = Some(Truth {
            x: has('x').then(|| column(4.0)),
            post_mean: has('m').then(|| column(5.0)),
            post_std: has('s').then(|| column(6.0)),
        });
    }
    data
}

fn listing(dir: &Path) -> BTreeSet<PathBuf> {
    std::fs::read_dir(dir).unwrap().map(|e| e.unwrap().path()).collect()
}

/// Equality that takes NaN for equal to NaN.
fn assert_same(a: &Dataset, b: &Dataset) {
    let bits = |v: &[f64]| v.iter().map(|x| x.to_bits()).collect::<Vec<_>>();
    assert_eq!(bits(&a.y), bits(&b.y));
    let without_y = |d: &Dataset| Dataset { y: Vec::new(), ..d.clone() };
    assert_eq!(without_y(a), without_y(b));
}

#[test]
fn what_is_written_is_read_back() {
    let dir = tempfile::tempdir().unwrap();
    // Sizes around the slab in which `observed` is converted.
    let cases = [(7, ""), (7, "w"), (30, "n"), (30, "f"), (30, "p"), (30, "x"), (30, "ms")]
        .into_iter()
        .chain([(30, "wnfpxms"), ((1 << 16) - 1, ""), (1 << 16, "p"), ((1 << 16) + 1, "wn")]);
    for (n, parts) in cases {
        let data = example(n, parts);
        let path = dir.path().join("not/yet/there.h5");
        data.write(&path).unwrap();
        let read = Dataset::read(&path).unwrap();
        assert_same(&data, &read);
        assert_eq!(read.hash(), data.hash());
        let header = Dataset::read_header(&path).unwrap();
        assert_eq!((header.name.as_str(), header.nodes), ("example", n as usize));
        assert_eq!((header.hash, header.graph_hash), (data.hash(), data.graph_hash()));
        assert_eq!(listing(path.parent().unwrap()), BTreeSet::from([path]), "{n} {parts}");
    }
}

#[test]
fn an_older_file_is_replaced() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("data.h5");
    std::fs::write(&path, "something else").unwrap();
    example(9, "f").write(&path).unwrap();
    example(8, "").write(&path).unwrap();
    assert_same(&Dataset::read(&path).unwrap(), &example(8, ""));
    assert_eq!(listing(dir.path()).len(), 1);
}

/// An edit of a dataset.
type Edit = fn(&mut Dataset);

#[test]
fn the_hash_sees_every_change_but_the_name() {
    let base = example(30, "wnfpxms");
    let edits: [(&str, Edit); 16] = [
        ("one y", |d| d.y[1] += 1e-15),
        ("the sign of zero", |d| d.y[2] = -0.0),
        ("y to zero", |d| d.y[2] = 0.0),
        ("NaN for a number", |d| d.y[9] = f64::NAN),
        ("the mask", |d| d.observed[1] = false),
        ("a feature", |d| d.features.as_mut().unwrap().values[5] += 1.0),
        ("a feature name", |d| d.features.as_mut().unwrap().names[0].push('s')),
        ("no features", |d| d.features = None),
        ("a position", |d| d.position.as_mut().unwrap()[3][1] += 1.0),
        ("no positions", |d| d.position = None),
        ("a true value", |d| d.truth.as_mut().unwrap().x.as_mut().unwrap()[0] += 1.0),
        ("no true field", |d| d.truth.as_mut().unwrap().x = None),
        ("mean and std exchanged", |d| {
            let truth = d.truth.as_mut().unwrap();
            std::mem::swap(&mut truth.post_mean, &mut truth.post_std);
        }),
        ("no truth", |d| d.truth = None),
        ("no weights", |d| d.graph = d.graph.clone().without_weights()),
        ("a weight", |d| {
            let mut edges = EdgeList::weighted();
            d.graph.edge_iter().for_each(|(a, b, w)| edges.push(a, b, w + f64::from(a == 4)));
            d.graph = edges.into_graph(30).unwrap().0;
        }),
    ];
    let mut seen = BTreeSet::from([base.hash()]);
    for (what, edit) in edits {
        let mut other = base.clone();
        edit(&mut other);
        assert!(seen.insert(other.hash()), "the hash does not see: {what}");
        let of_graph = what.contains("weight");
        assert_eq!(other.graph_hash() != base.graph_hash(), of_graph, "{what}");
    }
    let renamed = Dataset { name: "other".into(), ..base.clone() };
    assert_eq!(renamed.hash(), base.hash());
    assert_ne!(base.hash(), base.graph_hash());
}

/// The layout of the byte stream is a promise (docs/formats.md): this value came out of the
/// Python snippet there.
#[test]
fn the_hash_is_the_documented_one() {
    let data = example_of_the_docs();
    assert_eq!(data.hash(), HASH_OF_THE_DOCS);
    assert_eq!(data.graph_hash(), GRAPH_HASH_OF_THE_DOCS);
}

const HASH_OF_THE_DOCS: &str = "29236ce02508d2267e470e362fa1103541323d429e8c140b96ad9f1bd57a098a";
const GRAPH_HASH_OF_THE_DOCS: &str =
    "73ab014dea243496ec1da1762e316b62fe1cb137faa457fc25c4b05a3bd8a098";

fn example_of_the_docs() -> Dataset {
    let mut edges = EdgeList::weighted();
    for (a, b, w) in [(0, 1, 1.0), (1, 2, 0.5), (2, 0, 2.0), (2, 3, 1.0)] {
        edges.push(a, b, w);
    }
    let graph = edges.into_graph(4).unwrap().0;
    let mut data = Dataset::new("docs", graph, vec![1.0, 2.0, 4.0, 8.0]);
    data.observed[3] = false;
    data.features = Some(Features { names: vec!["a".into(), "b".into()], values: vec![0.5; 8] });
    data.position = Some(vec![[0.0, 0.0], [1.0, 0.0], [0.0, 1.0], [1.0, 1.0]]);
    data.truth = Some(Truth { x: Some(vec![1.5, 2.5, 3.5, 7.5]), ..Truth::default() });
    data
}

/// Makes a file from a good one.
type Damage = fn(&Path);

fn edit(path: &Path, edit: impl FnOnce(&hdf5::File) -> hdf5::Result<()>) {
    let file = hdf5::File::open_rw(path).unwrap();
    edit(&file).unwrap();
    file.close().unwrap();
}

/// Puts other values in the place of an array.
fn replace<T: hdf5::H5Type>(path: &Path, name: &str, values: &[T]) {
    edit(path, |file| {
        file.unlink(name)?;
        file.new_dataset::<T>().shape(values.len()).create(name)?.write_raw(values)
    });
}

fn truncate(path: &Path, keep: f64) {
    let length = std::fs::metadata(path).unwrap().len() as f64;
    std::fs::File::options()
        .write(true)
        .open(path)
        .unwrap()
        .set_len((length * keep) as u64)
        .unwrap();
}

#[test]
fn files_that_are_no_good_dataset_are_refused_by_name() {
    let cases: [(&str, Damage, &str); 21] = [
        ("missing", |p| std::fs::remove_file(p).unwrap(), "No such file"),
        ("empty", |p| std::fs::write(p, "").unwrap(), "the file is empty"),
        ("text", |p| std::fs::write(p, "id,y\n0,1\n").unwrap(), "not a readable HDF5 file"),
        ("cut in half", |p| truncate(p, 0.5), "truncated"),
        ("last byte gone", |p| truncate(p, 0.9999), "truncated"),
        ("only the start", |p| truncate(p, 0.01), "truncated"),
        (
            "directory",
            |p| std::fs::remove_file(p).and_then(|()| std::fs::create_dir(p)).unwrap(),
            "this is a directory",
        ),
        (
            "other HDF5",
            |p| hdf5::File::create(p).and_then(|f| f.close()).unwrap(),
            "not a dgmrf dataset",
        ),
        ("no format", |p| edit(p, |f| f.delete_attr("format")), "not a dgmrf dataset"),
        (
            "newer version",
            |p| edit(p, |f| f.attr("version")?.write_scalar(&2u32)),
            "version 2; this program reads version 1",
        ),
        ("no version", |p| edit(p, |f| f.delete_attr("version")), "attribute version"),
        ("no hash", |p| edit(p, |f| f.delete_attr("hash")), "attribute hash"),
        ("no graph", |p| edit(p, |f| f.unlink("graph")), "graph"),
        ("no nodes", |p| edit(p, |f| f.unlink("nodes")), "/nodes"),
        ("no y", |p| edit(p, |f| f.unlink("nodes/y")), "/nodes/y"),
        ("short y", |p| replace(p, "nodes/y", &[1.0; 29]), "`y` has 29 values for 30 nodes"),
        (
            "text for y",
            |p| replace(p, "nodes/y", &[hdf5::types::FixedAscii::<4>::new(); 30]),
            "/nodes/y",
        ),
        ("all visible", |p| replace(p, "nodes/observed", &[1u8; 30]), "is observed but"),
        ("none visible", |p| replace(p, "nodes/observed", &[0u8; 30]), "no node is observed"),
        ("flat positions", |p| replace(p, "nodes/position", &[0.0; 60]), "is not [nodes, 2]"),
        ("other y", |p| replace(p, "nodes/y", &[1.0; 30]), "do not match the hash"),
    ];
    for (what, damage, expected) in cases {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("data.h5");
        example(30, "wnfpxms").write(&path).unwrap();
        damage(&path);
        let before = listing(dir.path());
        let error = Dataset::read(&path).expect_err(what).to_string();
        assert!(error.starts_with(path.to_str().unwrap()), "{what}: {error}");
        assert!(error.contains(expected), "{what}: no `{expected}` in: {error}");
        assert_eq!(listing(dir.path()), before, "{what}");
    }
}

#[test]
fn one_flipped_bit_in_any_array_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("data.h5");
    example(30, "wnfpxms").write(&path).unwrap();
    let good = std::fs::read(&path).unwrap();
    let arrays = [
        "graph/indptr",
        "graph/indices",
        "graph/weights",
        "nodes/y",
        "nodes/observed",
        "nodes/features",
        "nodes/position",
        "truth/x",
        "truth/post_mean",
        "truth/post_std",
    ];
    for array in arrays {
        let (offset, bytes) = {
            let file = hdf5::File::open(&path).unwrap();
            let data = file.dataset(array).unwrap();
            (data.offset().unwrap() as usize, data.storage_size() as usize)
        };
        for at in [0, bytes / 2, bytes - 1] {
            let mut bad = good.clone();
            bad[offset + at] ^= 1;
            let file = dir.path().join("bad.h5");
            std::fs::write(&file, bad).unwrap();
            assert!(Dataset::read(&file).is_err(), "{array}, byte {at}");
        }
    }
}

#[test]
fn output_that_cannot_be_written_leaves_nothing_behind() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("file"), "text").unwrap();
    std::fs::create_dir(dir.path().join("directory")).unwrap();
    let before = listing(dir.path());
    for output in ["file/data.h5", "directory", "/proc/no-such/data.h5", "/dev/null/data.h5"] {
        let path = dir.path().join(output);
        let error = example(30, "").write(&path).expect_err(output).to_string();
        assert!(error.contains(path.parent().unwrap().to_str().unwrap()), "{output}: {error}");
    }
    let nul = Dataset { name: "a\0b".into(), ..example(30, "") };
    assert!(nul.write(&dir.path().join("nul.h5")).is_err());
    assert_eq!(listing(dir.path()), before);
    assert_eq!(listing(&dir.path().join("directory")), BTreeSet::new());
}

/// Root may read anything, so this speaks only where tests run as a user.
#[cfg(unix)]
#[test]
fn files_without_permission_are_refused() {
    use std::os::unix::fs::PermissionsExt;
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("data.h5");
    example(30, "").write(&path).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o000)).unwrap();
    if std::fs::File::open(&path).is_err() {
        let error = Dataset::read(&path).unwrap_err().to_string();
        assert!(error.contains("Permission denied"), "{error}");
    }
}

/// A full disk, played by a limit on the size of files in a child process.
#[cfg(unix)]
#[test]
fn a_full_disk_is_an_error_and_leaves_nothing_behind() {
    const CHILD: &str = "DGMRF_TEST_FULL_DISK";
    if let Some(dir) = std::env::var_os(CHILD) {
        let path = Path::new(&dir).join("data.h5");
        let error = example(100_000, "wp").write(&path).unwrap_err().to_string();
        assert!(error.contains("is the disk full?"), "{error}");
        assert_eq!(listing(Path::new(&dir)), BTreeSet::new());
        println!("refused as it should be");
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let name = "a_full_disk_is_an_error_and_leaves_nothing_behind";
    let child = std::process::Command::new("sh")
        // An ignored signal stays ignored through exec: writes fail with EFBIG instead.
        .args(["-c", "trap '' XFSZ; ulimit -f 64; exec \"$0\" --exact \"$1\" --nocapture"])
        .arg(std::env::current_exe().unwrap())
        .arg(name)
        .env(CHILD, dir.path())
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&child.stdout);
    assert!(child.status.success(), "{text}{}", String::from_utf8_lossy(&child.stderr));
    assert!(text.contains("refused as it should be"), "{text}");
    assert_eq!(listing(dir.path()), BTreeSet::new());
}

/// Ten million nodes: `cargo test --release --test dataset -- --ignored --nocapture memory`.
#[cfg(target_os = "linux")]
#[test]
#[ignore = "needs 4 GB of disk and some time; prints the peak memory of reading and writing"]
fn memory_of_ten_million_nodes() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("mesh.h5");
    for weighted in [false, true] {
        let data = mesh(3163, 3163, weighted);
        let n = data.nodes();
        // y, positions, one array of truth, the mask.
        let copy = data.graph.bytes() + n * (8 + 16 + 8 + 1);
        let before = peak_memory(true);
        let start = std::time::Instant::now();
        data.write(&path).unwrap();
        let writing = copy + peak_memory(false).saturating_sub(before);
        println!(
            "write {n} nodes, {:.1} s: {:.3} copies",
            start.elapsed().as_secs_f64(),
            writing as f64 / copy as f64
        );
        drop(data);
        let before = peak_memory(true);
        let start = std::time::Instant::now();
        let data = Dataset::read(&path).unwrap();
        let reading = peak_memory(false).saturating_sub(before);
        println!(
            "read {n} nodes, {:.1} s: {:.3} copies ({} MB of {} MB)",
            start.elapsed().as_secs_f64(),
            reading as f64 / copy as f64,
            reading >> 20,
            copy >> 20
        );
        assert_eq!(data.nodes(), n);
        assert!(writing as f64 <= 1.1 * copy as f64);
        assert!(reading as f64 <= 1.3 * copy as f64);
    }
}

/// A triangulated grid, made without an edge list.
#[cfg(target_os = "linux")]
fn mesh(width: usize, height: usize, weighted: bool) -> Dataset {
    let (n, w) = (width * height, width as i64);
    let mut indptr = Vec::with_capacity(n + 1);
    let mut indices = Vec::with_capacity(6 * n);
    indptr.push(0u64);
    for i in 0..n as i64 {
        let (x, y) = (i % w, i / w);
        for (dx, dy) in [(-1, -1), (0, -1), (-1, 0), (1, 0), (0, 1), (1, 1)] {
            let (p, q) = (x + dx, y + dy);
            if (0..w).contains(&p) && (0..height as i64).contains(&q) {
                indices.push((q * w + p) as u32);
            }
        }
        indptr.push(indices.len() as u64);
    }
    let weights = weighted.then(|| vec![1.5; indices.len()]);
    let graph = Graph::from_csr(indptr, indices, weights).unwrap();
    let mut data = Dataset::new("mesh", graph, (0..n).map(|i| i as f64).collect());
    data.position = Some((0..n).map(|i| [(i % width) as f64, (i / width) as f64]).collect());
    data.truth = Some(Truth { x: Some(data.y.clone()), ..Truth::default() });
    data
}

/// Peak resident bytes since the last reset; resets it to the present size if asked to.
#[cfg(target_os = "linux")]
fn peak_memory(reset: bool) -> usize {
    if reset {
        std::fs::write("/proc/self/clear_refs", "5").unwrap();
    }
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|l| l.starts_with("VmHWM")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<usize>().unwrap() << 10
}
