/* I11, B22: what is asked for in a capture is the graph's, also on a stream that has joined it, and
 * what is asked for beside it is not. A block that is freed in one is refused as by the driver. */
#include "driver.h"
#include <pthread.h>

static handle_t context;

static void *captures_its_own_stream(void *argument) {
    handle_t graph;
    OK(cuCtxSetCurrent(context));
    OK(cuStreamBeginCapture_v2((stream_t)2, 2));
    OK(cuStreamEndCapture((stream_t)2, &graph));
    return argument;
}

/* Threads' own streams have one handle: the end of one's capture is not the end of another's. */
static void threads_capture_at_once(void) {
    handle_t graph;
    address_t in_graph;
    pthread_t thread;
    long before = native_allocations();
    OK(cuStreamBeginCapture_v2((stream_t)2, 2));
    CHECK(cuStreamBeginCapture_v2((stream_t)2, 2) != SUCCESS);
    OK(pthread_create(&thread, NULL, captures_its_own_stream, NULL));
    OK(pthread_join(thread, NULL));
    OK(cuMemAllocAsync(&in_graph, MIB, (stream_t)2));
    CHECK(native_allocations() == before + 1);
    OK(cuMemFreeAsync(in_graph, (stream_t)2));
    OK(cuStreamEndCapture((stream_t)2, &graph));
}

int main(void) {
    OK(cuInit(0));
    context = primary(0);
    stream_t captured = new_stream(), other = new_stream();
    address_t older, in_graph, beside, ones;
    handle_t graph, executable;
    OK(cuMemAllocAsync(&older, MIB, captured));
    OK(cuStreamBeginCapture_v2(captured, 2));
    OK(cuMemAllocAsync(&in_graph, 8 * MIB, captured));
    CHECK(native_allocations() == 1);
    OK(cuMemsetD8Async(in_graph, 7, 8 * MIB, captured));
    OK(cuMemAllocAsync(&beside, 8 * MIB, other));
    CHECK(native_allocations() == 1 && in_graph != beside);
    OK(cuMemFreeAsync(beside, other));
    OK(cuMemAllocAsync(&beside, 8 * MIB, other));
    OK(cuMemFree_v2(beside)); /* Not a wait for the device, which would break the capture. */
    CHECK(cuMemFree_v2(beside) != SUCCESS);
    CHECK(cuMemFreeAsync(beside, other) == INVALID_VALUE); /* Nor is it freed twice. */
    CHECK(cuMemFreeAsync(older, captured) == INVALID_VALUE);
    OK(cuMemFreeAsync(in_graph, captured));
    OK(cuStreamEndCapture(captured, &graph));
    OK(cuGraphInstantiateWithFlags(&executable, graph, 0));
    OK(cuMemAllocAsync(&ones, 8 * MIB, captured));
    OK(cuMemsetD8Async(ones, 1, 8 * MIB, captured));
    for (int turn = 0; turn < 3; turn++) OK(cuGraphLaunch(executable, captured));
    OK(cuStreamSynchronize(captured));
    unsigned char read[16];
    OK(cuMemcpyDtoH_v2(read, ones, sizeof read));
    CHECK(read[0] == 1 && read[15] == 1);
    long asked = calls_of("cuStreamIsCapturing");
    OK(cuMemFreeAsync(ones, captured));
    OK(cuMemFreeAsync(older, captured));
    OK(cuMemAllocAsync(&ones, 8 * MIB, captured));
    CHECK(calls_of("cuStreamIsCapturing") == asked && native_allocations() == 1);
    threads_capture_at_once();
    asked = calls_of("cuStreamIsCapturing");
    OK(cuMemFreeAsync(ones, captured));
    CHECK(calls_of("cuStreamIsCapturing") == asked);
    CHECK(simcuda_violation_count(0) == 3); /* The frees that were refused. */
    return 0;
}
