/* What ONNX Runtime asks the CUDA runtime for, told to the simulated device's oracle; and the
 * functions of its option `gpu_external_alloc`, over the Drystone that `DRYSTONE_LIBRARY` names.
 *
 * Preloaded, after libdrystone_preload.so if that is. Calls go on to the runtime, unchanged. At the
 * end it prints how many bytes were in use at most. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

typedef void *Stream;
enum { SLOTS = 1 << 16 };

static struct { void *address; uint64_t bytes; } blocks[SLOTS];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static uint64_t asked, most_asked;
static Stream created; /* ONNX Runtime's one stream */

static void *find(const char *library, const char *name) {
    void *handle = library ? dlopen(library, RTLD_NOW) : NULL;
    void *function = handle ? dlsym(handle, name) : NULL;
    if (!function) {
        fprintf(stderr, "no %s\n", name);
        abort();
    }
    return function;
}
#define CALL(library, name, type, ...) \
    ({ static void *function; if (!function) function = find(library, name); ((type)function)(__VA_ARGS__); })
#define RUNTIME(name, type, ...) CALL("libcudart.so.13", name, type, __VA_ARGS__)
#define DEVICE(name, type, ...) CALL("libcuda.so.1", name, type, __VA_ARGS__)
#define DRYSTONE(name, type, ...) CALL(getenv("DRYSTONE_LIBRARY"), name, type, __VA_ARGS__)

static void given(void *address, uint64_t bytes, Stream stream) {
    pthread_mutex_lock(&lock);
    size_t at = ((uintptr_t)address >> 8) % SLOTS;
    while (blocks[at].address) at = (at + 1) % SLOTS;
    blocks[at].address = address;
    blocks[at].bytes = bytes;
    asked += bytes;
    if (asked > most_asked) most_asked = asked;
    pthread_mutex_unlock(&lock);
    DEVICE("simcuda_check_alloc", int (*)(int, uint64_t, uint64_t, Stream), 0, (uint64_t)address, bytes, stream);
}

static void taken(void *address) {
    int known = 0;
    pthread_mutex_lock(&lock);
    for (size_t at = 0; address && at < SLOTS && !known; at++)
        if (blocks[at].address == address) {
            blocks[at].address = NULL;
            asked -= blocks[at].bytes;
            known = 1;
        }
    pthread_mutex_unlock(&lock);
    if (known) DEVICE("simcuda_check_free", int (*)(int, uint64_t), 0, (uint64_t)address);
}

int cudaStreamCreateWithFlags(Stream *out, unsigned flags) {
    int status = RUNTIME("cudaStreamCreateWithFlags", int (*)(Stream *, unsigned), out, flags);
    created = *out;
    return status;
}

int cudaMalloc(void **out, size_t bytes) {
    int status = RUNTIME("cudaMalloc", int (*)(void **, size_t), out, bytes);
    if (!status) given(*out, bytes, NULL);
    return status;
}

int cudaFree(void *address) {
    taken(address);
    return RUNTIME("cudaFree", int (*)(void *), address);
}

int cudaMallocFromPoolAsync(void **out, size_t bytes, void *pool, Stream stream) {
    int status = RUNTIME("cudaMallocFromPoolAsync", int (*)(void **, size_t, void *, Stream), out, bytes, pool, stream);
    if (!status) given(*out, bytes, stream);
    return status;
}

int cudaFreeAsync(void *address, Stream stream) {
    taken(address);
    return RUNTIME("cudaFreeAsync", int (*)(void *, Stream), address, stream);
}

void *external_give(size_t bytes) {
    void *out = NULL;
    if (DRYSTONE("drystone_allocate", int (*)(void **, size_t, int, Stream), &out, bytes, 0, NULL)) return NULL;
    given(out, bytes, created);
    return out;
}

void external_take(void *address) {
    taken(address);
    DRYSTONE("drystone_deallocate", int (*)(void *), address);
}

void external_empty(void) { DRYSTONE("drystone_trim", int (*)(int, size_t *), 0, NULL); }

__attribute__((destructor)) static void report(void) { printf("asked %llu\n", (unsigned long long)most_asked); }
