//! Has the library's constructor run before those of all others: what they allocate through import slots is seen then, too.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rustc-cdylib-link-arg=-Wl,-z,initfirst");
}
