//! Bad input: exit code 1, a message with file and line, and nothing left behind.

use crate::Workplace;

const NODES: &str = "id,y,observed\n0,1.5,1\n1,2.5,0\n2,3.5,1\n";
const EDGES: &str = "src,dst,weight\n0,1,1\n1,2,2\n";
const VALUES: &str = "0 1\n1 2\n2 3\n";
const MATRIX: &str = "%%MatrixMarket matrix coordinate real symmetric\n3 3 2\n2 1 0.5\n3 2 2\n";
const POINTS: &str = "pos_x,pos_y,y\n0,0,1\n1,0,2\n0,1,3\n";
const HOUSE: &str = "-122.23,37.88,41,880,129,322,126,8.3252,452600\n";

const CSV: &str = "csv --nodes nodes.csv --edges edges.csv";
const TRUTH: &str = "csv --nodes nodes.csv --edges edges.csv --truth truth.csv";
const EDGELIST: &str = "edgelist --edges edges.txt --values values.txt";
const MARKET: &str = "matrix-market --matrix m.mtx --values values.txt";
const MUSAE: &str = "musae --edges e.csv --target t.csv";
const PTS: &str = "points --input p.csv";
const CALIFORNIA: &str = "california --input c.data";

/// Writes good files except for the given ones, imports, and expects the message.
fn refuses(words: &str, changed: &[(&str, &str)], message: &str) {
    let mut files = vec![
        ("nodes.csv", NODES),
        ("edges.csv", EDGES),
        ("truth.csv", "id,x,post_mean,post_std\n0,1,1,1\n1,1,1,1\n2,1,1,1\n"),
        ("edges.txt", "0 1\n1 2\n"),
        ("values.txt", VALUES),
        ("m.mtx", MATRIX),
        ("e.csv", "id1,id2\n0,1\n1,2\n"),
        ("t.csv", "id,target\n0,10\n1,20\n2,30\n"),
        ("p.csv", POINTS),
        ("c.data", HOUSE),
    ];
    // The format's own reader of values differs: one value per line.
    if words == MARKET {
        files.push(("values.txt", "1\n2\n3\n"));
    }
    files.extend(changed);
    let place = Workplace::new(&files);
    let before = place.files();
    let outcome = place.import(&format!("{words} -o out.h5"));
    assert_eq!(outcome.code, Some(1), "{words} {changed:?}\n{}", outcome.stderr);
    assert!(outcome.stderr.contains(message), "expected `{message}`, got {}", outcome.stderr);
    assert!(outcome.stdout.is_empty(), "{}", outcome.stdout);
    assert_eq!(place.files(), before, "something was left behind");
}

/// One bad file at a time.
fn each_refused(words: &str, file: &str, cases: &[(&str, &str)]) {
    for (contents, message) in cases {
        refuses(words, &[(file, contents)], message);
    }
}

#[test]
fn missing_files() {
    for (words, missing) in [
        ("csv --nodes no.csv --edges edges.csv", "no.csv"),
        ("csv --nodes nodes.csv --edges no.csv", "no.csv"),
        ("csv --nodes nodes.csv --edges edges.csv --truth no.csv", "no.csv"),
        ("edgelist --edges no.txt --values values.txt", "no.txt"),
        ("edgelist --edges edges.txt --values no.txt", "no.txt"),
        ("matrix-market --matrix no.mtx --values values.txt", "no.mtx"),
        ("points --input no.csv", "no.csv"),
        ("musae --edges no.csv --target t.csv", "no.csv"),
        ("california --input no.data", "no.data"),
    ] {
        refuses(words, &[], &format!("{missing}: No such file"));
    }
    refuses("points --input .", &[], ".: this is a directory");
}

#[test]
fn empty_files_and_compressed_files() {
    for (words, file) in [
        (CSV, "nodes.csv"),
        (CSV, "edges.csv"),
        (TRUTH, "truth.csv"),
        (EDGELIST, "edges.txt"),
        (EDGELIST, "values.txt"),
        (MARKET, "m.mtx"),
        (MUSAE, "e.csv"),
        (MUSAE, "t.csv"),
        (PTS, "p.csv"),
        (CALIFORNIA, "c.data"),
    ] {
        refuses(words, &[(file, "")], &format!("{file}: the file is empty"));
        // Something that is no text of any of the formats.
        refuses(words, &[(file, "\u{1f}\n")], file);
    }
    let place = Workplace::new(&[("values.txt", VALUES)]);
    std::fs::write(place.path("edges.txt"), b"\x1f\x8b\x08\x00").unwrap();
    assert!(place.import(&format!("{EDGELIST} -o out.h5")).stderr.contains("run gunzip"));
}

#[test]
fn nodes_csv() {
    each_refused(
        CSV,
        "nodes.csv",
        &[
            ("id,y,observed\n", "nodes.csv: there are no rows"),
            ("id,observed\n0,1\n", "nodes.csv:1: column `y` is missing"),
            ("y,observed\n0,1\n", "nodes.csv:1: column `id` is missing"),
            ("id,y\n0,1\n", "nodes.csv:1: column `observed` is missing"),
            ("id,y,observed,pos_x\n0,1,1,0\n", "nodes.csv:1: column `pos_y` is missing"),
            (
                "id,y,observed,extra\n0,1,1,1\n",
                "nodes.csv:1: unknown column `extra`; valid columns are id, y, observed, pos_x, \
                 pos_y, feat_*\n",
            ),
            ("id,y,observed,y\n0,1,1,1\n", "nodes.csv:1: column `y` appears twice"),
            ("id,y,observed\n0,1,1\n1,two,1\n2,3,1\n", "nodes.csv:3: y `two` is not a number"),
            ("id,y,observed\n0,1,1\n1,inf,1\n2,3,1\n", "nodes.csv:3: y `inf` is not a finite"),
            ("id,y,observed\n0,1,1\n\nx,1,1\n2,3,1\n", "nodes.csv:4: id `x` is not a whole number"),
            ("id,y,observed\n0,1,1\n1,1,2\n2,3,1\n", "nodes.csv:3: observed `2` is neither"),
            ("id,y,observed\n0,1,1\n1,1\n2,3,1\n", "nodes.csv:3: 2 fields where 3 are expected"),
            ("id,y,observed\n0,1,1\n1,,1\n2,3,1\n", "nodes.csv:3: the node is observed but"),
            (
                "id,y,observed,feat_a\n0,1,1,1\n1,1,1,nan\n2,3,1,1\n",
                "nodes.csv:3: feat_a `nan` is not a finite number",
            ),
            ("id,y,observed\n0,1,1\n3,1,1\n2,3,1\n", "nodes.csv:3: node id 3 is outside 0..=2"),
            ("id,y,observed\n0,1,1\n-1,1,1\n2,3,1\n", "nodes.csv:3: node id -1 is outside 0..=2"),
            (
                "id,y,observed\n0,1,1\n1,1,1\n0,3,1\n",
                "nodes.csv:4: node id 0 appears twice, first on line 2",
            ),
            (
                "id,y,observed\n3,1,1\n0,1,1\n1,1,1\n2,3,1\n",
                "nodes.csv:2: node 3 is isolated: no edge of edges.csv reaches it",
            ),
            ("id,y,observed\n0,1,0\n1,1,0\n2,3,0\n", "nodes.csv: no node is observed"),
        ],
    );
}

#[test]
fn edges_csv() {
    each_refused(
        CSV,
        "edges.csv",
        &[
            ("src,dst\n", "edges.csv: there are no edges"),
            ("src,target\n0,1\n", "edges.csv:1: column `dst` is missing"),
            ("src,dst,w\n0,1,1\n", "edges.csv:1: unknown column `w`; valid columns are src, dst"),
            ("src,dst\n0,1\na,2\n", "edges.csv:3: src `a` is not a whole number"),
            ("src,dst\n0,1\n1,3\n", "edges.csv:3: dst `3` is outside the nodes 0..=2"),
            ("src,dst\n0,1\n-1,2\n", "edges.csv:3: src `-1` is outside the nodes 0..=2"),
            ("src,dst,weight\n0,1,1\n1,2,x\n", "edges.csv:3: weight `x` is not a number"),
            ("src,dst,weight\n0,1,1\n1,2,\n", "edges.csv:3: weight `` is not a number"),
            ("src,dst,weight\n0,1,1\n1,2,nan\n", "edges.csv:3: weight `nan` must be a positive"),
            ("src,dst,weight\n0,1,1\n1,2,-1\n", "edges.csv:3: weight `-1` must be a positive"),
            ("src,dst,weight\n0,1,1\n1,2,0\n", "edges.csv:3: weight `0` must be a positive"),
            ("src,dst,weight\n0,1,1\n1,2,inf\n", "edges.csv:3: weight `inf` must be a positive"),
            ("src,dst\r\n0,1\r\n\r\n1,3\r\n", "edges.csv:4: dst `3`"),
            ("src,dst\n0,1\n2,2\n", "nodes.csv:4: node 2 is isolated"),
        ],
    );
}

#[test]
fn truth_csv() {
    each_refused(
        TRUTH,
        "truth.csv",
        &[
            ("id,x\n", "truth.csv: there are no rows"),
            ("id\n0\n1\n2\n", "truth.csv:1: none of the columns x, post_mean, post_std"),
            ("id,mean\n0,1\n", "truth.csv:1: unknown column `mean`"),
            ("id,x\n0,1\n1,1\n3,1\n", "truth.csv:4: node id 3 is outside 0..=2"),
            ("id,x\n0,1\n1,1\n", "truth.csv: there is no row for node 2"),
            ("id,x\n0,1\n1,1\n2,nan\n", "truth.csv:4: x `nan` is not a finite number"),
        ],
    );
}

#[test]
fn edge_lists() {
    each_refused(
        EDGELIST,
        "edges.txt",
        &[
            ("# only\n% comments\n", "edges.txt: there are no edges"),
            ("# c\n0 1\n1 2 3\n", "edges.txt:3: expected `a b`"),
            ("0 1 1\n1 2\n", "edges.txt:2: expected `a b weight`"),
            ("0 1\n1 b\n", "edges.txt:2: node id `b` is not a whole number"),
            ("0 1 1\n1 2 0\n", "edges.txt:2: weight `0` must be a positive"),
            ("0 1 1\n1 2 nan\n", "edges.txt:2: weight `nan` must be a positive"),
            ("0 1\n2 2\n", "values.txt:3: node 2 is isolated"),
            ("0 1\n", "values.txt:3: node 2 is isolated"),
        ],
    );
    each_refused(
        EDGELIST,
        "values.txt",
        &[
            ("id,value\n", "values.txt: there are no values"),
            ("node,value\n0,1\n", "values.txt:1: expected `id value` or the header"),
            ("0 1\n1 x\n", "values.txt:2: value `x` is not a number"),
            ("0 1\n1\n", "values.txt:2: expected `id value`"),
            ("0 1\n1 2\n0 3\n", "values.txt:3: node id 0 appears twice, first on line 1"),
            ("0 nan\n", "values.txt: no node is observed"),
        ],
    );
    refuses(&format!("{EDGELIST} --node-map edges.txt/map"), &[], "edges.txt/map: Not a directory");
    refuses(&format!("{EDGELIST} --node-map map --mask-fraction 2"), &[], "mask fraction 2");
}

#[test]
fn matrix_market() {
    const HEAD: &str = "%%MatrixMarket matrix coordinate real symmetric\n% c\n";
    let with = |rest: &str| format!("{HEAD}{rest}");
    for (contents, message) in [
        ("3 3 2\n".into(), "m.mtx:1: expected `%%MatrixMarket matrix coordinate"),
        (HEAD.replace("coordinate", "array"), "m.mtx:1: layout `array`: `coordinate` is needed"),
        (HEAD.replace("real", "complex"), "m.mtx:1: entries `complex`"),
        (HEAD.replace("symmetric", "hermitian"), "m.mtx:1: symmetry `hermitian`"),
        (with(""), "m.mtx:2: the size line"),
        (with("3 3\n"), "m.mtx:3: expected `rows columns entries`"),
        (with("3 4 2\n"), "m.mtx:3: a 3 x 4 matrix is no graph"),
        (with("3 3 x\n"), "m.mtx:3: size `x` is not a whole number"),
        (with("3 3 0\n"), "m.mtx: the matrix has no entries"),
        (with("3 3 2\n2 1 1\n"), "m.mtx:4: the file ends after 1 of 2 entries"),
        (with("3 3 1\n2 1 1\n3 2 1\n"), "m.mtx:5: more than the 1 entries"),
        (with("3 3 2\n2 1 1\n4 2 1\n"), "m.mtx:5: row 4 is outside 1..=3"),
        (with("3 3 2\n2 1 1\n3 0 1\n"), "m.mtx:5: column 0 is outside 1..=3"),
        (with("3 3 2\n2 1 1\n3 2 -1\n"), "m.mtx:5: weight `-1` must be a positive"),
        (with("3 3 2\n2 1 1\n3 2 0.0\n"), "m.mtx:5: weight `0.0` must be a positive"),
        (with("3 3 2\n2 1 1\n3 2\n"), "m.mtx:5: expected `row column entry`"),
        (with("3 3 1\n2 1 1\n"), "values.txt:3: node 3 is isolated"),
    ] {
        refuses(MARKET, &[("m.mtx", &contents)], message);
    }
    each_refused(
        MARKET,
        "values.txt",
        &[
            ("1\n2\n", "values.txt: 2 values for the 3 nodes"),
            ("1\n2\n3\n4\n", "values.txt:4: more values than the 3 nodes"),
            ("1\ny\n3\n", "values.txt:2: value `y` is not a number"),
            (
                "%%MatrixMarket matrix array real general\n2 1\n1\n2\n",
                "values.txt:2: the values are 2 x 1, the matrix needs 3 x 1",
            ),
        ],
    );
}

#[test]
fn points_musae_and_california() {
    each_refused(
        PTS,
        "p.csv",
        &[
            ("pos_x,pos_y,y\n", "p.csv: there are no points"),
            ("pos_x,y\n0,1\n", "p.csv:1: column `pos_y` is missing"),
            ("pos_x,pos_y,y\n0,0,1\n1,nan,2\n", "p.csv:3: pos_y `nan` is not a finite number"),
            ("pos_x,pos_y,y\n0,0,1\n1,1,2\n", "p.csv: a triangulation needs at least 3 points"),
            ("pos_x,pos_y,y\n0,0,1\n1,1,2\n2,2,3\n", "p.csv: all points lie on one line"),
            ("pos_x,pos_y,y\n0,0,\n1,0,\n0,1,\n", "p.csv: no node is observed"),
        ],
    );
    refuses(
        "points --input p.csv --project",
        &[("p.csv", "pos_x,pos_y,y\n37,-122,1\n")],
        "p.csv:2: latitude `-122` is outside",
    );
    refuses("points --input p.csv --features h", &[], "p.csv:1: column `h` is missing");
    refuses("points --input p.csv --epsilon 0", &[], "--epsilon 0 must be positive");
    refuses(MUSAE, &[("t.csv", "id,target\n0,1\n1,0\n")], "t.csv:3: target 0 has no logarithm");
    refuses(MUSAE, &[("t.csv", "id,y\n0,1\n")], "t.csv:1: unknown column `y`");
    refuses(MUSAE, &[("e.csv", "id1,id2\n0,1\n0,9\n")], "e.csv:3: id2 `9` is outside");
    refuses(MUSAE, &[("e.csv", "id1,id2\n0,1\n")], "t.csv:4: node 2 is isolated");
    let bad_house = format!("{HOUSE}{}", HOUSE.replace(",880,", ",0,"));
    refuses(CALIFORNIA, &[("c.data", &bad_house)], "c.data:2: totalRooms 0 must be positive");
    refuses(CALIFORNIA, &[("c.data", "1,2,3\n")], "c.data:1: 3 fields where 9 are expected");
    refuses(CALIFORNIA, &[], "c.data: no elliptic envelope");
    refuses("california --input c.data --outliers 0.7", &[], "0.7 outliers");
}

#[test]
fn masks_that_cannot_be() {
    let hide_all = "csv --nodes nodes.csv --edges edges.csv --mask-column seen";
    refuses(hide_all, &[], "nodes.csv:1: column `seen` is missing");
    refuses(&format!("{CSV} --mask-fraction 1"), &[], "mask fraction 1 must be");
    refuses(&format!("{CSV} --mask-rect 0,0,1,1"), &[], "needs node positions");
    refuses(&format!("{PTS} --mask-rect -9,-9,9,9"), &[], "p.csv: no node is observed");
    let usage = Workplace::new(&[]).import("points --input p.csv --mask-rect 1,2,3 -o out.h5");
    assert_eq!(usage.code, Some(2), "{}", usage.stderr);
}

#[test]
fn outputs_that_cannot_be_written() {
    let place = Workplace::new(&[("nodes.csv", NODES), ("edges.csv", EDGES)]);
    std::fs::create_dir(place.path("taken.h5")).unwrap();
    let before = place.files();
    for output in ["nodes.csv/out.h5", "taken.h5", "/proc/out.h5"] {
        let outcome = place.import(&format!("{CSV} -o {output}"));
        assert_eq!(outcome.code, Some(1), "{output}: {}", outcome.stderr);
        let name = output.split("/out").next().unwrap();
        assert!(outcome.stderr.contains(name), "{output}: {}", outcome.stderr);
        assert_eq!(place.files(), before);
    }
}

#[test]
fn a_disconnected_graph_is_a_warning_with_the_sizes() {
    let place = Workplace::new(&[
        ("nodes.csv", "id,y,observed\n0,1,1\n1,1,1\n2,1,1\n3,1,0\n4,1,0\n"),
        ("edges.csv", "src,dst\n0,1\n1,2\n3,4\n"),
    ]);
    let (_, outcome) = place.dataset(CSV);
    for said in ["disconnected: 2 components (3, 2 nodes)", "hold no observed node"] {
        assert!(outcome.stderr.contains(said), "{}", outcome.stderr);
    }
    assert_eq!(place.json(CSV)["components"], 2);
}

#[test]
fn an_older_output_survives_a_failed_import() {
    let place = Workplace::new(&[("nodes.csv", NODES), ("edges.csv", EDGES)]);
    let (old, _) = place.dataset(CSV);
    std::fs::write(place.path("edges.csv"), "src,dst\n0,9\n").unwrap();
    assert_eq!(place.import(&format!("{CSV} -o out.h5")).code, Some(1));
    let kept = dgmrf::dataset::Dataset::read(&place.path("out.h5")).unwrap();
    assert_eq!(kept.hash(), old.hash());
}
