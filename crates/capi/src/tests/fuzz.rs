//! Every exported function with hostile arguments, in random order, against a model of what lives.
//!
//! `DRYSTONE_SEED` replays a run, `DRYSTONE_SEEDS` makes more of them.

use super::*;
use crate::pool_stream_stats::drystone_get_pool_stream_stats;

const OPERATIONS: usize = 4_000;
const DEVICES: [c_int; 9] = [0, 1, 0, 1, -1, 40, 64, c_int::MIN, c_int::MAX];
const NAMES: [(u64, u64); 5] = [(0, 0), (1, 0), (0, 1), (u64::MAX, u64::MAX), (7, 9)];

/// What the program believes of a block.
#[derive(Clone, Copy, Debug)]
struct Block {
    ptr: *mut c_void,
    size: usize,
    device: c_int,
    stream: *mut CUstream_st,
}

struct World {
    state: u64,
    live: Vec<Block>,
    freed: Vec<Block>,
    /// Frees that were.
    refused: u32,
    streams: Vec<u64>,
}

impl World {
    /// splitmix64
    fn random(&mut self, below: usize) -> usize {
        self.state = self.state.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.state;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        ((z ^ (z >> 31)) % below as u64) as usize
    }

    fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.random(from.len())]
    }

    fn device(&mut self) -> c_int {
        self.pick(&DEVICES)
    }

    fn stream(&mut self) -> *mut CUstream_st {
        let streams = self.streams.clone();
        stream(self.pick(&streams))
    }

    fn size(&mut self) -> usize {
        let size = 1 + self.random(6 << 20);
        let huge = [1 << 47, (1 << 47) + 1, 1 << 62, isize::MAX as usize, usize::MAX];
        match self.random(8) {
            0 => self.pick(&[0, 1, 511, 512, 513, MIB, MIB + 1]),
            1 => self.pick(&huge),
            _ => size,
        }
    }

    /// A pointer that is any but that of a live block's start.
    fn wild(&mut self) -> *mut c_void {
        let any = self.random(usize::MAX) as *mut c_void;
        let offset = 1 + self.random(511);
        let near = self.live.last().map_or(any, |block| block.ptr.wrapping_byte_add(offset));
        let unmapped = ((1_usize << 40) + (1 << 39)) as *mut c_void;
        self.pick(&[ptr::null_mut(), ptr::dangling_mut::<u8>().cast(), any, near, unmapped])
    }

    fn allocate(&mut self) {
        let (size, device, stream) = (self.size(), self.device(), self.stream());
        let name = self.pick(&NAMES);
        let mut ptr = ptr::dangling_mut();
        let status = match self.random(3) {
            0 => {
                ptr = drystone_malloc(size.cast_signed(), device, stream);
                if ptr.is_null() { Status::Internal } else { Status::Ok }
            }
            1 => {
                // SAFETY: the pointer is that of a local.
                unsafe { drystone_allocate(&raw mut ptr, size, device, stream) }
            }
            _ => {
                let out = &raw mut ptr;
                // SAFETY: as above.
                unsafe { drystone_allocate_from_pool(out, size, device, stream, name.0, name.1) }
            }
        };
        assert!(status == Status::Ok || ptr.is_null(), "{status:?}");
        if !ptr.is_null() {
            let block = Block { ptr, size, device, stream };
            let start = |b: &Block| (b.ptr as usize, b.ptr as usize + b.size);
            let (from, to) = start(&block);
            let overlaps = |b: &&Block| start(b).0 < to && from < start(b).1;
            assert!(from.is_multiple_of(512) && self.live.iter().find(overlaps).is_none());
            self.live.push(block);
        }
    }

    fn free(&mut self) {
        if self.live.is_empty() {
            return;
        }
        let at = self.random(self.live.len());
        let mut said = self.live[at];
        match self.random(8) {
            0 => said.size = self.size(),
            1 => said.device = self.device(),
            2 => said.stream = self.stream(),
            3 => said = self.freed.last().copied().unwrap_or(said),
            4 => said.ptr = self.wild(),
            _ => {}
        }
        let is_live = |b: &Block| b.ptr == said.ptr;
        let block = self.live.iter().position(is_live);
        let is_so = |b: &Block| b.size == said.size && b.device == said.device;
        let how = self.random(3);
        let is_right = block.is_some_and(|at| how == 0 || is_so(&self.live[at]));
        let is_its_stream = block
            .is_some_and(|at| (said.stream as u64).max(1) == (self.live[at].stream as u64).max(1));
        let before = (stats(0).allocated_bytes.current, stats(1).allocated_bytes.current);
        let Block { ptr, size, device, stream } = said;
        let is_freed = match how {
            0 => drystone_deallocate(ptr) == Status::Ok,
            1 => {
                about::drystone_clear_error();
                drystone_free(ptr, size.cast_signed(), device, stream);
                last_error::status() == Status::Ok
            }
            _ => drystone_deallocate_checked(ptr, size, device, stream) == Status::Ok,
        };
        let after = (stats(0).allocated_bytes.current, stats(1).allocated_bytes.current);
        let expected = is_right && (how != 2 || is_its_stream) || ptr.is_null();
        assert_eq!(is_freed, expected, "{said:?} by {how}");
        assert_eq!(before == after, !is_freed || ptr.is_null(), "{said:?} by {how}");
        self.refused += u32::from(!is_freed);
        if let Some(at) = block.filter(|_| is_freed) {
            self.freed.push(self.live.swap_remove(at));
        }
    }

    fn anything_else(&mut self) {
        let (device, stream, name) = (self.device(), self.stream(), self.pick(&NAMES));
        let at = self.random(self.live.len() + 1);
        let ptr = self.live.get(at).map(|block| block.ptr).unwrap_or_else(|| self.wild());
        let size = self.size();
        match self.random(18) {
            0 => {
                let _ = drystone_record_use(ptr, stream);
            }
            1 => drystone_record_stream(ptr, stream),
            2 => {
                let _ = drystone_pool_create(device, name.0, name.1);
            }
            3 => {
                let _ = drystone_pool_destroy(device, name.0, name.1);
            }
            4 => drystone_release_pool(device, name.0, name.1),
            5 => drystone_end_allocate_to_pool(device, name.0, name.1),
            6 => {
                let filter = ((size & 1) as *mut c_void).cast();
                // SAFETY: no filter, or one that is refused.
                unsafe { drystone_begin_allocate_to_pool(device, name.0, name.1, filter) };
            }
            7 => drystone_reset(),
            // `drystone_init` would hold for the whole process.
            8 => drop(drystone_reset_peaks(device)),
            9 => {
                let mut bytes = 1;
                // SAFETY: the pointer is that of a local.
                let base = unsafe { drystone_base_allocation(ptr, &raw mut bytes) };
                let range = base as usize..base as usize + bytes;
                assert!(base.is_null() && bytes == 0 || range.contains(&(ptr as usize)));
            }
            10 => drystone_set_memory_fraction(self.random(12) as f64 / 10.0, device),
            11 => {
                let _ = drystone_set_limit(device, usize::MAX);
            }
            12 => {
                let _ = drystone_enable_peer_access(device, size as c_int);
            }
            13 => {
                // SAFETY: null is refused.
                let nothing = unsafe { drystone_largest_free(device, ptr::null_mut()) };
                assert_eq!(nothing, Status::InvalidValue);
                // SAFETY: null is refused.
                let nothing = unsafe { drystone_get_stats(device, ptr::null_mut()) };
                assert_eq!(nothing, Status::InvalidValue);
            }
            14 => {
                // SAFETY: no buffer, of no size; and null is refused.
                let _ = unsafe {
                    drystone_stats_json(device, ptr::null_mut(), size & 1, ptr::null_mut())
                };
            }
            15 => {
                let _ = drystone_reset_peaks(device);
                // SAFETY: null is refused.
                let nothing = unsafe {
                    drystone_get_pool_stream_stats(device, ptr::null_mut(), ptr::null_mut())
                };
                assert_eq!(nothing, Status::InvalidValue);
            }
            16 => {
                // SAFETY: null takes the environment's.
                let _ = unsafe { drystone_configure(device, ptr::null()) };
            }
            _ => {
                let _ = drystone_retire_stream(device, stream);
            }
        }
    }

    fn run(&mut self) {
        // A pool that takes requests may be a capture's: until it takes no more, nothing is given
        // back for anybody who counts on it.
        let _all = HELD.write();
        for _ in 0..OPERATIONS {
            match self.random(8) {
                0..=2 => self.allocate(),
                3..=5 => self.free(),
                _ => self.anything_else(),
            }
            assert_ne!(last_error::status(), Status::Internal, "{}", message());
        }
        let reached = (self.freed.len(), self.refused);
        assert!(reached.0 > 100 && reached.1 > 100, "reached little: {reached:?}");
        for block in std::mem::take(&mut self.live) {
            assert_eq!(drystone_deallocate(block.ptr), Status::Ok, "{block:?}");
        }
        for device in [0, 1] {
            NAMES.iter().for_each(|&name| end_all(device, name));
            assert_eq!(drystone_set_limit(device, usize::MAX), Status::Ok);
            assert_eq!(drystone_check(device), Status::Ok, "{}", message());
            assert_eq!(stats(device).allocated_bytes.current, 0);
            let simulated = simulated(device as u32).unwrap();
            assert_eq!(simulated.take_violations(), []);
        }
    }
}

/// Ends what a pool takes requests by, as often as that was begun.
fn end_all(device: c_int, name: (u64, u64)) {
    about::drystone_clear_error();
    while last_error::status() == Status::Ok {
        drystone_end_allocate_to_pool(device, name.0, name.1);
    }
}

fn number_from(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

#[test]
fn p5_hostile_arguments_in_any_order_leave_the_allocator_usable() {
    let own = simulated(0).unwrap().create_stream();
    let same = simulated(1).unwrap().create_stream();
    let first = number_from("DRYSTONE_SEED").unwrap_or(1);
    for seed in first..first + number_from("DRYSTONE_SEEDS").unwrap_or(20) {
        eprintln!("DRYSTONE_SEED={seed}");
        // One is made and destroyed before, so that a handle of nobody's is among them.
        let gone = simulated(1).unwrap().create_stream();
        simulated(1).unwrap().destroy_stream(gone).unwrap();
        let streams = vec![0, 0, 1, 2, own.0, own.0, same.0, gone.0, 0xDEAD, u64::MAX];
        World { state: seed, live: Vec::new(), freed: Vec::new(), refused: 0, streams }.run();
    }
}
