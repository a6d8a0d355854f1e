/* B4, B18, B20: many threads with streams of their own, which come and go, and blocks that one
 * thread allocates and another frees. */
#include <pthread.h>

#include "abuse.h"

enum { THREADS = 6, ROUNDS = 60, BLOCKS = 40, SHARED = 64 };

static void *shared[SHARED];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static unsigned next_random(unsigned *state) {
    *state = *state * 1664525u + 1013904223u;
    return *state >> 8;
}

/* A stream that is retired does no more work. The oracle, which is told of a free before it happens,
 * takes it that each of the block's streams does some right then: so not while one ends. */
static pthread_rwlock_t ending = PTHREAD_RWLOCK_INITIALIZER;

static void give_back(void *block) {
    pthread_rwlock_rdlock(&ending);
    CHECK(simcuda_check_free(0, number_of(block)) == 0);
    OK(drystone_deallocate(block));
    pthread_rwlock_unlock(&ending);
}

/* Nor do the streams of threads that ended. */
static pthread_barrier_t all_done;

static void end_stream(stream_t stream, int is_told) {
    pthread_rwlock_wrlock(&ending);
    if (is_told) OK(drystone_retire_stream(0, stream));
    CHECK(cuStreamDestroy_v2(stream) == 0);
    pthread_rwlock_unlock(&ending);
}

static void *storm(void *argument) {
    unsigned state = (unsigned)(uintptr_t)argument;
    use_device(0);
    for (int round = 0; round < ROUNDS; round++) {
        stream_t stream = round % 7 == 3 ? (stream_t)2 : new_stream();
        stream_t other = new_stream();
        for (int at = 0; at < BLOCKS; at++) {
            size_t bytes = 1 + next_random(&state) % (at % 4 == 0 ? 3 * MIB : 9000);
            void *block;
            OK(drystone_allocate(&block, bytes, 0, stream));
            CHECK(simcuda_check_alloc(0, number_of(block), bytes, stream) == 0);
            if (at % 3 == 0) {
                OK(drystone_record_use(block, other));
                CHECK(simcuda_check_use(0, number_of(block), other) == 0);
            }
            pthread_mutex_lock(&lock);
            void **place = &shared[next_random(&state) % SHARED];
            void *old = *place;
            *place = block;
            pthread_mutex_unlock(&lock);
            if (old != NULL) give_back(old);
        }
        if (round % 5 == 0) OK(drystone_trim(0, NULL));
        /* Blocks that it uses are live. */
        end_stream(other, 1);
        if (stream != (stream_t)2) end_stream(stream, round % 2 == 0);
    }
    pthread_barrier_wait(&all_done);
    return NULL;
}

int main(void) {
    pthread_t threads[THREADS];
    CHECK(pthread_barrier_init(&all_done, NULL, THREADS) == 0);
    for (uintptr_t at = 0; at < THREADS; at++)
        CHECK(pthread_create(&threads[at], NULL, storm, (void *)(at + 1)) == 0);
    for (int at = 0; at < THREADS; at++) CHECK(pthread_join(threads[at], NULL) == 0);
    for (int at = 0; at < SHARED; at++)
        if (shared[at] != NULL) give_back(shared[at]);
    CHECK(stats_of(0).allocated_bytes.current == 0);
    CHECK(stats_of(0).allocations.total == THREADS * ROUNDS * BLOCKS);
    still_usable(0);
    OK(drystone_trim(0, NULL));
    CHECK(stats_of(0).reserved_bytes.current == 0);
    return 0;
}
