/* B1, B4, B20: streams and threads that come and go, each with 200 MiB for a moment, leave nothing
 * behind: what is held never passes what one of them asks for, but for a fiftieth and a granule, and
 * the thousandth makes no more calls of the driver than the hundredth. Arguments: how many of them,
 * and a file for what is held at most, calls, and the processor time of each tenth of them. */
#include "driver.h"

#include "../../../lab/testkit/c/churn.h"

static handle_t context;

static void once(stream_t stream) {
    address_t block;
    double before = now_us();
    OK(cuMemAllocAsync(&block, BYTES, stream));
    OK(cuMemFreeAsync(block, stream));
    spent_us += now_us() - before;
    OK(cuStreamSynchronize(stream));
}

static void of_a_stream(void) {
    stream_t stream = new_stream();
    once(stream);
    OK(cuStreamDestroy_v2(stream));
}

static void *work(void *unused) {
    OK(cuCtxSetCurrent(context));
    once((stream_t)2);
    return unused;
}

static void of_a_thread(void) { in_a_thread(work); }

static uint64_t held(void) { return figure(RESERVED); }

static long calls(void) { return calls_of(NULL); }

int main(int argc, char **argv) {
    int count = argc > 1 ? atoi(argv[1]) : 1000;
    FILE *figures = argc > 2 ? fopen(argv[2], "w") : NULL;
    struct looks look = {held, calls};
    /* With room to spare memory is created in large handles, which the next requests share. */
    if (figures == NULL) setenv("DRYSTONE_CONF", "prefer:memory", 1);
    OK(cuInit(0));
    context = primary(0);
    churn("threads", of_a_thread, count, look, figures);
    churn("streams", of_a_stream, count, look, figures);
    no_violation(0);
    return 0;
}
