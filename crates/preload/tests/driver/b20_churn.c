/* B1, B4, B20: streams and threads that come and go, each with 200 MiB for a moment, leave nothing
 * behind: what is held never passes what one of them asks for, but for a fiftieth and a granule, and
 * the thousandth makes no more calls of the driver than the hundredth. Arguments: how many of them,
 * and a file for what is held at most, calls, and the processor time of each tenth of them. */
#include "driver.h"
#include <pthread.h>
#include <time.h>

enum { TENTHS = 10 };

static const size_t BYTES = 200 * MIB;
static const size_t ALLOWED = 204 * MIB + 2 * MIB;

static handle_t context;
/* Processor time of requests and frees alone: a program's own streams and threads cost what they
 * cost, and whatever else runs on the machine. */
static double spent_us;

static double now_us(void) {
    struct timespec now;
    CHECK(clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now) == 0);
    return now.tv_sec * 1e6 + now.tv_nsec * 1e-3;
}

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

static void of_a_thread(void) {
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, work, NULL) == 0);
    CHECK(pthread_join(thread, NULL) == 0);
}

static void churn(const char *name, void (*one)(void), int count, FILE *figures) {
    double us[TENTHS];
    long calls[TENTHS];
    uint64_t held = 0;
    for (int tenth = 0; tenth < TENTHS; tenth++) {
        long before = calls_of(NULL);
        spent_us = 0;
        for (int at = 0; at < count / TENTHS; at++) {
            one();
            uint64_t now = figure(RESERVED);
            held = now > held ? now : held;
        }
        us[tenth] = spent_us / (count / TENTHS);
        calls[tenth] = calls_of(NULL) - before;
    }
    if (figures == NULL) {
        CHECK(held <= ALLOWED);
        /* The first tenth makes memory. */
        CHECK(calls[TENTHS - 1] <= calls[1]);
        return;
    }
    fprintf(figures, "%s: %d, %lu MiB held at most; by tenths, calls and us of each:", name, count,
            (unsigned long)(held / MIB));
    for (int tenth = 0; tenth < TENTHS; tenth++)
        fprintf(figures, " %.2f %.2f", (double)calls[tenth] / (count / TENTHS), us[tenth]);
    fprintf(figures, "\n");
}

int main(int argc, char **argv) {
    int count = argc > 1 ? atoi(argv[1]) : 1000;
    FILE *figures = argc > 2 ? fopen(argv[2], "w") : NULL;
    /* With room to spare memory is created in large handles, which the next requests share. */
    if (figures == NULL) setenv("DRYSTONE_CONF", "prefer:memory", 1);
    OK(cuInit(0));
    context = primary(0);
    churn("threads", of_a_thread, count, figures);
    churn("streams", of_a_stream, count, figures);
    no_violation(0);
    return 0;
}
