/* I11: memory of one device is about to move when another thread begins a capture on another device,
 * which to hold the default stream there would break. */
#include <pthread.h>
#include <unistd.h>
#include "driver.h"

#define BLOCK (3 * MIB)
#define KEPT 16

static stream_t busy, captured;
static volatile uint32_t *words; /* The gate, who has come to it, and whether a capture may begin. */

static void *capture(void *context) {
    address_t unused;
    handle_t graph;
    OK(cuCtxSetCurrent(context));
    OK(cuMemAllocAsync(&unused, BLOCK, captured));
    words[2] = 1;
    usleep(20000);
    OK(cuStreamBeginCapture_v2(captured, 1));
    OK(cuStreamEndCapture(captured, &graph));
    return NULL;
}

static void *let_go(void *argument) {
    usleep(30000);
    words[0] = 1;
    return argument;
}

int main(void) {
    OK(cuInit(0));
    handle_t other = primary(1);
    busy = new_stream();
    OK(cuStreamCreate(&captured, 0));
    OK(cuMemHostAlloc((void **)&words, 3 * sizeof *words, 1));
    primary(0);
    static address_t all[512];
    int count = 0;
    while (cuMemAllocAsync(&all[count], BLOCK, NULL) == SUCCESS) count++;
    for (int at = 0; at < count; at++) {
        if (at % 16 != 0 || at / 16 >= KEPT) OK(cuMemFreeAsync(all[at], NULL));
    }
    pthread_t threads[2];
    OK(pthread_create(&threads[0], NULL, capture, other));
    while (words[2] == 0) usleep(100);
    /* A move waits for this stream of the other device, which waits for a thread. */
    uint64_t until[2][6] = {{2, (uint64_t)&words[1], 1}, {1, (uint64_t)&words[0], 1}};
    OK(cuCtxSetCurrent(other));
    OK(cuStreamBatchMemOp_v2(busy, 2, until, 0));
    primary(0);
    OK(pthread_create(&threads[1], NULL, let_go, NULL));
    size_t free_bytes, total;
    OK(cuMemGetInfo_v2(&free_bytes, &total));
    address_t large;
    while (cuMemAllocAsync(&large, total - KEPT * (BLOCK + MIB), NULL) != SUCCESS) usleep(1000);
    for (int at = 0; at < 2; at++) OK(pthread_join(threads[at], NULL));
    no_violation(0);
    no_violation(1);
    return 0;
}
