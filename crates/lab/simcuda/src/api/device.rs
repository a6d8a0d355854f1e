//! What can be asked of devices before there is a context.

use crate::abi::{Out, Text, TextBuffer};
use crate::attribute::attribute;
use crate::process;
use crate::process::device_at;
use crate::status::{INVALID_DEVICE, INVALID_VALUE, NOT_SUPPORTED, Outcome};
use crate::visible::unique_number;

fn pci_bus_id(place: usize) -> String {
    format!("0000:{:02X}:00.0", place + 1)
}

fn are_peers(device: i32, peer: i32) -> Outcome<bool> {
    Ok(device != peer && device_at(device)?.reaches(&*device_at(peer)?))
}

api! {
    fn cuDeviceGetCount(count: Out<i32>) |call| { count.set(process::device_count() as i32) }

    fn cuDeviceGet(device: Out<i32>, ordinal: i32) |call| {
        device_at(ordinal)?;
        device.set(ordinal)
    }

    fn cuDeviceGetName(name: TextBuffer, room: i32, device: i32) |call| {
        let device = device_at(device)?;
        let room = usize::try_from(room).map_err(|_| INVALID_VALUE)?;
        name.set(room, &device.config.name)
    }

    fn cuDeviceGetUuid_v2 = cuDeviceGetUuid (uuid: Out<[u8; 16]>, device: i32) |call| {
        let device = device_at(device)?;
        uuid.set(unique_number(device.place, device.config.sim.shared.as_deref()))
    }

    fn cuDeviceGetLuid(luid: TextBuffer, mask: Out<u32>, device: i32) |call| {
        device_at(device)?;
        Err(NOT_SUPPORTED)
    }

    fn cuDeviceTotalMem_v2 = cuDeviceTotalMem (bytes: Out<usize>, device: i32) |call| {
        bytes.set(device_at(device)?.config.sim.total_bytes as usize)
    }

    fn cuDeviceGetAttribute(value: Out<i32>, number: i32, device: i32) |call| {
        let device = device_at(device)?;
        value.set(attribute(&device.config, device.place, number)?)
    }

    fn cuDeviceComputeCapability(major: Out<i32>, minor: Out<i32>, device: i32) |call| {
        let (high, low) = device_at(device)?.config.compute;
        minor.check()?;
        major.set(high)?;
        minor.set(low)
    }

    fn cuDeviceGetProperties(properties: Out<[i32; 14]>, device: i32) |call| {
        let device = device_at(device)?;
        let of = |number| attribute(&device.config, device.place, number);
        properties.set([
            of(1)?, of(2)?, of(3)?, of(4)?, of(5)?, of(6)?, of(7)?,
            of(8)?, of(9)?, of(10)?, of(11)?, of(12)?, of(13)?, of(14)?,
        ])
    }

    fn cuDeviceGetPCIBusId(id: TextBuffer, room: i32, device: i32) |call| {
        let room = usize::try_from(room).map_err(|_| INVALID_VALUE)?;
        id.set(room, &pci_bus_id(device_at(device)?.place))
    }

    fn cuDeviceGetByPCIBusId(device: Out<i32>, id: Text) |call| {
        let id = id.get()?.to_uppercase();
        let found = process::devices().find(|device| pci_bus_id(device.place) == id);
        device.set(found.ok_or(INVALID_DEVICE)?.ordinal as i32)
    }

    fn cuDeviceCanAccessPeer(can: Out<i32>, device: i32, peer: i32) |call| {
        can.set(are_peers(device, peer)?.into())
    }

    fn cuDeviceGetP2PAttribute(value: Out<i32>, number: i32, from: i32, to: i32) |call| {
        let is_linked = are_peers(from, to)?;
        INVALID_DEVICE.when(from == to)?;
        value.set(match number {
            1 => 0,
            2..=4 => is_linked.into(),
            5 => 0,
            _ => return Err(INVALID_VALUE),
        })
    }

    fn cuDeviceGetExecAffinitySupport(is_supported: Out<i32>, kind: i32, device: i32) |call| {
        device_at(device)?;
        is_supported.set(0)
    }

    fn cuFlushGPUDirectRDMAWrites(target: i32, scope: i32) |call| { Err(NOT_SUPPORTED) }
}
