/* What every program here shares: the driver's functions, found in one of three ways, what the
 * simulated driver tells, and checks. The programs know nothing of the library that is preloaded.
 *
 * WAY says how: 0, linked with the driver; 1, by dlsym; 2, by cuGetProcAddress; 3, by dlsym in the
 * library that cudarc looks in. */
#ifndef DRIVER_H
#define DRIVER_H

#define _GNU_SOURCE
#include <dlfcn.h>
#include "../../../lab/testkit/c/check.h"

typedef struct CUevent_st *event_t;
typedef void *handle_t;
typedef uint64_t address_t;

/* Name, name for cuGetProcAddress, version of CUDA, arguments. */
#define FUNCTIONS(X)                                                                             \
    X(cuInit, cuInit, 12000, (unsigned))                                                         \
    X(cuDeviceGet, cuDeviceGet, 12000, (int *, int))                                             \
    X(cuDevicePrimaryCtxRetain, cuDevicePrimaryCtxRetain, 12000, (handle_t *, int))              \
    X(cuDevicePrimaryCtxReset_v2, cuDevicePrimaryCtxReset, 12000, (int))                         \
    X(cuCtxCreate_v2, cuCtxCreate, 11000, (handle_t *, unsigned, int))                           \
    X(cuCtxDestroy_v2, cuCtxDestroy, 12000, (handle_t))                                          \
    X(cuCtxSetCurrent, cuCtxSetCurrent, 12000, (handle_t))                                       \
    X(cuCtxGetCurrent, cuCtxGetCurrent, 12000, (handle_t *))                                     \
    X(cuCtxPushCurrent_v2, cuCtxPushCurrent, 12000, (handle_t))                                  \
    X(cuCtxPopCurrent_v2, cuCtxPopCurrent, 12000, (handle_t *))                                  \
    X(cuCtxSynchronize, cuCtxSynchronize, 12000, (void))                                         \
    X(cuMemGetInfo_v2, cuMemGetInfo, 12000, (size_t *, size_t *))                                \
    X(cuMemGetAddressRange_v2, cuMemGetAddressRange, 12000, (address_t *, size_t *, address_t))  \
    X(cuMemAlloc_v2, cuMemAlloc, 12000, (address_t *, size_t))                                   \
    X(cuMemAllocPitch_v2, cuMemAllocPitch, 12000,                                                \
      (address_t *, size_t *, size_t, size_t, unsigned))                                         \
    X(cuMemFree_v2, cuMemFree, 12000, (address_t))                                               \
    X(cuMemAllocAsync, cuMemAllocAsync, 12000, (address_t *, size_t, stream_t))                  \
    X(cuMemFreeAsync, cuMemFreeAsync, 12000, (address_t, stream_t))                              \
    X(cuMemAllocFromPoolAsync, cuMemAllocFromPoolAsync, 12000,                                   \
      (address_t *, size_t, handle_t, stream_t))                                                 \
    X(cuMemsetD8Async, cuMemsetD8Async, 12000, (address_t, unsigned char, size_t, stream_t))     \
    X(cuMemHostAlloc, cuMemHostAlloc, 12000, (void **, size_t, unsigned))                        \
    X(cuMemcpyDtoH_v2, cuMemcpyDtoH, 12000, (void *, address_t, size_t))                         \
    X(cuMemPoolCreate, cuMemPoolCreate, 12000, (handle_t *, const struct properties *))          \
    X(cuMemPoolDestroy, cuMemPoolDestroy, 12000, (handle_t))                                     \
    X(cuMemPoolTrimTo, cuMemPoolTrimTo, 12000, (handle_t, size_t))                               \
    X(cuMemPoolGetAttribute, cuMemPoolGetAttribute, 12000, (handle_t, int, void *))              \
    X(cuMemPoolSetAttribute, cuMemPoolSetAttribute, 12000, (handle_t, int, void *))              \
    X(cuMemPoolSetAccess, cuMemPoolSetAccess, 12000, (handle_t, const struct access *, size_t))  \
    X(cuMemPoolExportPointer, cuMemPoolExportPointer, 12000, (void *, address_t))                \
    X(cuIpcGetMemHandle, cuIpcGetMemHandle, 12000, (void *, address_t))                          \
    X(cuMemRetainAllocationHandle, cuMemRetainAllocationHandle, 12000, (uint64_t *, void *))     \
    X(cuDeviceGetDefaultMemPool, cuDeviceGetDefaultMemPool, 12000, (handle_t *, int))            \
    X(cuDeviceSetMemPool, cuDeviceSetMemPool, 12000, (int, handle_t))                            \
    X(cuPointerGetAttribute, cuPointerGetAttribute, 12000, (void *, int, address_t))             \
    X(cuPointerGetAttributes, cuPointerGetAttributes, 12000,                                     \
      (unsigned, const int *, void **, address_t))                                               \
    X(cuStreamCreate, cuStreamCreate, 12000, (stream_t *, unsigned))                             \
    X(cuStreamDestroy_v2, cuStreamDestroy, 12000, (stream_t))                                    \
    X(cuStreamSynchronize, cuStreamSynchronize, 12000, (stream_t))                               \
    X(cuStreamWaitEvent, cuStreamWaitEvent, 12000, (stream_t, event_t, unsigned))                \
    X(cuStreamWaitEvent_ptsz, , 0, (stream_t, event_t, unsigned))                                \
    X(cuStreamBatchMemOp_v2, cuStreamBatchMemOp, 12000, (stream_t, unsigned, void *, unsigned))  \
    X(cuEventCreate, cuEventCreate, 12000, (event_t *, unsigned))                                \
    X(cuEventDestroy_v2, cuEventDestroy, 12000, (event_t))                                       \
    X(cuEventRecord, cuEventRecord, 12000, (event_t, stream_t))                                  \
    X(cuEventRecord_ptsz, , 0, (event_t, stream_t))                                              \
    X(cuEventRecordWithFlags, cuEventRecordWithFlags, 12000, (event_t, stream_t, unsigned))      \
    X(cuEventSynchronize, cuEventSynchronize, 12000, (event_t))                                  \
    X(cuStreamBeginCapture_v2, cuStreamBeginCapture, 12000, (stream_t, int))                     \
    X(cuStreamEndCapture, cuStreamEndCapture, 12000, (stream_t, handle_t *))                     \
    X(cuGraphInstantiateWithFlags, cuGraphInstantiateWithFlags, 12000,                           \
      (handle_t *, handle_t, unsigned long long))                                                \
    X(cuGraphLaunch, cuGraphLaunch, 12000, (handle_t, stream_t))                                 \
    X(simcuda_launch, , 0, (int, stream_t, uint64_t))                                            \
    X(simcuda_check_alloc, , 0, (int, uint64_t, uint64_t, stream_t))                             \
    X(simcuda_check_use, , 0, (int, uint64_t, stream_t))                                         \
    X(simcuda_check_free, , 0, (int, uint64_t))                                                  \
    X(simcuda_violation_count, , 0, (int))                                                       \
    X(simcuda_violations, , 0, (int, char *, uint64_t))                                          \
    X(simcuda_stats_json, , 0, (char *, uint64_t))

enum { SUCCESS = 0, INVALID_VALUE = 1, OUT_OF_MEMORY = 2 };
enum { RESERVED = 5, RESERVED_HIGH = 6, USED = 7, USED_HIGH = 8 };


/* Where COVERED names the library it was not preloaded, and is loaded here. */
__attribute__((constructor(101))) static void load_to_cover(void) {
    const char *library = getenv("COVERED");
    if (library == NULL) return;
    void (*cover)(void), *loaded = dlopen(library, RTLD_NOW | RTLD_GLOBAL);
    CHECK(loaded != NULL);
    *(void **)&cover = dlsym(loaded, "drystone_cover_libraries");
    CHECK(cover != NULL);
    cover();
}

#if WAY == 0
#define DECLARE(name, base, version, arguments) int name arguments;
FUNCTIONS(DECLARE)
#else
#define DECLARE(name, base, version, arguments)                                                  \
    __attribute__((unused)) static int(*name) arguments;
FUNCTIONS(DECLARE)

static int (*get_proc_address)(const char *, void **, int, uint64_t, int *);

#define FIND(function, base, version, arguments)                                                 \
    if (WAY == 2 && version != 0)                                                                \
        OK(get_proc_address(#base, (void **)&function, version, 0, &(int){0}));                  \
    else                                                                                         \
        *(void **)&function = dlsym(driver, #function);                                          \
    CHECK(function != NULL);

__attribute__((constructor)) static void find_functions(void) {
    void *driver = dlopen(WAY == 3 ? "libcuda.so" : "libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    CHECK(driver != NULL);
    *(void **)&get_proc_address = dlsym(driver, "cuGetProcAddress_v2");
    FUNCTIONS(FIND)
}
#endif

/* How often functions of the driver were called: those of this name, or of all names. */
__attribute__((unused)) static long calls_of(const char *function) {
    static char text[1 << 16];
    char key[80];
    long calls = 0;
    CHECK(simcuda_stats_json(text, sizeof text) < (int)sizeof text);
    snprintf(key, sizeof key, "\"%s\"", function == NULL ? "calls" : function);
    for (const char *at = strstr(text, key); at != NULL; at = strstr(at + 1, key)) {
        const char *count = strstr(at, "\"calls\"");
        CHECK(count != NULL);
        calls += strtol(count + strcspn(count, "0123456789"), NULL, 10);
        if (function != NULL) break;
    }
    return calls;
}

/* Allocations that reached the driver's own pools. */
__attribute__((unused)) static long native_allocations(void) {
    return calls_of("cuMemAllocAsync") + calls_of("cuMemAllocFromPoolAsync");
}

__attribute__((unused)) static handle_t default_pool(int device) {
    handle_t pool;
    OK(cuDeviceGetDefaultMemPool(&pool, device));
    return pool;
}

__attribute__((unused)) static uint64_t figure(int attribute) {
    uint64_t value = 1;
    OK(cuMemPoolGetAttribute(default_pool(0), attribute, &value));
    return value;
}

__attribute__((unused)) static handle_t primary(int device) {
    handle_t context;
    OK(cuDevicePrimaryCtxRetain(&context, device));
    OK(cuCtxSetCurrent(context));
    return context;
}

__attribute__((unused)) static stream_t new_stream(void) {
    stream_t stream;
    OK(cuStreamCreate(&stream, 1));
    return stream;
}

__attribute__((unused)) static void no_violation(int device) {
    static char text[4096];
    simcuda_violations(device, text, sizeof text);
    if (simcuda_violation_count(device) > 0) fprintf(stderr, "%s\n", text);
    CHECK(simcuda_violation_count(device) == 0);
}

#endif
