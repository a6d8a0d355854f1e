//! kornia looks the driver's functions up: that goes by way of `engine-watch`.

fn main() {
    println!("cargo:rustc-link-arg-bins=-Wl,--wrap=dlsym");
}
