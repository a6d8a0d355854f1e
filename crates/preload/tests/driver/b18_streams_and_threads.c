/* B18, B20: four threads on eight streams that end and are made again, on a device that is too small
 * for what they cache. Blocks are freed on other streams than their own. No event and no stream is
 * asked about once it is gone, and no block serves while another stream may use it.
 *
 * A stream ends only while nobody holds a call with it, nor frees a block of it: that much is for
 * programs to see to. */
#include "driver.h"
#include <pthread.h>

enum { STREAMS = 8, THREADS = 4, BLOCKS = 32, ROUNDS = 3000 };

static stream_t streams[STREAMS];
static pthread_rwlock_t locks[STREAMS];

static unsigned next(unsigned *state) {
    *state = *state * 1664525u + 1013904223u;
    return *state >> 8;
}

static void replace(unsigned at) {
    OK(pthread_rwlock_wrlock(&locks[at]));
    OK(cuStreamDestroy_v2(streams[at]));
    OK(cuStreamCreate(&streams[at], 1));
    OK(pthread_rwlock_unlock(&locks[at]));
}

/* Of two that may be one: always in the same order. */
static void hold(unsigned one, unsigned other) {
    OK(pthread_rwlock_rdlock(&locks[one < other ? one : other]));
    if (one != other) OK(pthread_rwlock_rdlock(&locks[one < other ? other : one]));
}

static void leave(unsigned one, unsigned other) {
    OK(pthread_rwlock_unlock(&locks[one]));
    if (one != other) OK(pthread_rwlock_unlock(&locks[other]));
}

static void *work(void *number) {
    unsigned state = (unsigned)(uintptr_t)number, own[BLOCKS] = {0};
    address_t blocks[BLOCKS] = {0};
    primary(0);
    for (int round = 0; round < ROUNDS; round++) {
        unsigned at = next(&state) % BLOCKS, which = next(&state) % STREAMS;
        if (next(&state) % 40 == 0) {
            replace(which);
            continue;
        }
        unsigned of_block = blocks[at] ? own[at] : which;
        hold(which, of_block);
        if (blocks[at]) {
            OK(simcuda_check_free(0, blocks[at]));
            OK(cuMemFreeAsync(blocks[at], streams[which]));
            blocks[at] = 0;
        } else {
            size_t size = (next(&state) % 8 + 1) * (next(&state) % 3 ? 300000 : 3000000);
            OK(cuMemAllocAsync(&blocks[at], size, streams[which]));
            OK(simcuda_check_alloc(0, blocks[at], size, streams[which]));
            OK(simcuda_launch(0, streams[which], next(&state) % 3000000));
            own[at] = which;
        }
        leave(which, of_block);
    }
    return NULL;
}

int main(void) {
    OK(cuInit(0));
    primary(0);
    for (unsigned at = 0; at < STREAMS; at++) {
        OK(pthread_rwlock_init(&locks[at], NULL));
        streams[at] = new_stream();
    }
    pthread_t threads[THREADS];
    for (uintptr_t at = 0; at < THREADS; at++) {
        OK(pthread_create(&threads[at], NULL, work, (void *)(at + 1)));
    }
    for (int at = 0; at < THREADS; at++) OK(pthread_join(threads[at], NULL));
    no_violation(0);
    return 0;
}
