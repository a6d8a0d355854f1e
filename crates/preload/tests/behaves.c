/* What programs may see of the driver and of the runtime over it: each case prints it, and prints
 * the same whether Drystone serves or not. */
#include "driver/driver.h"
#include <pthread.h>

int cudaMalloc(void **, size_t);
int cudaFree(void *);
int cudaMallocAsync(void **, size_t, stream_t);
int cudaFreeAsync(void *, stream_t);
int cudaGetLastError(void);
int cudaDeviceSynchronize(void);
int cudaDeviceReset(void);
int cudaMemset(void *, int, size_t);

#define SAY(call) printf("%s: %d\n", #call, call)
#define SAY_BYTES(bytes) printf("%s: %zu\n", #bytes, (size_t)(bytes))

static handle_t create_pool(int handles) {
    struct properties properties = {1, handles, {1, 0}, NULL, 0, 0, {0}};
    handle_t pool;
    OK(cuMemPoolCreate(&pool, &properties));
    return pool;
}

/* The runtime leaves the primary context current, so that the driver can be called next. */
static void context(void) {
    void *block;
    handle_t before = NULL, after = NULL;
    address_t plain;
    SAY(cudaMallocAsync(&block, MIB, NULL));
    SAY(cuCtxGetCurrent(&before));
    SAY(before != NULL);
    SAY(cuMemAlloc_v2(&plain, 4096));
    SAY(cuMemFree_v2(plain));
    SAY(cudaFreeAsync(block, NULL));
    SAY(cuCtxGetCurrent(&after));
    SAY(before == after);
}

/* What one of the two interfaces has given the other one takes back. */
static void mixed_frees(void) {
    void *block;
    address_t address;
    SAY(cudaMallocAsync(&block, MIB, NULL));
    SAY(cuMemFreeAsync((address_t)block, NULL));
    SAY(cudaMallocAsync(&block, MIB, NULL));
    SAY(cuMemFree_v2((address_t)block));
    SAY(cuMemAllocAsync(&address, MIB, NULL));
    SAY(cudaFreeAsync((void *)address, NULL));
    SAY(cuMemAllocAsync(&address, MIB, NULL));
    SAY(cudaFree((void *)address));
    SAY(cudaMalloc(&block, MIB));
    SAY(cuMemFree_v2((address_t)block));
    SAY(cuMemAlloc_v2(&address, MIB));
    SAY(cudaFree((void *)address));
}

/* What is asked of a block by its address, also of one inside. The driver denies that memory of its
 * pools goes by cuIpcGetMemHandle (10), by which ours goes: driver/ipc.c. */
static void attributes(void) {
    static const int words[] = {2, 8, 9, 13, 14};
    address_t block, start = 0, inner = 0;
    size_t bytes = 0;
    handle_t pool = NULL, own = create_pool(0);
    for (int turn = 0; turn < 2; turn++) {
        if (turn == 0) OK(cuMemAllocAsync(&block, 3 * MIB, NULL));
        else OK(cuMemAllocFromPoolAsync(&block, 3 * MIB, own, NULL));
        for (int at = 0; at < 5; at++) {
            uint64_t value = 0;
            SAY(cuPointerGetAttribute(&value, words[at], block));
            printf("%d: %d\n", words[at], (int)value);
        }
        SAY(cuPointerGetAttribute(&start, 11, block + MIB));
        SAY(start == block);
        SAY(cuPointerGetAttribute(&bytes, 12, block));
        SAY_BYTES(bytes);
        SAY(cuPointerGetAttribute(&pool, 17, block));
        SAY(pool == (turn == 0 ? default_pool(0) : own));
        SAY(cuMemGetAddressRange_v2(&inner, &bytes, block + 2 * MIB));
        SAY(inner == block);
        SAY_BYTES(bytes);
        OK(cuMemFreeAsync(block, NULL));
        OK(cuCtxSynchronize());
    }
    SAY(cuPointerGetAttribute(&start, 11, 4096));
    SAY(cuMemGetAddressRange_v2(&start, &bytes, 4096));
}

/* What may go to other processes. */
static void sharing(void) {
    char data[64];
    address_t block;
    OK(cuMemAlloc_v2(&block, MIB));
    SAY(cuIpcGetMemHandle(data, block));
    SAY(cuMemPoolExportPointer(data, block));
    OK(cuMemFree_v2(block));
    OK(cuMemAllocAsync(&block, MIB, NULL));
    uint64_t handle;
    SAY(cuMemRetainAllocationHandle(&handle, (void *)block));
    SAY(cuMemPoolExportPointer(data, block));
    OK(cuMemFreeAsync(block, NULL));
    handle_t shared = create_pool(1);
    OK(cuMemAllocFromPoolAsync(&block, MIB, shared, NULL));
    SAY(cuMemPoolExportPointer(data, block));
    OK(cuMemFreeAsync(block, NULL));
}

/* What is wrong with a call. */
static void errors(void) {
    address_t block, none = 0;
    /* What the library makes for itself with the first request gets no handle that is gone. */
    OK(cuMemAllocAsync(&block, MIB, NULL));
    OK(cuMemFreeAsync(block, NULL));
    stream_t gone = new_stream();
    OK(cuStreamDestroy_v2(gone));
    SAY(cuMemAllocAsync(&none, 0, NULL));
    SAY(cuMemAllocAsync(NULL, MIB, NULL));
    SAY(cuMemAllocAsync(&none, MIB, gone));
    SAY(cuMemAllocFromPoolAsync(&none, MIB, NULL, NULL));
    SAY(cuMemAllocAsync(&none, (size_t)1 << 60, NULL));
    SAY(none == 0);
    SAY(cuMemFreeAsync(0, NULL));
    SAY(cuMemFree_v2(0));
    SAY(cuMemFreeAsync(4096, NULL));
    OK(cuMemAllocAsync(&block, MIB, NULL));
    SAY(cuMemFreeAsync(block + 512, NULL));
    SAY(cuMemFree_v2(block + 512));
    SAY(cuMemFreeAsync(block, gone));
    SAY(cuMemFreeAsync(block, NULL));
    SAY(cuMemFreeAsync(block, NULL));
    OK(cuMemAllocAsync(&block, MIB, NULL));
    SAY(cuMemFree_v2(block));
    SAY(cuMemFree_v2(block));
}

/* Events and waits, what is wrong with them, and what a capture makes of them. */
static void orders(void) {
    address_t block;
    event_t event, other, gone;
    stream_t one = new_stream(), two = new_stream(), ended = new_stream();
    handle_t graph;
    OK(cuEventCreate(&event, 2));
    OK(cuEventCreate(&other, 2));
    OK(cuEventCreate(&gone, 2));
    OK(cuMemAllocAsync(&block, MIB, one));
    OK(cuMemFreeAsync(block, one));
    SAY(cuEventRecord(gone, one));
    SAY(cuStreamWaitEvent(two, gone, 0));
    OK(cuEventDestroy_v2(gone));
    OK(cuStreamDestroy_v2(ended));
    SAY(cuEventRecord(gone, one));
    SAY(cuStreamWaitEvent(two, gone, 0));
    SAY(cuEventDestroy_v2(gone));
    SAY(cuEventRecord(NULL, one));
    SAY(cuStreamWaitEvent(two, NULL, 0));
    SAY(cuEventDestroy_v2(NULL));
    SAY(cuEventRecord(event, ended));
    SAY(cuStreamWaitEvent(ended, event, 0));
    SAY(cuStreamSynchronize(ended));
    SAY(cuEventRecordWithFlags(event, one, 9));
    SAY(cuStreamWaitEvent(two, event, 9));
    SAY(cuEventRecord(other, one));
    OK(cuStreamBeginCapture_v2(one, 2));
    SAY(cuEventRecord(event, one));
    SAY(cuStreamWaitEvent(two, event, 0));
    SAY(cuEventRecord(event, two));
    SAY(cuStreamWaitEvent(one, event, 0));
    SAY(cuStreamEndCapture(one, &graph));
    SAY(cuStreamWaitEvent(two, other, 0));
    OK(cuStreamBeginCapture_v2(one, 2));
    SAY(cuStreamWaitEvent(one, other, 0));
    SAY(cuStreamSynchronize(one));
    SAY(cuStreamEndCapture(one, &graph));
    SAY(cuStreamSynchronize(one));
    SAY(cuCtxSynchronize());
}

static void *without_context(void *argument) {
    address_t *block = argument, none = 0;
    SAY(cuMemAllocAsync(&none, MIB, NULL));
    SAY(cuMemFreeAsync(*block, NULL));
    return NULL;
}

/* A thread that has no context. */
static void threads(void) {
    pthread_t thread;
    address_t block;
    OK(cuMemAllocAsync(&block, MIB, NULL));
    OK(pthread_create(&thread, NULL, without_context, &block));
    pthread_join(thread, NULL);
    SAY(cuMemFreeAsync(block, NULL));
}

/* Memory runs out, and is there again; the runtime says it in its last error. */
static void out_of_memory(void) {
    void *block;
    address_t address;
    SAY(cudaMallocAsync(&block, (size_t)1 << 40, NULL));
    SAY(cudaGetLastError());
    SAY(cudaGetLastError());
    SAY(cuMemAllocAsync(&address, (size_t)1 << 40, NULL));
    SAY(cuMemAlloc_v2(&address, (size_t)1 << 40));
    SAY(cudaMallocAsync(&block, 3000 * MIB, NULL));
    SAY(cudaFreeAsync(block, NULL));
    SAY(cudaDeviceSynchronize());
    SAY(cudaMalloc(&block, 3000 * MIB));
    SAY(cudaGetLastError());
    SAY(cudaFree(block));
}

/* What is freed and waited for is free for everybody, as the device tells it. */
static void information(void) {
    size_t at_first, meanwhile, at_last, total;
    address_t block;
    OK(cuMemGetInfo_v2(&at_first, &total));
    SAY_BYTES(total);
    OK(cuMemAllocAsync(&block, 512 * MIB, NULL));
    OK(cuMemGetInfo_v2(&meanwhile, &total));
    SAY_BYTES(at_first - meanwhile);
    OK(cuMemFreeAsync(block, NULL));
    OK(cuStreamSynchronize(NULL));
    OK(cuMemPoolTrimTo(default_pool(0), 0));
    OK(cuMemGetInfo_v2(&at_last, &total));
    SAY_BYTES(at_first - at_last);
}

/* A block that is older than a capture may not be freed in it, and what belongs to the graph is
 * there again at each launch. */
static void captures(void) {
    stream_t stream = new_stream();
    address_t older, block;
    handle_t graph, executable;
    OK(cuMemAllocAsync(&older, MIB, stream));
    SAY(cuStreamBeginCapture_v2(stream, 2));
    SAY(cuMemAllocAsync(&block, MIB, stream));
    SAY(cuMemFreeAsync(older, stream));
    SAY(cuMemFreeAsync(block, stream));
    SAY(cuStreamEndCapture(stream, &graph));
    SAY(cuGraphInstantiateWithFlags(&executable, graph, 0));
    SAY(cuGraphLaunch(executable, stream));
    SAY(cuGraphLaunch(executable, stream));
    SAY(cuStreamSynchronize(stream));
    SAY(cuMemFreeAsync(older, stream));
}

/* Pools end before their memory does, and cannot be used after. */
static void pools(void) {
    handle_t own = create_pool(0);
    address_t block, next;
    uint64_t value = 1;
    SAY(cuMemAllocFromPoolAsync(&block, MIB, own, NULL));
    SAY(cuDeviceSetMemPool(0, own));
    SAY(cuMemPoolDestroy(own));
    SAY(cuMemPoolDestroy(default_pool(0)));
    SAY(cuMemAllocFromPoolAsync(&next, MIB, own, NULL));
    SAY(cuMemPoolGetAttribute(own, USED, &value));
    SAY(cuMemFreeAsync(block, NULL));
    SAY(cuMemPoolSetAttribute(default_pool(0), USED_HIGH, &value));
    SAY(cuMemPoolSetAttribute(default_pool(0), RESERVED, &value));
    SAY(cuMemAllocAsync(&next, MIB, NULL));
    SAY(cuMemPoolGetAttribute(default_pool(0), USED, &value));
    SAY_BYTES(value);
    SAY(cuMemFreeAsync(next, NULL));
}

/* A reset ends all that was there. */
static void reset(void) {
    void *block;
    SAY(cudaMallocAsync(&block, MIB, NULL));
    SAY(cudaFreeAsync(block, NULL));
    SAY(cudaDeviceReset());
    SAY(cudaMallocAsync(&block, MIB, NULL));
    SAY(cudaMemset(block, 0, MIB));
    SAY(cudaFreeAsync(block, NULL));
    SAY(cudaDeviceSynchronize());
}

int main(int count, char **arguments) {
    static const struct {
        const char *name;
        void (*run)(void);
        int has_context;
    } cases[] = {
        {"context", context, 0},     {"mixed_frees", mixed_frees, 0},
        {"attributes", attributes, 1}, {"sharing", sharing, 1},
        {"errors", errors, 1},       {"threads", threads, 1},
        {"out_of_memory", out_of_memory, 0}, {"information", information, 1},
        {"captures", captures, 1},   {"pools", pools, 1},
        {"reset", reset, 0},         {"orders", orders, 1},
    };
    CHECK(count == 2);
    for (size_t at = 0; at < sizeof cases / sizeof *cases; at++) {
        if (strcmp(cases[at].name, arguments[1]) != 0) continue;
        address_t block;
        if (cases[at].has_context) {
            SAY(cuMemAllocAsync(&block, MIB, NULL));
            SAY(cuInit(0));
            primary(0);
        }
        cases[at].run();
        return 0;
    }
    return 1;
}
