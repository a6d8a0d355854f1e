//! `cudaGetDeviceProperties`: a record whose fields are nearly all attributes of the device.
//!
//! CUDA 13 took fields out of the middle, so the record is laid out from a list that says which
//! versions have which field, as a C compiler would.

use std::ffi::c_int;

use crate::context::{check_device, initialize};
use crate::described::{self, Described};
use crate::driver::{self, Out};
use crate::error::{self, Outcome};
use crate::export::exports;

/// What a field holds. Numbers are the driver's attributes.
#[derive(Clone, Copy)]
enum Field {
    Name,
    Uuid,
    TotalMemory,
    Int(c_int),
    Size(c_int),
    /// An `int` that CUDA 13 no longer has.
    Int12(c_int),
    /// An `int` that CUDA 12 does not have yet.
    Int13(c_int),
    /// Nothing to tell; so many bytes with the alignment of an `int`.
    Nothing(usize),
}
use Field::{Int, Int12, Int13, Name, Nothing, Size, TotalMemory, Uuid};

/// Fields that every version has, removed ones included.
#[rustfmt::skip]
const FIELDS: &[Field] = &[
    Name, Uuid, Nothing(12), TotalMemory,
    // Shared memory and registers of a block, warp, pitch, threads, block and grid dimensions.
    Size(8), Int(12), Int(10), Size(11), Int(1),
    Int(2), Int(3), Int(4), Int(5), Int(6), Int(7), Int12(13),
    // Constant memory, compute capability, textures' alignment, processors, kind of device.
    Size(9), Int(75), Int(76), Size(14), Size(51), Int12(15), Int(16), Int12(17), Int(18), Int(19),
    Int12(20),
    // Textures: linear, mipmapped, gathered, cube maps, layered.
    Int(21), Int(77), Int12(69), Int(22), Int(23), Int(73), Int(74), Int(70), Int(71), Int(72),
    Int(45), Int(46), Int(24), Int(25), Int(26), Int(47), Int(48), Int(49), Int(52),
    Int(42), Int(43), Int(27), Int(28), Int(29), Int(53), Int(54),
    // Surfaces.
    Int(55), Int(56), Int(57), Int(58), Int(59), Int(60), Int(61), Int(62), Int(63), Int(64),
    Int(65), Int(66), Int(67), Int(68), Size(30),
    // Concurrency, bus, driver, engines, clocks, caches.
    Int(31), Int(32), Int(33), Int(34), Int(50), Int(35), Int(40), Int(41), Int12(36), Int(37),
    Int(38), Int(108), Int(39), Int(78), Int(79), Int(80),
    // Per processor; managed memory, boards, atomics.
    Size(81), Int(82), Int(83), Int(84), Int(85), Int(86), Int12(87), Int(88), Int(89), Int(90),
    Int(91), Int(95), Int12(96), Size(97), Int(100), Int(101), Int(106), Int(109), Size(111),
];

/// Fields that the first record of CUDA 12 did not have.
#[rustfmt::skip]
const LATER_FIELDS: &[Field] = &[
    Int(99), Int(112), Int(113), Int(114), Int(115), Int(116), Int(117), Int(118), Int(119),
    Int(121), Int(125), Int(120), Int(129),
    Int13(130), Int13(131), Int13(133), Int13(134), Int13(139), Int13(140), Int13(143),
];

/// The records that programs were built against.
#[derive(Clone, Copy)]
enum Record {
    First,
    Cuda12,
    Cuda13,
}

impl Record {
    const fn size(self) -> usize {
        match self {
            Self::First => 728,
            Self::Cuda12 => 1032,
            Self::Cuda13 => 1008,
        }
    }

    fn fields(self) -> impl Iterator<Item = Field> {
        let later = if matches!(self, Self::First) { &[] } else { LATER_FIELDS };
        FIELDS.iter().chain(later).copied().filter(move |field| match field {
            Int12(_) => !matches!(self, Self::Cuda13),
            Int13(_) => matches!(self, Self::Cuda13),
            _ => true,
        })
    }

    /// Lays out the fields, each where its alignment puts it, and zeros behind the last.
    fn lay_out(self, of: &Described, attribute: impl Fn(c_int) -> c_int) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(self.size());
        for field in self.fields() {
            match field {
                Name => bytes.extend(of.name),
                Uuid => bytes.extend(of.uuid),
                TotalMemory => put(&mut bytes, &of.memory_bytes.to_ne_bytes()),
                Int(number) | Int12(number) | Int13(number) => {
                    put(&mut bytes, &attribute(number).to_ne_bytes());
                }
                Size(number) => {
                    let value = usize::try_from(attribute(number)).unwrap_or(0);
                    put(&mut bytes, &value.to_ne_bytes());
                }
                Nothing(size) => bytes.resize(bytes.len() + size, 0),
            }
        }
        bytes.resize(self.size(), 0);
        bytes
    }
}

/// Appends a number, aligned to its size.
fn put(bytes: &mut Vec<u8>, number: &[u8]) {
    bytes.resize(bytes.len().next_multiple_of(number.len()), 0);
    bytes.extend(number);
}

/// Tells the record of the version that the caller was built against.
fn tell<const SIZE: usize>(to: Out<[u8; SIZE]>, device: c_int, record: Record) -> Outcome {
    initialize()?;
    if to.is_null() {
        return Err(error::INVALID_VALUE);
    }
    check_device(device)?;
    let described = described::find(device).ok_or(error::INVALID_DEVICE)?;
    let bytes = record.lay_out(described, |attribute| driver::attribute(device, attribute));
    to.tell(bytes.try_into().map_err(|_| error::INVALID_VALUE)?)
}

exports! {
    /// `cudaGetDeviceProperties` of programs built for CUDA 11.
    fn cudaGetDeviceProperties_v1(to: Out<[u8; Record::First.size()]>, device: c_int) {
        tell(to, device, Record::First)
    }

    /// `cudaGetDeviceProperties` of programs built for CUDA 12.
    fn cudaGetDeviceProperties_v2(to: Out<[u8; Record::Cuda12.size()]>, device: c_int) {
        tell(to, device, Record::Cuda12)
    }

    /// `cudaGetDeviceProperties` of programs built for CUDA 13.
    fn cudaGetDeviceProperties_v13(to: Out<[u8; Record::Cuda13.size()]>, device: c_int) {
        tell(to, device, Record::Cuda13)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Of a device whose attributes are their numbers.
    fn lay_out(record: Record) -> Vec<u8> {
        let described = Described { name: [b'n'; 256], uuid: [b'u'; 16], memory_bytes: 1 << 40 };
        record.lay_out(&described, |attribute| attribute)
    }

    /// Offsets that C compilers give `totalGlobalMem`, `totalConstMem`, `multiProcessorCount`,
    /// `surfaceAlignment`, `pciBusID`, `sharedMemPerMultiprocessor`, `reservedSharedMemPerBlock`,
    /// `memoryPoolsSupported` and `unifiedFunctionPointers`.
    const ATTRIBUTES: [c_int; 8] = [9, 16, 30, 33, 81, 111, 115, 129];
    const OFFSETS_12: [usize; 8] = [352, 388, 568, 584, 640, 720, 744, 776];
    const OFFSETS_13: [usize; 8] = [352, 384, 552, 568, 624, 696, 720, 752];

    fn int_at(bytes: &[u8], at: usize) -> c_int {
        c_int::from_ne_bytes(bytes[at..at + 4].try_into().unwrap())
    }

    #[test]
    fn fields_are_where_the_headers_of_each_version_put_them() {
        for (record, offsets) in [(Record::Cuda12, OFFSETS_12), (Record::Cuda13, OFFSETS_13)] {
            let bytes = lay_out(record);
            assert_eq!(bytes.len(), record.size());
            assert_eq!(&bytes[288..296], &(1_usize << 40).to_ne_bytes());
            for (attribute, at) in ATTRIBUTES.into_iter().zip(offsets) {
                assert_eq!(int_at(&bytes, at), attribute, "at {at}");
            }
        }
    }

    #[test]
    fn the_first_record_is_the_beginning_of_that_of_cuda_12() {
        let first = lay_out(Record::First);
        assert_eq!(first, lay_out(Record::Cuda12)[..728]);
    }

    #[test]
    fn no_field_lies_in_what_is_reserved() {
        let cuda_12 = lay_out(Record::Cuda12);
        assert_eq!(int_at(&cuda_12, 776), 129);
        assert!(cuda_12[780..].iter().all(|byte| *byte == 0));
        let cuda_13 = lay_out(Record::Cuda13);
        assert_eq!(int_at(&cuda_13, 780), 143);
        assert!(cuda_13[784..].iter().all(|byte| *byte == 0));
    }
}
