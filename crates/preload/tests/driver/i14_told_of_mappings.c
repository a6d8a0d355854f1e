/* The function that is told of mappings frees a block as the program does, and is refused a capture:
 * neither waits for the lock that its own thread has. */
#include "driver.h"

enum { NOT_PERMITTED = 800 };

static address_t spare;
static stream_t stream;
static int (*expect)(int, uint64_t, uint64_t);

static void told(void *data, int device, void *ptr, size_t bytes, int backing) {
    (void)data, (void)device, (void)ptr, (void)bytes, (void)backing;
    if (spare != 0) {
        address_t now = spare;
        spare = 0;
        OK(cuMemFree_v2(now));
        CHECK(figure(USED) == 0);
        CHECK(cuStreamBeginCapture_v2(stream, 2) == NOT_PERMITTED);
        CHECK(expect(0, 0, 0) != SUCCESS);
    }
}

int main(void) {
    OK(cuInit(0));
    primary(0);
    stream = new_stream();
    address_t block;
    handle_t graph;
    OK(cuMemAllocAsync(&spare, 20 * MIB, stream));
    int (*on_remap)(int, void (*)(void *, int, void *, size_t, int), void *) =
        dlsym(RTLD_DEFAULT, "drystone_on_remap");
    expect = dlsym(RTLD_DEFAULT, "drystone_expect_capture");
    CHECK(on_remap && expect);
    OK(on_remap(0, told, NULL));
    alarm(20); /* It never comes back. */
    OK(cuMemAllocAsync(&block, 600 * MIB, stream));
    CHECK(spare == 0);
    OK(cuStreamBeginCapture_v2(stream, 2));
    OK(cuStreamEndCapture(stream, &graph));
    no_violation(0);
    return 0;
}
