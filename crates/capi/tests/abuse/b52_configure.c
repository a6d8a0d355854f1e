/* Options: what is wrong is said with what is right, and the first use settles them. */
#include "abuse.h"

int main(void) {
    void *block;
    setenv("DRYSTONE_CONF", "limit:many", 1);
    LEAVES(drystone_init(1), DRYSTONE_STATUS_BAD_OPTION, "option `limit` does not take `many`");
    printf("drystone: drystone_init: %s\n", drystone_last_error_message());
    LEAVES(CHECK(drystone_malloc(8, 0, NULL) == NULL), DRYSTONE_STATUS_BAD_OPTION, "`many`");
    printf("drystone: drystone_malloc: %s\n", drystone_last_error_message());
    FAILS(drystone_configure(0, "sauce:vmm"), DRYSTONE_STATUS_BAD_OPTION,
          "unknown option `sauce`; valid options are");
    FAILS(drystone_configure(0, "\xff\xfe"), DRYSTONE_STATUS_BAD_OPTION, "is not key:value");
    FAILS(drystone_configure(64, ""), DRYSTONE_STATUS_INVALID_DEVICE, "there is no device 64");
    OK(drystone_configure(-1, "limit:1GiB"));
    OK(drystone_configure(1, "backend:malloc"));
    OK(drystone_allocate(&block, 8, 0, NULL));
    FAILS(drystone_configure(0, "limit:2GiB"), DRYSTONE_STATUS_ALREADY_IN_USE,
          "device 0 is in use already: options are given before its first allocation");
    FAILS(drystone_configure(-1, NULL), DRYSTONE_STATUS_ALREADY_IN_USE, "device 0 is in use");
    OK(drystone_configure(1, "limit:32MiB"));
    FAILS(drystone_allocate(&block, 33 * MIB, 1, NULL), DRYSTONE_STATUS_OUT_OF_MEMORY, "limit");
    FAILS(drystone_allocate(&block, 1025 * MIB, 0, NULL), DRYSTONE_STATUS_OUT_OF_MEMORY, "limit");
    still_usable(0);
    still_usable(1);
    return 0;
}
