/* B35: a driver that answers otherwise than most. Under WSL it makes memory for network cards and
 * refuses access to it, and ranges of 32 GiB; a newer one returns errors that no header lists; one
 * makes no handle at all, which is said once. */
#include "abuse.h"

int simcuda_configure(const char *conf);
int cuMemsetD8_v2(uint64_t at, unsigned char value, size_t bytes);

enum { NO_HEADER_LISTS_IT = 9999 };

int main(void) {
    CHECK(simcuda_configure("profile:wsl2,memory:48GiB,devices:2") == 0);
    use_device(0);
    void *small, *large, *none;
    OK(drystone_allocate(&small, 1000, 0, NULL));
    OK(drystone_allocate(&large, 20480 * MIB, 0, NULL));
    CHECK(cuMemsetD8_v2(number_of(large), 1, 64 * MIB) == 0);
    CHECK(cuMemsetD8_v2(number_of(small), 1, 1000) == 0);

    CHECK(simcuda_fail(0, "cuMemCreate", 1, 1, NO_HEADER_LISTS_IT) == 0);
    FAILS(drystone_allocate(&none, 600 * MIB, 0, NULL), DRYSTONE_STATUS_DRIVER_ERROR, "9999");
    CHECK(none == NULL && simcuda_faults_fired(0) > 0);
    CHECK(simcuda_clear_faults(0) == 0);
    OK(drystone_allocate(&none, 600 * MIB, 0, NULL));
    OK(drystone_deallocate(none));
    OK(drystone_deallocate(large));
    OK(drystone_deallocate(small));
    still_usable(0);

    use_device(1);
    CHECK(simcuda_fail(1, "cuMemCreate", 1, 1, 2) == 0);
    printf("drystone: device 1 makes no handle of the virtual memory that it promises, so it "
           "serves plain memory, whose gaps stay: on a host that lacks large pages free them and "
           "start again, or say backend:malloc\n");
    OK(drystone_allocate(&small, 1000, 1, NULL));
    OK(drystone_allocate(&large, 20 * MIB, 1, NULL));
    OK(drystone_deallocate(large));
    OK(drystone_deallocate(small));
    return 0;
}
