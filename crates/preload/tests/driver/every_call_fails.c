/* Each function of the driver that is called beneath a program fails, and the program is served by
 * the preloaded library. */
#include "driver.h"

#include "../../../lab/testkit/c/every_call_fails.h"

static address_t blocks[BLOCKS];

/* A device without memory pools has no stream-ordered memory, with the library or without it. */
static int take(address_t *block, size_t bytes, stream_t stream, int is_ordered) {
    return is_ordered ? cuMemAllocAsync(block, bytes, stream) : cuMemAlloc_v2(block, bytes);
}

/* A free that fails may be made again. */
static void give(address_t *block, stream_t stream, int is_ordered, int may_fail) {
    if (*block == 0) return;
    int code = is_ordered ? cuMemFreeAsync(*block, stream) : cuMemFree_v2(*block);
    CHECK(code == SUCCESS || may_fail);
    if (code == SUCCESS) *block = 0;
}

static void work(stream_t streams[2], int is_ordered, int may_fail) {
    event_t event;
    for (int at = 0; at < BLOCKS; at++) {
        if (blocks[at] != 0) continue;
        int code = take(&blocks[at], SIZES[at], streams[at / 4], is_ordered);
        CHECK(code == SUCCESS || may_fail);
        if (code != SUCCESS) blocks[at] = 0;
    }
    /* The second stream goes on after the first. */
    if (cuEventCreate(&event, 2) == SUCCESS) {
        int code = cuEventRecord(event, streams[0]);
        if (code == SUCCESS) code = cuStreamWaitEvent(streams[1], event, 0);
        CHECK(code == SUCCESS || may_fail);
        code = cuEventDestroy_v2(event);
        CHECK(code == SUCCESS || may_fail);
    } else {
        CHECK(may_fail);
    }
    for (int at = 0; at < BLOCKS; at += 2) give(&blocks[at], streams[1], is_ordered, may_fail);
}

static void serve(stream_t streams[2], int is_ordered) {
    for (int turn = 0; turn < 2; turn++) work(streams, is_ordered, 0);
    for (int at = 0; at < BLOCKS; at++) give(&blocks[at], streams[1], is_ordered, 0);
    OK(cuCtxSynchronize());
    if (is_ordered) {
        OK(cuMemPoolTrimTo(default_pool(0), 0));
        CHECK(figure(RESERVED) == 0);
    }
}

static int has_pools(const char *profile) { return strcmp(profile, "virtual-gpu") != 0; }

static void begin(const char *profile, stream_t streams[2]) {
    char conf[100];
    snprintf(conf, sizeof conf, "memory:2GiB,profile:%s", profile);
    OK(simcuda_configure(conf));
    OK(cuInit(0));
    primary(0);
    streams[0] = new_stream();
    streams[1] = new_stream();
}

static void work_on(const char *profile, stream_t streams[2], int may_fail) {
    work(streams, has_pools(profile), may_fail);
}

static void serve_on(const char *profile, stream_t streams[2]) {
    serve(streams, has_pools(profile));
}

static void check_legal(void) { no_violation(0); }
