/* A pool whose memory the program gives by cuMemAlloc, at the end of the device's memory: what is
 * held unused elsewhere goes back all the same, and nobody waits for the lock of its own thread. */
#include "driver.h"

static void *give(void *data, size_t bytes) {
    address_t address = 0;
    (void)data;
    return cuMemAlloc_v2(&address, bytes) == SUCCESS ? (void *)address : NULL;
}

static void take(void *data, void *ptr, size_t bytes) {
    (void)data, (void)bytes;
    OK(cuMemFree_v2((address_t)ptr));
}

int main(void) {
    OK(cuInit(0));
    primary(0);
    stream_t stream = new_stream();
    address_t held;
    OK(cuMemAllocAsync(&held, 300 * MIB, stream));
    OK(cuMemFreeAsync(held, stream)); /* Unused, and held. */
    int (*create)(int, uint64_t, uint64_t, void *(*)(void *, size_t),
                  void (*)(void *, void *, size_t), void *, unsigned) =
        dlsym(RTLD_DEFAULT, "drystone_pool_create_plain");
    int (*allocate)(void **, size_t, int, stream_t, uint64_t, uint64_t) =
        dlsym(RTLD_DEFAULT, "drystone_allocate_from_pool");
    CHECK(create && allocate);
    OK(create(0, 7, 7, give, take, NULL, 0));
    alarm(20); /* It never comes back. */
    int served = 0;
    void *block;
    while (allocate(&block, 200 * MIB, 0, stream, 7, 7) == SUCCESS) served++;
    CHECK(served == 5); /* The last two in place of what was held. */
    no_violation(0);
    return 0;
}
