//! Lets the binary, the tests and the benches find libtorch at run time without
//! `LD_LIBRARY_PATH`: the directory that the build used goes into their rpath.

fn main() {
    println!("cargo:rerun-if-env-changed=LIBTORCH");
    if std::env::var_os("CARGO_FEATURE_TORCH").is_none() {
        return;
    }
    let Some(libtorch) = std::env::var_os("LIBTORCH") else { return };
    let lib = std::path::Path::new(&libtorch).join("lib");
    // The link in the repository points into the user's cache: the binary should survive a move.
    let lib = lib.canonicalize().unwrap_or(lib);
    println!("cargo:rustc-link-arg=-Wl,-rpath,{}", lib.display());
}
