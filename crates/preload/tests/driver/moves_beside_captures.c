/* I11: memory of one device is about to move when another thread begins a capture on another one,
 * which to hold the default stream there would break; or resets that, and its streams are gone. */
#include <pthread.h>
#include <unistd.h>
#include "driver.h"

#define BLOCK (3 * MIB)
#define KEPT 16

static handle_t other;
static stream_t captured;
/* A gate, and who has come to it. */
static volatile uint32_t *words;

static void *capture(void *argument) {
    handle_t graph;
    OK(cuCtxSetCurrent(other));
    usleep(20000);
    OK(cuStreamBeginCapture_v2(captured, 1));
    OK(cuStreamEndCapture(captured, &graph));
    return argument;
}

static void *reset(void *argument) {
    usleep(20000);
    OK(cuDevicePrimaryCtxReset_v2(1));
    return argument;
}

static void *open_gate(void *argument) {
    usleep(30000);
    words[0]++;
    return argument;
}

/* Memory moves for a request; first it is waited for a stream that waits at the gate. */
static void move_beside(void *(*other_thread)(void *)) {
    static address_t all[512];
    size_t free_bytes, total;
    int count = 0;
    primary(0);
    while (cuMemAllocAsync(&all[count], BLOCK, NULL) == SUCCESS) count++;
    for (int at = 0; at < count; at++) {
        if (at % 16 != 0 || at / 16 >= KEPT) OK(cuMemFreeAsync(all[at], NULL));
    }
    OK(cuMemGetInfo_v2(&free_bytes, &total));
    OK(cuCtxSetCurrent(other));
    uint64_t turn = words[0] + 1, until[2][6] = {
        {2, (uint64_t)&words[1], turn}, {1, (uint64_t)&words[0], turn}};
    OK(cuStreamBatchMemOp_v2(new_stream(), 2, until, 0));
    pthread_t threads[2];
    OK(pthread_create(&threads[0], NULL, other_thread, NULL));
    OK(pthread_create(&threads[1], NULL, open_gate, NULL));
    primary(0);
    address_t large;
    while (cuMemAllocAsync(&large, total - KEPT * (BLOCK + MIB), NULL) != SUCCESS) usleep(1000);
    for (int at = 0; at < 2; at++) OK(pthread_join(threads[at], NULL));
    OK(cuMemFreeAsync(large, NULL));
    for (int at = 0; at < KEPT; at++) OK(cuMemFreeAsync(all[16 * at], NULL));
    OK(cuMemPoolTrimTo(default_pool(0), 0));
}

int main(void) {
    OK(cuInit(0));
    primary(0);
    OK(cuMemHostAlloc((void **)&words, 2 * sizeof *words, 1));
    other = primary(1);
    OK(cuStreamCreate(&captured, 0));
    /* Known: to begin its capture takes no lock that a move has. */
    address_t some;
    OK(cuMemAllocAsync(&some, BLOCK, captured));
    move_beside(capture);
    move_beside(reset);
    no_violation(0);
    no_violation(1);
    return 0;
}
