/* B36, B39: null, zero, huge and negative sizes have one documented answer each. */
#include "abuse.h"

int main(void) {
    void *block = &block;
    for (int time = 0; time < 3; time++) {
        OK(drystone_allocate(&block, 0, 0, NULL));
        CHECK(block == NULL);
        CHECK(drystone_malloc(0, 0, NULL) == NULL);
        drystone_free(NULL, 0, 0, NULL);
        OK(drystone_deallocate(NULL));
        OK(drystone_deallocate_checked(NULL, 7, -9, NULL));
        OK(drystone_record_use(NULL, NULL));
    }
    CHECK(drystone_last_error() == DRYSTONE_STATUS_OK);
    CHECK(drystone_last_error_message()[0] == '\0');

    LEAVES(CHECK(drystone_malloc(-1, 0, NULL) == NULL), DRYSTONE_STATUS_INVALID_SIZE,
           "a size of -1 bytes");
    printf("drystone: drystone_malloc: a size of -1 bytes\n");
    LEAVES(CHECK(drystone_malloc(PTRDIFF_MIN, 0, NULL) == NULL), DRYSTONE_STATUS_INVALID_SIZE,
           "bytes");
    printf("drystone: drystone_malloc: a size of -9223372036854775808 bytes\n");
    for (int shift = 48; shift < 64; shift++) {
        block = &block;
        CHECK(drystone_allocate(&block, (size_t)1 << shift, 0, NULL) ==
              DRYSTONE_STATUS_INVALID_SIZE);
        CHECK(block == NULL);
    }
    CHECK(drystone_allocate(&block, SIZE_MAX, 0, NULL) == DRYSTONE_STATUS_INVALID_SIZE);
    /* More than the device has, and no more than a block may be: no lines, for some try again. */
    CHECK(drystone_malloc((ptrdiff_t)1 << 46, 0, NULL) == NULL);
    FAILS(drystone_allocate(&block, (size_t)1 << 46, 0, NULL), DRYSTONE_STATUS_OUT_OF_MEMORY,
          "The request is larger than the device's memory.");
    FAILS(drystone_allocate(NULL, 8, 0, NULL), DRYSTONE_STATUS_INVALID_VALUE,
          "out is a null pointer");
    still_usable(0);
    return 0;
}
