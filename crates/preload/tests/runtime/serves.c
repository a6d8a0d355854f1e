/* Requests are served without one reaching the driver's pools; pools tell what is held. */
#include "runtime.h"

int main(void) {
    void *first, *second;
    pool_t pool = default_pool(0);
    uint64_t threshold = UINT64_MAX, zero = 0;
    OK(cudaMemPoolSetAttribute(pool, THRESHOLD, &threshold));
    CHECK(figure(pool, THRESHOLD) == UINT64_MAX);

    OK(cudaMallocAsync(&first, 64 * MIB, NULL));
    CHECK(figure(pool, USED) == 64 * MIB && figure(pool, RESERVED) >= 64 * MIB);
    OK(cudaMallocFromPoolAsync(&second, 1000, pool, NULL));
    CHECK(figure(pool, USED) == 64 * MIB + 1024);
    OK(cudaFreeAsync(second, NULL));
    OK(cudaFreeAsync(first, NULL));
    CHECK(figure(pool, USED) == 0 && figure(pool, USED_HIGH) == 64 * MIB + 1024);
    OK(cudaMallocAsync(&second, 64 * MIB, NULL));
    CHECK(second == first); /* Held, and used again in order. */
    OK(cudaFree(second));   /* Which takes such memory, too. */
    CHECK(figure(pool, USED) == 0);
    OK(cudaMemPoolSetAttribute(pool, USED_HIGH, &zero));
    CHECK(figure(pool, USED_HIGH) == 0);

    OK(cudaMemPoolTrimTo(pool, 1000 * MIB)); /* Less is held. */
    CHECK(figure(pool, RESERVED) >= 64 * MIB);
    OK(cudaMallocAsync(&first, 64 * MIB, NULL));
    OK(cudaMallocAsync(&second, 64 * MIB, NULL));
    OK(cudaFreeAsync(first, NULL));
    OK(cudaFreeAsync(second, NULL));
    OK(cudaMemPoolTrimTo(pool, 100 * MIB)); /* What is kept is there still. */
    CHECK(figure(pool, RESERVED) >= 64 * MIB && figure(pool, RESERVED) <= 100 * MIB);
    OK(cudaMemPoolTrimTo(pool, 0));
    CHECK(figure(pool, RESERVED) < 8 * MIB);
    CHECK(simcuda_physical_bytes(0) == figure(pool, RESERVED));

    /* What is nobody's block is the runtime's to judge. */
    CHECK(native_allocations() == 0);
    OK(cudaMalloc(&first, MIB));
    OK(cudaFree(first));
    OK(cudaFree(NULL));
    CHECK(cudaMallocAsync(NULL, 10, NULL) != SUCCESS && cudaGetLastError() != SUCCESS);
    OK(cudaMallocAsync(&second, MIB, NULL));
    OK(cudaFreeAsync(second, NULL));
    CHECK(cudaFreeAsync(second, NULL) == INVALID_VALUE && cudaGetLastError() == INVALID_VALUE);
    CHECK(cudaFreeAsync((char *)second + 512, NULL) == INVALID_VALUE);
    CHECK(cudaGetLastError() == INVALID_VALUE);
    return 0;
}
