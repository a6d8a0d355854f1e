/* No CUDA driver at all: every call says so, and nothing is printed or broken by it. */
#include <drystone.h>
#include <stdio.h>
#include <string.h>

static int is_refused(enum drystone_status status) {
    return status == DRYSTONE_STATUS_NO_DRIVER &&
           strstr(drystone_last_error_message(), "no CUDA driver: ") != NULL;
}

int main(void) {
    void *block = &block;
    size_t bytes;
    for (int time = 0; time < 3; time++) {
        if (!is_refused(drystone_allocate(&block, 8, 0, NULL)) || block != NULL) return 1;
        if (!is_refused(drystone_largest_free(0, &bytes))) return 2;
        drystone_clear_error();
        drystone_free(&block, 8, 0, NULL);
        if (drystone_last_error() != DRYSTONE_STATUS_UNKNOWN_POINTER) return 3;
        printf("drystone: drystone_free: %p is not an address of this allocator\n", (void *)&block);
        if (drystone_trim(-1, &bytes) != DRYSTONE_STATUS_OK || bytes != 0) return 4;
        if (drystone_configure(0, "limit:1GiB") != DRYSTONE_STATUS_OK) return 5;
    }
    return 0;
}
