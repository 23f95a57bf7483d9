//! How the program is linked: so that it starts fast, for it is every `sbatch` and `squeue`.
//!
//! A position-independent program of this size has some 28,000 addresses to be filled in at each
//! start, which takes half as long as all that `sbatch` does besides. Linked to a fixed place it has
//! none of that; stack, heap and libraries are at random places as before.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rustc-link-arg-bins=-no-pie");
    println!("cargo:rustc-link-arg-bins=-static-libgcc");
}
