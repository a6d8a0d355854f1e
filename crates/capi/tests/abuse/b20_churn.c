/* B1, B4, B20: streams and threads that come and go without a word leave nothing behind. What is
 * held never passes what one of them asks for, but for a fiftieth and a granule. Arguments: how many
 * of them, and a file for what is held at most, and the processor time of each tenth of them. */
#define _POSIX_C_SOURCE 200809L
#include <pthread.h>
#include <time.h>

#include "abuse.h"

static const size_t BYTES = 200 * MIB;
static const size_t ALLOWED = 204 * MIB + 2 * MIB;

static double now_us(void) {
    struct timespec now;
    CHECK(clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now) == 0);
    return now.tv_sec * 1e6 + now.tv_nsec * 1e-3;
}

/* Processor time of what Drystone is asked alone: a program's own streams and threads cost what they
 * cost, and whatever else runs on the machine. */
static double spent_us;

static void once(stream_t stream) {
    double before = now_us();
    void *block = drystone_malloc(BYTES, 0, stream);
    CHECK(block != NULL);
    drystone_free(block, BYTES, 0, stream);
    spent_us += now_us() - before;
}

static void of_a_stream(void) {
    stream_t stream = new_stream();
    once(stream);
    CHECK(cuStreamSynchronize(stream) == 0);
    CHECK(cuStreamDestroy_v2(stream) == 0);
}

static void *work(void *unused) {
    use_device(0);
    once((stream_t)2);
    CHECK(cuStreamSynchronize((stream_t)2) == 0);
    return unused;
}

static void of_a_thread(void) {
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, work, NULL) == 0);
    CHECK(pthread_join(thread, NULL) == 0);
}

static void churn(const char *name, void (*one)(void), int count, FILE *figures) {
    double tenth_us[10];
    size_t held = 0;
    for (int tenth = 0; tenth < 10; tenth++) {
        spent_us = 0;
        for (int at = 0; at < count / 10; at++) {
            one();
            size_t now = stats_of(0).reserved_bytes.current;
            held = now > held ? now : held;
        }
        tenth_us[tenth] = spent_us / (count / 10);
    }
    if (figures == NULL) {
        CHECK(held <= ALLOWED);
        return;
    }
    fprintf(figures, "%s: %d, %zu MiB held at most; us of each, by tenths:", name, count, held / MIB);
    for (int tenth = 0; tenth < 10; tenth++) fprintf(figures, " %.2f", tenth_us[tenth]);
    fprintf(figures, "\n");
}

int main(int argc, char **argv) {
    int count = argc > 1 ? atoi(argv[1]) : 100;
    FILE *figures = argc > 2 ? fopen(argv[2], "w") : NULL;
    /* With room to spare memory is created in large handles, which the next requests share. */
    if (figures == NULL) OK(drystone_configure(0, "prefer:memory"));
    use_device(0);
    churn("threads", of_a_thread, count, figures);
    churn("streams", of_a_stream, count, figures);
    still_usable(0);
    return 0;
}
