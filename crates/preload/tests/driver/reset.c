/* After a reset of the device nothing of what was held is given out: all is made anew. Captures end
 * with it, and what waited for them. Streams do, too, also those that nobody has used: where memory
 * moves next, the driver is not asked about them. */
#include "driver.h"

static void captures_end(void) {
    stream_t captured = new_stream(), other = new_stream();
    address_t freed, block;
    OK(cuMemAllocAsync(&freed, 64 * MIB, other));
    OK(cuStreamBeginCapture_v2(captured, 2));
    OK(cuMemFree_v2(freed)); /* Waits for the end of the capture, which never comes. */
    OK(cuDevicePrimaryCtxReset_v2(0));
    primary(0);
    stream_t stream = new_stream(), next = new_stream();
    OK(cuMemAllocAsync(&block, 64 * MIB, stream));
    OK(cuStreamDestroy_v2(next));
    OK(cuMemsetD8Async(block, 1, 64 * MIB, stream));
    CHECK(figure(USED) == 64 * MIB);
    OK(cuMemFree_v2(block)); /* Nothing is captured any more: it is free at once. */
    CHECK(figure(USED) == 0);
}

static void memory_moves(void) {
    static address_t all[2048];
    size_t free_bytes, total;
    int count = 0;
    new_stream();
    OK(cuDevicePrimaryCtxReset_v2(0));
    primary(0);
    while (cuMemAllocAsync(&all[count], 3 * MIB, NULL) == SUCCESS) count++;
    for (int at = 0; at < count; at++) if (at % 16 != 0) OK(cuMemFreeAsync(all[at], NULL));
    OK(cuMemGetInfo_v2(&free_bytes, &total));
    long holds = calls_of("cuStreamBatchMemOp_v2");
    OK(cuMemAllocAsync(&all[1], total - (count / 16 + 1) * 4 * MIB, NULL));
    CHECK(calls_of("cuStreamBatchMemOp_v2") > holds);
}

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
    captures_end();
    memory_moves();
    CHECK(native_allocations() == 0);
    no_violation(0);
    return 0;
}
