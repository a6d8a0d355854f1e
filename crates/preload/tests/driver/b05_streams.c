/* A block is not used again before the stream it was freed on has passed, whichever that is; the
 * memory of a stream that is destroyed serves others; its handle may come again. */
#include "driver.h"

int main(void) {
    OK(cuInit(0));
    primary(0);
    stream_t own = new_stream(), other = new_stream();
    address_t block, next;
    OK(cuMemAllocAsync(&block, 32 * MIB, own));
    OK(simcuda_check_alloc(0, block, 32 * MIB, own));
    OK(simcuda_launch(0, other, 50000000));
    OK(simcuda_check_use(0, block, other));
    OK(simcuda_check_free(0, block));
    OK(cuMemFreeAsync(block, other));
    OK(cuMemAllocAsync(&next, 32 * MIB, own));
    OK(simcuda_check_alloc(0, next, 32 * MIB, own));
    CHECK(next != block);
    OK(simcuda_check_free(0, next));
    OK(cuMemFreeAsync(next, own));
    OK(cuCtxSynchronize());
    OK(cuMemPoolTrimTo(default_pool(0), 0));

    for (int turn = 0; turn < 100; turn++) {
        stream_t stream = new_stream();
        OK(cuMemAllocAsync(&block, 200 * MIB, stream));
        OK(simcuda_check_alloc(0, block, 200 * MIB, stream));
        OK(simcuda_launch(0, stream, 1000000));
        OK(simcuda_check_use(0, block, stream));
        OK(simcuda_check_free(0, block));
        OK(cuMemFreeAsync(block, stream));
        if (turn % 2 == 0) OK(cuStreamSynchronize(stream));
        OK(cuStreamDestroy_v2(stream));
        if (turn % 2 == 1) OK(cuCtxSynchronize());
        CHECK(figure(RESERVED) <= 400 * MIB);
    }
    CHECK(native_allocations() == 0);
    no_violation(0);
    return 0;
}
