/* B22: devices are used for the first time while a graph is captured. Opening one tries out what
 * the driver promises, and lets those in use reach one another: none of that breaks the capture. */
#include "abuse.h"

int main(void) {
    void *graph, *block;
    use_device(0);
    stream_t captured = new_stream();
    CHECK(cuStreamBeginCapture_v2(captured, 0) == 0);
    OK(drystone_allocate(&block, 8 * MIB, 0, captured));
    OK(drystone_deallocate(block));
    OK(drystone_allocate(&block, 8 * MIB, 1, NULL)); /* On another device than the capture's. */
    OK(drystone_deallocate(block));
    CHECK(cuStreamEndCapture(captured, &graph) == 0); /* Nothing broke it. */
    CHECK(cuGraphDestroy(graph) == 0);
    still_usable(0);
    still_usable(1);
    return 0;
}
