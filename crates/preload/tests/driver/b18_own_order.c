/* B18: threads record events on their streams, wait for those of others, and for streams and the
 * device, while all allocate and free and memory is short: nobody waits for ever, and no block is
 * used out of order. */
#include "driver.h"
#include <pthread.h>

enum { THREADS = 4, TURNS = 150 };

static handle_t context;
static stream_t streams[THREADS];
static event_t events[THREADS];
static pthread_mutex_t in_turn = PTHREAD_MUTEX_INITIALIZER;

static void *work(void *argument) {
    size_t self = (size_t)argument;
    unsigned seed = (unsigned)self + 1;
    OK(cuCtxSetCurrent(context));
    for (int turn = 0; turn < TURNS; turn++) {
        size_t bytes = (size_t)(rand_r(&seed) % 100 + 1) * MIB;
        stream_t stream = turn % 5 == 0 ? (stream_t)2 : streams[self];
        address_t block;
        int code = cuMemAllocAsync(&block, bytes, stream);
        if (code == SUCCESS) {
            OK(simcuda_check_alloc(0, block, bytes, stream));
            OK(simcuda_launch(0, stream, 1000 * (unsigned)(rand_r(&seed) % 1000)));
            OK(simcuda_check_use(0, block, stream));
            OK(simcuda_check_free(0, block));
            OK(cuMemFreeAsync(block, stream));
        }
        CHECK(code == SUCCESS || code == OUT_OF_MEMORY);
        OK(cuEventRecord(events[self], stream));
        OK(cuStreamWaitEvent(streams[self], events[rand_r(&seed) % THREADS], 0));
        if (turn % 7 == 0) OK(cuStreamSynchronize(stream));
        if (turn % 31 == 0) OK(cuCtxSynchronize());
        if (turn % 17 == 0) {
            /* The stream of nobody else, which others do not wait for. */
            stream_t passing = new_stream();
            OK(cuEventRecord(events[self], passing));
            OK(cuStreamDestroy_v2(passing));
        }
        if (turn % 50 == 0) {
            pthread_mutex_lock(&in_turn);
            OK(cuMemPoolTrimTo(default_pool(0), 0));
            pthread_mutex_unlock(&in_turn);
        }
    }
    return NULL;
}

int main(void) {
    pthread_t threads[THREADS];
    OK(cuInit(0));
    context = primary(0);
    for (size_t at = 0; at < THREADS; at++) {
        streams[at] = new_stream();
        OK(cuEventCreate(&events[at], 2));
    }
    for (size_t at = 0; at < THREADS; at++)
        OK(pthread_create(&threads[at], NULL, work, (void *)at));
    for (size_t at = 0; at < THREADS; at++) OK(pthread_join(threads[at], NULL));
    OK(cuCtxSynchronize());
    CHECK(native_allocations() == 0);
    no_violation(0);
    return 0;
}
