/* After cudaDeviceReset no old memory is handed out, and the driver is asked about nothing from
 * before: in the simulated one a stale handle ends the process. */
#include "abuse.h"

int cuDevicePrimaryCtxReset_v2(int device);

int main(void) {
    use_device(0);
    stream_t stream = new_stream();
    void *kept = drystone_malloc(3 * MIB, 0, NULL);
    void *used = drystone_malloc(5 * MIB, 0, NULL);
    void *cached = drystone_malloc(1000, 0, NULL);
    CHECK(kept != NULL && used != NULL && cached != NULL);
    OK(drystone_record_use(used, stream));
    drystone_free(cached, 1000, 0, NULL);
    OK(drystone_check(0));

    CHECK(cuDevicePrimaryCtxReset_v2(0) == 0);
    FAILS(drystone_check(0), DRYSTONE_STATUS_DEVICE_RESET, "the device was reset");
    void *again;
    FAILS(drystone_allocate(&again, 1000, 0, NULL), DRYSTONE_STATUS_DEVICE_RESET, "was reset");
    CHECK(again == NULL);
    FAILS(drystone_allocate(&again, 600 * MIB, 0, NULL), DRYSTONE_STATUS_DEVICE_RESET, "was reset");
    FAILS(drystone_allocate(&again, 1000, 0, new_stream()), DRYSTONE_STATUS_DEVICE_RESET, "reset");
    FAILS(drystone_trim(0, NULL), DRYSTONE_STATUS_DEVICE_RESET, "was reset");
    OK(drystone_deallocate(used));
    OK(drystone_deallocate(kept));
    CHECK(simcuda_violation_count(0) == 0);

    /* Another device goes on. */
    use_device(1);
    still_usable(1);
    return 0;
}
