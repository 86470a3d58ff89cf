//! What a checkpoint of a fit holds.

use super::descent::{Anchor, Descent};
use super::{Marginal, Trial, new_score};
use crate::checkpoint::State;
use crate::error::{Error, Result};
use crate::field::Engine;
use crate::train::adam::Adam;
use crate::train::newton::Quadratic;

/// Everything that the next step depends on.
pub(super) fn save<E: Engine>(fit: &Marginal<E>, engine: &E) -> State {
    let counts = [fit.start, fit.adam_done, fit.evaluations, fit.cg_iterations];
    let mut progress = counts.map(|n| n as f64).to_vec();
    let flags = [fit.converged, fit.stuck].map(|flag| f64::from(u8::from(flag)));
    progress.extend([flags[0], flags[1], fit.objective]);
    let mut numbers = std::collections::BTreeMap::from([
        ("theta".to_owned(), fit.vector()),
        ("adam.first".into(), fit.adam.first.clone()),
        ("adam.second".into(), fit.adam.second.clone()),
        ("progress".into(), progress),
    ]);
    if let Some(best) = &fit.best {
        numbers.insert("best.theta".into(), best.vector.clone());
        numbers.insert("best.evidence".into(), vec![best.evidence]);
    }
    if let Some(now) = &fit.descent {
        numbers.insert("gradient".into(), now.gradient.clone());
        numbers.insert("curvature".into(), now.curvature.to_numbers());
        let fresh = f64::from(u8::from(now.fresh));
        let rest = vec![fresh, now.noise, now.radius, f64::from(now.refused)];
        numbers.insert("descent".into(), rest);
    }
    if let Some(best) = &fit.anchor {
        numbers.insert("anchor.theta".into(), best.vector.clone());
        numbers.insert("anchor.curvature".into(), best.curvature.to_numbers());
        numbers.insert("anchor.evidence".into(), vec![best.evidence]);
    }
    let (columns, values) = fit.score.solutions(engine);
    let fields = (0..columns)
        .map(|c| (format!("x{c:04}"), values.iter().skip(c).step_by(columns).copied().collect()));
    State { step: fit.step, numbers, fields: fields.collect() }
}

/// Takes over what [`save`] gave.
pub(super) fn restore<E: Engine>(
    fit: &mut Marginal<E>,
    engine: &mut E,
    state: State,
) -> Result<()> {
    let damaged = || Error::Data("the checkpoint does not fit this fit".into());
    let length = fit.parameters.len();
    let find = |name: &str| state.numbers.get(name);
    let get = |name: &str, length: usize| -> Result<Vec<f64>> {
        find(name).filter(|v| v.len() == length).cloned().ok_or_else(damaged)
    };
    fit.step = state.step;
    fit.parameters.assign(&get("theta", length)?);
    fit.adam = Adam { first: get("adam.first", length)?, second: get("adam.second", length)? };
    let progress = get("progress", 7)?;
    [fit.start, fit.adam_done, fit.evaluations, fit.cg_iterations] =
        [0, 1, 2, 3].map(|k| progress[k] as u64);
    (fit.converged, fit.stuck) = (progress[4] == 1.0, progress[5] == 1.0);
    fit.objective = progress[6];
    fit.best = match find("best.theta") {
        None => None,
        Some(_) => Some(Trial {
            evidence: get("best.evidence", 1)?[0],
            vector: get("best.theta", length)?,
        }),
    };
    if let Some(numbers) = find("anchor.curvature") {
        fit.anchor = Some(Anchor {
            evidence: get("anchor.evidence", 1)?[0],
            vector: get("anchor.theta", length)?,
            curvature: Quadratic::from_numbers(numbers).ok_or_else(damaged)?,
        });
    }
    if let Some(numbers) = find("curvature") {
        let rest = get("descent", 4)?;
        fit.descent = Some(Descent {
            gradient: get("gradient", length)?,
            curvature: Quadratic::from_numbers(numbers).ok_or_else(damaged)?,
            fresh: rest[0] == 1.0,
            noise: rest[1],
            radius: rest[2],
            refused: rest[3] as u32,
        });
        let (p, o) = (fit.parameters.clone(), &fit.options);
        fit.score = new_score(engine, &fit.problem, &p, o.probes, o.seed)?;
    }
    let columns: Vec<&Vec<f64>> = state.fields.values().collect();
    let rows = engine.part().owned;
    let values: Vec<f64> =
        (0..rows).flat_map(|i| columns.iter().map(move |column| column[i])).collect();
    fit.score.set_solutions(engine, &values)
}
