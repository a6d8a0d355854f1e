/* A libcuda.so with hardly anything in it: what is there, and what it answers, is set by -D. */
#include <stddef.h>

#ifndef VERSION
#define VERSION 12000
#endif
#ifndef VERSION_RESULT
#define VERSION_RESULT 0
#endif
#ifndef INIT_RESULT
#define INIT_RESULT 0
#endif
#ifndef DEVICES
#define DEVICES 1
#endif
#ifndef RETAIN_RESULT
#define RETAIN_RESULT 0
#endif

static size_t context;

int cuDriverGetVersion(int *version) { *version = VERSION; return VERSION_RESULT; }
int cuInit(unsigned flags) { return flags ? 1 : INIT_RESULT; }
int cuGetErrorName(int error, const char **name) {
    *name = error == 803 ? "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH" : NULL;
    return *name ? 0 : 1;
}
int cuDeviceGetCount(int *count) { *count = DEVICES; return 0; }
int cuDeviceGet(int *device, int ordinal) { *device = ordinal; return 0; }
/* Promises everything. */
int cuDeviceGetAttribute(int *value, int attribute) {
    enum { INTEGRATED = 18 };
    *value = attribute != INTEGRATED;
    return 0;
}
int cuDeviceTotalMem_v2(size_t *bytes) { *bytes = 1 << 30; return 0; }
int cuDevicePrimaryCtxRetain(void **made) { *made = &context; return RETAIN_RESULT; }
int cuCtxGetCurrent(void **current) { *current = NULL; return 0; }
int cuCtxSetCurrent(void) { return 0; }
static int capture_mode;
int cuThreadExchangeStreamCaptureMode(int *mode) {
    int before = capture_mode;
    capture_mode = *mode;
    *mode = before;
    return 0;
}
/* Every stream is being captured; so the legacy default stream, 1, cannot be asked. */
int cuStreamIsCapturing(void *stream, int *status) { *status = 1; return stream == (void *)1 ? 906 : 0; }

/* There, and never called. */
#define UNUSED(name) int name(void) { __builtin_trap(); }
UNUSED(cuDeviceCanAccessPeer)
UNUSED(cuCtxSynchronize)
UNUSED(cuCtxEnablePeerAccess)
UNUSED(cuMemGetInfo_v2)
UNUSED(cuMemAlloc_v2)
UNUSED(cuMemFree_v2)
UNUSED(cuEventCreate)
UNUSED(cuEventDestroy_v2)
UNUSED(cuEventRecord)
UNUSED(cuEventQuery)
UNUSED(cuEventSynchronize)
UNUSED(cuStreamWaitEvent)
UNUSED(cuStreamSynchronize)
#ifndef WITHOUT_STREAM_ID
UNUSED(cuStreamGetId)
#endif

#ifdef MEMORY_POOLS
UNUSED(cuMemPoolCreate)
UNUSED(cuMemPoolDestroy)
UNUSED(cuMemPoolTrimTo)
UNUSED(cuMemPoolGetAttribute)
UNUSED(cuMemPoolSetAttribute)
UNUSED(cuMemPoolSetAccess)
UNUSED(cuMemAllocFromPoolAsync)
UNUSED(cuMemFreeAsync)
#endif

#ifdef VIRTUAL_MEMORY
/* Refuses fabric handles and RDMA, although the attributes promise both: WSL only once access is
   asked for. */
static int is_for_rdma;
int cuMemCreate(unsigned long long *handle, size_t bytes, const unsigned *properties) {
    const unsigned char *flags = (const unsigned char *)properties + 24;
    *handle = bytes;
    is_for_rdma = flags[1];
    if (properties[1] & 8) return 800;
#ifdef WSL
    return 0;
#else
    return is_for_rdma ? 801 : 0;
#endif
}
int cuMemSetAccess(void) { return is_for_rdma ? 999 : 0; }
int cuMemAddressReserve(unsigned long long *address) { *address = 1ull << 40; return 0; }
int cuMemAddressFree(void) { return 0; }
int cuMemMap(void) { return 0; }
int cuMemUnmap(void) { return 0; }
int cuMemRelease(void) { return 0; }
int cuMemGetAllocationGranularity(size_t *bytes) { *bytes = 2 << 20; return 0; }
#endif
