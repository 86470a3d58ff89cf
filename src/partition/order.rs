//! The order of rows inside a part: neighbours in the graph should be neighbours in memory.

use crate::graph::Graph;

/// How rows are ordered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Order {
    /// Reverse Cuthill–McKee: a layer then reads a narrow moving window of its input.
    #[default]
    Locality,
    /// By original id, for comparison.
    Original,
}

impl Order {
    /// The name of the order in files and tables.
    pub fn name(self) -> &'static str {
        match self {
            Order::Locality => "locality",
            Order::Original => "original",
        }
    }

    /// The order of this name.
    pub fn from_name(name: &str) -> Option<Self> {
        [Order::Locality, Order::Original].into_iter().find(|order| order.name() == name)
    }
}

/// Orders the nodes of one part (given in ascending order).
///
/// Cuthill–McKee by hand instead of [`sprs`]' because it walks the part inside the whole graph:
/// no copy of the subgraph is needed, and parts can be ordered in parallel.
pub fn order(graph: &Graph, owner: &[u32], nodes: Vec<u32>, order: Order) -> Vec<u32> {
    if order == Order::Original || nodes.is_empty() {
        return nodes;
    }
    let part = owner[nodes[0] as usize];
    let inside = |j: &u32| owner[*j as usize] == part;
    let mut walk = Walk { place: Place::new(&nodes), queue: Vec::with_capacity(nodes.len()) };
    let mut by_degree: Vec<u32> = Vec::new();
    for &start in &nodes {
        if walk.place.seen(start) {
            continue;
        }
        let first = walk.queue.len();
        let root = peripheral(graph, &inside, start, &mut walk);
        // The search for the root has used up the marks of this component: walk it again.
        walk.place.forget(&walk.queue[first..]);
        walk.queue.truncate(first);
        walk.visit(root);
        let mut next = first;
        while next < walk.queue.len() {
            by_degree.clear();
            let neighbours = graph.neighbours(walk.queue[next] as usize).iter();
            by_degree.extend(neighbours.copied().filter(|j| inside(j) && !walk.place.seen(*j)));
            by_degree.sort_by_key(|&j| graph.neighbour_count(j as usize));
            by_degree.iter().for_each(|&j| walk.visit(j));
            next += 1;
        }
    }
    walk.queue.reverse();
    // Rows of equal length in a row: the loop over neighbours then runs equally often, and the
    // processor guesses its end right. A misguess costs as much as a whole short row. Windows
    // are short enough to leave locality alone.
    for window in walk.queue.chunks_mut(WINDOW) {
        window.sort_by_key(|&i| graph.neighbour_count(i as usize));
    }
    walk.queue
}

/// Rows that may trade places to bring rows of equal length together.
const WINDOW: usize = 256;

/// Nodes in the order of a breadth-first walk, and which have been met.
struct Walk<'a> {
    place: Place<'a>,
    queue: Vec<u32>,
}

impl Walk<'_> {
    fn visit(&mut self, node: u32) {
        self.place.mark(node);
        self.queue.push(node);
    }
}

/// Marks for the nodes of one part only, found by binary search: a part of a large graph must
/// not cost memory for the whole graph.
struct Place<'a> {
    nodes: &'a [u32],
    seen: Vec<bool>,
    /// A part that is all of the graph needs no search.
    whole: bool,
}

impl<'a> Place<'a> {
    fn new(nodes: &'a [u32]) -> Self {
        let whole = nodes[nodes.len() - 1] as usize == nodes.len() - 1;
        Place { nodes, seen: vec![false; nodes.len()], whole }
    }

    fn at(&self, node: u32) -> usize {
        if self.whole {
            return node as usize;
        }
        self.nodes.binary_search(&node).expect("a node of the part")
    }

    fn seen(&self, node: u32) -> bool {
        self.seen[self.at(node)]
    }

    fn mark(&mut self, node: u32) {
        let at = self.at(node);
        self.seen[at] = true;
    }

    fn forget(&mut self, nodes: &[u32]) {
        for &node in nodes {
            let at = self.at(node);
            self.seen[at] = false;
        }
    }
}

/// A node at the end of a long shortest path: breadth-first from `start`, again from the farthest
/// node of least degree, twice (enough in practice; the full search would repeat until no gain).
fn peripheral(graph: &Graph, inside: &impl Fn(&u32) -> bool, start: u32, walk: &mut Walk) -> u32 {
    let first = walk.queue.len();
    let mut root = start;
    for _ in 0..2 {
        walk.place.forget(&walk.queue[first..]);
        walk.queue.truncate(first);
        walk.visit(root);
        let mut level = first;
        loop {
            let next = walk.queue.len();
            for k in level..next {
                for &j in graph.neighbours(walk.queue[k] as usize) {
                    if inside(&j) && !walk.place.seen(j) {
                        walk.visit(j);
                    }
                }
            }
            if walk.queue.len() == next {
                break;
            }
            level = next;
        }
        let last_level = walk.queue[level..].iter().copied();
        root = last_level.min_by_key(|&i| (graph.neighbour_count(i as usize), i)).unwrap_or(root);
    }
    root
}
