/* Whatever asks the driver for memory of the device and is refused gets what Drystone holds unused;
 * where it holds none unused the error is as ever. Drystone's memory is that of stream-ordered
 * requests, or, where the library only gives back, what its C interface gives. */
#include "driver.h"
#include <pthread.h>

#define MORE(X)                                                                                  \
    X(cuMemAllocManaged, cuMemAllocManaged, 12000, (address_t *, size_t, unsigned))              \
    X(cuMemAllocHost_v2, cuMemAllocHost, 12000, (void **, size_t))                               \
    X(cuMemHostRegister_v2, cuMemHostRegister, 12000, (void *, size_t, unsigned))                \
    X(cuMemHostUnregister, cuMemHostUnregister, 12000, (void *))                                 \
    X(cuMemFreeHost, cuMemFreeHost, 12000, (void *))                                             \
    X(cuMemCreate, cuMemCreate, 12000, (uint64_t *, size_t, const void *, uint64_t))             \
    X(cuMemRelease, cuMemRelease, 12000, (uint64_t))                                             \
    X(cuMemAllocFromPoolAsync_ptsz, , 0, (address_t *, size_t, handle_t, stream_t))              \
    X(cuCtxSetLimit, cuCtxSetLimit, 12000, (int, size_t))                                        \
    X(cuCtxCreate_v4, cuCtxCreate, 13000, (handle_t *, void *, unsigned, int))                   \
    X(cuStreamCreateWithPriority, cuStreamCreateWithPriority, 12000,                             \
      (stream_t *, unsigned, int))                                                               \
    X(cuModuleLoad, cuModuleLoad, 12000, (handle_t *, const char *))                             \
    X(cuModuleLoadData, cuModuleLoadData, 12000, (handle_t *, const void *))                     \
    X(cuModuleLoadDataEx, cuModuleLoadDataEx, 12000,                                             \
      (handle_t *, const void *, unsigned, void *, void *))                                      \
    X(cuModuleLoadFatBinary, cuModuleLoadFatBinary, 12000, (handle_t *, const void *))           \
    X(cuModuleGetFunction, cuModuleGetFunction, 12000, (handle_t *, handle_t, const char *))     \
    X(cuModuleUnload, cuModuleUnload, 12000, (handle_t))                                         \
    X(cuLibraryLoadData, cuLibraryLoadData, 12000,                                               \
      (handle_t *, const void *, void *, void *, unsigned, void *, void *, unsigned))            \
    X(cuLibraryLoadFromFile, cuLibraryLoadFromFile, 12000,                                       \
      (handle_t *, const char *, void *, void *, unsigned, void *, void *, unsigned))            \
    X(cuLibraryGetModule, cuLibraryGetModule, 12000, (handle_t *, handle_t))                     \
    X(cuLibraryGetKernel, cuLibraryGetKernel, 12000, (handle_t *, handle_t, const char *))       \
    X(cuLibraryUnload, cuLibraryUnload, 12000, (handle_t))                                       \
    X(cuKernelGetFunction, cuKernelGetFunction, 12000, (handle_t *, handle_t))                   \
    X(cuFuncLoad, cuFuncLoad, 12040, (handle_t))                                                 \
    X(cuLaunchKernel, cuLaunchKernel, 12000,                                                     \
      (handle_t, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,           \
       stream_t, void **, void **))                                                              \
    X(cuLaunchKernel_ptsz, , 0,                                                                  \
      (handle_t, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,           \
       stream_t, void **, void **))                                                              \
    X(cuLaunchKernelEx, cuLaunchKernelEx, 12000, (const void *, handle_t, void **, void **))     \
    X(cuLaunchCooperativeKernel, cuLaunchCooperativeKernel, 12000,                               \
      (handle_t, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,           \
       stream_t, void **))                                                                       \
    X(cuGraphCreate, cuGraphCreate, 12000, (handle_t *, unsigned))                               \
    X(cuGraphInstantiate_v2, cuGraphInstantiate, 11000,                                          \
      (handle_t *, handle_t, void *, char *, size_t))                                            \
    X(cuGraphInstantiateWithParams, cuGraphInstantiateWithParams, 12000,                         \
      (handle_t *, handle_t, void *))                                                            \
    X(cuGraphUpload, cuGraphUpload, 12000, (handle_t, stream_t))                                 \
    X(simcuda_fail, , 0, (int, const char *, uint64_t, int, int))                                \
    X(simcuda_clear_faults, , 0, (int))                                                          \
    X(simcuda_physical_bytes, , 0, (int))

#if WAY == 0
MORE(DECLARE)
#else
MORE(DECLARE)
__attribute__((constructor)) static void find_more(void) {
    void *driver = dlopen(WAY == 3 ? "libcuda.so" : "libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    MORE(FIND)
}
#endif

enum { DEVICE = 1024, BLOCK = 16, BLOCKS = DEVICE / BLOCK };

static int (*allocate)(void **, size_t, int, stream_t);
static void (*release)(void *, size_t, int, stream_t);

static stream_t stream;
static void *blocks[BLOCKS];
static int count;

static int take(void **block) {
    if (allocate != NULL) return allocate(block, BLOCK * MIB, 0, stream);
    return cuMemAllocAsync((address_t *)block, BLOCK * MIB, stream);
}

static void give(void *block) {
    if (release != NULL) release(block, BLOCK * MIB, 0, stream);
    else OK(cuMemFreeAsync((address_t)block, stream));
}

/* The device is full of Drystone's memory, all of it in use. */
static void fill(void) {
    while (count < BLOCKS && take(&blocks[count]) == SUCCESS) count++;
    CHECK(count > BLOCKS * 8 / 10);
}

/* All but every tenth block is unused. */
static void leave_unused(void) {
    int kept = 0;
    for (int at = 0; at < count; at++) {
        if (at % 10 == 0) blocks[kept++] = blocks[at];
        else give(blocks[at]);
    }
    count = kept;
}

static const char *only;

/* Refused while all is in use; else it gets what is not. UNDO gives back what it took. */
#define EXPECT(call, UNDO)                                                                       \
    do {                                                                                         \
        fill();                                                                                  \
        int full_ = (call);                                                                      \
        if (full_ != OUT_OF_MEMORY) printf("%s on a full device: %d\n", #call, full_);           \
        leave_unused();                                                                          \
        int code_ = (call);                                                                      \
        if (code_ != SUCCESS) printf("%s: %d\n", #call, code_);                                  \
        else UNDO;                                                                               \
    } while (0)

static void memory(void) {
    address_t plain;
    uint64_t handle;
    size_t pitch;
    void *host;
    struct { int kind, handles; struct location at; void *security; char flags[8]; }
        properties = {1, 0, {1, 0}, NULL, {0}};
    EXPECT(cuMemAlloc_v2(&plain, 100 * MIB), OK(cuMemFree_v2(plain)));
    EXPECT(cuMemAllocPitch_v2(&plain, &pitch, 100 * MIB, 2, 4), OK(cuMemFree_v2(plain)));
    EXPECT(cuMemAllocManaged(&plain, MIB, 1), OK(cuMemFree_v2(plain)));
    EXPECT(cuMemCreate(&handle, 128 * MIB, &properties, 0), OK(cuMemRelease(handle)));
    EXPECT(cuMemAllocHost_v2(&host, MIB), OK(cuMemFreeHost(host)));
    EXPECT(cuMemHostAlloc(&host, MIB, 0), OK(cuMemFreeHost(host)));
    host = aligned_alloc(4096, MIB);
    EXPECT(cuMemHostRegister_v2(host, MIB, 0), OK(cuMemHostUnregister(host)));
    free(host);
}

static void free_whole(address_t block, handle_t pool) {
    OK(cuMemFreeAsync(block, stream));
    OK(cuStreamSynchronize(stream));
    OK(cuMemPoolTrimTo(pool, 0));
}

/* Pools that stay the driver's. */
static void pools(void) {
    struct properties of_exported = {1, 1, {1, 0}, NULL, 0, 0, {0}};
    handle_t pool;
    address_t block;
    EXPECT(cuMemPoolCreate(&pool, &of_exported), OK(cuMemPoolDestroy(pool)));
    fill();
    leave_unused();
    OK(cuMemPoolCreate(&pool, &of_exported));
    EXPECT(cuMemAllocFromPoolAsync(&block, 100 * MIB, pool, stream),
           free_whole(block, pool));
    OK(cuDeviceSetMemPool(0, pool));
    if (allocate != NULL)
        EXPECT(cuMemAllocAsync(&block, 100 * MIB, stream), free_whole(block, pool));
    OK(cuDeviceSetMemPool(0, default_pool(0)));
    OK(cuMemPoolDestroy(pool));
}

static void code(const char *file) {
    static const uint64_t image[1];
    struct { unsigned sizes[7]; stream_t stream; void *attributes; unsigned count; }
        how = {{1, 1, 1, 1, 1, 1, 0}, stream, NULL, 0};
    handle_t module, kept, function, library, kernel;
    EXPECT(cuModuleLoad(&module, file), OK(cuModuleUnload(module)));
    EXPECT(cuModuleLoadData(&module, image), OK(cuModuleUnload(module)));
    EXPECT(cuModuleLoadDataEx(&module, image, 0, NULL, NULL), OK(cuModuleUnload(module)));
    EXPECT(cuModuleLoadFatBinary(&module, image), OK(cuModuleUnload(module)));
    EXPECT(cuLibraryLoadFromFile(&library, file, NULL, NULL, 0, NULL, NULL, 0),
           OK(cuLibraryUnload(library)));
    EXPECT(cuLibraryLoadData(&library, image, NULL, NULL, 0, NULL, NULL, 0), (void)0);
    EXPECT(cuModuleLoadData(&kept, image), (void)0);
    EXPECT(cuModuleGetFunction(&function, kept, "kernel"), (void)0);
    EXPECT(cuFuncLoad(function), (void)0);
    EXPECT(cuLibraryGetModule(&module, library), (void)0);
    OK(cuLibraryGetKernel(&kernel, library, "kernel"));
    EXPECT(cuKernelGetFunction(&function, kernel), (void)0);
    EXPECT(cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, stream, NULL, NULL), (void)0);
    EXPECT(cuLaunchKernel_ptsz(function, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL), (void)0);
    EXPECT(cuLaunchKernelEx(&how, function, NULL, NULL), (void)0);
    EXPECT(cuLaunchCooperativeKernel(function, 1, 1, 1, 1, 1, 1, 0, stream, NULL), (void)0);
}

static void graphs_and_others(void) {
    uint64_t how[4] = {0};
    handle_t graph, launched, context;
    stream_t other;
    event_t event;
    OK(cuGraphCreate(&graph, 0));
    EXPECT(cuGraphInstantiate_v2(&launched, graph, NULL, NULL, 0), (void)0);
    EXPECT(cuGraphInstantiateWithParams(&launched, graph, how), (void)0);
    EXPECT(cuGraphInstantiateWithFlags(&launched, graph, 0), (void)0);
    EXPECT(cuGraphUpload(launched, stream), (void)0);
    EXPECT(cuGraphLaunch(launched, stream), (void)0);
    EXPECT(cuStreamCreate(&other, 1), OK(cuStreamDestroy_v2(other)));
    EXPECT(cuStreamCreateWithPriority(&other, 1, 0), OK(cuStreamDestroy_v2(other)));
    EXPECT(cuEventCreate(&event, 0), OK(cuEventDestroy_v2(event)));
    EXPECT(cuCtxSetLimit(0, 4096), (void)0);
    EXPECT(cuCtxCreate_v2(&context, 0, 0), OK(cuCtxDestroy_v2(context)));
    EXPECT(cuCtxCreate_v4(&context, NULL, 0, 0), OK(cuCtxDestroy_v2(context)));
}

/* What the simulated device never refuses by itself, refused once. */
static void refused_once(void) {
    handle_t context;
    OK(simcuda_fail(0, "cuDevicePrimaryCtxRetain", 1, 0, OUT_OF_MEMORY));
    leave_unused();
    int code = cuDevicePrimaryCtxRetain(&context, 0);
    if (code != SUCCESS) printf("cuDevicePrimaryCtxRetain: %d\n", code);
    OK(simcuda_clear_faults(0));
}

/* Whose capture it is: nothing is given back, and the capture goes on. */
static void captured(void) {
    handle_t graph;
    address_t plain;
    stream_t other = new_stream();
    fill();
    leave_unused();
    OK(cuStreamBeginCapture_v2(other, 2));
    long before = simcuda_physical_bytes(0);
    CHECK(cuMemAlloc_v2(&plain, 100 * MIB) == OUT_OF_MEMORY);
    CHECK(simcuda_physical_bytes(0) == before);
    OK(cuStreamEndCapture(other, &graph));
    OK(cuMemAlloc_v2(&plain, 100 * MIB));
    OK(cuMemFree_v2(plain));
    OK(cuStreamDestroy_v2(other));
}

static void *misses(void *unused) {
    void *kept[BLOCKS];
    (void)unused;
    OK(cuCtxSetCurrent(primary(0)));
    for (int turn = 0; turn < 40; turn++) {
        int taken = 0;
        while (taken < 8 && take(&kept[taken]) == SUCCESS) taken++;
        while (taken > 0) give(kept[--taken]);
    }
    return NULL;
}

/* Others are in the middle of requests of their own. */
static void beside_others(void) {
    pthread_t threads[2];
    address_t plain;
    fill();
    leave_unused();
    for (int at = 0; at < 2; at++) CHECK(pthread_create(&threads[at], NULL, misses, NULL) == 0);
    for (int turn = 0; turn < 40; turn++) {
        OK(cuMemAlloc_v2(&plain, 500 * MIB));
        OK(cuMemFree_v2(plain));
    }
    for (int at = 0; at < 2; at++) pthread_join(threads[at], NULL);
}

/* At exit nothing is given back, and nobody waits. */
static void at_exit(void) {
    address_t plain;
    if (cuMemAlloc_v2(&plain, 500 * MIB) == SUCCESS) _exit(3);
}

int main(int arguments, char **values) {
    OK(cuInit(0));
    primary(0);
    if (arguments > 2) {
        *(void **)&allocate = dlsym(RTLD_DEFAULT, "drystone_allocate");
        *(void **)&release = dlsym(RTLD_DEFAULT, "drystone_free");
        CHECK(allocate != NULL && release != NULL);
    }
    only = arguments > 1 ? values[1] : "";
    stream = new_stream();
    if (strcmp(only, "memory") == 0) memory();
    else if (strcmp(only, "pools") == 0) pools();
    else if (strcmp(only, "code") == 0) code("/proc/self/exe");
    else if (strcmp(only, "others") == 0) graphs_and_others(), refused_once();
    else if (strcmp(only, "captured") == 0) captured();
    else if (strcmp(only, "threads") == 0) beside_others();
    else if (strcmp(only, "exit") == 0) {
        atexit(at_exit); /* Before Drystone's own, which runs first then. */
        fill();
        leave_unused();
        exit(0);
    }
    no_violation(0);
    return 0;
}
