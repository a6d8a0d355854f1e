/* B22, B27, I11: while a graph is captured memory is served, nothing that would break the capture
 * is done, and what cannot be done says so. */
#include "abuse.h"

int main(void) {
    void *graph, *block;
    use_device(0);
    stream_t captured = new_stream(), other = new_stream();
    drystone_free(drystone_malloc(8 * MIB, 0, NULL), 8 * MIB, 0, NULL);
    void *before = drystone_malloc(8 * MIB, 0, captured);
    CHECK(cuStreamBeginCapture_v2(captured, 0) == 0);
    OK(drystone_allocate(&block, 3 * MIB, 0, other)); /* Before anybody told of the capture. */
    OK(drystone_deallocate(block));
    drystone_begin_allocate_to_pool(0, 1, 0, NULL);
    drystone_reset(); /* As PyTorch does when a capture begins. */
    FAILS(drystone_trim(0, NULL), DRYSTONE_STATUS_CAPTURING, "");
    OK(drystone_allocate(&block, 64 * MIB, 0, captured));
    drystone_record_stream(before, other);
    drystone_free(before, 8 * MIB, 0, captured);
    OK(drystone_deallocate(block));
    OK(drystone_allocate(&block, 64 * MIB, 0, captured));
    drystone_end_allocate_to_pool(0, 1, 0);
    CHECK(cuStreamEndCapture(captured, &graph) == 0); /* Nothing broke it. */
    CHECK(cuGraphDestroy(graph) == 0);
    OK(drystone_trim(0, NULL));
    drystone_release_pool(0, 1, 0);
    OK(drystone_deallocate(block));
    LEAVES(drystone_release_pool(0, 1, 0), DRYSTONE_STATUS_UNKNOWN_POOL, "pool 1, 0 was never made");
    printf("drystone: drystone_release_pool: pool 1, 0 was never made, or is released\n");
    LEAVES(drystone_end_allocate_to_pool(0, 1, 0), DRYSTONE_STATUS_UNKNOWN_POOL, "");
    printf("drystone: drystone_end_allocate_to_pool: pool 1, 0 takes no requests\n");
    OK(drystone_trim(0, NULL));
    CHECK(stats_of(0).reserved_bytes.current == 0);
    still_usable(0);
    return 0;
}
