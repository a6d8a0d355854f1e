/* B3: memory comes from the device of the thread's context, or of the stream; other contexts than
 * primary ones are the driver's. */
#include "driver.h"

static uint64_t used(int device) {
    uint64_t value;
    OK(cuMemPoolGetAttribute(default_pool(device), USED, &value));
    return value;
}

int main(void) {
    OK(cuInit(0));
    handle_t first = primary(0), second = primary(1), own, popped;
    address_t blocks[4];
    stream_t on_second = new_stream();
    OK(cuMemAllocAsync(&blocks[0], 8 * MIB, NULL));
    CHECK(used(1) == 8 * MIB && used(0) == 0);
    OK(cuCtxSetCurrent(first));
    OK(cuMemAllocAsync(&blocks[1], 8 * MIB, NULL));
    CHECK(used(1) == 8 * MIB && used(0) == 8 * MIB);
    OK(cuCtxPushCurrent_v2(second));
    OK(cuMemAllocAsync(&blocks[2], 8 * MIB, (stream_t)2));
    CHECK(used(1) == 16 * MIB && used(0) == 8 * MIB);
    OK(cuCtxPopCurrent_v2(&popped));
    CHECK(popped == second);
    OK(cuMemAllocAsync(&blocks[3], 8 * MIB, on_second));
    CHECK(used(1) == 24 * MIB && used(0) == 8 * MIB && native_allocations() == 0);

    OK(cuCtxCreate_v2(&own, 0, 0));
    address_t drivers;
    OK(cuMemAllocAsync(&drivers, 8 * MIB, NULL));
    CHECK(native_allocations() == 1);
    OK(cuMemFreeAsync(drivers, NULL));
    OK(cuCtxDestroy_v2(own));
    OK(cuMemAllocAsync(&drivers, 8 * MIB, NULL));
    CHECK(native_allocations() == 1 && used(0) == 16 * MIB);
    OK(cuMemFreeAsync(drivers, NULL));

    /* On a stream of the other device: that one is waited for. */
    OK(cuMemFreeAsync(blocks[0], NULL));
    for (int at = 1; at < 4; at++) OK(cuMemFreeAsync(blocks[at], on_second));
    CHECK(used(0) == 0 && used(1) == 0);

    struct access access = {{1, 1}, 3};
    OK(cuMemPoolSetAccess(default_pool(0), &access, 1));
    no_violation(0);
    no_violation(1);
    return 0;
}
