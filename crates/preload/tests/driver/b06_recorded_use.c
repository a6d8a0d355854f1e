/* B1, B6: a program that finds Drystone's own interface beside CUDA's notes a use on a stream that it
 * asked for nothing, and destroys that stream before it frees the block: the driver is not asked of
 * a handle that is gone, and nobody gets the block before the use is over. */
#include "driver.h"

int main(void) {
    int (*record_use)(void *, stream_t);
    *(void **)&record_use = dlsym(RTLD_DEFAULT, "drystone_record_use");
    CHECK(record_use != NULL);
    OK(cuInit(0));
    primary(0);
    stream_t own = new_stream();
    for (int turn = 0; turn < 10; turn++) {
        address_t block, next;
        OK(cuMemAllocAsync(&block, 32 * MIB, own));
        OK(simcuda_check_alloc(0, block, 32 * MIB, own));
        stream_t user = new_stream();
        OK(record_use((void *)(uintptr_t)block, user));
        OK(simcuda_launch(0, user, 50000000));
        OK(simcuda_check_use(0, block, user));
        OK(cuStreamDestroy_v2(user));
        /* The handle may be another stream's by then. */
        stream_t stranger = turn % 2 ? new_stream() : NULL;
        OK(simcuda_check_free(0, block));
        OK(cuMemFreeAsync(block, own));
        OK(cuMemAllocAsync(&next, 32 * MIB, own));
        OK(simcuda_check_alloc(0, next, 32 * MIB, own));
        CHECK(next != block);
        OK(simcuda_check_free(0, next));
        OK(cuMemFreeAsync(next, own));
        if (stranger != NULL) OK(cuStreamDestroy_v2(stranger));
        OK(cuCtxSynchronize());
    }
    /* Two blocks, whatever the number of streams. */
    CHECK(figure(RESERVED) <= 64 * MIB);
    CHECK(native_allocations() == 0);
    no_violation(0);
    return 0;
}
