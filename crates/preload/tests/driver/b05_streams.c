/* A block is not used again before the stream it was freed on has passed, whichever that is; the
 * memory of a stream that is destroyed serves others, and so does that of a thread that ended. */
#include "driver.h"
#include <pthread.h>

static handle_t context;

static void *work_on_an_own_stream(void *argument) {
    address_t block;
    OK(cuCtxSetCurrent(context));
    OK(cuMemAllocAsync(&block, 200 * MIB, (stream_t)2));
    OK(simcuda_launch(0, (stream_t)2, 1000000));
    OK(cuMemFreeAsync(block, (stream_t)2));
    return argument;
}

int main(void) {
    OK(cuInit(0));
    context = primary(0);
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
    for (int turn = 0; turn < 100; turn++) {
        pthread_t thread;
        OK(pthread_create(&thread, NULL, work_on_an_own_stream, NULL));
        OK(pthread_join(thread, NULL));
        CHECK(figure(RESERVED) <= 600 * MIB);
    }
    CHECK(native_allocations() == 0);
    no_violation(0);
    return 0;
}
