//! The `dgmrf` program; see [`dgmrf::cli`].

fn main() -> std::process::ExitCode {
    dgmrf::cli::main()
}
