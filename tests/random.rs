//! The counter-based numbers: frozen values, and no pattern where the code will look.
//!
//! Seeds are fixed, so these tests do not flicker; the bounds are those of a test at a level of
//! about 1e-5, which a wrong generator misses by far.

use dgmrf::random::{Purpose, Stream};

/// From an independent implementation (Python integers). These may never change: old runs could
/// not be repeated.
#[test]
fn known_answers() {
    // (seed, purpose, step), (node, column), bits, [uniform, sign, normal]
    let cases = [
        (
            (0u64, Purpose::Mask, 0),
            (0, 0),
            0x4b4a14e98fdfa190,
            [0.2940991468639127, 1.0, -0.6648553740306167],
        ),
        (
            (1, Purpose::Position, 0),
            (1, 1),
            0xfa12f07ea005abfa,
            [0.9768514928000714, 1.0, -0.3837707082159484],
        ),
        (
            (7, Purpose::Test, 3),
            (12, 5),
            0xe4e2dd79af6e6bf3,
            [0.8940866872866821, 1.0, -1.712692393476703],
        ),
        (
            (1, Purpose::Probe, 0),
            (2277, 64),
            0x74b8321faedb43f4,
            [0.45593560479651973, 1.0, 1.0816778971821681],
        ),
        (
            (u64::MAX, Purpose::Posterior, 1099511627776),
            (4294967295, 1000),
            0xb13bae11d91f5ab4,
            [0.6923168939184711, 1.0, -0.4771972680597215],
        ),
        (
            (42, Purpose::Noise, 9),
            (99999999, 63),
            0xd0defacab21dfa76,
            [0.8159023995268554, -1.0, -1.7601445017066801],
        ),
    ];
    for ((seed, purpose, step), (node, column), bits, [uniform, sign, normal]) in cases {
        let stream = Stream::new(seed, purpose, step);
        assert_eq!(stream.bits(node, column), bits);
        assert_eq!(stream.uniform(node, column), uniform);
        assert_eq!(stream.rademacher(node, column), sign);
        // The logarithm and the sine of the platform may differ in the last bits.
        assert!((stream.normal(node, column) - normal).abs() < 1e-14);
        assert_eq!(
            stream.normal_pair(node, column / 2)[(column % 2) as usize],
            stream.normal(node, column)
        );
    }
}

const DRAWS: u64 = 200_000;

/// A pair of words whose counters differ as little as counters can, for the `k`-th draw.
type Neighbours = fn(u64) -> (u64, u64);

/// Words that the code will use side by side: they must look independent.
const NEIGHBOURS: [(&str, Neighbours); 9] = [
    ("next node", |k| (at(1, 0, k, 0), at(1, 0, k + 1, 0))),
    ("node one mesh row away", |k| (at(1, 0, k, 0), at(1, 0, k + 1024, 0))),
    ("node with one high bit more", |k| (at(1, 0, k, 0), at(1, 0, k | 1 << 31, 0))),
    ("next word", |k| (at(1, 0, k, 0), at(1, 0, k, 1))),
    ("next word in one node", |k| (at(1, 0, 5, k), at(1, 0, 5, k + 1))),
    ("node and word exchanged", |k| (at(1, 0, k, k + 1), at(1, 0, k + 1, k))),
    ("next step", |k| (at(1, k % 1000, k / 1000, 0), at(1, k % 1000 + 1, k / 1000, 0))),
    ("next seed", |k| (at(k % 1000, 0, k / 1000, 0), at(k % 1000 + 1, 0, k / 1000, 0))),
    ("other purpose", |k| (at(1, 0, k, 0), Stream::new(1, Purpose::Probe, 0).bits(k, 0))),
];

fn at(seed: u64, step: u64, node: u64, word: u64) -> u64 {
    Stream::new(seed, Purpose::Test, step).bits(node, word)
}

/// Standard score of a count of heads.
fn score(heads: u64, draws: u64) -> f64 {
    (heads as f64 - 0.5 * draws as f64) / (0.25 * draws as f64).sqrt()
}

/// Standard score of a chi-square statistic against equal cells.
fn chi_square_score(cells: &[u64]) -> f64 {
    let expected = cells.iter().sum::<u64>() as f64 / cells.len() as f64;
    let chi2: f64 = cells.iter().map(|&c| (c as f64 - expected).powi(2) / expected).sum();
    let freedom = (cells.len() - 1) as f64;
    (chi2 - freedom) / (2.0 * freedom).sqrt()
}

/// Every bit is fair by itself, and fair again when xor-ed with the same bit of a neighbour.
#[test]
fn bits_are_balanced_and_neighbours_differ_in_half_of_them() {
    for (what, neighbours) in NEIGHBOURS {
        let mut own = [0u64; 64];
        let mut differ = [0u64; 64];
        for k in 0..DRAWS {
            let (a, b) = neighbours(k);
            for bit in 0..64 {
                own[bit] += a >> bit & 1;
                differ[bit] += (a ^ b) >> bit & 1;
            }
        }
        // "next word in one node" and the like repeat no word, so every count is binomial; 64
        // bits and 9 cases make |z| > 5 a 1 in 3000 event in all.
        for bit in 0..64 {
            let (z_own, z_differ) = (score(own[bit], DRAWS), score(differ[bit], DRAWS));
            assert!(z_own.abs() < 5.0, "{what}: bit {bit} is biased, z = {z_own}");
            assert!(z_differ.abs() < 5.0, "{what}: bit {bit} is copied, z = {z_differ}");
        }
    }
}

/// Pairs of neighbours fill the unit square evenly: high and low bits of the words as coordinates.
#[test]
fn neighbours_fill_the_square() {
    for (what, neighbours) in NEIGHBOURS {
        for shift in [59, 30, 0] {
            let mut cells = vec![0u64; 1024];
            for k in 0..DRAWS {
                let (a, b) = neighbours(k);
                cells[((a >> shift & 31) << 5 | (b >> shift & 31)) as usize] += 1;
            }
            let z = chi_square_score(&cells);
            assert!(z.abs() < 5.0, "{what}, bits from {shift}: z = {z}");
        }
    }
}

#[test]
fn uniforms_are_uniform() {
    let stream = Stream::new(3, Purpose::Test, 1);
    let mut cells = vec![0u64; 1000];
    for k in 0..10 * DRAWS {
        let u = stream.uniform(k / 8, k % 8);
        assert!((0.0..1.0).contains(&u));
        cells[(u * 1000.0) as usize] += 1;
    }
    let z = chi_square_score(&cells);
    assert!(z.abs() < 5.0, "z = {z}");
}

/// Signs of the 64 columns of one word, and of columns across words.
#[test]
fn signs_are_fair_and_uncorrelated() {
    let stream = Stream::new(5, Purpose::Probe, 2);
    for (a, b) in [(0, 1), (0, 63), (63, 64), (0, 64), (17, 130)] {
        let (mut sum, mut product) = (0.0, 0.0);
        for node in 0..DRAWS {
            let (r, s) = (stream.rademacher(node, a), stream.rademacher(node, b));
            assert!(r.abs() == 1.0 && s.abs() == 1.0);
            sum += r;
            product += r * s;
        }
        let root = (DRAWS as f64).sqrt();
        assert!((sum / root).abs() < 5.0, "column {a}: z = {}", sum / root);
        assert!((product / root).abs() < 5.0, "columns {a}, {b}: z = {}", product / root);
    }
}

/// Standard errors of the sample moments of a normal: sqrt of 1, 2, 15 and 96 over n.
#[test]
fn normals_have_the_moments_of_a_normal() {
    for column in 0..4 {
        let stream = Stream::new(11, Purpose::Field, 0);
        let mut moments = [0.0; 4];
        let mut with_next = [0.0; 2];
        for node in 0..DRAWS {
            let x = stream.normal(node, column);
            for (k, moment) in moments.iter_mut().enumerate() {
                *moment += x.powi(k as i32 + 1);
            }
            with_next[0] += x * stream.normal(node, column + 1);
            with_next[1] += x * stream.normal(node + 1, column);
        }
        let n = DRAWS as f64;
        let expected = [(0.0, 1.0), (1.0, 2.0), (0.0, 15.0), (3.0, 96.0)];
        for (k, (value, variance)) in expected.into_iter().enumerate() {
            let z = (moments[k] / n - value) / (variance / n).sqrt();
            assert!(z.abs() < 5.0, "column {column}, moment {}: z = {z}", k + 1);
        }
        for (what, sum) in ["column", "node"].into_iter().zip(with_next) {
            assert!((sum / n.sqrt()).abs() < 5.0, "correlated with the next {what}");
        }
    }
}

/// Kolmogorov–Smirnov: `sqrt(n) D` exceeds 2.4 with probability 2 exp(-2 * 2.4²) = 2e-5.
#[test]
fn normals_follow_the_normal_distribution() {
    let stream = Stream::new(13, Purpose::Noise, 4);
    for column in 0..2 {
        let mut draws: Vec<f64> = (0..DRAWS).map(|i| stream.normal(i, column)).collect();
        draws.sort_unstable_by(f64::total_cmp);
        let n = DRAWS as f64;
        let distance = (draws.iter().enumerate())
            .map(|(k, &x)| {
                let p = normal_cdf(x);
                (p - k as f64 / n).abs().max((p - (k + 1) as f64 / n).abs())
            })
            .fold(0.0, f64::max);
        assert!(distance * n.sqrt() < 2.4, "column {column}: {}", distance * n.sqrt());
    }
}

/// Abramowitz and Stegun 26.2.17, absolute error below 7.5e-8.
fn normal_cdf(x: f64) -> f64 {
    let t = 1.0 / (1.0 + 0.231_641_9 * x.abs());
    let poly = [0.319_381_530, -0.356_563_782, 1.781_477_937, -1.821_255_978, 1.330_274_429]
        .iter()
        .rev()
        .fold(0.0, |sum, c| (sum + c) * t);
    let tail = poly * (-0.5 * x * x).exp() / std::f64::consts::TAU.sqrt();
    if x < 0.0 { tail } else { 1.0 - tail }
}
