/* B8, B16: the event after the last use of a block cannot be recorded: the free succeeds, and the
 * block is not used again before the device was idle. */
#include "abuse.h"

int main(void) {
    use_device(0);
    stream_t own = new_stream(), other = new_stream();
    void *block = drystone_malloc(4 * MIB, 0, own);
    CHECK(simcuda_check_alloc(0, number_of(block), 4 * MIB, own) == 0);
    drystone_record_stream(block, other);
    CHECK(simcuda_check_use(0, number_of(block), other) == 0);
    CHECK(simcuda_launch(0, other, 1000000000) == 0);
    CHECK(simcuda_check_free(0, number_of(block)) == 0);
    CHECK(simcuda_fail(0, "cuEventRecord", 1, 1, 400) == 0);
    drystone_free(block, 4 * MIB, 0, own);
    CHECK(simcuda_faults_fired(0) > 0);
    CHECK(simcuda_clear_faults(0) == 0);
    CHECK(drystone_last_error() == DRYSTONE_STATUS_OK);
    CHECK(stats_of(0).quarantined_bytes == 4 * MIB);
    for (int time = 0; time < 4; time++) CHECK(drystone_malloc(4 * MIB, 0, own) != block);
    FAILS(drystone_deallocate(block), DRYSTONE_STATUS_ALREADY_FREE, "is free already");
    OK(drystone_trim(0, NULL));
    CHECK(stats_of(0).quarantined_bytes == 0);
    still_usable(0);
    return 0;
}
