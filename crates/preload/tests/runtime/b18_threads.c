/* B18: threads with streams of their own free each other's blocks, in whatever order. */
#include "runtime.h"
#include <pthread.h>

enum { THREADS = 6, TURNS = 3000, PLACES = 64 };

static void *places[PLACES];
static stream_t streams[THREADS];

static void *work(void *argument) {
    unsigned state = 7919u * (unsigned)(uintptr_t)argument + 1;
    stream_t own = streams[(uintptr_t)argument];
    for (int turn = 0; turn < TURNS; turn++) {
        state = state * 1664525u + 1013904223u;
        void *mine, **place = &places[(state >> 8) % PLACES];
        OK(cudaMallocAsync(&mine, 1 + (state >> 10) % (2 * MIB), own));
        void *other = __atomic_exchange_n(place, mine, __ATOMIC_ACQ_REL);
        if (other != NULL) OK(cudaFreeAsync(other, own));
    }
    return NULL;
}

int main(void) {
    pthread_t threads[THREADS];
    for (int at = 0; at < THREADS; at++) streams[at] = new_stream();
    for (uintptr_t at = 0; at < THREADS; at++)
        CHECK(pthread_create(&threads[at], NULL, work, (void *)at) == 0);
    for (int at = 0; at < THREADS; at++) pthread_join(threads[at], NULL);
    for (int at = 0; at < PLACES; at++)
        if (places[at] != NULL) OK(cudaFreeAsync(places[at], NULL));
    OK(cudaDeviceSynchronize());
    OK(cudaMemPoolTrimTo(default_pool(0), 0));
    CHECK(figure(default_pool(0), USED) == 0 && figure(default_pool(0), RESERVED) < 16 * MIB);
    CHECK(native_allocations() == 0);
    no_violation(0);
    return 0;
}
