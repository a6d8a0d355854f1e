/* B28, B30, B33, B62: out of memory is a status with figures; what is free elsewhere is found; and
 * once memory is free the same call succeeds. */
#include "abuse.h"

enum { BLOCKS = 200 };

int main(void) {
    static void *blocks[BLOCKS];
    int count = 0;
    use_device(0);
    stream_t other = new_stream();
    while (count < BLOCKS) {
        enum drystone_status status = drystone_allocate(&blocks[count], 100 * MIB, 0, NULL);
        if (status != DRYSTONE_STATUS_OK) {
            CHECK(status == DRYSTONE_STATUS_OUT_OF_MEMORY && blocks[count] == NULL);
            break;
        }
        count++;
    }
    const char *message = drystone_last_error_message();
    CHECK(strstr(message, "CUDA out of memory. Tried to allocate 100.00 MiB. "));
    CHECK(strstr(message, "Use a smaller batch, or free 4.00 MiB more of this or"));
    CHECK(count > 10 && drystone_malloc(100 * MIB, 0, other) == NULL); /* No line is printed. */
    OK(drystone_check(0));

    drystone_record_stream(blocks[0], other); /* Free, but only once that stream is done. */
    CHECK(simcuda_launch(0, other, 1000000) == 0);
    OK(drystone_deallocate(blocks[0]));
    OK(drystone_allocate(&blocks[0], 100 * MIB, 0, NULL));
    for (int at = 0; at < count; at += 2) OK(drystone_deallocate(blocks[at]));
    /* The pieces are granules, and serve a request larger than each of them. */
    void *large = drystone_malloc(900 * MIB, 0, other);
    CHECK(large != NULL);
    OK(drystone_deallocate(large));
    for (int at = 1; at < count; at += 2) OK(drystone_deallocate(blocks[at]));

    OK(drystone_trim(0, NULL));
    drystone_set_memory_fraction(0.01, 0);
    FAILS(drystone_allocate(&large, 900 * MIB, 0, other), DRYSTONE_STATUS_OUT_OF_MEMORY,
          "stands in the way: raise limit or limit_fraction");
    drystone_set_memory_fraction(1.0, 0);
    OK(drystone_allocate(&large, 900 * MIB, 0, other));
    OK(drystone_deallocate(large));
    CHECK(simcuda_fail(0, "cuMemCreate", 1, 1, 999) == 0);
    OK(drystone_trim(0, NULL));
    FAILS(drystone_allocate(&large, MIB, 0, NULL), DRYSTONE_STATUS_DRIVER_ERROR,
          "cuMemCreate failed: driver error 999");
    CHECK(simcuda_clear_faults(0) == 0);
    still_usable(0);
    return 0;
}
