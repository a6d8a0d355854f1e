/* B1, B4, B20: streams and threads that come and go without a word leave nothing behind. What is
 * held never passes what one of them asks for, but for a fiftieth and a granule. Arguments: how many
 * of them, and a file for what is held at most, and the processor time of each tenth of them. */
#define _POSIX_C_SOURCE 200809L
#include "abuse.h"

#include "../../../lab/testkit/c/churn.h"

static void once(stream_t stream) {
    double before = now_us();
    void *block = drystone_malloc(BYTES, 0, stream);
    CHECK(block != NULL);
    drystone_free(block, BYTES, 0, stream);
    spent_us += now_us() - before;
    CHECK(cuStreamSynchronize(stream) == 0);
}

static void of_a_stream(void) {
    stream_t stream = new_stream();
    once(stream);
    CHECK(cuStreamDestroy_v2(stream) == 0);
}

static void *work(void *unused) {
    use_device(0);
    once((stream_t)2);
    return unused;
}

static void of_a_thread(void) { in_a_thread(work); }

static uint64_t held(void) { return stats_of(0).reserved_bytes.current; }

int main(int argc, char **argv) {
    int count = argc > 1 ? atoi(argv[1]) : 100;
    FILE *figures = argc > 2 ? fopen(argv[2], "w") : NULL;
    struct looks look = {held, NULL};
    /* With room to spare memory is created in large handles, which the next requests share. */
    if (figures == NULL) OK(drystone_configure(0, "prefer:memory"));
    use_device(0);
    churn("threads", of_a_thread, count, look, figures);
    churn("streams", of_a_stream, count, look, figures);
    still_usable(0);
    return 0;
}
