/* B11: a kernel of another device writes to a block, which is freed meanwhile. What was noted of it
 * is waited for on that device, where CUDA's own free waits for the block's alone; and so is all
 * that was queued on a stream of another device that memory was allocated for. */
#include "abuse.h"

uint64_t simcuda_now_ns(int device);
uint64_t simcuda_physical_bytes(int device);

static const uint64_t LONG = 1000000000;

static uint64_t launch(stream_t writer) {
    uint64_t end = simcuda_now_ns(1) + LONG;
    CHECK(simcuda_launch(1, writer, LONG) == 0);
    return end;
}

int main(void) {
    use_device(1);
    stream_t writer = new_stream();
    use_device(0);
    stream_t own = new_stream(), other = new_stream();
    OK(drystone_enable_peer_access(0, 1));

    for (int turn = 0; turn < 4; turn++) {
        void *block, *next;
        OK(drystone_allocate(&block, 64 * MIB, 0, own));
        uint64_t end = launch(writer);
        OK(drystone_record_use(block, writer));
        OK(drystone_deallocate(block));
        /* Nobody gets it, on the same stream or on another. */
        OK(drystone_allocate(&next, 64 * MIB, 0, turn % 2 ? other : own));
        CHECK(next != block);
        OK(drystone_deallocate(next));
        CHECK(simcuda_now_ns(0) < end);
        /* It is not unmapped, nor does it go elsewhere: its own device is idle all along. */
        if (turn < 2) {
            OK(drystone_trim(0, NULL));
            CHECK(simcuda_physical_bytes(0) > 0 || simcuda_now_ns(0) >= end);
        } else {
            /* So large that it takes the whole device. */
            OK(drystone_allocate(&next, 4060 * MIB, 0, other));
            CHECK(simcuda_now_ns(0) >= end);
            OK(drystone_deallocate(next));
            OK(drystone_trim(0, NULL));
        }
    }

    /* A block that was allocated for the peer's stream. */
    void *block, *next;
    OK(drystone_allocate(&block, 64 * MIB, 0, writer));
    uint64_t end = launch(writer);
    OK(drystone_deallocate(block));
    OK(drystone_trim(0, NULL));
    CHECK(simcuda_physical_bytes(0) > 0 || simcuda_now_ns(0) >= end);
    OK(drystone_allocate(&next, 4060 * MIB, 0, own));
    CHECK(simcuda_now_ns(0) >= end);
    OK(drystone_deallocate(next));

    still_usable(0);
    still_usable(1);
    return 0;
}
