/* Requests are served, whatever becomes of the environment, and none reaches the driver's pools; a
 * hit and its free make no call of the driver on any kind of stream; pools, the device and pointers
 * tell of ours. */
#include "driver.h"

static void hits_ask_nothing(stream_t stream) {
    address_t first, again, pooled;
    handle_t pool = default_pool(0);
    OK(cuMemAllocAsync(&first, 20 * MIB, stream));
    OK(cuMemFreeAsync(first, stream));
    OK(cuMemAllocFromPoolAsync(&first, 20 * MIB, pool, stream));
    OK(cuMemFreeAsync(first, stream));
    long before = calls_of(NULL);
    for (int turn = 0; turn < 100; turn++) {
        OK(cuMemAllocAsync(&again, 20 * MIB, stream));
        CHECK(again == first);
        OK(cuMemFreeAsync(again, stream));
        OK(cuMemAllocFromPoolAsync(&pooled, 20 * MIB, pool, stream));
        CHECK(pooled == first);
        OK(cuMemFreeAsync(pooled, stream));
    }
    CHECK(calls_of(NULL) == before);
}

int main(void) {
    /* As programs do whose children are not to have the library. */
    unsetenv("LD_PRELOAD");
    OK(cuInit(0));
    primary(0);
    stream_t created = new_stream();
    hits_ask_nothing(created);
    hits_ask_nothing(NULL);
    hits_ask_nothing((stream_t)1);
    hits_ask_nothing((stream_t)2);
    CHECK(native_allocations() == 0 && figure(USED) == 0 && figure(RESERVED) >= 20 * MIB);

    /* What is held unused is free; what is in use is not. */
    size_t free_bytes, total, less;
    OK(cuMemGetInfo_v2(&free_bytes, &total));
    CHECK(free_bytes == total);
    address_t block, start;
    size_t bytes;
    OK(cuMemAllocAsync(&block, 30 * MIB, created));
    OK(cuMemGetInfo_v2(&less, &total));
    CHECK(less == total - 30 * MIB);
    OK(cuMemGetAddressRange_v2(&start, &bytes, block + 5 * MIB));
    CHECK(start == block && bytes == 30 * MIB);
    int attributes[] = {11, 12, 17, 2};
    handle_t pool;
    int kind;
    void *places[] = {&start, &bytes, &pool, &kind};
    start = bytes = 0;
    OK(cuPointerGetAttributes(4, attributes, places, block + MIB));
    CHECK(start == block && bytes == 30 * MIB && pool == default_pool(0) && kind == 2);

    /* The driver's own allocation finds what is held unused, and its frees take ours. */
    OK(cuMemFree_v2(block));
    OK(cuMemAlloc_v2(&block, total - 10 * MIB));
    OK(cuMemFree_v2(block));
    CHECK(figure(RESERVED) == 0);
    CHECK(cuMemAllocAsync(&block, total + MIB, created) == OUT_OF_MEMORY);
    CHECK(native_allocations() == 0);
    no_violation(0);
    return 0;
}
