/* A thread captures its own default stream, of which other threads cannot ask whether it is captured:
 * what they do meanwhile, out of memory too, does not break the capture. Once it is over, unused
 * memory goes back again. */
#include "driver.h"
#include <pthread.h>

static pthread_barrier_t turn;
static handle_t context;

static void *capture(void *argument) {
    address_t block;
    handle_t graph;
    stream_t own = (stream_t)2;
    OK(cuCtxSetCurrent(context));
    for (int mode = 1; mode < 3; mode++) {
        OK(cuMemAllocAsync(&block, MIB, own));
        OK(cuStreamBeginCapture_v2(own, mode));
        pthread_barrier_wait(&turn);
        pthread_barrier_wait(&turn);
        OK(cuStreamEndCapture(own, &graph));
        OK(cuMemFreeAsync(block, own));
        pthread_barrier_wait(&turn);
        pthread_barrier_wait(&turn);
    }
    return argument;
}

int main(void) {
    pthread_t thread;
    address_t kept, block;
    OK(cuInit(0));
    context = primary(0);
    stream_t stream = new_stream();
    OK(pthread_barrier_init(&turn, NULL, 2));
    OK(pthread_create(&thread, NULL, capture, NULL));
    for (int mode = 1; mode < 3; mode++) {
        OK(cuMemAllocAsync(&kept, 2000 * MIB, stream));
        OK(cuMemAllocAsync(&block, 500 * MIB, stream));
        OK(cuMemFreeAsync(block, stream));
        pthread_barrier_wait(&turn);
        CHECK(cuMemAllocAsync(&block, 3000 * MIB, stream) == OUT_OF_MEMORY);
        CHECK(cuMemAlloc_v2(&block, 3000 * MIB) == OUT_OF_MEMORY);
        OK(cuMemPoolTrimTo(default_pool(0), 0));
        CHECK(figure(RESERVED) >= 2500 * MIB);
        pthread_barrier_wait(&turn);
        pthread_barrier_wait(&turn);
        OK(cuMemFreeAsync(kept, stream));
        OK(cuMemPoolTrimTo(default_pool(0), 0));
        CHECK(figure(RESERVED) == 0);
        pthread_barrier_wait(&turn);
    }
    OK(pthread_join(thread, NULL));
    no_violation(0);
    return 0;
}
