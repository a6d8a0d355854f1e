/* Memory of one device moves for its requests while another thread writes to it all the time, and
 * asks for it, from that device and from another, on a stream and on the default one: no call finds
 * nothing behind an address, and no write is lost. */
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include "driver.h"

#define BLOCK (3 * MIB)
#define KEPT 16
#define EDGE (16 << 10)

static address_t kept[KEPT];
static atomic_int is_over, written;

static void *write_from(void *device) {
    primary(*(int *)device);
    stream_t streams[2] = {NULL, new_stream()};
    for (written = 0; !is_over; written++) {
        int at = written % KEPT;
        stream_t stream = streams[written / KEPT % 2];
        OK(cuMemsetD8Async(kept[at], (unsigned char)(at + 1), EDGE, stream));
        OK(cuMemsetD8Async(kept[at] + BLOCK - EDGE, (unsigned char)(at + 1), EDGE, stream));
        int ordinal = -1;
        OK(cuPointerGetAttribute(&ordinal, 9, kept[at]));
        CHECK(ordinal == 0);
    }
    OK(cuCtxSynchronize());
    OK(cuStreamDestroy_v2(streams[1]));
    return NULL;
}

/* Each block is written once more. */
static void wait_for_writes(void) {
    int before = written;
    while (written < before + 2 * KEPT) sched_yield();
}

/* Fills the first device, and keeps one block in 16. */
static void fill(void) {
    static address_t all[512];
    int count = 0;
    while (cuMemAllocAsync(&all[count], BLOCK, NULL) == SUCCESS) count++;
    CHECK(count > 16 * KEPT);
    for (int at = 0; at < count; at++) {
        if (at % 16 == 0 && at / 16 < KEPT) kept[at / 16] = all[at];
        else OK(cuMemFreeAsync(all[at], NULL));
    }
}

static void move_beside_writes(size_t total, int device) {
    fill();
    pthread_t thread;
    is_over = written = 0;
    OK(pthread_create(&thread, NULL, write_from, &device));
    wait_for_writes();
    long holds = calls_of("cuStreamBatchMemOp_v2");
    address_t large;
    OK(cuMemAllocAsync(&large, total - KEPT * (BLOCK + MIB), NULL));
    CHECK(calls_of("cuStreamBatchMemOp_v2") > holds);
    wait_for_writes();
    for (int at = 0; at < KEPT; at++) {
        unsigned char bytes[2];
        OK(cuMemcpyDtoH_v2(&bytes[0], kept[at], 1));
        OK(cuMemcpyDtoH_v2(&bytes[1], kept[at] + BLOCK - 1, 1));
        CHECK(bytes[0] == at + 1 && bytes[1] == at + 1);
    }
    is_over = 1;
    OK(pthread_join(thread, NULL));
    OK(cuMemFreeAsync(large, NULL));
    for (int at = 0; at < KEPT; at++) OK(cuMemFreeAsync(kept[at], NULL));
    OK(cuMemPoolTrimTo(default_pool(0), 0));
}

int main(void) {
    OK(cuInit(0));
    primary(1);
    address_t other;
    OK(cuMemAllocAsync(&other, BLOCK, NULL));
    primary(0);
    struct access open_to_other = {{1, 1}, 3};
    OK(cuMemPoolSetAccess(default_pool(0), &open_to_other, 1));
    size_t free_bytes, total;
    OK(cuMemGetInfo_v2(&free_bytes, &total));
    for (int device = 0; device < 2; device++) move_beside_writes(total, device);
    OK(cuMemFreeAsync(other, NULL));
    no_violation(0);
    no_violation(1);
    return 0;
}
