/* B3: the device is the stream's; a block is freed wherever the program is by then. */
#include "runtime.h"

int main(void) {
    void *first, *second;
    OK(cudaSetDevice(1));
    stream_t on_second = new_stream();
    OK(cudaMallocAsync(&second, 8 * MIB, NULL));
    CHECK(figure(default_pool(1), USED) == 8 * MIB && figure(default_pool(0), USED) == 0);
    OK(cudaFreeAsync(second, NULL));
    OK(cudaSetDevice(0));
    OK(cudaMallocAsync(&second, 8 * MIB, on_second));
    OK(cudaMallocAsync(&first, 24 * MIB, NULL));
    CHECK(figure(default_pool(1), USED) == 8 * MIB && figure(default_pool(0), USED) == 24 * MIB);
    /* On a stream of the other device: that one is waited for. */
    OK(cudaFreeAsync(second, NULL));
    OK(cudaFreeAsync(first, on_second));
    CHECK(figure(default_pool(1), USED) == 0 && figure(default_pool(0), USED) == 0);

    struct access access = {{1, 1}, 3};
    OK(cudaMemPoolSetAccess(default_pool(0), &access, 1));
    long opened = calls_of("cuMemSetAccess");
    OK(cudaMallocAsync(&first, 200 * MIB, NULL));
    CHECK(calls_of("cuMemSetAccess") > opened);
    OK(cudaFree(first));
    CHECK(native_allocations() == 0);
    no_violation(0);
    no_violation(1);
    return 0;
}
