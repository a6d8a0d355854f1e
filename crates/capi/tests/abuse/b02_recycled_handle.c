/* B1, B2, B6, B14: a stream is destroyed without notice between a use and the free, or between two
 * allocations, and its handle comes back as another stream's. */
#include "abuse.h"

int main(void) {
    use_device(0);
    for (int is_told = 0; is_told < 2; is_told++) {
        stream_t first = new_stream();
        void *block = drystone_malloc(4 * MIB, 0, first);
        void *other = drystone_malloc(4 * MIB, 0, first);
        CHECK(simcuda_check_alloc(0, number_of(block), 4 * MIB, first) == 0);
        CHECK(simcuda_check_alloc(0, number_of(other), 4 * MIB, first) == 0);
        CHECK(simcuda_launch(0, first, 1000000000) == 0);
        CHECK(simcuda_check_free(0, number_of(block)) == 0);
        drystone_free(block, 4 * MIB, 0, first);
        if (is_told) OK(drystone_retire_stream(0, first));
        CHECK(cuStreamDestroy_v2(first) == 0);
        CHECK(simcuda_check_free(0, number_of(other)) == 0);
        drystone_free(other, 4 * MIB, 0, first); /* After its stream. */

        stream_t second = new_stream();
        CHECK(second == first); /* Else this shows nothing. */
        void *again = drystone_malloc(4 * MIB, 0, second);
        CHECK(again != NULL);
        CHECK(simcuda_check_alloc(0, number_of(again), 4 * MIB, second) == 0);
        CHECK(simcuda_check_free(0, number_of(again)) == 0);
        drystone_free(again, 4 * MIB, 0, second);
        OK(drystone_retire_stream(0, second));
        CHECK(cuStreamDestroy_v2(second) == 0);
    }
    CHECK(drystone_last_error() == DRYSTONE_STATUS_OK);
    /* Nothing is lost for good. */
    OK(drystone_trim(0, NULL));
    CHECK(stats_of(0).reserved_bytes.current == 0);
    still_usable(0);
    return 0;
}
