//! Compiles the C code of the folder above with the machine's own compiler: CC and AR say which, else cc and ar.
use std::env;
use std::path::PathBuf;
use std::process::Command;

fn run(command: &mut Command) {
    match command.status() {
        Ok(status) if status.success() => {}
        Ok(status) => panic!("{command:?} failed: {status}"),
        Err(error) => panic!("{command:?} cannot be run: {error}. Install a C compiler, or set CC and AR"),
    }
}

/// The command in a variable of the environment, which may have options behind it.
fn read_command(name: &str, otherwise: &str) -> Command {
    println!("cargo:rerun-if-env-changed={name}");
    let text = env::var(name).unwrap_or_default();
    let mut words = text.split_whitespace();
    let mut command = Command::new(words.next().unwrap_or(otherwise));
    command.args(words);
    command
}

fn main() {
    let source = PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").unwrap()).join("..");
    let out = PathBuf::from(env::var_os("OUT_DIR").unwrap());
    let object = out.join("${prefix}.o");
    let library = out.join("lib${prefix}_solver_c.a");
    for name in ["${prefix}.c", "${prefix}.h", "${prefix}_data.h"] {
        println!("cargo:rerun-if-changed={}", source.join(name).display());
    }
    // Not -ffast-math: infinite bounds have a meaning.
    let options = [
        "-std=c99", "-fPIC", "-O2", "-ftree-vectorize", "-fno-math-errno", "-fno-trapping-math", "-fno-signed-zeros",
        "-fassociative-math", "-ffp-contract=fast",
    ];
    run(read_command("CC", "cc").args(options).arg("-c").arg(source.join("${prefix}.c")).arg("-o").arg(&object));
    // An archive that is there would keep what was in it.
    let _ = std::fs::remove_file(&library);
    run(read_command("AR", "ar").arg("crs").arg(&library).arg(&object));
    println!("cargo:rustc-link-search=native={}", out.display());
    println!("cargo:rustc-link-lib=static=${prefix}_solver_c");
    if env::var("CARGO_CFG_TARGET_FAMILY").as_deref() == Ok("unix") {
        println!("cargo:rustc-link-lib=m");
    }
}
