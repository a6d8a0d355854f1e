/* Instructions of a program's event record or wait, with the library preloaded and without:
 *
 *   gcc -O1 benches/preloaded_order.c -o target/preloaded_order -Ltarget/simcuda -lcuda
 *   export LD_LIBRARY_PATH=target/simcuda LD_PRELOAD=$PWD/target/capi/lib/libdrystone_preload.so
 *   valgrind --tool=callgrind --callgrind-out-file=/dev/null target/preloaded_order CASE CALLS
 *
 * CASE is one (a record, where there is one stream), record (nothing was freed since the last),
 * wait (the stream waits already) or free (a malloc, a free and a record). The difference between
 * 1,000 and 11,000 calls is what 10,000 take. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int cuInit(unsigned);
int cuDevicePrimaryCtxRetain(void **, int);
int cuCtxSetCurrent(void *);
int cuStreamCreate(void **, unsigned);
int cuStreamWaitEvent(void *, void *, unsigned);
int cuEventCreate(void **, unsigned);
int cuEventRecord(void *, void *);
int cuMemAllocAsync(uint64_t *, size_t, void *);
int cuMemFreeAsync(uint64_t, void *);

static int use(void *stream) {
    uint64_t address;
    return cuMemAllocAsync(&address, 1 << 20, stream) || cuMemFreeAsync(address, stream);
}

int main(int count, char **arguments) {
    void *context, *one, *other, *event;
    int failed = count != 3 || cuInit(0) || cuDevicePrimaryCtxRetain(&context, 0);
    failed = failed || cuCtxSetCurrent(context) || cuStreamCreate(&one, 1);
    failed = failed || cuEventCreate(&event, 2) || use(one);
    other = one;
    if (!failed && strcmp(arguments[1], "one") != 0)
        failed = cuStreamCreate(&other, 1) || use(other);
    failed = failed || use(one) || cuEventRecord(event, one) || cuStreamWaitEvent(other, event, 0);
    for (long call = failed ? 0 : atol(arguments[2]); call > 0; call--) {
        if (arguments[1][0] == 'f') failed |= use(one);
        failed |= arguments[1][0] == 'w' ? cuStreamWaitEvent(other, event, 0)
                                         : cuEventRecord(event, one);
    }
    if (failed) fprintf(stderr, "one|record|wait|free CALLS, on a device\n");
    _exit(failed);
}
