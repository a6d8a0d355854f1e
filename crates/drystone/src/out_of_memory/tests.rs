//! What a refusal says: of each staged shortage, the right cause first.

use drystone_driver::ErrorCode;

use super::*;

const GIB: u64 = 1 << 30;

/// 8 GiB, of which 1 is free and 7 are in use.
fn sample() -> OutOfMemory {
    OutOfMemory {
        requested_bytes: 2 * GIB,
        ordinal: 0,
        pool: PoolId::DEFAULT,
        device_bytes: 8 * GIB,
        device_free_bytes: Some(GIB),
        host_floor_bytes: 0,
        limit_bytes: u64::MAX,
        allocated_bytes: 7 * GIB,
        pending_bytes: 0,
        reserved_bytes: 7 * GIB,
        largest_free_bytes: 0,
        private_allocated_bytes: 0,
        private_free_bytes: 0,
        own_free_bytes: 0,
        pinned_bytes: 0,
        beside_live_bytes: 0,
        stays: None,
        granule_bytes: Some(2 << 20),
        granule_bytes_min: 2 << 20,
        is_capturing: false,
        is_at_limit: false,
        tags: Vec::new(),
        neighbours: Vec::new(),
        refusal: Some(
            DriverError::new(Call::Create, ErrorCode::OutOfMemory).with_figures(2 << 20, 0),
        ),
    }
}

/// The same with 3 GiB unused.
fn unused() -> OutOfMemory {
    OutOfMemory { allocated_bytes: 4 * GIB, ..sample() }
}

/// The same held elsewhere, except 1 GiB.
fn outside() -> OutOfMemory {
    OutOfMemory { allocated_bytes: GIB, reserved_bytes: GIB, ..sample() }
}

/// Refused by a limit of what is in use: 6 GiB of 8.
fn limited() -> OutOfMemory {
    OutOfMemory {
        limit_bytes: 6 * GIB,
        is_at_limit: true,
        device_free_bytes: Some(2 * GIB),
        allocated_bytes: 6 * GIB,
        reserved_bytes: 6 * GIB,
        ..sample()
    }
}

/// The same on a device that has no more either.
fn limited_on_a_full_device() -> OutOfMemory {
    OutOfMemory { device_free_bytes: Some(GIB), ..limited() }
}

/// Nothing is left above what the host keeps.
fn above_a_floor() -> OutOfMemory {
    OutOfMemory { host_floor_bytes: 2 * GIB, refusal: None, ..sample() }
}

#[test]
fn the_floor_is_a_cause_where_the_request_fits_into_it() {
    let fits = OutOfMemory { device_free_bytes: Some(3 * GIB), ..above_a_floor() };
    let cause = Cause::HostFloor(3 * GIB, 2 * GIB);
    assert_eq!(fits.cause(), cause);
    assert_eq!(above_a_floor().cause(), Cause::InUse { missing_bytes: 2 * GIB });
}

#[test]
fn message_has_the_figures_and_the_way_out() {
    assert_eq!(
        sample().to_string(),
        "CUDA out of memory. Tried to allocate 2.00 GiB. Use a smaller batch, \
         or free 1.00 GiB more of this or another process on the device. GPU 0 has a total \
         capacity of 8.00 GiB of which 1.00 GiB is free. Drystone holds 7.00 GiB: 7.00 GiB \
         allocated, 0 bytes pending on other streams, largest free block 0 bytes. The driver: \
         cuMemCreate failed: out of memory (2097152 bytes)."
    );
}

#[test]
fn the_cause_is_what_the_request_would_have_been_served_without() {
    let access = DriverError::new(Call::SetAccess, ErrorCode::OutOfMemory);
    for (error, cause) in [
        (sample(), Cause::InUse { missing_bytes: GIB }),
        (OutOfMemory { requested_bytes: 9 * GIB, ..sample() }, Cause::Device),
        (
            OutOfMemory { requested_bytes: 3 * GIB, ..outside() },
            Cause::Rest { rest_bytes: 2 * GIB, outside_bytes: 6 * GIB },
        ),
        (outside(), Cause::Outside(6 * GIB)),
        // A limit of the process that the device says nothing of, whatever else is unused.
        (
            OutOfMemory { device_free_bytes: Some(3 * GIB), pending_bytes: GIB, ..unused() },
            Cause::Withheld(3 * GIB),
        ),
        (
            OutOfMemory { device_free_bytes: None, ..outside() },
            Cause::InUse { missing_bytes: 2 * GIB },
        ),
        (limited(), Cause::Limit(6 * GIB)),
        (limited_on_a_full_device(), Cause::InUse { missing_bytes: 2 * GIB }),
        (OutOfMemory { limit_bytes: GIB, ..limited() }, Cause::Limit(GIB)),
        (
            OutOfMemory { limit_bytes: 8 * GIB, is_at_limit: true, ..sample() },
            Cause::InUse { missing_bytes: GIB },
        ),
        // Nothing could be given back, but nothing was unused either.
        (OutOfMemory { is_capturing: true, ..sample() }, Cause::InUse { missing_bytes: GIB }),
        (OutOfMemory { is_capturing: true, ..unused() }, Cause::Capture),
        (unused(), Cause::Pieces(3 * GIB)),
        (OutOfMemory { pending_bytes: 3 * GIB, ..unused() }, Cause::Pending(3 * GIB)),
        (OutOfMemory { private_free_bytes: 3 * GIB, ..unused() }, Cause::PrivatePools(3 * GIB)),
        (OutOfMemory { own_free_bytes: 3 * GIB, ..unused() }, Cause::OwnPool(3 * GIB)),
        // What is cached serves as far as it goes.
        (OutOfMemory { requested_bytes: 5 * GIB, ..unused() }, Cause::InUse { missing_bytes: GIB }),
        // A little in pools is not why.
        (
            OutOfMemory { private_free_bytes: 1 << 20, ..sample() },
            Cause::InUse { missing_bytes: GIB },
        ),
        // Unused memory comes before the limit that it is held under.
        (
            OutOfMemory {
                private_free_bytes: 3 * GIB,
                limit_bytes: 7 * GIB,
                is_at_limit: true,
                ..unused()
            },
            Cause::PrivatePools(3 * GIB),
        ),
        // What the device has free is no room where the limit is reached.
        (
            OutOfMemory {
                allocated_bytes: 6 * GIB,
                limit_bytes: 7 * GIB,
                is_at_limit: true,
                ..sample()
            },
            Cause::Limit(7 * GIB),
        ),
        // Neither alone would have done.
        (
            OutOfMemory { requested_bytes: 7 * GIB / 2, private_free_bytes: 2 * GIB, ..unused() },
            Cause::PrivatePools(2 * GIB),
        ),
        (
            OutOfMemory {
                device_free_bytes: Some(4 * GIB),
                refusal: Some(access),
                device_bytes: 11 * GIB,
                ..sample()
            },
            Cause::Mappings,
        ),
    ] {
        assert_eq!(error.cause(), cause, "{error:?}");
    }
}

#[test]
fn advice_says_what_to_do_about_the_cause() {
    let granules = || OutOfMemory { granule_bytes_min: 1 << 20, ..unused() };
    for (error, part) in [
        (limited(), "The limit of 6.00 GiB stands in the way: raise limit or limit_fraction, or"),
        (limited(), "; 6.00 GiB allowed"),
        (unused(), "3.00 GiB are unused, in pieces that live blocks beside them keep"),
        (granules(), "3.00 GiB are unused, in granules of 2.00 MiB that live blocks keep in part"),
        (OutOfMemory { granule_bytes: None, ..granules() }, "backend:vmm gives parts of them back"),
        (OutOfMemory { pinned_bytes: GIB, ..unused() }, "1.00 GiB are pinned and do not move"),
        (
            OutOfMemory { private_free_bytes: 3 * GIB, ..unused() },
            "3.00 GiB are free in private pools, which keep them",
        ),
        (OutOfMemory { private_free_bytes: 1 << 20, ..sample() }, "1.00 MiB are free in private"),
        (outside(), "Most of the device, 6.00 GiB, is held by other processes"),
        (outside(), "6.00 GiB are held outside of Drystone."),
        (
            OutOfMemory { requested_bytes: 3 * GIB, ..outside() },
            "larger than the 2.00 GiB that the device has beside 6.00 GiB held outside",
        ),
    ] {
        assert!(error.to_string().contains(part), "`{part}` is not in: {error}");
    }
    let tag = |name: &str, bytes| TagStats { name: name.to_owned(), bytes, peak_bytes: bytes };
    let tags =
        vec![tag("none", 0), tag("kv", 3 << 29), tag("weights", 4 << 30), tag("as", 3 << 29)];
    let tagged = OutOfMemory { tags: tags.clone(), refusal: None, ..sample() }.to_string();
    let expected = "0 bytes. By tag: weights 4.00 GiB, kv 1.50 GiB, as 1.50 GiB.";
    assert!(tagged.ends_with(expected), "{tagged}");
    let many = (1..10).map(|n| tag(&n.to_string(), n << 20)).chain(tags).collect();
    let tagged = OutOfMemory { tags: many, refusal: None, ..sample() }.to_string();
    assert!(
        tagged.ends_with(" 9 9.00 MiB, 8 8.00 MiB, 7 7.00 MiB, 6 others 21.00 MiB."),
        "{tagged}"
    );
    let unknown = OutOfMemory { device_free_bytes: None, ..outside() }.to_string();
    assert!(!unknown.contains("outside"), "{unknown}");
}

#[test]
fn neighbours_are_named_by_what_they_hold() {
    let neighbour = |process: u32, held_bytes| Neighbour {
        process,
        name: "python".to_owned(),
        held_bytes,
        unused_bytes: GIB / 2,
    };
    let error = OutOfMemory {
        neighbours: (1..=6).map(|at| neighbour(at, u64::from(at) * GIB)).collect(),
        ..outside()
    };
    let figures = error.figures();
    let told = " Process 6 (python) holds 6.00 GiB, 512.00 MiB of it unused. Process 5 (python)";
    assert!(figures.contains(told), "{figures}");
    assert!(figures.contains(" 2 others hold 3.00 GiB."), "{figures}");
}
