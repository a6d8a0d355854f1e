/* B18: threads with streams of their own that come and go free each other's blocks; one captures
 * now and then. */
#include "driver.h"
#include <pthread.h>

enum { THREADS = 6, TURNS = 1500, PLACES = 64 };

static address_t places[PLACES];
static handle_t context;

static void *work(void *argument) {
    unsigned state = 7919u * (unsigned)(uintptr_t)argument + 1;
    OK(cuCtxSetCurrent(context));
    stream_t own = new_stream();
    for (int turn = 0; turn < TURNS; turn++) {
        state = state * 1664525u + 1013904223u;
        address_t mine, *place = &places[(state >> 8) % PLACES];
        stream_t stream = state >> 30 ? own : (stream_t)2;
        OK(cuMemAllocAsync(&mine, 1 + (state >> 10) % (2 * MIB), stream));
        address_t other = __atomic_exchange_n(place, mine, __ATOMIC_ACQ_REL);
        if (other != 0) OK(cuMemFreeAsync(other, stream));
        if (turn % 100 == 50) {
            OK(cuStreamDestroy_v2(own));
            own = new_stream();
        }
        if (argument == NULL && turn % 100 == 75) {
            handle_t graph;
            address_t in_graph;
            OK(cuStreamBeginCapture_v2(own, 2));
            OK(cuMemAllocAsync(&in_graph, MIB, own));
            OK(cuMemFreeAsync(in_graph, own));
            OK(cuStreamEndCapture(own, &graph));
        }
    }
    return NULL;
}

int main(void) {
    OK(cuInit(0));
    context = primary(0);
    pthread_t threads[THREADS];
    for (uintptr_t at = 0; at < THREADS; at++)
        CHECK(pthread_create(&threads[at], NULL, work, (void *)at) == 0);
    for (int at = 0; at < THREADS; at++) pthread_join(threads[at], NULL);
    for (int at = 0; at < PLACES; at++)
        if (places[at] != 0) OK(cuMemFreeAsync(places[at], NULL));
    OK(cuCtxSynchronize());
    OK(cuMemPoolTrimTo(default_pool(0), 0));
    CHECK(figure(USED) == 0 && figure(RESERVED) < 16 * MIB);
    CHECK(native_allocations() == TURNS / 100);
    no_violation(0);
    return 0;
}
