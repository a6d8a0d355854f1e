/* Without the library standing in, or where it cannot, everything is the runtime's. */
#include "runtime.h"

int main(void) {
    void *block;
    pool_t pool = default_pool(0);
    OK(cudaMallocAsync(&block, 8 * MIB, NULL));
    CHECK(native_allocations() == 1 && calls_of("cuMemCreate") == 0);
    CHECK(figure(pool, USED) == 8 * MIB);
    OK(cudaFreeAsync(block, NULL));
    OK(cudaMallocFromPoolAsync(&block, 8 * MIB, pool, NULL));
    OK(cudaFree(block));
    OK(cudaDeviceSynchronize());
    OK(cudaMemPoolTrimTo(pool, 0));
    CHECK(figure(pool, USED) == 0 && figure(pool, RESERVED) == 0);
    OK(cudaMalloc(&block, MIB));
    OK(cudaFree(block));
    CHECK(cudaMallocAsync(&block, (size_t)1 << 50, NULL) == MEMORY_ALLOCATION);
    CHECK(cudaGetLastError() == MEMORY_ALLOCATION && cudaGetLastError() == SUCCESS);
    return 0;
}
