//! Which nodes the model may see.

use super::Dataset;
use crate::error::{Error, Result};
use crate::random;

/// An axis-parallel rectangle; the border belongs to it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Rect {
    /// Corner with the smaller coordinates.
    pub min: [f64; 2],
    /// Corner with the larger coordinates.
    pub max: [f64; 2],
}

impl std::str::FromStr for Rect {
    type Err = String;

    /// `x0,y0,x1,y1`, any two opposite corners.
    fn from_str(text: &str) -> Result<Self, String> {
        let corners: Vec<f64> = text
            .split(',')
            .map(|t| t.trim().parse::<f64>().ok().filter(|v| v.is_finite()))
            .collect::<Option<_>>()
            .ok_or_else(|| format!("`{text}` is not x0,y0,x1,y1"))?;
        let [x0, y0, x1, y1] = corners[..] else {
            return Err(format!("`{text}` has {} numbers, x0,y0,x1,y1 are needed", corners.len()));
        };
        Ok(Rect { min: [x0.min(x1), y0.min(y1)], max: [x0.max(x1), y0.max(y1)] })
    }
}

impl Rect {
    /// Whether the point lies inside or on the border.
    pub fn contains(&self, p: [f64; 2]) -> bool {
        (0..2).all(|k| self.min[k] <= p[k] && p[k] <= self.max[k])
    }
}

/// Hides a random `fraction` of the nodes that have a value: exactly
/// `floor(fraction * count)` of them, the ones with the smallest random key.
///
/// The keys depend on the seed and the node alone, so masks of growing fractions are nested.
pub fn hide_fraction(data: &mut Dataset, fraction: f64, seed: u64) -> Result<()> {
    if !(0.0..1.0).contains(&fraction) {
        return Err(Error::Setting(format!(
            "mask fraction {fraction} must be at least 0 and less than 1"
        )));
    }
    let stream = random::Stream::new(seed, random::Purpose::Mask, 0);
    let mut candidates: Vec<u32> =
        (0..data.nodes() as u32).filter(|&i| data.y[i as usize].is_finite()).collect();
    candidates.sort_by_cached_key(|&i| stream.bits(u64::from(i), 0));
    let hidden = (fraction * candidates.len() as f64).floor() as usize;
    data.observed = vec![false; data.nodes()];
    for &i in &candidates[hidden..] {
        data.observed[i as usize] = true;
    }
    Ok(())
}

/// Hides every node inside one of the rectangles; the rest stays as it was.
pub fn hide_rects(data: &mut Dataset, rects: &[Rect]) -> Result<()> {
    let Some(position) = &data.position else {
        return Err(Error::Setting(
            "a rectangular mask needs node positions (columns pos_x, pos_y), there are none".into(),
        ));
    };
    for (i, &p) in position.iter().enumerate() {
        if rects.iter().any(|r| r.contains(p)) {
            data.observed[i] = false;
        }
    }
    Ok(())
}
