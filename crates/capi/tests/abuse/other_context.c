/* A stream of another context of the device: no event of the primary context can be recorded on it.
 * What it used is safe all the same, and serves again once the device was idle; it gets none. */
#include "abuse.h"

int cuCtxCreate_v2(void **context, unsigned flags, int device);
int cuCtxDestroy_v2(void *context);
int cuCtxGetCurrent(void **context);
uint64_t simcuda_now_ns(int device);

int main(void) {
    use_device(0);
    void *own, *current, *primary;
    CHECK(cuCtxGetCurrent(&primary) == 0);
    CHECK(cuCtxCreate_v2(&own, 0, 0) == 0);
    stream_t foreign = new_stream(); /* Of the context that was just made. */
    CHECK(cuCtxSetCurrent(primary) == 0);
    stream_t stream = new_stream();

    /* Used there, freed, and asked for again while the kernel runs. */
    void *used = drystone_malloc(4 * MIB, 0, stream);
    CHECK(simcuda_check_alloc(0, number_of(used), 4 * MIB, stream) == 0);
    CHECK(simcuda_launch(0, foreign, 1000000000) == 0);
    CHECK(simcuda_check_use(0, number_of(used), foreign) == 0);
    OK(drystone_record_use(used, foreign));
    CHECK(simcuda_check_free(0, number_of(used)) == 0);
    drystone_free(used, 4 * MIB, 0, stream);
    /* A wait for the primary context would not cover it. */
    CHECK(simcuda_now_ns(0) >= 1000000000);
    void *next = drystone_malloc(4 * MIB, 0, stream);
    CHECK(next != NULL && next != used);
    CHECK(simcuda_check_alloc(0, number_of(next), 4 * MIB, stream) == 0);
    CHECK(simcuda_check_free(0, number_of(next)) == 0);
    drystone_free(next, 4 * MIB, 0, stream);

    /* None is given out there: what that stream frees would serve others once the device was idle,
     * and no wait for the device is one for it. */
    void *none;
    for (int turn = 0; turn < 2; turn++) {
        FAILS(drystone_allocate(&none, 8 * MIB, 0, foreign), DRYSTONE_STATUS_INVALID_VALUE,
              "a context of the program's own");
        drystone_clear_error();
    }
    CHECK(cuCtxGetCurrent(&current) == 0 && current == primary);
    OK(drystone_trim(0, NULL));
    CHECK(stats_of(0).reserved_bytes.current == 0);
    CHECK(cuStreamDestroy_v2(foreign) == 0 && cuCtxDestroy_v2(own) == 0);
    CHECK(drystone_last_error() == DRYSTONE_STATUS_OK);
    still_usable(0);
    return 0;
}
