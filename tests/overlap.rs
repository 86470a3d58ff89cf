//! Values of the rings around a part: fetched from their owners and added back to them, against
//! what the ids of the nodes say.

mod support;

use dgmrf::comm::World;
use dgmrf::graph::Graph;
use dgmrf::partition::{Overlap, OverlapExchange, Part, Partition, order::Order};
use std::collections::BTreeMap;
use std::rc::Rc;
use support::counting::{Counting, allocations};
use support::{graphs, on_ranks};

#[global_allocator]
static ALLOCATOR: Counting = Counting;

const NODES: usize = 300;

/// Nodes dealt out in stretches, so that some ranks are no neighbours of each other on a path.
fn part(world: &World, graph: &Graph) -> Part {
    let owner = (0..NODES).map(|i| (i * world.size() / NODES) as u32).collect();
    let partition = Partition::new(graph, owner, world.size(), Order::Locality).unwrap();
    partition.part(world.rank())
}

/// A value that says which node and column it is of.
fn value(id: u32, column: usize) -> f64 {
    f64::from(id) + 0.01 * column as f64
}

fn values(ids: &[u32], columns: usize) -> Vec<f64> {
    ids.iter().flat_map(|&id| (0..columns).map(move |c| value(id, c))).collect()
}

/// What rank `rank` adds for a node, not a round number: the order of sums shows.
fn contribution(rank: usize, id: u32, column: usize) -> f64 {
    1.0 / (3.0 + rank as f64 * 7.0 + f64::from(id) + column as f64)
}

/// Which nodes the ranks have among their ghosts: `holders[id]`, ascending.
fn holders(world: &World, ghosts: &[u32]) -> BTreeMap<u32, Vec<usize>> {
    let lists = world.all_to_all(vec![ghosts.to_vec(); world.size()]);
    let mut holders = BTreeMap::<u32, Vec<usize>>::new();
    for (rank, ids) in lists.iter().enumerate() {
        ids.iter().for_each(|&id| holders.entry(id).or_default().push(rank));
    }
    holders
}

fn check(world: &Rc<World>, graph: &Graph, rings: usize, fetched: usize) {
    let overlap = Overlap::collect(world, &part(world, graph), rings, fetched);
    let mut exchange = OverlapExchange::new(world, &overlap);
    let (inner, outer) = overlap.ids[..overlap.rings[fetched]].split_at(overlap.owned);
    assert_eq!(exchange.ghosts(), outer.len());
    let holders = holders(world, outer);
    let rank = world.rank();
    for columns in [3, 1, 8, 0, 2] {
        let mut ghosts = vec![f64::NAN; outer.len() * columns];
        exchange.fetch(&values(inner, columns), columns, &mut ghosts);
        assert_eq!(ghosts, values(outer, columns), "{rings} rings, {columns} columns");

        let of_rank = |rank: usize, ids: &[u32]| -> Vec<f64> {
            let row = |&id: &u32| (0..columns).map(move |c| contribution(rank, id, c));
            ids.iter().flat_map(row).collect()
        };
        let mut sums = values(inner, columns);
        exchange.add_back(&of_rank(rank, outer), columns, &mut sums);
        let mut expected = values(inner, columns);
        for (&id, row) in inner.iter().zip(expected.chunks_exact_mut(columns.max(1))) {
            for &holder in holders.get(&id).into_iter().flatten() {
                for (c, v) in row.iter_mut().enumerate() {
                    *v += contribution(holder, id, c);
                }
            }
        }
        assert_eq!(sums, expected, "{rings} rings, {columns} columns: bit for bit");
    }
}

#[test]
fn values_come_from_their_owners_and_go_back() {
    on_ranks("values_come_from_their_owners_and_go_back", &[1, 2, 3, 4], |world| {
        for weighted in [false, true] {
            let graph = graphs::random(NODES, 3 * NODES / 2, weighted, 4);
            for (rings, fetched) in [(0, 0), (1, 1), (3, 1), (3, 3)] {
                check(world, &graph, rings, fetched);
            }
        }
        // A path: the first and the last rank have one neighbour until rings reach past it.
        let path = graphs::from_pairs(NODES, (1..NODES as u32).map(|i| (i - 1, i)));
        [1, 4, 120].into_iter().for_each(|rings| check(world, &path, rings, rings));
        Vec::new()
    });
}

/// Ranks that have nobody to talk to: parts without edges between them.
#[test]
fn ranks_without_neighbours() {
    on_ranks("ranks_without_neighbours", &[1, 2, 3], |world| {
        let stretch = NODES / world.size();
        let joined = |&i: &usize| i % stretch != 0;
        let pairs = (1..NODES).filter(joined).map(|i| (i as u32 - 1, i as u32));
        let graph = graphs::from_pairs(NODES, pairs);
        check(world, &graph, 2, 2);
        Vec::new()
    });
}

/// Messages go to neighbours, and an exchange that is made again allocates nothing.
#[test]
fn exchanges_allocate_once() {
    on_ranks("exchanges_allocate_once", &[1, 2, 4], |world| {
        let graph = graphs::random(NODES, 2 * NODES, false, 4);
        let overlap = Overlap::collect(world, &part(world, &graph), 2, 2);
        let mut exchange = OverlapExchange::new(world, &overlap);
        let most = 6;
        let mut values = vec![1.0; overlap.owned * most];
        let mut ghosts = vec![0.0; exchange.ghosts() * most];
        let mut turn = |columns: usize| {
            let ghosts = &mut ghosts[..exchange.ghosts() * columns];
            let values = &mut values[..overlap.owned * columns];
            exchange.fetch(values, columns, ghosts);
            exchange.add_back(ghosts, columns, values);
        };
        turn(most);
        let before = allocations();
        [most, 2, 4, most, 1].into_iter().for_each(&mut turn);
        assert_eq!(allocations() - before, 0);
        Vec::new()
    });
}
