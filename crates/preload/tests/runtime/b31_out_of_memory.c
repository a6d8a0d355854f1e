/* B31, B33: memory runs out as the runtime says it, in the thread's last error, too; success leaves
 * that alone; and once memory is free the same call succeeds. */
#include "runtime.h"

enum { BLOCKS = 64 };

int main(void) {
    void *blocks[BLOCKS], *large;
    int count = 0, code = SUCCESS;
    stream_t stream = new_stream();
    pool_t pool = default_pool(0);
    while (count < BLOCKS && (code = cudaMallocAsync(&blocks[count], 100 * MIB, stream)) == SUCCESS)
        count++;
    CHECK(code == MEMORY_ALLOCATION && count > 30 && count < BLOCKS);
    CHECK(cudaPeekAtLastError() == MEMORY_ALLOCATION);
    OK(cudaFreeAsync(blocks[--count], stream));
    OK(cudaMallocAsync(&blocks[count++], 90 * MIB, stream));
    CHECK(cudaGetLastError() == MEMORY_ALLOCATION); /* Neither success has taken it. */
    CHECK(cudaGetLastError() == SUCCESS);
    CHECK(figure(pool, USED) == (size_t)(count * 100 - 10) * MIB);
    CHECK(figure(pool, RESERVED) >= figure(pool, USED));

    /* Pieces serve a request larger than each of them. */
    for (int at = 0; at < count; at += 2) OK(cudaFreeAsync(blocks[at], stream));
    OK(cudaMallocAsync(&large, 1500 * MIB, stream));
    OK(cudaFreeAsync(large, stream));
    for (int at = 1; at < count; at += 2) OK(cudaFreeAsync(blocks[at], stream));

    /* The runtime's own request finds what is held unused; no error remains. */
    CHECK(figure(pool, RESERVED) > 3000 * MIB);
    OK(cudaStreamSynchronize(stream));
    OK(cudaMalloc(&large, 3000 * MIB));
    CHECK(cudaGetLastError() == SUCCESS);
    OK(cudaFree(large));
    CHECK(cudaMalloc(&large, (size_t)1 << 40) == MEMORY_ALLOCATION);
    CHECK(cudaGetLastError() == MEMORY_ALLOCATION);
    no_violation(0);
    return 0;
}
