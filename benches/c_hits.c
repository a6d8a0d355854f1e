/* Instructions of a malloc and free through the C interface that hit:
 *
 *   gcc -O1 benches/c_hits.c -o target/c_hits -Itarget/capi/include -Ltarget/capi/lib -ldrystone \
 *       -Ltarget/simcuda -lcuda
 *   export LD_LIBRARY_PATH=target/simcuda:target/capi/lib
 *   valgrind --tool=callgrind --callgrind-out-file=/dev/null target/c_hits STREAM PAIRS
 *
 * STREAM is 0, the default stream, or one that stays, as PyTorch's own do. The difference between
 * 1,000 and 11,000 pairs is what 10,000 take, with some 20 of the loop's own each. */
#include <drystone.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

int cuInit(unsigned);
int cuDevicePrimaryCtxRetain(void **, int);
int cuCtxSetCurrent(void *);
int cuStreamCreate(struct CUstream_st **, unsigned);

int main(int count, char **arguments) {
    void *context;
    struct CUstream_st *stream = NULL;
    int failed = count != 3 || cuInit(0) || cuDevicePrimaryCtxRetain(&context, 0);
    failed = failed || cuCtxSetCurrent(context);
    if (!failed && arguments[1][0] == 's')
        failed = cuStreamCreate(&stream, 1) || drystone_add_stream(0, stream);
    for (long pair = failed ? 0 : atol(arguments[2]); pair > 0; pair--) {
        void *block = drystone_malloc(1 << 20, 0, stream);
        failed |= block == NULL;
        drystone_free(block, 1 << 20, 0, stream);
    }
    if (failed) fprintf(stderr, "stays|0 PAIRS, on a device\n");
    _exit(failed);
}
