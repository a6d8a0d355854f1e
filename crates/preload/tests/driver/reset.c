/* After a reset of the device nothing of what was held is given out: all is made anew. */
#include "driver.h"

int main(void) {
    OK(cuInit(0));
    primary(0);
    stream_t stream = new_stream();
    address_t block, own;
    for (int turn = 0; turn < 3; turn++) {
        OK(cuMemAllocAsync(&block, 64 * MIB, stream));
        OK(cuMemAllocAsync(&own, 64 * MIB, (stream_t)2));
        OK(cuMemFreeAsync(block, stream));
        OK(cuDevicePrimaryCtxReset_v2(0));
        primary(0);
        stream = new_stream();
        CHECK(figure(RESERVED) == 0);
        OK(cuMemAllocAsync(&block, 64 * MIB, stream));
        OK(cuMemsetD8Async(block, 1, 64 * MIB, stream));
        OK(cuMemAllocAsync(&own, 64 * MIB, (stream_t)2));
        OK(cuMemsetD8Async(own, 1, 64 * MIB, (stream_t)2));
        OK(cuCtxSynchronize());
        OK(cuMemFreeAsync(own, (stream_t)2));
        OK(cuMemFreeAsync(block, stream));
    }
    CHECK(native_allocations() == 0);
    no_violation(0);
    return 0;
}
