/* What every program here shares: the simulated driver's functions, checks, and how a program says
 * what it expects of standard error.
 *
 * A program succeeds with status 0; its standard output is then exactly what the library was to
 * write to standard error, and the test compares the two. */
#ifndef ABUSE_H
#define ABUSE_H

#include <drystone.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct CUstream_st *stream_t;

int cuInit(unsigned flags);
int cuDevicePrimaryCtxRetain(void **context, int device);
int cuCtxSetCurrent(void *context);
int cuStreamCreate(stream_t *stream, unsigned flags);
int cuStreamDestroy_v2(stream_t stream);
int cuStreamSynchronize(stream_t stream);
int cuStreamBeginCapture_v2(stream_t stream, int mode);
int cuStreamEndCapture(stream_t stream, void **graph);
int cuGraphDestroy(void *graph);

int simcuda_launch(int device, stream_t stream, uint64_t nanoseconds);
int simcuda_check_alloc(int device, uint64_t address, uint64_t bytes, stream_t stream);
int simcuda_check_use(int device, uint64_t address, stream_t stream);
int simcuda_check_free(int device, uint64_t address);
uint64_t simcuda_violation_count(int device);
uint64_t simcuda_violations(int device, char *out, uint64_t size);
int simcuda_fail(int device, const char *name, uint64_t nth, int for_ever, int error);
int simcuda_clear_faults(int device);
uint64_t simcuda_faults_fired(int device);

#ifdef __cplusplus
}
#endif

#define MIB ((size_t)1 << 20)

/* Ends the program at the first thing that is not as it should be. */
#define CHECK(condition)                                                                         \
    do {                                                                                         \
        if (!(condition)) {                                                                      \
            fprintf(stderr, "%s:%d: not so: %s; last error: %s\n", __FILE__, __LINE__,           \
                    #condition, drystone_last_error_message());                                  \
            _exit(1);                                                                            \
        }                                                                                        \
    } while (0)

#define OK(call) CHECK((call) == DRYSTONE_STATUS_OK)

/* The call fails with a status, and the message has some text in it. */
#define FAILS(call, status, text)                                                                \
    do {                                                                                         \
        CHECK((call) == (status));                                                               \
        CHECK(drystone_last_error() == (status));                                                \
        CHECK(strstr(drystone_last_error_message(), (text)) != NULL);                            \
    } while (0)

/* Functions that return nothing: the same, of the last error. */
#define LEAVES(call, status, text)                                                               \
    do {                                                                                         \
        drystone_clear_error();                                                                  \
        call;                                                                                    \
        CHECK(drystone_last_error() == (status));                                                \
        CHECK(strstr(drystone_last_error_message(), (text)) != NULL);                            \
    } while (0)

static inline uint64_t number_of(const void *pointer) { return (uint64_t)(uintptr_t)pointer; }

/* The device's context is current, as a program would have it; 0 devices are used before. */
static inline void use_device(int device) {
    void *context;
    CHECK(cuInit(0) == 0);
    CHECK(cuDevicePrimaryCtxRetain(&context, device) == 0);
    CHECK(cuCtxSetCurrent(context) == 0);
}

static inline stream_t new_stream(void) {
    stream_t stream;
    CHECK(cuStreamCreate(&stream, 1) == 0);
    return stream;
}

static inline struct drystone_stats stats_of(int device) {
    struct drystone_stats stats;
    stats.struct_size = sizeof stats;
    OK(drystone_get_stats(device, &stats));
    return stats;
}

/* Nothing is broken on a device, and it serves. */
static inline void still_usable(int device) {
    char text[4096];
    void *block;
    OK(drystone_check(device));
    OK(drystone_allocate(&block, 3 * MIB, device, NULL));
    OK(drystone_deallocate_checked(block, 3 * MIB, device, NULL));
    if (simcuda_violation_count(device) != 0) {
        simcuda_violations(device, text, sizeof text);
        fprintf(stderr, "violations:\n%s\n", text);
        _exit(1);
    }
}

#endif
