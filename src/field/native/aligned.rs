//! Values that begin on a cache line.

use std::ops::{Deref, DerefMut};

/// A vector whose first value lies at a multiple of 64 bytes.
///
/// Rows of 8 single-precision values then never straddle two cache lines; allocators promise
/// 16 bytes only, and every second row would. (By leaving some values at the front unused, which
/// needs no `unsafe`.)
#[derive(Debug)]
pub struct Aligned<T> {
    values: Vec<T>,
    start: usize,
}

const LINE: usize = 64;

impl<T: Copy> Aligned<T> {
    /// `length` copies of `value`.
    pub fn new(value: T, length: usize) -> Self {
        let spare = LINE / size_of::<T>();
        let values = vec![value; length + spare];
        // The offset may be unknowable in theory (usize::MAX); then alignment is given up.
        let start = values.as_ptr().align_offset(LINE);
        let start = if start < spare { start } else { 0 };
        let mut aligned = Aligned { values, start };
        aligned.values.truncate(start + length);
        aligned
    }

    /// Changes the length; values that come in are `value`. Nothing moves while the length stays
    /// below the largest one so far.
    pub fn resize(&mut self, value: T, length: usize) {
        if self.start + length <= self.values.capacity() {
            self.values.resize(self.start + length, value);
        } else {
            *self = Aligned::new(value, length); // a longer vector may begin elsewhere
        }
    }
}

impl<T> Deref for Aligned<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        &self.values[self.start..]
    }
}

impl<T> DerefMut for Aligned<T> {
    fn deref_mut(&mut self) -> &mut [T] {
        &mut self.values[self.start..]
    }
}
