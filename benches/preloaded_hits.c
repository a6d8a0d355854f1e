/* Instructions of a malloc and free in stream order that hit, with the library preloaded:
 *
 *   gcc -O1 benches/preloaded_hits.c -o target/preloaded_hits -Ltarget/simcuda -lcuda
 *   export LD_LIBRARY_PATH=target/simcuda LD_PRELOAD=$PWD/target/capi/lib/libdrystone_preload.so
 *   valgrind --tool=callgrind --callgrind-out-file=/dev/null target/preloaded_hits STREAM PAIRS
 *
 * STREAM is created, 0 or 2 (the default stream, the thread's own). The difference between 1,000 and
 * 11,000 pairs is what 10,000 take. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

int cuInit(unsigned);
int cuDevicePrimaryCtxRetain(void **, int);
int cuCtxSetCurrent(void *);
int cuStreamCreate(void **, unsigned);
int cuMemAllocAsync(uint64_t *, size_t, void *);
int cuMemFreeAsync(uint64_t, void *);

int main(int count, char **arguments) {
    void *context, *stream;
    uint64_t address;
    int failed = count != 3 || cuInit(0) || cuDevicePrimaryCtxRetain(&context, 0);
    failed = failed || cuCtxSetCurrent(context) || cuStreamCreate(&stream, 1);
    if (!failed && arguments[1][0] != 'c') stream = (void *)strtoul(arguments[1], NULL, 0);
    for (long pair = failed ? 0 : atol(arguments[2]); pair > 0; pair--) {
        failed |= cuMemAllocAsync(&address, 1 << 20, stream);
        failed |= cuMemFreeAsync(address, stream);
    }
    if (failed) fprintf(stderr, "created|0|2 PAIRS, on a device\n");
    _exit(failed);
}
