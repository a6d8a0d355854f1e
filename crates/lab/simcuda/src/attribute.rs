//! Device attributes: the figures of an H100, with those that the settings decide.

use crate::config::Config;
use crate::status::{INVALID_VALUE, Outcome};
use drystone_sim::NetworkMemory;

/// Attributes that never change, by their number in `cuda.h`.
const FIXED: &[(i32, i32)] = &[
    (1, 1024),       // threads per block
    (2, 1024),       // block, x
    (3, 1024),       // block, y
    (4, 64),         // block, z
    (5, i32::MAX),   // grid, x
    (6, 65_535),     // grid, y
    (7, 65_535),     // grid, z
    (8, 49_152),     // shared memory per block
    (9, 65_536),     // constant memory
    (10, 32),        // warp
    (11, i32::MAX),  // pitch
    (12, 65_536),    // registers per block
    (13, 1_980_000), // clock rate, kHz
    (14, 512),       // texture alignment
    (15, 1),         // copies overlap kernels
    (19, 1),         // host memory can be mapped
    (21, 131_072),   // textures and surfaces
    (22, 131_072),
    (23, 65_536),
    (24, 16_384),
    (25, 16_384),
    (26, 16_384),
    (27, 32_768),
    (28, 32_768),
    (29, 2048),
    (30, 512),
    (31, 1),          // concurrent kernels
    (32, 1),          // ECC
    (36, 2_619_000),  // memory clock, kHz
    (37, 5120),       // bus width
    (38, 52_428_800), // L2 cache
    (39, 2048),       // threads per multiprocessor
    (40, 3),          // copy engines
    (41, 1),          // unified addresses
    (51, 32),         // texture pitch alignment
    (78, 1),          // stream priorities
    (79, 1),          // L1 caches
    (80, 1),
    (81, 233_472), // shared memory per multiprocessor
    (82, 65_536),  // registers per multiprocessor
    (83, 1),       // managed memory
    (87, 2),       // single to double precision
    (89, 1),       // managed memory used at the same time
    (90, 1),       // preemption
    (91, 1),       // host pointers of registered memory
    (92, 1),       // waiting for and writing values
    (93, 1),
    (94, 1),
    (95, 1),            // cooperative launch
    (97, 232_448),      // shared memory per block, opt-in
    (99, 1),            // host memory can be registered
    (106, 32),          // blocks per multiprocessor
    (108, 32_768_000),  // persisting L2
    (109, 134_213_632), // access policy window
    (111, 1024),        // reserved shared memory per block
    (113, 1),           // read-only registering
    (114, 1),           // timeline semaphores
    (120, 1),           // clusters
    (121, 1),           // deferred mapping
    (122, 1),           // stream memory operations
    (123, 1),
    (125, 1),  // event IPC
    (126, 4),  // memory synchronisation domains
    (127, 1),  // tensor maps
    (129, 1),  // unified function pointers
    (131, -1), // NUMA
    (134, 0),
];

/// What differs by compute capability (CUDA C++ Programming Guide, *Technical Specifications per
/// Compute Capability*): threads, shared memory and blocks of a multiprocessor, and the shared
/// memory that a block may opt in to. Others have those of an H100.
const BY_COMPUTE: &[((i32, i32), [i32; 4])] = &[
    ((7, 5), [1024, 65_536, 16, 65_536]),
    ((8, 0), [2048, 167_936, 32, 166_912]),
    ((8, 6), [1536, 102_400, 16, 101_376]),
    ((8, 9), [1536, 102_400, 24, 101_376]),
    ((12, 0), [1536, 102_400, 24, 101_376]),
];
/// The attributes of these four.
const OF_COMPUTE: [i32; 4] = [39, 81, 106, 97];

/// Largest number that is an attribute in CUDA 13.
const LAST: i32 = 147;

pub(crate) fn attribute(config: &Config, place: usize, number: i32) -> Outcome<i32> {
    INVALID_VALUE.when(!(1..=LAST).contains(&number))?;
    let sim = &config.sim;
    Ok(match number {
        16 => config.multiprocessors,
        18 => sim.host.is_some().into(),
        33 => place as i32 + 1,
        75 => config.compute.0,
        76 => config.compute.1,
        102 => sim.has_virtual_memory.into(),
        103 => (sim.has_virtual_memory && sim.is_shareable).into(),
        110 => (sim.network_memory != NetworkMemory::Absent).into(),
        115 => sim.has_async_malloc.into(),
        119 => (sim.has_async_malloc && sim.is_shareable).into(),
        _ => of_compute(config.compute, number)
            .or_else(|| FIXED.iter().find(|row| row.0 == number).map(|row| row.1))
            .unwrap_or(0),
    })
}

fn of_compute(compute: (i32, i32), number: i32) -> Option<i32> {
    let column = OF_COMPUTE.iter().position(|of| *of == number)?;
    BY_COMPUTE.iter().find(|row| row.0 == compute).map(|row| row.1[column])
}

#[cfg(test)]
mod tests {
    use super::of_compute;

    #[test]
    fn shared_memory_goes_by_compute_capability() {
        assert_eq!(of_compute((8, 0), 97), Some(166_912));
        assert_eq!(of_compute((9, 0), 97), None);
        assert_eq!(of_compute((8, 0), 1), None);
    }
}
