/* B2, B3, B10: two devices with the other one, or none, current; and devices that are not there. */
#include "abuse.h"

static const int NO_DEVICES[] = {2, 63, 64, -1, -2147483647 - 1, 2147483647};

int main(void) {
    void *block, *blocks[2];
    size_t bytes;
    /* No context is current. */
    OK(drystone_allocate(&blocks[1], 5000, 1, NULL));
    use_device(0);
    OK(drystone_allocate(&blocks[0], 5000, 0, NULL));
    for (size_t at = 0; at < sizeof NO_DEVICES / sizeof *NO_DEVICES; at++) {
        int device = NO_DEVICES[at];
        block = &block;
        FAILS(drystone_allocate(&block, 8, device, NULL), DRYSTONE_STATUS_INVALID_DEVICE, "device");
        CHECK(block == NULL);
        CHECK(drystone_get_stats(device, NULL) == DRYSTONE_STATUS_INVALID_VALUE);
        CHECK(drystone_largest_free(device, &bytes) == DRYSTONE_STATUS_INVALID_DEVICE);
        CHECK(drystone_set_limit(device, 1) == DRYSTONE_STATUS_INVALID_DEVICE);
        CHECK(drystone_enable_peer_access(0, device) == DRYSTONE_STATUS_INVALID_DEVICE);
        CHECK(drystone_retire_stream(device, (stream_t)2) == DRYSTONE_STATUS_INVALID_DEVICE);
        CHECK(drystone_deallocate_checked(blocks[0], 5000, device, NULL) ==
              DRYSTONE_STATUS_WRONG_DEVICE);
    }
    FAILS(drystone_enable_peer_access(0, 0), DRYSTONE_STATUS_INVALID_VALUE, "is its own peer");
    for (int device = 0; device < 2; device++) {
        CHECK(drystone_base_allocation((char *)blocks[device] + 7, &bytes) != NULL);
        CHECK(bytes >= 5000);
        OK(drystone_record_use(blocks[device], NULL));
        OK(drystone_deallocate_checked(blocks[device], 5000, device, NULL));
    }
    OK(drystone_trim(-1, &bytes));
    CHECK(bytes == 4 * MIB);
    still_usable(0);
    still_usable(1);
    return 0;
}
