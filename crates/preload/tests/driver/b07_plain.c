/* B7: memory that is asked for outside of stream order is ready at once, on any stream. What it is
 * made of was freed in the order of streams that have work queued, and that nothing waits for. */
#include "driver.h"

int main(void) {
    OK(cuInit(0));
    primary(0);
    stream_t own = new_stream(), user = new_stream(), other = new_stream();
    for (int turn = 0; turn < 6; turn++) {
        address_t block, plain;
        size_t pitch;
        OK(cuMemAllocAsync(&block, 700 * MIB, own));
        OK(simcuda_check_alloc(0, block, 700 * MIB, own));
        /* Freed on its own stream, on another, or once the device is idle. */
        stream_t last = turn % 3 == 1 ? user : own;
        OK(simcuda_launch(0, last, 50000000));
        OK(simcuda_check_use(0, block, last));
        OK(simcuda_check_free(0, block));
        OK(turn % 3 == 2 ? cuMemFree_v2(block) : cuMemFreeAsync(block, last));
        /* The device has no more than the block. */
        if (turn < 3)
            OK(cuMemAlloc_v2(&plain, 700 * MIB));
        else
            OK(cuMemAllocPitch_v2(&plain, &pitch, MIB, 700, 4));
        OK(simcuda_check_alloc(0, plain, 700 * MIB, other));
        OK(simcuda_launch(0, other, 50000000));
        OK(simcuda_check_free(0, plain));
        OK(cuMemFree_v2(plain));
    }
    CHECK(native_allocations() == 0);
    no_violation(0);
    return 0;
}
