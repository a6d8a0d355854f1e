/* Each function of the driver that is called beneath a program fails, once and for ever, on each
 * kind of device: from before the first use on, or later. Whatever fails, the process goes on; and
 * when the driver works again, all is served, and nothing is lost. Each case is a process of its
 * own, which says what is wrong with it if there is TELL in the environment.
 *
 * A program includes its own header first, for CHECK and stream_t, and defines the five functions
 * below. */
#include <sys/wait.h>

int simcuda_configure(const char *conf);
int simcuda_fail(int device, const char *name, uint64_t nth, int for_ever, int error);
int simcuda_clear_faults(int device);
uint64_t simcuda_physical_bytes(int device);

/* A device of this kind, with two streams. */
static void begin(const char *profile, stream_t streams[2]);
/* What it does while the driver works, and while it may fail. */
static void work_on(const char *profile, stream_t streams[2], int may_fail);
/* What is asked of a driver that works, and gives all back. */
static void serve_on(const char *profile, stream_t streams[2]);
/* Nothing illegal was called. */
static void check_legal(void);
/* More functions than that are called. */
enum { FUNCTIONS_MIN = 10 };

enum { ONCE, FOR_EVER, MODES };
enum { FIRST_USE, LATER, BEGINNINGS };
enum { BLOCKS = 8 };

static const size_t SIZES[BLOCKS] = {
    512, 3 * MIB, 40 * MIB, 700, 30 * MIB, 300 * MIB, 24 * MIB, 1,
};
static const char *const PROFILES[] = {
    "bare-metal", "wsl2", "virtual-gpu", "mig", "slow-memory-info", "unified",
};
static const int CODES[] = {2, 801, 999};

#define COUNT(array) (sizeof(array) / sizeof(array)[0])

static int run(const char *profile, const char *name, int beginning, int mode, int code) {
    stream_t streams[2];
    begin(profile, streams);
    if (beginning == LATER) work_on(profile, streams, 0);
    CHECK(simcuda_fail(0, name, 1, mode == FOR_EVER, code) == 0);
    work_on(profile, streams, 1);
    CHECK(simcuda_clear_faults(0) == 0);
    serve_on(profile, streams);
    CHECK(simcuda_physical_bytes(0) == 0);
    check_legal();
    return 0;
}

/* The functions that are called on a device of this kind, to a pipe. */
static int list(const char *profile, int out) {
    static char text[1 << 16];
    stream_t streams[2];
    begin(profile, streams);
    work_on(profile, streams, 0);
    serve_on(profile, streams);
    CHECK((size_t)simcuda_stats_json(text, sizeof text) < sizeof text);
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
    int wrong = 0;
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
                wrong++;
            }
    return wrong;
}

int main(void) {
    int wrong = 0;
    for (size_t at = 0; at < COUNT(PROFILES); at++) {
        int pipes[2], functions = 0;
        char name[100];
        CHECK(pipe(pipes) == 0);
        pid_t child = fork();
        if (child == 0) _exit(list(PROFILES[at], pipes[1]));
        close(pipes[1]);
        FILE *names = fdopen(pipes[0], "r");
        for (; fscanf(names, "%99s", name) == 1; functions++) wrong += sweep(PROFILES[at], name);
        fclose(names);
        CHECK(ended_well(child) && functions > FUNCTIONS_MIN);
    }
    return wrong != 0;
}
