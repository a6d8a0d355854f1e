/* Each function of the driver that is called beneath the program fails, once and for ever, on each
 * kind of device: from before the first allocation on, or later. The process goes on, and when the
 * driver works again, all is served, and nothing is lost. Each case is a process of its own,
 * which says what is wrong with it if there is TELL in the environment. */
#include "driver.h"
#include <sys/wait.h>

int simcuda_configure(const char *conf);
int simcuda_fail(int device, const char *name, uint64_t nth, int for_ever, int error);
int simcuda_clear_faults(int device);
uint64_t simcuda_physical_bytes(int device);

enum { ONCE, FOR_EVER, MODES };
enum { FIRST_USE, LATER, BEGINNINGS };
enum { BLOCKS = 8 };

static const char *const PROFILES[] = {
    "bare-metal", "wsl2", "virtual-gpu", "mig", "slow-memory-info", "unified",
};
static const int CODES[] = {2, 801, 999};

#define COUNT(array) (sizeof(array) / sizeof(array)[0])

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
    static const size_t SIZES[BLOCKS] = {
        512, 3 * MIB, 40 * MIB, 700, 30 * MIB, 300 * MIB, 24 * MIB, 1,
    };
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
    CHECK(simcuda_physical_bytes(0) == 0);
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

static int run(const char *profile, const char *name, int beginning, int mode, int code) {
    stream_t streams[2];
    begin(profile, streams);
    if (beginning == LATER) work(streams, has_pools(profile), 0);
    OK(simcuda_fail(0, name, 1, mode == FOR_EVER, code));
    work(streams, has_pools(profile), 1);
    OK(simcuda_clear_faults(0));
    serve(streams, has_pools(profile));
    no_violation(0);
    return 0;
}

static int list(const char *profile, int out) {
    static char text[1 << 16];
    stream_t streams[2];
    begin(profile, streams);
    work(streams, has_pools(profile), 0);
    serve(streams, has_pools(profile));
    CHECK(simcuda_stats_json(text, sizeof text) < (int)sizeof text);
    for (char *at = strstr(text, "\"functions\""); (at = strstr(at, "    \"cu")) != NULL;) {
        at += strlen("    \"");
        size_t length = strcspn(at, "\"");
        at[length] = '\n';
        CHECK(write(out, at, length + 1) == (ssize_t)length + 1);
        at += length + 1;
    }
    return 0;
}

static int ended_well(pid_t child) {
    int status;
    return waitpid(child, &status, 0) == child && status == 0;
}

static int sweep(const char *profile, const char *name) {
    int failures = 0;
    for (int beginning = 0; beginning < BEGINNINGS; beginning++)
        for (int mode = 0; mode < MODES; mode++)
            for (size_t code = 0; code < COUNT(CODES); code++) {
                pid_t child = fork();
                if (child == 0) {
                    if (getenv("TELL") == NULL) CHECK(freopen("/dev/null", "w", stderr) != NULL);
                    _exit(run(profile, name, beginning, mode, CODES[code]));
                }
                if (ended_well(child)) continue;
                fprintf(stderr, "%s: %s fails %s with %d, %s\n", profile, name,
                        mode == ONCE ? "once" : "for ever", CODES[code],
                        beginning == FIRST_USE ? "from the first use on" : "later");
                failures++;
            }
    return failures;
}

int main(void) {
    int failures = 0;
    for (size_t at = 0; at < COUNT(PROFILES); at++) {
        int pipes[2], functions = 0;
        char name[100];
        CHECK(pipe(pipes) == 0);
        pid_t child = fork();
        if (child == 0) _exit(list(PROFILES[at], pipes[1]));
        close(pipes[1]);
        FILE *names = fdopen(pipes[0], "r");
        for (; fscanf(names, "%99s", name) == 1; functions++) failures += sweep(PROFILES[at], name);
        fclose(names);
        CHECK(ended_well(child) && functions > 10);
    }
    return failures != 0;
}
