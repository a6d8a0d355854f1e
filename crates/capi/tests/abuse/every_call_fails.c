/* Each function of the driver that the library calls fails, once and for ever, on each kind of
 * device: from before the first use on, or once the library has been used. Whatever fails, the
 * process goes on, an error has a status and a text; and when the driver works again, so does the
 * library, and nothing is lost. Each case is a process of its own,
 * which says what is wrong with it if there is TELL in the environment. */
#include "abuse.h"
#include <sys/wait.h>

int simcuda_configure(const char *conf);
uint64_t simcuda_stats_json(char *out, uint64_t size);
uint64_t simcuda_physical_bytes(int device);
int cuCtxSynchronize(void);

enum { ONCE, FOR_EVER, MODES };
enum { FIRST_USE, LATER, BEGINNINGS };
enum { BLOCKS = 8 };

static const char *const PROFILES[] = {
    "bare-metal", "wsl2", "virtual-gpu", "mig", "slow-memory-info", "unified",
};
static const int CODES[] = {2, 801, 999};

#define COUNT(array) (sizeof(array) / sizeof(array)[0])

struct device { int can_grow, has_peer; };

static void *blocks[BLOCKS];
static int failures;

/* It may fail while the driver does; then it says why. */
static int tried(enum drystone_status status, int may_fail) {
    if (status == DRYSTONE_STATUS_OK) return 1;
    CHECK(may_fail && strlen(drystone_last_error_message()) > 10);
    CHECK(status != DRYSTONE_STATUS_INTERNAL && status != DRYSTONE_STATUS_POISONED);
    failures++;
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
    static const size_t SIZES[BLOCKS] = {
        512, 3 * MIB, 40 * MIB, 700, 30 * MIB, 300 * MIB, 24 * MIB, 1,
    };
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

/* What is asked of a driver that works, and gives all back. */
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
    CHECK(simcuda_physical_bytes(0) == 0);
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

static int run(const char *profile, const char *name, int beginning, int mode, int code) {
    stream_t streams[2];
    begin(profile, streams);
    if (beginning == LATER) work(streams, of(profile), 0);
    CHECK(simcuda_fail(0, name, 1, mode == FOR_EVER, code) == 0);
    work(streams, of(profile), 1);
    CHECK(simcuda_clear_faults(0) == 0);
    serve(streams, of(profile));
    CHECK(simcuda_violation_count(0) == 0);
    return 0;
}

/* The functions that are called on a device of this kind, to a pipe. */
static int list(const char *profile, int out) {
    static char text[1 << 16];
    stream_t streams[2];
    begin(profile, streams);
    work(streams, of(profile), 0);
    serve(streams, of(profile));
    CHECK(simcuda_stats_json(text, sizeof text) < sizeof text);
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

static void sweep(const char *profile, const char *name) {
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
}

int main(void) {
    for (size_t at = 0; at < COUNT(PROFILES); at++) {
        int pipes[2], functions = 0;
        char name[100];
        CHECK(pipe(pipes) == 0);
        pid_t child = fork();
        if (child == 0) _exit(list(PROFILES[at], pipes[1]));
        close(pipes[1]);
        FILE *names = fdopen(pipes[0], "r");
        for (; fscanf(names, "%99s", name) == 1; functions++) sweep(PROFILES[at], name);
        fclose(names);
        CHECK(ended_well(child) && functions > 15);
    }
    return failures != 0;
}
