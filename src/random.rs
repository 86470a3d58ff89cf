//! Counter-based random numbers: each is a pure function of (seed, purpose, step, node, column).
//!
//! Nothing is drawn "in order", so the same job gives the same draws on 1 or 100 ranks, in any
//! order of evaluation and after any restart (`node` is the *original* node id).
//!
//! Written by hand rather than taken from a crate because the hot use, one word of 64 random
//! signs per node for every column block, has to cost less than reading the block: two rounds of
//! the `moremur` finaliser vectorise to a few cycles, ten rounds of Philox do not. The values are
//! frozen by a test: they may never change, or old runs could not be repeated.

use crate::elementary;

/// What a stream of random numbers is for; streams of different purpose are independent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u64)]
pub enum Purpose {
    /// Which nodes are hidden.
    Mask = 1,
    /// Positions of generated nodes.
    Position = 2,
    /// White noise `z` that a generated field is made from.
    Field = 3,
    /// Observation noise of generated data.
    Noise = 4,
    /// Parameters of generated models.
    Parameter = 5,
    /// Probes of trace and quadrature estimators.
    Probe = 6,
    /// Samples of the variational distribution.
    Variational = 7,
    /// Perturbations of posterior samples.
    Posterior = 8,
    /// Starting values.
    Start = 9,
    /// Anything in tests and benches.
    Test = 10,
    /// Perturbations behind the score of the marginal likelihood.
    Score = 11,
}

/// One stream: the key made of seed, purpose and step.
///
/// ```
/// use dgmrf::random::{Purpose, Stream};
/// let stream = Stream::new(7, Purpose::Test, 0);
/// assert_eq!(stream.normal(12, 3), Stream::new(7, Purpose::Test, 0).normal(12, 3));
/// assert_ne!(stream.normal(12, 3), stream.normal(12, 4));
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stream {
    key: u64,
}

/// Multipliers of the finaliser [`mix`].
const FACTORS: [u64; 2] = [0x3C79_AC49_2BA7_B653, 0x1C69_B3F7_4AC4_AE35];

/// Pelle Evensen's `moremur` finaliser: a bijection of 64-bit words with full avalanche.
#[inline(always)]
const fn mix(mut x: u64) -> u64 {
    x ^= x >> 27;
    x = x.wrapping_mul(FACTORS[0]);
    x ^= x >> 33;
    x = x.wrapping_mul(FACTORS[1]);
    x ^ (x >> 27)
}

/// 2^64 / golden ratio, odd: spreads small counters over the word.
const GOLDEN: u64 = 0x9E37_79B9_7F4A_7C15;
/// Spreads the numbers of the words of one node, as [`GOLDEN`] does counters.
const WORD: u64 = 0xD6E8_FEB8_6659_FD93;

impl Stream {
    /// The stream of a purpose at a step.
    pub const fn new(seed: u64, purpose: Purpose, step: u64) -> Self {
        let key = mix(seed.wrapping_add(GOLDEN));
        let key = mix(key.wrapping_add((purpose as u64).wrapping_mul(GOLDEN)));
        Stream { key: mix(key ^ step.wrapping_mul(GOLDEN).wrapping_add(1)) }
    }

    /// 64 random bits for a node; `word` numbers the words of one node.
    #[inline(always)]
    pub const fn bits(&self, node: u64, word: u64) -> u64 {
        let x = mix(self.key.wrapping_add(node.wrapping_mul(GOLDEN)));
        mix(x ^ self.word_key(word))
    }

    #[inline(always)]
    const fn word_key(&self, word: u64) -> u64 {
        word.wrapping_mul(WORD).wrapping_add(self.key)
    }

    /// [`Stream::bits`] for many nodes in the arithmetic of another engine, given its operations
    /// on 64-bit words: `x * k`, `x + k`, `x ^ (x >> k)` (logical) and `x ^ k`.
    pub fn bits_with<W>(
        &self,
        nodes: &W,
        word: u64,
        times: impl Fn(&W, i64) -> W,
        plus: impl Fn(&W, i64) -> W,
        fold: impl Fn(&W, i64) -> W,
        xor: impl Fn(&W, i64) -> W,
    ) -> W {
        let mix = |x: W| {
            let x = times(&fold(&x, 27), FACTORS[0] as i64);
            let x = times(&fold(&x, 33), FACTORS[1] as i64);
            fold(&x, 27)
        };
        let x = mix(plus(&times(nodes, GOLDEN as i64), self.key as i64));
        mix(xor(&x, self.word_key(word) as i64))
    }

    /// Uniform on `[0, 1)`, 53 bits.
    #[inline(always)]
    pub fn uniform(&self, node: u64, column: u64) -> f64 {
        (self.bits(node, column) >> 11) as f64 * (1.0 / (1u64 << 53) as f64)
    }

    /// `+1` or `-1`. Column `c` is bit `c % 64` of word `c / 64`: one hash serves 64 columns.
    #[inline]
    pub fn rademacher(&self, node: u64, column: u64) -> f64 {
        let bit = self.bits(node, column / 64) >> (column % 64) & 1;
        1.0 - 2.0 * bit as f64
    }

    /// Standard normal, by Box–Muller: columns `2k` and `2k + 1` are one pair.
    #[inline]
    pub fn normal(&self, node: u64, column: u64) -> f64 {
        let pair = self.normal_pair(node, column / 2);
        pair[(column % 2) as usize]
    }

    /// Columns `2 * pair` and `2 * pair + 1` of [`Stream::normal`] at once.
    #[inline]
    pub fn normal_pair(&self, node: u64, pair: u64) -> [f64; 2] {
        pulp::Arch::new().dispatch(
            #[inline(always)]
            || self.normal_pair_inline(node, pair),
        )
    }

    /// [`Stream::normal_pair`] as part of a loop that runs on vectors.
    #[inline(always)]
    pub(crate) fn normal_pair_inline(&self, node: u64, pair: u64) -> [f64; 2] {
        // 1 - u lies in (0, 1], so the logarithm is finite.
        let radius = (-2.0 * elementary::ln_f64(1.0 - self.uniform(node, 2 * pair))).sqrt();
        let (cos, sin) = elementary::cos_sin_of_turns(self.uniform(node, 2 * pair + 1));
        [radius * cos, radius * sin]
    }
}
