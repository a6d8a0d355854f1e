/* Streams and threads that come and go, each with 200 MiB for a moment: what is held at most
 * meanwhile, what calls of the driver and what processor time each tenth of them takes. Included by
 * programs behind their own header, which has CHECK and MIB; they say how 200 MiB come and go. */
#ifndef CHURN_H
#define CHURN_H

#include <pthread.h>
#include <time.h>

enum { TENTHS = 10 };

static const size_t BYTES = 200 * MIB;
/* For a fiftieth, and a granule. */
static const size_t ALLOWED = 204 * MIB + 2 * MIB;

/* Processor time of requests and frees alone: a program's own streams and threads cost what they
 * cost, and whatever else runs on the machine. */
static double spent_us;

static double now_us(void) {
    struct timespec now;
    CHECK(clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now) == 0);
    return now.tv_sec * 1e6 + now.tv_nsec * 1e-3;
}

static void in_a_thread(void *(*work)(void *)) {
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, work, NULL) == 0);
    CHECK(pthread_join(thread, NULL) == 0);
}

/* What the library holds now, and how often the driver was called, where that is looked at. */
struct looks {
    uint64_t (*held)(void);
    long (*calls)(void);
};

/* So many of what `one` does. With a file for figures nothing is checked. */
static void churn(const char *name, void (*one)(void), int count, struct looks look,
                  FILE *figures) {
    double us[TENTHS];
    long calls[TENTHS] = {0};
    uint64_t held = 0;
    for (int tenth = 0; tenth < TENTHS; tenth++) {
        long before = look.calls == NULL ? 0 : look.calls();
        spent_us = 0;
        for (int at = 0; at < count / TENTHS; at++) {
            one();
            uint64_t now = look.held();
            held = now > held ? now : held;
        }
        us[tenth] = spent_us / (count / TENTHS);
        calls[tenth] = look.calls == NULL ? 0 : look.calls() - before;
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

#endif
