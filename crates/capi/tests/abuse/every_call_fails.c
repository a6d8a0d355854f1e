/* Each function of the driver that the library calls fails; an error has a status and a text. */
#include "abuse.h"

uint64_t simcuda_stats_json(char *out, uint64_t size);
int cuCtxSynchronize(void);

#include "../../../lab/testkit/c/every_call_fails.h"

struct device { int can_grow, has_peer; };

static void *blocks[BLOCKS];

/* It may fail while the driver does; then it says why. */
static int tried(enum drystone_status status, int may_fail) {
    if (status == DRYSTONE_STATUS_OK) return 1;
    CHECK(may_fail && strlen(drystone_last_error_message()) > 10);
    CHECK(status != DRYSTONE_STATUS_INTERNAL && status != DRYSTONE_STATUS_POISONED);
    return 0;
}

static void grow(stream_t stream, int may_fail) {
    void *memory;
    enum drystone_status reserved = drystone_growable_reserve(&memory, 64 * MIB, 0, stream);
    /* The device was taken for one without virtual memory when it was opened. */
    if (reserved == DRYSTONE_STATUS_NOT_SUPPORTED || !tried(reserved, may_fail)) return;
    if (tried(drystone_growable_grow_to(memory, 24 * MIB), may_fail))
        tried(drystone_growable_shrink_to(memory, 4 * MIB), may_fail);
    OK(drystone_growable_free(memory));
}

/* Blocks of several sizes on two streams; some are used on the other one, and freed. */
static void work(stream_t streams[2], struct device device, int may_fail) {
    for (int at = 0; at < BLOCKS; at++) {
        if (blocks[at] != NULL) continue;
        stream_t stream = streams[at / 4];
        if (!tried(drystone_allocate(&blocks[at], SIZES[at], 0, stream), may_fail)) {
            CHECK(blocks[at] == NULL);
            continue;
        }
        tried(drystone_record_use(blocks[at], streams[1 - at / 4]), may_fail);
    }
    for (int at = 0; at < BLOCKS; at += 2) {
        if (blocks[at] != NULL) OK(drystone_deallocate(blocks[at]));
        blocks[at] = NULL;
    }
    if (device.can_grow) grow(streams[0], may_fail);
    if (device.has_peer) tried(drystone_enable_peer_access(0, 1), may_fail);
    tried(drystone_trim(0, NULL), may_fail);
    tried(drystone_compact(0, 1, NULL), may_fail);
}

static void serve(stream_t streams[2], struct device device) {
    size_t given;
    for (int turn = 0; turn < 2; turn++) work(streams, device, 0);
    for (int at = 0; at < BLOCKS; at++) {
        if (blocks[at] != NULL) OK(drystone_deallocate(blocks[at]));
        blocks[at] = NULL;
    }
    CHECK(cuCtxSynchronize() == 0);
    OK(drystone_trim(0, &given));
    OK(drystone_check(0));
    CHECK(stats_of(0).reserved_bytes.current == 0);
}

/* A device without virtual memory has no memory that grows; a part of one has no peers, and neither
 * has one with the host's memory. */
static struct device of(const char *profile) {
    return (struct device){
        .can_grow = strcmp(profile, "virtual-gpu") != 0,
        .has_peer = strcmp(profile, "mig") != 0 && strcmp(profile, "unified") != 0,
    };
}

static void begin(const char *profile, stream_t streams[2]) {
    char conf[100];
    snprintf(conf, sizeof conf, "memory:2GiB,devices:2,profile:%s", profile);
    CHECK(simcuda_configure(conf) == 0);
    use_device(0);
    streams[0] = new_stream();
    streams[1] = new_stream();
}

static void work_on(const char *profile, stream_t streams[2], int may_fail) {
    work(streams, of(profile), may_fail);
}

static void serve_on(const char *profile, stream_t streams[2]) { serve(streams, of(profile)); }

static void check_legal(void) { CHECK(simcuda_violation_count(0) == 0); }
