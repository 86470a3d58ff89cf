//! What rank 0 does for all: files that only it looks at and writes.

use super::World;
use crate::error::Result;

impl World {
    /// Runs `work` on rank 0 while the others wait; a failure there is one of all. All ranks call
    /// it, and rank 0 gets the result.
    pub fn on_root<T>(&self, work: impl FnOnce() -> Result<T>) -> Result<Option<T>> {
        self.agree(if self.is_root() { work().map(Some) } else { Ok(None) })
    }

    /// Makes what is missing: rank 0 looks whether it is there, and if it is not, all ranks call
    /// `make`. Returns whether it was made. All ranks call it.
    ///
    /// Partitions, spectra and the stages of a run are kept in this way; what is found there is
    /// then read by whoever needs it.
    ///
    /// ```
    /// let world = dgmrf::comm::World::solo();
    /// let file = std::env::temp_dir().join(format!("dgmrf-doc-make-{}", std::process::id()));
    /// let make = || Ok(std::fs::write(&file, "made").expect("written"));
    /// assert!(world.make_if_missing(|| Ok(file.exists()), make)?);
    /// assert!(!world.make_if_missing(|| Ok(file.exists()), make)?);
    /// # std::fs::remove_file(file).unwrap();
    /// # Ok::<(), dgmrf::Error>(())
    /// ```
    pub fn make_if_missing(
        &self,
        there: impl FnOnce() -> Result<bool>,
        make: impl FnOnce() -> Result<()>,
    ) -> Result<bool> {
        let found = self.on_root(there)?;
        let missing = self.any(found == Some(false));
        if missing {
            make()?;
        }
        Ok(missing)
    }
}
