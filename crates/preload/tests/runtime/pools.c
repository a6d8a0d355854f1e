/* Pools of plain device memory are stood in for, others are the driver's; each allocation comes
 * from where the program's current pool says. */
#include "runtime.h"

static pool_t create(int handles, size_t max_size) {
    struct properties properties = {1, handles, {1, 0}, NULL, max_size, 0, {0}};
    pool_t pool;
    OK(cudaMemPoolCreate(&pool, &properties));
    return pool;
}

int main(void) {
    void *block, *kept;
    pool_t plain = create(0, 0), exported = create(1, 0), now;
    OK(cudaMallocFromPoolAsync(&block, 16 * MIB, exported, NULL));
    CHECK(native_allocations() == 1 && figure(exported, USED) == 16 * MIB);
    OK(cudaFreeAsync(block, NULL));
    CHECK(figure(exported, USED) == 0 && calls_of("cuMemCreate") == 0);

    OK(cudaMallocFromPoolAsync(&kept, 16 * MIB, plain, NULL));
    CHECK(native_allocations() == 1 && figure(plain, USED) == 16 * MIB);
    CHECK(figure(exported, USED) == 0);
    OK(cudaMemPoolDestroy(plain));
    OK(cudaFreeAsync(kept, NULL)); /* Outlives its pool. */
    CHECK(figure(default_pool(0), USED) == 0);

    OK(cudaDeviceSetMemPool(0, exported));
    OK(cudaMallocAsync(&block, 16 * MIB, NULL));
    CHECK(native_allocations() == 2 && figure(exported, USED) == 16 * MIB);
    OK(cudaFreeAsync(block, NULL));
    plain = create(0, 0);
    OK(cudaDeviceSetMemPool(0, plain));
    OK(cudaDeviceGetMemPool(&now, 0));
    CHECK(now == plain);
    OK(cudaMallocAsync(&block, 16 * MIB, NULL));
    CHECK(native_allocations() == 2 && figure(plain, USED) == 16 * MIB);
    OK(cudaFreeAsync(block, NULL));
    OK(cudaMemPoolTrimTo(plain, 0));
    CHECK(figure(plain, RESERVED) < 8 * MIB);
    OK(cudaMemPoolDestroy(plain));
    OK(cudaMemPoolDestroy(exported));
    no_violation(0);
    return 0;
}
