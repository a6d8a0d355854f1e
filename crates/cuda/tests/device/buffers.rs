//! Buffers, wherever cudarc takes a slice.

use std::sync::Arc;

use cudarc::driver::{CudaContext, DevicePtr, DeviceSlice, LaunchArgs, PushKernelArg};
use drystone_cuda::{Buffer, BufferView, BufferViewMut, CudaDevice};
use drystone_driver::Driver;

use crate::raw;
use crate::scenario::open;

/// Gives memory back when it is dropped.
struct Owner {
    device: Arc<CudaDevice>,
    address: u64,
}

impl Drop for Owner {
    fn drop(&mut self) {
        self.device.free(self.address).unwrap();
    }
}

#[test]
fn cudarc_copies_and_fills_buffers_and_their_parts() {
    crate::scenario!(1, "", || {
        let device = Arc::new(open());
        let context = CudaContext::new(0).unwrap();
        let stream = context.new_stream().unwrap();
        let buffer = |len: usize| {
            let address = device.malloc(4 * len as u64).unwrap();
            let owner = Owner { device: Arc::clone(&device), address };
            // SAFETY: so much memory is there, nobody else's, until the owner is dropped; numbers
            // may hold any bytes.
            unsafe { Buffer::<f32, _>::new(address, len, Arc::clone(&stream), owner) }
        };
        let before = raw::free_bytes();
        let (mut one, mut two) = (buffer(8), buffer(8));
        assert_eq!((one.len(), one.num_bytes()), (8, 32));
        let values = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0_f32];
        stream.memcpy_htod(&values, &mut one).unwrap();
        stream.memset_zeros(&mut two).unwrap();
        let part = one.slice(2..6).unwrap();
        assert_eq!(part.device_ptr(&stream).0, one.address() + 8);
        stream.memcpy_dtod(&part, &mut two.slice_mut(..4).unwrap()).unwrap();
        assert_eq!(stream.clone_dtoh(&one).unwrap(), values);
        let copied = [3.0, 4.0, 5.0, 6.0, 0.0, 0.0, 0.0, 0.0];
        assert_eq!(stream.clone_dtoh(&two).unwrap(), copied);
        assert_eq!(stream.clone_dtoh(&part.slice(3..).unwrap()).unwrap(), [6.0]);
        let mut rest = two.slice_mut(4..).unwrap();
        stream.memcpy_htod(&[9.0], &mut rest.slice_mut(1..2).unwrap()).unwrap();
        assert_eq!(stream.clone_dtoh(&rest.slice(..2).unwrap()).unwrap(), [0.0, 9.0]);
        assert!(one.slice(7..9).is_none());

        let owner = one.into_owner();
        assert_eq!(raw::read(owner.address, 4), 1.0_f32.to_le_bytes());
        drop((owner, two));
        assert_eq!(raw::free_bytes(), before, "dropping the owners frees the memory");
        context.check_err().unwrap();
    });
}

/// Compiles: a kernel takes buffers and views, read or written, as cudarc's slices.
#[expect(dead_code, reason = "only has to compile: a launch needs a compiled kernel")]
fn kernels_take_buffers<'a, T>(
    launch: &mut LaunchArgs<'a>,
    read: &'a Buffer<T, Owner>,
    written: &'a mut Buffer<T, Owner>,
    part: &'a BufferView<'a, T>,
    written_part: &'a mut BufferViewMut<'a, T>,
) {
    launch.arg(read).arg(written).arg(part).arg(written_part);
}
