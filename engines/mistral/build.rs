//! mistral.rs is linked with the driver: its requests go by way of `engine-watch`.

fn main() {
    for function in ["cuMemAllocAsync", "cuMemFreeAsync"] {
        println!("cargo:rustc-link-arg-bins=-Wl,--wrap={function}");
    }
}
