/* A stream that the driver refuses to destroy stays as it is, since it is captured, or a default one:
 * what others do does not break its capture, and it is served afterwards. */
#include "driver.h"

int simcuda_fail(int, const char *, uint64_t, int, int);
int simcuda_clear_faults(int);

static void keeps_its_capture(stream_t other, stream_t captured) {
    address_t block, unused;
    handle_t graph;
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
}

int main(void) {
    address_t block, again;
    OK(cuInit(0));
    primary(0);
    stream_t other = new_stream(), captured = new_stream();
    keeps_its_capture(other, captured);
    OK(cuStreamDestroy_v2(captured));
    /* No source says what drivers answer of a default stream; that it stays is certain. */
    OK(simcuda_fail(0, "cuStreamDestroy_v2", 1, 1, 400));
    keeps_its_capture(other, (stream_t)2);
    for (uintptr_t handle = 0; handle < 3; handle++) {
        stream_t stays = (stream_t)handle;
        OK(cuMemAllocAsync(&block, MIB, stays));
        OK(cuMemFreeAsync(block, stays));
        CHECK(cuStreamDestroy_v2(stays) != SUCCESS);
        OK(cuMemAllocAsync(&again, MIB, stays));
        CHECK(again == block);
        OK(cuMemFreeAsync(again, stays));
    }
    OK(simcuda_clear_faults(0));
    OK(cuMemPoolTrimTo(default_pool(0), 0));
    CHECK(figure(RESERVED) == 0);
    return 0;
}
