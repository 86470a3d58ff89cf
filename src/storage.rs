//! Files that are whole or not there, and the small HDF5 steps that every format shares.

use crate::error::{Error, Result, WithPath};
use hdf5::types::VarLenUnicode;
use serde::{Serialize, de::DeserializeOwned};
use std::path::{Path, PathBuf};

/// Access without file locks. Our files never change once they have their name, so there is nothing
/// to lock, and parallel file systems often refuse to. (Needs HDF5 1.10.7, 1.12.1 or newer.)
fn unlocked() -> hdf5::FileBuilder {
    let mut builder = hdf5::FileBuilder::new();
    builder.with_fapl(|access| access.file_locking(false));
    builder
}

/// Opens an HDF5 file for reading, telling apart what users meet: no file, no permission, empty,
/// truncated, not HDF5.
pub(crate) fn open(path: &Path) -> Result<hdf5::File> {
    let meta = std::fs::metadata(path).with_path(path, "")?;
    if meta.is_dir() {
        return Err(Error::file(path, "this is a directory, an HDF5 file is expected"));
    }
    if meta.len() == 0 {
        return Err(Error::file(path, "the file is empty"));
    }
    std::fs::File::open(path).with_path(path, "")?;
    unlocked().open(path).map_err(|_| {
        Error::file(path, "not a readable HDF5 file: it is truncated, damaged or of another format")
    })
}

/// A new HDF5 file that takes its name only when it is on disk as a whole, and is gone if it is
/// dropped before.
pub(crate) struct NewFile {
    file: hdf5::File,
    partial: Partial,
    path: PathBuf,
}

impl NewFile {
    pub(crate) fn create(path: &Path) -> Result<Self> {
        let partial = Partial::beside(path)?;
        // HDF5's own message for an unwritable place is long and unclear: try the system first.
        std::fs::File::create(&partial.0).with_path(path, "")?;
        let file = unlocked().create(&partial.0).with_path(path, "creating the file")?;
        Ok(NewFile { file, partial, path: path.into() })
    }

    pub(crate) fn hdf5(&self) -> &hdf5::File {
        &self.file
    }

    pub(crate) fn finish(self) -> Result<()> {
        self.file.close().with_path(&self.path, "closing (is the disk full?)")?;
        self.partial.take_name(&self.path)
    }
}

/// Runs `write` on a new HDF5 file that takes the name `path` only when it is on disk as a whole.
pub(crate) fn write_hdf5(
    path: &Path,
    write: impl FnOnce(&hdf5::File) -> hdf5::Result<()>,
) -> Result<()> {
    let new = NewFile::create(path)?;
    write(new.hdf5()).with_path(path, "writing (is the disk full?)")?;
    new.finish()
}

/// Writes a text file as a whole or not at all.
pub(crate) fn write_text_file(path: &Path, text: &str) -> Result<()> {
    let partial = Partial::beside(path)?;
    std::fs::write(&partial.0, text).with_path(path, "")?;
    partial.take_name(path)
}

/// Writes a value as JSON that people can read, as a whole or not at all.
pub(crate) fn write_json(path: &Path, value: &impl Serialize) -> Result<()> {
    write_text_file(path, &format!("{:#}\n", serde_json::json!(value)))
}

/// Reads a value from a JSON file.
pub(crate) fn read_json<T: DeserializeOwned>(path: &Path) -> Result<T> {
    let text = std::fs::read(path).with_path(path, "")?;
    serde_json::from_slice(&text).map_err(|e| Error::parse(path, e.line() as u64, e.to_string()))
}

/// Makes sure that names in a directory are on disk, as far as the file system can.
pub(crate) fn sync_directory(path: &Path) -> Result<()> {
    let directory = std::fs::File::open(path).with_path(path, "")?;
    match directory.sync_all() {
        // Some network file systems cannot; a rename is durable there or is not.
        Err(e) if matches!(e.raw_os_error(), Some(libc::EINVAL | libc::ENOTSUP)) => Ok(()),
        other => other.with_path(path, ""),
    }
}

/// A temporary file that disappears unless it was renamed.
struct Partial(PathBuf);

impl Partial {
    /// In the directory of `path`, which is made if it is missing.
    fn beside(path: &Path) -> Result<Self> {
        if let Some(dir) = path.parent().filter(|d| !d.as_os_str().is_empty()) {
            std::fs::create_dir_all(dir).with_path(dir, "")?;
        }
        let mut name = path.file_name().unwrap_or_default().to_os_string();
        name.push(format!(".{}.part", std::process::id()));
        Ok(Partial(path.with_file_name(name)))
    }

    /// Makes sure the contents are on disk before the name says so.
    fn take_name(self, path: &Path) -> Result<()> {
        std::fs::File::open(&self.0).and_then(|f| f.sync_all()).with_path(path, "")?;
        std::fs::rename(&self.0, path).with_path(path, "")
    }
}

impl Drop for Partial {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

/// Writes a text attribute.
pub(crate) fn write_text(at: &hdf5::Location, name: &str, text: &str) -> hdf5::Result<()> {
    let text: VarLenUnicode =
        text.parse().map_err(|_| hdf5::Error::from("text with a NUL byte"))?;
    at.new_attr::<VarLenUnicode>().create(name)?.write_scalar(&text)
}

/// Reads a text attribute.
pub(crate) fn read_text(at: &hdf5::Location, name: &str, path: &Path) -> Result<String> {
    at.attr(name)
        .and_then(|a| a.read_scalar::<VarLenUnicode>())
        .map(|t| t.to_string())
        .with_path(path, &format!("attribute {name}"))
}

/// Writes a vector straight from memory.
pub(crate) fn write_array<T: hdf5::H5Type>(
    group: &hdf5::Group,
    name: &str,
    values: &[T],
) -> hdf5::Result<()> {
    group.new_dataset::<T>().shape(values.len()).create(name)?.write_raw(values)
}

/// Writes a row-major matrix straight from memory.
pub(crate) fn write_matrix(
    group: &hdf5::Group,
    name: &str,
    values: &[f64],
    columns: usize,
) -> hdf5::Result<hdf5::Dataset> {
    let shape = (values.len() / columns.max(1), columns);
    let data = group.new_dataset::<f64>().shape(shape).create(name)?;
    data.write_raw(values)?;
    Ok(data)
}

/// Reads a whole array.
pub(crate) fn read_array<T: hdf5::H5Type>(
    group: &hdf5::Group,
    name: &str,
    path: &Path,
) -> Result<Vec<T>> {
    group
        .dataset(name)
        .and_then(|d| d.read_raw())
        .with_path(path, &format!("{}/{name}", group.name()))
}

/// Hash of arrays under names and with lengths, so that no two contents share a byte stream.
pub(crate) struct ArrayHasher(blake3::Hasher);

impl ArrayHasher {
    /// A hash of one kind of content.
    pub(crate) fn new(domain: &str) -> Self {
        ArrayHasher(blake3::Hasher::new_derive_key(domain))
    }

    /// Takes in one array.
    pub(crate) fn array<T: bytemuck::NoUninit>(&mut self, name: &str, values: &[T]) {
        self.0.update(name.as_bytes());
        self.0.update(&(values.len() as u64).to_le_bytes());
        self.0.update_rayon(bytemuck::cast_slice(values));
    }

    /// 64 hex digits.
    pub(crate) fn finish(self) -> String {
        self.0.finalize().to_hex().to_string()
    }
}
