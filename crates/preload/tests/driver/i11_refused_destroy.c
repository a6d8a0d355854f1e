/* A stream that the driver refuses to destroy, since it is captured, stays as it is: what others do
 * does not break its capture, and it is served afterwards. */
#include "driver.h"

int main(void) {
    address_t block, unused;
    handle_t graph;
    OK(cuInit(0));
    primary(0);
    stream_t other = new_stream(), captured = new_stream();
    OK(cuMemAllocAsync(&block, MIB, captured));
    OK(cuMemFreeAsync(block, captured));
    OK(cuMemAllocAsync(&unused, 500 * MIB, other));
    OK(cuMemAllocAsync(&block, 20 * MIB, other));
    OK(cuMemFreeAsync(unused, other));
    OK(cuStreamBeginCapture_v2(captured, 2));
    CHECK(cuStreamDestroy_v2(captured) != SUCCESS);
    OK(cuMemFree_v2(block)); /* Later: the device may not be waited for. */
    CHECK(cuMemAllocAsync(&block, 5000 * MIB, other) == OUT_OF_MEMORY);
    OK(cuStreamEndCapture(captured, &graph));
    CHECK(figure(USED) == 0);
    OK(cuMemAllocAsync(&block, MIB, captured));
    OK(cuMemFreeAsync(block, captured));
    OK(cuStreamDestroy_v2(captured));
    OK(cuMemPoolTrimTo(default_pool(0), 0));
    CHECK(figure(RESERVED) == 0);
    return 0;
}
