//! Each format on small files whose graph is known by hand, and the masks.

use crate::Workplace;
use dgmrf::dataset::Dataset;

fn edges(data: &Dataset) -> Vec<(u32, u32, f64)> {
    data.graph.edge_iter().collect()
}

/// Values with -1 for NaN, which does not equal itself.
fn values(data: &Dataset) -> Vec<f64> {
    data.y.iter().map(|&v| if v.is_nan() { -1.0 } else { v }).collect()
}

#[test]
fn csv_takes_columns_and_rows_in_any_order_and_all_line_ends() {
    let nodes = [
        "\u{feff}feat_b,observed,id,pos_y,y,feat_a,pos_x",
        "10,1,2,0.2,2.5,20,12",
        "11,0,0,0.0,,21,10",
        "12,true,1,0.1,1.5,22,11",
        "",
    ];
    let edges_csv = ["weight,dst,src", "2,1,0", "3,1,2", "2,0,1", "9,1,2", "1,2,2"];
    for end in ["\n", "\r\n"] {
        let place = Workplace::new(&[
            ("nodes.csv", &nodes.join(end)),
            ("edges.csv", &edges_csv.join(end)),
            ("truth.csv", &["post_std,id", "3,2", "1,0", "2,1", ""].join(end)),
        ]);
        let (data, outcome) =
            place.dataset("csv --nodes nodes.csv --edges edges.csv --truth truth.csv --name small");
        assert_eq!(data.name, "small");
        assert_eq!(values(&data), [-1.0, 1.5, 2.5]);
        assert_eq!(data.observed, [false, true, true]);
        assert_eq!(data.position, Some(vec![[10.0, 0.0], [11.0, 0.1], [12.0, 0.2]]));
        let features = data.features.as_ref().unwrap();
        assert_eq!(features.names, ["feat_b", "feat_a"]);
        assert_eq!(features.values, [11.0, 21.0, 12.0, 22.0, 10.0, 20.0]);
        assert_eq!(data.truth.as_ref().unwrap().post_std, Some(vec![1.0, 2.0, 3.0]));
        assert_eq!(edges(&data), [(0, 1, 2.0), (1, 2, 3.0)]);
        for said in ["dropped 2 repeated edges", "dropped 1 self-loops", "1 repeated edges came"] {
            assert!(outcome.stderr.contains(said), "{said} in {}", outcome.stderr);
        }
        assert_eq!(outcome.stdout, "out.h5: 3 nodes, 2 edges, 2 observed\n");
    }
}

#[test]
fn the_name_is_that_of_the_output_unless_given() {
    let place = Workplace::new(&[
        ("nodes.csv", "id,y,observed\n0,1,1\n1,2,0"),
        ("edges.csv", "src,dst\n0,1"),
    ]);
    assert_eq!(place.dataset("csv --nodes nodes.csv --edges edges.csv").0.name, "out");
}

const SNAP: &str = "\
# Directed graph (each unordered pair of nodes is saved once): CA-GrQc.txt
# Collaboration network of Arxiv General Relativity category
# Nodes: 4 Edges: 6
# FromNodeId\tToNodeId
3466\t937
3466\t5233
937\t3466
5233\t3466
24325\t5233
5233\t5233
";

#[test]
fn edge_lists_of_snap() {
    let place = Workplace::new(&[
        ("edges.txt", SNAP),
        ("values.txt", "# id value\n24325 2.5\n937 nan\n3466  -1.5e0\n"),
        ("values.csv", "id,y\r\n24325,2.5\r\n937,\r\n3466,-1.5\r\n"),
    ]);
    let (data, outcome) =
        place.dataset("edgelist --edges edges.txt --values values.txt --node-map map.csv");
    assert_eq!(edges(&data), [(0, 1, 1.0), (1, 2, 1.0), (2, 3, 1.0)]);
    assert!(!data.graph.is_weighted());
    assert!(data.y[0].is_nan() && data.y[2].is_nan());
    assert_eq!((data.y[1], data.y[3]), (-1.5, 2.5));
    assert_eq!(data.observed, [false, true, false, true]);
    assert!(outcome.stderr.contains("node ids 937..=24325 are now 0..=3"), "{}", outcome.stderr);
    let map = std::fs::read_to_string(place.path("map.csv")).unwrap();
    assert_eq!(map, "node,id\n0,937\n1,3466\n2,5233\n3,24325\n");

    let (from_csv, _) = place.dataset("edgelist --edges edges.txt --values values.csv");
    assert_eq!(from_csv.hash(), data.hash());
}

#[test]
fn edge_lists_with_weights_or_with_times() {
    let place = Workplace::new(&[
        ("edges.csv", "% a comment\n-1, 7, 0.5\n7,9,2\n"),
        ("values.txt", "-1 3\n"),
    ]);
    let (data, _) = place.dataset("edgelist --edges edges.csv --values values.txt");
    assert_eq!(edges(&data), [(0, 1, 0.5), (1, 2, 2.0)]);
    let (data, _) = place.dataset("edgelist --edges edges.csv --values values.txt --unweighted");
    assert!(!data.graph.is_weighted());
    assert_eq!(data.graph.edges(), 2);
}

#[test]
fn matrix_market_symmetric_and_general() {
    let place = Workplace::new(&[
        (
            "s.mtx",
            "%%MatrixMarket matrix coordinate real symmetric\n% comment\n\n3 3 3\n1 1 -4\n2 1 0.5\n3 2 2e0\n",
        ),
        (
            "g.mtx",
            "%%matrixmarket MATRIX Coordinate integer general\r\n3 3 4\r\n1 2 1\r\n2 1 1\r\n3 2 2\r\n2 3 5\r\n",
        ),
        ("p.mtx", "%%MatrixMarket matrix coordinate pattern symmetric\n3 3 2\n2 1\n3 2"),
        ("l.mtx", "%%MatrixMarket matrix coordinate real general\n3 3 2\n2 1 -1\n3 2 -1\n"),
        ("v.txt", "1.5\nnan\n2.5\n"),
        ("v.mtx", "%%MatrixMarket matrix array real general\n% y\n3 1\n1.5\nnan\n2.5\n"),
    ]);
    let words = |matrix: &str| format!("matrix-market --values v.txt --matrix {matrix}");
    let (data, _) = place.dataset(&words("s.mtx"));
    assert_eq!(edges(&data), [(0, 1, 0.5), (1, 2, 2.0)]);
    assert_eq!(values(&data), [1.5, -1.0, 2.5]);
    assert_eq!(data.observed, [true, false, true]);
    let (same, _) = place.dataset("matrix-market --values v.mtx --matrix s.mtx");
    assert_eq!(same.hash(), data.hash());

    let (data, outcome) = place.dataset(&words("g.mtx"));
    assert_eq!(edges(&data), [(0, 1, 1.0), (1, 2, 2.0)]);
    assert!(outcome.stderr.contains("1 repeated edges came with another weight"));

    for unweighted in ["p.mtx", "l.mtx --unweighted"] {
        let (data, _) = place.dataset(&words(unweighted));
        assert!(!data.graph.is_weighted());
        assert_eq!(data.graph.edges(), 2);
    }
}

/// A square with a point in its middle: eight edges, four of them half a diagonal long.
const SQUARE: &str = "\
name,lon,lat,t,h,seen
a,10,59,1,5,1
b,12,59,2,6,1
c,12,61,3,7,0
d,10,61,4,8,1
e,11,60,,9,0
";

#[test]
fn points_are_triangulated_projected_and_weighted() {
    let place = Workplace::new(&[("p.csv", SQUARE)]);
    let words = "points --input p.csv --x lon --y lat --value t --features h";
    let (data, _) = place.dataset(words);
    assert_eq!(data.graph.edges(), 8);
    assert_eq!(data.observed, [true, true, true, true, false]);
    assert_eq!(data.features.as_ref().unwrap().values, [5.0, 6.0, 7.0, 8.0, 9.0]);
    let weight = |data: &Dataset, a: u32, b: u32| {
        data.graph.edge_iter().find(|e| (e.0, e.1) == (a, b)).map(|e| e.2).unwrap()
    };
    assert!((weight(&data, 0, 1) - 1.0 / 1.01).abs() < 1e-14);
    assert!((weight(&data, 0, 4) - 1.0 / (0.5f64.sqrt() + 0.01)).abs() < 1e-12);
    let (data, _) = place.dataset(&format!("{words} --weights inverse --epsilon 0.5"));
    assert!((weight(&data, 0, 1) - 1.0 / 2.5).abs() < 1e-14);

    let (data, _) = place.dataset(&format!("{words} --project --mask-column seen"));
    assert_eq!(data.observed, [true, true, false, true, false]);
    // At 60 degrees a degree of longitude is half as long as one of latitude.
    let corner = data.position.as_ref().unwrap()[2];
    assert!((corner[0] - 1.0).abs() < 1e-12 && (corner[1] - 2.0).abs() < 1e-12);
}

#[test]
fn masks_by_fraction_rectangle_and_column() {
    let n = 40;
    let nodes: String = (0..n).map(|i| format!("{i},{i},{},{i},0,0\n", i % 2)).collect();
    let edges: String = (1..n).map(|i| format!("{},{i}\n", i - 1)).collect();
    let place = Workplace::new(&[
        ("nodes.csv", &format!("id,y,train,pos_x,pos_y,observed\n{nodes}")),
        ("bare.csv", "id,y\n0,1\n1,2\n2,\n"),
        ("edges.csv", &format!("src,dst\n{edges}")),
        ("bare_edges.csv", "src,dst\n0,1\n1,2\n"),
    ]);
    let words = "csv --nodes nodes.csv --edges edges.csv --mask-column train";
    let (column, _) = place.dataset(words);
    assert!((0..n).all(|i| column.observed[i] == (i % 2 == 1)));

    let (rects, _) = place.dataset(&format!("{words} --mask-rect -1,-1,9,1 --mask-rect 31,0,30,0"));
    assert!((0..n).all(|i| rects.observed[i] == (i % 2 == 1 && i > 9 && i != 31)));

    let fraction = |seed: u64| {
        let words = format!("{words} --mask-fraction 0.3 --mask-seed {seed}");
        place.dataset(&words).0.observed
    };
    assert_eq!(fraction(1).iter().filter(|&&o| !o).count(), 12);
    assert_eq!(fraction(1), fraction(1));
    assert_ne!(fraction(1), fraction(2));

    // Without a column, only another mask makes clear what is meant.
    let bare = "csv --nodes bare.csv --edges bare_edges.csv";
    assert_eq!(place.import(&format!("{bare} -o bare.h5")).code, Some(1));
    let (data, _) = place.dataset(&format!("{bare} --mask-fraction 0.5"));
    assert_eq!((data.observed_count(), data.evaluation_nodes().count()), (1, 1));
}
