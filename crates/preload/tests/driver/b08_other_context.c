/* B8: a stream of a context that the program made beside the primary one. What is asked for there is
 * the driver's; what is Drystone's and freed there is safe, though no event of the primary context
 * can be recorded on that stream. */
#include "driver.h"

int main(void) {
    OK(cuInit(0));
    handle_t first = primary(0), own, current;
    stream_t stream = new_stream();
    OK(cuCtxCreate_v2(&own, 0, 0));
    stream_t foreign = new_stream(); /* Of the context that was just made. */
    OK(cuCtxSetCurrent(first));

    address_t drivers, blocks[3];
    OK(cuMemAllocAsync(&drivers, 8 * MIB, foreign));
    CHECK(native_allocations() == 1);
    OK(cuMemFreeAsync(drivers, foreign));

    for (int at = 0; at < 3; at++) {
        OK(cuMemAllocAsync(&blocks[at], 8 * MIB, stream));
        OK(simcuda_check_alloc(0, blocks[at], 8 * MIB, stream));
        OK(simcuda_launch(0, foreign, 1000000000));
        OK(simcuda_check_use(0, blocks[at], foreign));
        OK(simcuda_check_free(0, blocks[at]));
        OK(cuMemFreeAsync(blocks[at], foreign));
    }
    CHECK(native_allocations() == 1);
    OK(cuCtxGetCurrent(&current));
    CHECK(current == first);
    OK(cuCtxSynchronize());

    OK(cuStreamDestroy_v2(foreign));
    OK(cuCtxDestroy_v2(own));
    OK(cuMemAllocAsync(&blocks[0], 8 * MIB, stream));
    OK(cuMemFreeAsync(blocks[0], stream));
    CHECK(native_allocations() == 1);
    no_violation(0);
    return 0;
}
