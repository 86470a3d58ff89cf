//! Graphs against naive references: maps for cleaning, Floyd–Warshall for distances, the
//! definition for Delaunay.

use dgmrf::graph::delaunay::{self, Weighting};
use dgmrf::graph::{Cleaning, EdgeList, Graph, components, diameter_estimate, k_hop};
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};

type Edges = Vec<(u32, u32, f64)>;

/// A node count and careless edges: few distinct weights, so that repetitions agree or conflict.
fn careless(max_nodes: u32, max_edges: usize) -> impl Strategy<Value = (usize, Edges)> {
    (1..=max_nodes).prop_flat_map(move |n| {
        let weight = prop_oneof![Just(0.5), Just(1.0), Just(2.5)];
        let edges = prop::collection::vec((0..n, 0..n, weight), 0..=max_edges);
        (Just(n as usize), edges)
    })
}

fn list(edges: &Edges, weighted: bool) -> EdgeList {
    let mut list = if weighted { EdgeList::weighted() } else { EdgeList::unweighted() };
    for &(a, b, w) in edges {
        list.push(a, b, w);
    }
    assert_eq!((list.len(), list.is_empty()), (edges.len(), edges.is_empty()));
    list
}

fn graph_of(n: usize, edges: &Edges) -> Graph {
    list(edges, false).into_graph(n).unwrap().0
}

/// First weight of every edge, and what had to be dropped.
fn clean(edges: &Edges) -> (BTreeMap<(u32, u32), f64>, Cleaning) {
    let mut kept = BTreeMap::new();
    let mut cleaning = Cleaning::default();
    for &(a, b, w) in edges {
        if a == b {
            cleaning.self_loops += 1;
            continue;
        }
        match kept.get(&(a.min(b), a.max(b))) {
            None => {
                kept.insert((a.min(b), a.max(b)), w);
            }
            Some(first) => {
                cleaning.duplicates += 1;
                cleaning.conflicting_weights += u64::from(*first != w);
            }
        }
    }
    (kept, cleaning)
}

/// Hops between all pairs.
fn floyd_warshall(graph: &Graph) -> Vec<Vec<Option<usize>>> {
    let n = graph.nodes();
    let mut hops = vec![vec![None; n]; n];
    for (i, row) in hops.iter_mut().enumerate() {
        row[i] = Some(0);
        graph.neighbours(i).iter().for_each(|&j| row[j as usize] = Some(1));
    }
    for k in 0..n {
        for i in 0..n {
            for j in 0..n {
                if let (Some(a), Some(b)) = (hops[i][k], hops[k][j]) {
                    hops[i][j] = Some(hops[i][j].map_or(a + b, |d: usize| d.min(a + b)));
                }
            }
        }
    }
    hops
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn cleaning_matches_a_map((n, edges) in careless(12, 60)) {
        let (kept, expected) = clean(&edges);
        let (graph, cleaning) = list(&edges, true).into_graph(n).unwrap();
        prop_assert_eq!(cleaning, expected);
        let found: BTreeMap<_, _> = graph.edge_iter().map(|(i, j, w)| ((i, j), w)).collect();
        prop_assert_eq!(&found, &kept);
        prop_assert_eq!((graph.nodes(), graph.edges()), (n, kept.len()));

        let (plain, cleaning) = list(&edges, false).into_graph(n).unwrap();
        prop_assert_eq!(cleaning, Cleaning { conflicting_weights: 0, ..expected });
        prop_assert_eq!(&plain, &graph.clone().without_weights());

        let mut degrees = vec![0.0; n];
        for (&(i, j), w) in &kept {
            degrees[i as usize] += w;
            degrees[j as usize] += w;
        }
        prop_assert_eq!(graph.degrees(), degrees.clone()); // multiples of 0.5: exact sums
        prop_assert_eq!(graph.first_isolated(), degrees.iter().position(|&d| d == 0.0));
        // What it promises, a reader of files can verify.
        let copy = Graph::from_csr(
            graph.indptr().to_vec(),
            graph.indices().to_vec(),
            graph.weights().map(<[f64]>::to_vec),
        );
        prop_assert_eq!(copy.unwrap(), graph);
    }

    #[test]
    fn order_and_direction_of_edges_do_not_matter(
        (n, mut edges) in careless(12, 40),
        turn in any::<u64>(),
    ) {
        let graph = graph_of(n, &edges);
        edges.reverse();
        for (k, e) in edges.iter_mut().enumerate() {
            if turn >> (k % 64) & 1 == 1 {
                *e = (e.1, e.0, e.2);
            }
        }
        prop_assert_eq!(graph_of(n, &edges), graph);
    }

    #[test]
    fn components_match_distances((n, edges) in careless(14, 16)) {
        let graph = graph_of(n, &edges);
        let hops = floyd_warshall(&graph);
        let found = components(&graph);
        let mut first_of = Vec::new();
        for i in 0..n {
            let smallest = (0..n).find(|&j| hops[i][j].is_some()).unwrap();
            if smallest == i {
                first_of.push(i);
            }
            prop_assert_eq!(first_of[found.label[i] as usize], smallest);
        }
        let size = |&first: &usize| (0..n).filter(|&j| hops[first][j].is_some()).count();
        prop_assert_eq!(found.sizes, first_of.iter().map(size).collect::<Vec<_>>());
    }

    #[test]
    fn k_hop_joins_nodes_up_to_k_apart((n, edges) in careless(14, 24), hops in 0usize..5) {
        let graph = graph_of(n, &edges);
        let distance = floyd_warshall(&graph);
        let dense = k_hop(&graph, hops).unwrap();
        prop_assert!(!dense.is_weighted());
        for (i, row) in distance.iter().enumerate() {
            let expected: Vec<u32> = (0..n as u32)
                .filter(|&j| row[j as usize].is_some_and(|d| (1..=hops).contains(&d)))
                .collect();
            prop_assert_eq!(dense.neighbours(i), expected);
        }
    }

    #[test]
    fn diameter_estimate_is_a_close_lower_bound((n, edges) in careless(14, 24), starts in 1usize..5) {
        let graph = graph_of(n, &edges);
        let hops = floyd_warshall(&graph);
        let eccentricity = |i: usize| hops[i].iter().flatten().copied().max().unwrap();
        let diameter = (0..n).map(eccentricity).max().unwrap();
        let estimate = diameter_estimate(&graph, starts);
        prop_assert!(estimate <= diameter);
        // Node 0 is always a start: its own eccentricity is reached, at least half the diameter
        // of its component.
        prop_assert!(estimate >= eccentricity(0));
        // From every node as a start nothing can be missed.
        prop_assert_eq!(diameter_estimate(&graph, n), diameter);
    }

    #[test]
    fn double_sweeps_are_exact_on_trees(parents in prop::collection::vec(any::<u32>(), 1..40)) {
        let edge = |(k, p): (usize, &u32)| (k as u32 + 1, p % (k as u32 + 1), 1.0);
        let edges: Edges = parents.iter().enumerate().map(edge).collect();
        let graph = graph_of(parents.len() + 1, &edges);
        let diameter = floyd_warshall(&graph).into_iter().flatten().flatten().max().unwrap();
        prop_assert_eq!(diameter_estimate(&graph, 1), diameter);
    }

    #[test]
    fn delaunay_of_random_points(
        points in prop::collection::vec([-1.0..1.0f64, -1.0..1.0f64], 3..60),
        shift in prop_oneof![Just(0.0), Just(1e5)],
        scale in prop_oneof![Just(1.0), Just(1e-12), Just(1e9)],
    ) {
        let points: Vec<[f64; 2]> = points.iter().map(|p| p.map(|c| (c + shift) * scale)).collect();
        assert_delaunay(&points);
    }

    #[test]
    fn coincident_points_are_all_connected(
        points in prop::collection::vec([-1.0..1.0f64, -1.0..1.0f64], 3..30),
        copies in prop::collection::vec(any::<prop::sample::Index>(), 1..30),
        scale in prop_oneof![Just(1.0), Just(1e-12), Just(1e9)],
    ) {
        let mut points: Vec<[f64; 2]> = points.iter().map(|p| p.map(|c| c * scale)).collect();
        for copy in &copies {
            points.push(points[copy.index(points.len())]);
        }
        let weighting = Weighting::InverseRelative { epsilon: 0.01 };
        let graph = delaunay::graph(&points, weighting).unwrap();
        prop_assert_eq!(components(&graph).count(), 1);
        prop_assert!(graph.weights().unwrap().iter().all(|w| *w <= 100.0));
        // Points at one place hang together: copies reach each other over edges of length zero.
        let mut zero = EdgeList::unweighted();
        graph
            .edge_iter()
            .filter(|&(i, j, _)| points[i as usize] == points[j as usize])
            .for_each(|(i, j, _)| zero.push(i, j, 1.0));
        let (zero, _) = zero.into_graph(points.len()).unwrap();
        let places: BTreeSet<[u64; 2]> = points.iter().map(|p| p.map(f64::to_bits)).collect();
        prop_assert_eq!(components(&zero).count(), places.len());
    }

    #[test]
    fn delaunay_of_a_lattice(columns in 2usize..12, rows in 2usize..12, step in 0.01..3.0f64) {
        let points: Vec<[f64; 2]> = (0..columns * rows)
            .map(|k| [(k % columns) as f64 * step, (k / columns) as f64 * step])
            .collect();
        let graph = delaunay::graph(&points, Weighting::None).unwrap();
        // Every cell has its four sides and one of its diagonals.
        let (c, r) = (columns - 1, rows - 1);
        prop_assert_eq!(graph.edges(), c * rows + r * columns + c * r);
        for (i, j, _) in graph.edge_iter() {
            let (a, b) = (points[i as usize], points[j as usize]);
            prop_assert!((a[0] - b[0]).hypot(a[1] - b[1]) < 1.5 * step);
        }
    }

    #[test]
    fn points_on_a_line_have_no_triangulation(
        places in prop::collection::vec(-1.0..1.0f64, 3..40),
        (from, along) in ([-5.0..5.0f64, -5.0..5.0f64], [-1.0..1.0f64, -1.0..1.0f64]),
    ) {
        let point = |t: &f64| [from[0] + t * along[0], from[1] + t * along[1]];
        let points: Vec<[f64; 2]> = places.iter().map(point).collect();
        let error = delaunay::graph(&points, Weighting::None).unwrap_err();
        prop_assert!(error.to_string().contains("one line"), "{error}");
    }
}

/// Points within the rounding of `a` turning left to `b`, `c`: the sign of the area, or `None`.
fn turn(a: [f64; 2], b: [f64; 2], c: [f64; 2]) -> Option<bool> {
    let (l, r) = ((b[0] - a[0]) * (c[1] - a[1]), (b[1] - a[1]) * (c[0] - a[0]));
    ((l - r).abs() > 1e-9 * (l.abs() + r.abs())).then_some(l > r)
}

/// The definition: a triangle of three mutually connected points that holds no other point is a
/// face, and its circumcircle is empty. And Euler: `E = 3N - 3 - h` with `h` points on the hull.
fn assert_delaunay(points: &[[f64; 2]]) {
    let n = points.len();
    let graph = delaunay::graph(points, Weighting::None).unwrap();
    let extent = points.iter().map(|p| (p[0] - points[0][0]).hypot(p[1] - points[0][1]));
    let extent = extent.fold(0.0, f64::max);
    let empty = |i: usize, j: usize, k: usize| {
        let (o, b, c) = (points[i], points[j], points[k]);
        let (bx, by, cx, cy) = (b[0] - o[0], b[1] - o[1], c[0] - o[0], c[1] - o[1]);
        let d = 2.0 * (bx * cy - by * cx);
        let (b2, c2) = (bx * bx + by * by, cx * cx + cy * cy);
        let centre = [o[0] + (cy * b2 - by * c2) / d, o[1] + (bx * c2 - cx * b2) / d];
        let radius = (centre[0] - o[0]).hypot(centre[1] - o[1]);
        // Flat triangles have circles too large to compare with.
        radius > 1e3 * extent
            || points.iter().all(|p| {
                (p[0] - centre[0]).hypot(p[1] - centre[1]) > radius - 1e-6 * extent.max(radius)
            })
    };
    for (i, j, _) in graph.edge_iter() {
        let (i, j) = (i as usize, j as usize);
        for &k in graph.neighbours(i).iter().filter(|k| graph.neighbours(j).contains(k)) {
            let k = k as usize;
            let inside = |p: [f64; 2]| {
                let side = turn(points[i], points[j], p);
                side.is_some()
                    && side == turn(points[j], points[k], p)
                    && side == turn(points[k], points[i], p)
            };
            let face = !points.iter().any(|&p| inside(p));
            assert!(!face || empty(i, j, k), "{i} {j} {k} have a point in their circle");
        }
    }
    // The hull by gift wrapping needs no area: an edge with all points on one side.
    let sides = |i: usize, j: usize| {
        let turns =
            (0..n).filter(|&k| k != i && k != j).map(|k| turn(points[i], points[j], points[k]));
        turns.collect::<BTreeSet<_>>()
    };
    let pairs = (0..n).flat_map(|i| (0..i).map(move |j| (i, j)));
    let all: Vec<_> = pairs.map(|(i, j)| ((i, j), sides(i, j))).collect();
    if all.iter().all(|(_, s)| !s.contains(&None)) {
        let hull = all.iter().filter(|(_, sides)| sides.len() == 1).count();
        assert_eq!(graph.edges(), 3 * n - 3 - hull);
    }
}

#[test]
fn exact_lines_and_too_few_points_are_errors() {
    let message =
        |points: &[[f64; 2]]| delaunay::graph(points, Weighting::None).unwrap_err().to_string();
    for line in [[1.0, 0.0], [0.0, 1.0], [1.0, 2.0], [0.1, 0.3]] {
        let points: Vec<_> = (0..20).map(|k| line.map(|c| c * f64::from(k))).collect();
        assert!(message(&points).contains("one line"), "{line:?}");
    }
    assert!(message(&[[1.0, 2.0]; 5]).contains("one line"));
    assert!(message(&[[0.0, 0.0], [1.0, 0.0]]).contains("at least 3 points"));
    assert!(message(&[[0.0, 0.0], [1.0, 0.0], [0.0, f64::NAN]]).contains("point 2"));
    assert!(message(&[[-1e308, 0.0], [1e308, 0.0], [0.0, 1e308]]).contains("too far apart"));
}

#[test]
fn inverse_distance_weights() {
    let points = [[0.0, 0.0], [3.0, 0.0], [0.0, 4.0]];
    let weights =
        |w| delaunay::graph(&points, w).unwrap().edge_iter().map(|e| e.2).collect::<Vec<_>>();
    assert_eq!(
        weights(Weighting::InverseRelative { epsilon: 0.01 }),
        [3.0, 4.0, 5.0].map(|d| 1.0 / (d / 5.0 + 0.01))
    );
    assert_eq!(
        weights(Weighting::Inverse { epsilon: 0.5 }),
        [3.0, 4.0, 5.0].map(|d| 1.0 / (d + 0.5))
    );
}

#[test]
fn edges_must_name_nodes_and_have_positive_weights() {
    let message = |edges: Edges| list(&edges, true).into_graph(3).unwrap_err().to_string();
    assert!(message(vec![(0, 3, 1.0)]).contains("outside 0..3"));
    for weight in [0.0, -1.0, f64::NAN, f64::INFINITY] {
        assert!(message(vec![(0, 1, 1.0), (1, 2, weight)]).contains("not a positive number"));
    }
}

#[test]
fn every_broken_promise_of_csr_is_met() {
    // A path 0 - 1 - 2 with weights, and one thing wrong at a time.
    type Csr = (Vec<u64>, Vec<u32>, Option<Vec<f64>>);
    type Damage = fn(&mut Csr);
    let good: Csr = (vec![0, 1, 3, 4], vec![1, 0, 2, 1], Some(vec![2.0, 2.0, 5.0, 5.0]));
    let try_csr = |c: Csr| Graph::from_csr(c.0, c.1, c.2).map_err(|e| e.to_string());
    assert_eq!(try_csr(good.clone()).unwrap().degrees(), [2.0, 7.0, 5.0]);
    assert_eq!(try_csr((vec![0], vec![], None)).unwrap().nodes(), 0);

    let broken: [(&str, Damage); 16] = [
        ("no row pointers", |c| c.0.clear()),
        ("run from 1 to 4", |c| c.0[0] = 1),
        ("but there are 4 entries", |c| c.0[3] = 3),
        ("but there are 4 entries", |c| c.0[3] = u64::MAX),
        ("row pointers are not ascending", |c| c.0[1] = 4),
        ("row pointers are not ascending", |c| c.0[2] = u64::MAX),
        ("3 weights for 4 entries", |c| c.2.as_mut().unwrap().truncate(3)),
        ("weight 0 is not", |c| c.2.as_mut().unwrap()[2] = 0.0),
        ("weight -2 is not", |c| c.2.as_mut().unwrap()[0] = -2.0),
        ("weight NaN is not", |c| c.2.as_mut().unwrap()[3] = f64::NAN),
        ("weight inf is not", |c| c.2.as_mut().unwrap()[3] = f64::INFINITY),
        ("node 1 are not ascending", |c| c.1.swap(1, 2)),
        ("node 1 are not ascending", |c| c.1[2] = 0),
        ("outside 0..3", |c| c.1[2] = 3),
        ("edge to itself", |c| c.1[0] = 0),
        ("must be symmetric", |c| c.1[0] = 2),
    ];
    for (message, damage) in broken {
        let mut csr = good.clone();
        damage(&mut csr);
        let error = try_csr(csr).unwrap_err();
        assert!(error.contains(message), "{message}: {error}");
    }
    let mut csr = good.clone();
    csr.2.as_mut().unwrap()[1] = 3.0;
    assert!(try_csr(csr).unwrap_err().contains("must be symmetric"));
    // One direction only, and an entry beyond the last mirror.
    assert!(try_csr((vec![0, 1, 1], vec![1], None)).unwrap_err().contains("must be symmetric"));
    assert!(try_csr((vec![0, 0, 1], vec![0], None)).unwrap_err().contains("must be symmetric"));
}
