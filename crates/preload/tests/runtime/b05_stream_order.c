/* A block is not used again before the stream it was freed on has passed, whichever that is. */
#include "runtime.h"

static void *taken(stream_t stream) {
    void *block;
    OK(cudaMallocAsync(&block, 32 * MIB, stream));
    OK(simcuda_check_alloc(0, (uint64_t)block, 32 * MIB, stream));
    return block;
}

int main(void) {
    stream_t own = new_stream(), other = new_stream(), per_thread = (stream_t)2;
    void *block = taken(own);
    /* The other waits for nothing here: the block is empty, so its use is ordered. */
    OK(simcuda_launch(0, other, 50000000));
    OK(simcuda_check_use(0, (uint64_t)block, other));
    OK(simcuda_check_free(0, (uint64_t)block));
    OK(cudaFreeAsync(block, other));
    void *next = taken(own);
    CHECK(next != block);
    OK(cudaStreamSynchronize(other));
    OK(simcuda_check_free(0, (uint64_t)next));
    OK(cudaFreeAsync(next, own));
    next = taken(own);

    /* The default stream of a thread, by its name and by that of programs compiled for it. */
    void *mine, *again;
    OK(cudaMallocAsync_ptsz(&mine, 40 * MIB, NULL));
    uint64_t held = figure(default_pool(0), RESERVED);
    OK(simcuda_launch(0, per_thread, 50000000));
    OK(cudaFreeAsync_ptsz(mine, NULL));
    OK(cudaMallocAsync(&again, 40 * MIB, per_thread));
    /* The same memory, wherever it is mapped: no more is held. */
    CHECK(figure(default_pool(0), RESERVED) == held);
    OK(cudaFreeAsync(again, per_thread));
    OK(cudaMallocFromPoolAsync_ptsz(&again, 40 * MIB, default_pool(0), NULL));
    CHECK(figure(default_pool(0), RESERVED) == held);
    OK(cudaFreeAsync(again, own));
    OK(simcuda_check_free(0, (uint64_t)next));
    OK(cudaFreeAsync(next, per_thread));
    OK(cudaDeviceSynchronize());
    CHECK(native_allocations() == 0 && figure(default_pool(0), USED) == 0);
    no_violation(0);
    return 0;
}
