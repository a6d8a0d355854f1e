//! kornia's tensors from crates.io as they are: a tracker over frames of varying sizes.
//!
//! Its arguments are `frames COUNT`: sizes are pseudorandom, and the same in each run. A frame
//! takes a colour image and a pyramid of grey ones; the pyramids of the last frames stay.

use std::collections::VecDeque;
use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use cudarc::driver::{CudaContext, CudaStream};
use kornia_tensor::{Tensor, cuda::zeros_cuda};

/// Frames whose pyramids a tracker looks at.
const WINDOW: usize = 6;
const LEVELS: u32 = 4;

type Image = Tensor<f32, 3>;

/// Does what the program's arguments say.
pub fn run() -> Result<()> {
    let mut arguments = std::env::args().skip(1);
    let task = arguments.next().context("what to do: frames")?;
    ensure!(task == "frames", "{task} is nothing to do: frames");
    let frames: usize = arguments.next().context("how many frames")?.parse()?;
    let stream = CudaContext::new(0)?.new_stream()?;
    let mut seed = 7_u64;
    let mut window = VecDeque::new();
    for _ in 0..frames {
        // Knuth's linear congruential generator (MMIX), its upper bits: crops of a larger frame.
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let height = 720 + (seed >> 33) as usize % 1440;
        window.push_back(pyramid(&stream, height, height * 16 / 9)?);
        if window.len() > WINDOW {
            window.pop_front();
        }
    }
    stream.synchronize()?;
    drop(window);
    engine_watch::report();
    Ok(())
}

/// The grey levels of a frame, whose colours are needed no longer than it takes to make them.
fn pyramid(stream: &Arc<CudaStream>, height: usize, width: usize) -> Result<Vec<Image>> {
    let _colours: Image = zeros_cuda([height, width, 3], stream)?;
    let level = |n: u32| Ok(zeros_cuda([height >> n, width >> n, 1], stream)?);
    (0..LEVELS).map(level).collect()
}
