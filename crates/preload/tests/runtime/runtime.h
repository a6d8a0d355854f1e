/* What every program here shares: the CUDA runtime's functions that are stood in for, what the
 * simulated driver tells, and checks. The programs know nothing of the library that is preloaded. */
#ifndef RUNTIME_H
#define RUNTIME_H

#include "../../../lab/testkit/c/check.h"

typedef void *pool_t;

int cudaMalloc(void **out, size_t size);
int cudaFree(void *address);
int cudaMallocAsync(void **out, size_t size, stream_t stream);
int cudaMallocAsync_ptsz(void **out, size_t size, stream_t stream);
int cudaMallocFromPoolAsync(void **out, size_t size, pool_t pool, stream_t stream);
int cudaMallocFromPoolAsync_ptsz(void **out, size_t size, pool_t pool, stream_t stream);
int cudaFreeAsync(void *address, stream_t stream);
int cudaFreeAsync_ptsz(void *address, stream_t stream);
int cudaMemPoolCreate(pool_t *pool, const struct properties *properties);
int cudaMemPoolDestroy(pool_t pool);
int cudaMemPoolGetAttribute(pool_t pool, int attribute, void *value);
int cudaMemPoolSetAttribute(pool_t pool, int attribute, void *value);
int cudaMemPoolSetAccess(pool_t pool, const struct access *access, size_t count);
int cudaMemPoolTrimTo(pool_t pool, size_t keep);
int cudaDeviceGetDefaultMemPool(pool_t *pool, int device);
int cudaDeviceGetMemPool(pool_t *pool, int device);
int cudaDeviceSetMemPool(int device, pool_t pool);
int cudaSetDevice(int device);
int cudaDeviceSynchronize(void);
int cudaGetLastError(void);
int cudaPeekAtLastError(void);
int cudaStreamCreateWithFlags(stream_t *stream, unsigned flags);
int cudaStreamSynchronize(stream_t stream);
int cudaStreamDestroy(stream_t stream);
int cudaStreamBeginCapture(stream_t stream, int mode);
int cudaStreamEndCapture(stream_t stream, void **graph);
int cudaGraphInstantiate(void **executable, void *graph, unsigned long long flags);
int cudaGraphLaunch(void *executable, stream_t stream);
int cudaGraphExecDestroy(void *executable);
int cudaGraphDestroy(void *graph);

int simcuda_launch(int device, stream_t stream, uint64_t nanoseconds);
int simcuda_check_alloc(int device, uint64_t address, uint64_t bytes, stream_t stream);
int simcuda_check_use(int device, uint64_t address, stream_t stream);
int simcuda_check_free(int device, uint64_t address);
uint64_t simcuda_violation_count(int device);
uint64_t simcuda_violations(int device, char *out, uint64_t size);
uint64_t simcuda_physical_bytes(int device);
uint64_t simcuda_stats_json(char *out, uint64_t size);

enum { SUCCESS = 0, INVALID_VALUE = 1, MEMORY_ALLOCATION = 2 };
enum { THRESHOLD = 4, RESERVED = 5, RESERVED_HIGH = 6, USED = 7, USED_HIGH = 8 };


/* How often a function of the driver was called. */
static inline long calls_of(const char *function) {
    static char text[1 << 16];
    char key[80];
    CHECK(simcuda_stats_json(text, sizeof text) < sizeof text);
    snprintf(key, sizeof key, "\"%s\"", function);
    const char *at = strstr(text, key);
    if (at == NULL) return 0;
    at = strstr(at, "\"calls\"");
    CHECK(at != NULL);
    return strtol(at + strcspn(at, "0123456789"), NULL, 10);
}

/* Allocations that reached the driver's own pools. */
static inline long native_allocations(void) {
    return calls_of("cuMemAllocAsync") + calls_of("cuMemAllocAsync_ptsz") +
           calls_of("cuMemAllocFromPoolAsync") + calls_of("cuMemAllocFromPoolAsync_ptsz");
}

static inline uint64_t figure(pool_t pool, int attribute) {
    uint64_t value = 1;
    OK(cudaMemPoolGetAttribute(pool, attribute, &value));
    return value;
}

static inline pool_t default_pool(int device) {
    pool_t pool;
    OK(cudaDeviceGetDefaultMemPool(&pool, device));
    return pool;
}

static inline stream_t new_stream(void) {
    stream_t stream;
    OK(cudaStreamCreateWithFlags(&stream, 1));
    return stream;
}

static inline void no_violation(int device) {
    static char text[4096];
    simcuda_violations(device, text, sizeof text);
    if (simcuda_violation_count(device) > 0) fprintf(stderr, "%s\n", text);
    CHECK(simcuda_violation_count(device) == 0);
}

#endif
