/* B7: what is given back serves whoever asks the driver for memory that is ready at once, on any
 * stream: also what the plug-in's functions took back while streams had work queued with it. */
#include "abuse.h"

int cuMemAlloc_v2(uint64_t *address, size_t bytes);
int cuMemFree_v2(uint64_t address);

int main(void) {
    use_device(0);
    stream_t own = new_stream(), user = new_stream(), other = new_stream();
    for (int turn = 0; turn < 4; turn++) {
        void *block = drystone_malloc(3000 * MIB, 0, own);
        CHECK(simcuda_check_alloc(0, number_of(block), 3000 * MIB, own) == 0);
        CHECK(simcuda_launch(0, own, 50000000) == 0);
        if (turn % 2 == 1) {
            drystone_record_stream(block, user);
            CHECK(simcuda_launch(0, user, 90000000) == 0);
            CHECK(simcuda_check_use(0, number_of(block), user) == 0);
        }
        CHECK(simcuda_check_free(0, number_of(block)) == 0);
        drystone_free(block, 3000 * MIB, 0, own);
        /* The device has no more than the block, and the driver does not ask for it. */
        uint64_t plain;
        CHECK(cuMemAlloc_v2(&plain, 3000 * MIB) == 2);
        if (turn < 2)
            OK(drystone_trim(0, NULL));
        else
            drystone_reset();
        CHECK(cuMemAlloc_v2(&plain, 3000 * MIB) == 0);
        CHECK(simcuda_check_alloc(0, plain, 3000 * MIB, other) == 0);
        CHECK(simcuda_launch(0, other, 50000000) == 0);
        CHECK(simcuda_check_free(0, plain) == 0);
        CHECK(cuMemFree_v2(plain) == 0);
    }
    still_usable(0);
    return 0;
}
