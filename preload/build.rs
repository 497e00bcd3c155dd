//! Has the library's constructor run before those of all others: what they allocate through import slots is seen then, too. And what the library itself takes by C's names comes from its own heap (`heap`).

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rustc-cdylib-link-arg=-Wl,-z,initfirst");
    for name in ["malloc", "calloc", "posix_memalign", "realloc", "free", "realpath"] {
        println!("cargo::rustc-cdylib-link-arg=-Wl,--wrap={name}");
    }
}
