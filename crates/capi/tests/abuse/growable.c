/* Memory that grows in place: by its address, refused where the address is none, and watched. */
#include "abuse.h"

#define GRANULE (2 * MIB)

/* The oracle knows each granule as a block. */
static void watch(uint64_t start, size_t from, size_t to, stream_t stream) {
    for (size_t at = from; at < to; at += GRANULE)
        simcuda_check_alloc(0, start + at, GRANULE, stream);
}

static void let_go(uint64_t start, size_t from, size_t to) {
    for (size_t at = from; at < to; at += GRANULE)
        simcuda_check_free(0, start + at);
}

int main(void) {
    void *cache = &cache, *none = &none, *block;
    size_t bytes = 7, room = 7;
    use_device(0);
    stream_t stream = new_stream(), other = new_stream();

    FAILS(drystone_growable_reserve(NULL, MIB, 0, stream), DRYSTONE_STATUS_INVALID_VALUE,
          "out is a null pointer");
    FAILS(drystone_growable_reserve(&none, SIZE_MAX, 0, stream), DRYSTONE_STATUS_INVALID_SIZE, "");
    CHECK(none == NULL);
    FAILS(drystone_growable_reserve(&none, MIB, 9, stream), DRYSTONE_STATUS_INVALID_DEVICE, "");
    OK(drystone_growable_free(NULL));
    void *wrong[] = {NULL, &none, (void *)(uintptr_t)4096};
    for (int at = 0; at < 3; at++) {
        CHECK(drystone_growable_grow_to(wrong[at], 1) == DRYSTONE_STATUS_UNKNOWN_POINTER);
        CHECK(drystone_growable_shrink_to(wrong[at], 1) == DRYSTONE_STATUS_UNKNOWN_POINTER);
        CHECK(drystone_growable_record_use(wrong[at], stream) == DRYSTONE_STATUS_UNKNOWN_POINTER);
        CHECK(drystone_growable_commit_rest(wrong[at], 1, NULL) == DRYSTONE_STATUS_UNKNOWN_POINTER);
        CHECK(drystone_growable_size(wrong[at], &bytes, NULL) == DRYSTONE_STATUS_UNKNOWN_POINTER);
        CHECK(bytes == 0);
    }
    CHECK(drystone_growable_free(&none) == DRYSTONE_STATUS_UNKNOWN_POINTER);

    OK(drystone_growable_reserve(&cache, 1000 * MIB + 1, 0, stream));
    uint64_t start = number_of(cache);
    OK(drystone_growable_size(cache, &bytes, &room));
    CHECK(bytes == 0 && room == 1002 * MIB && start % GRANULE == 0);
    OK(drystone_growable_grow_to(cache, 20 * MIB));
    watch(start, 0, 20 * MIB, stream);
    OK(drystone_growable_grow_to(cache, 100 * MIB));
    watch(start, 20 * MIB, 100 * MIB, stream);
    CHECK(stats_of(0).allocated_bytes.current == 100 * MIB);
    CHECK(stats_of(0).allocations.current == 1);
    FAILS(drystone_growable_grow_to(cache, 1003 * MIB), DRYSTONE_STATUS_INVALID_SIZE, "room");
    FAILS(drystone_deallocate((char *)cache + 512), DRYSTONE_STATUS_INTERIOR_POINTER, "");

    /* What it gives up waits for another stream, and then serves others before any is created. */
    for (size_t at = 0; at < 100 * MIB; at += GRANULE)
        simcuda_check_use(0, start + at, other);
    OK(drystone_growable_record_use(cache, other));
    CHECK(simcuda_launch(0, other, 5000000) == 0);
    let_go(start, 4 * MIB, 100 * MIB);
    OK(drystone_growable_shrink_to(cache, 3 * MIB));
    CHECK(cuStreamSynchronize(other) == 0 && cuStreamSynchronize(stream) == 0);
    OK(drystone_allocate(&block, 96 * MIB, 0, other));
    OK(drystone_deallocate(block));
    OK(drystone_check(0));

    /* All that is left but a margin. */
    OK(drystone_growable_commit_rest(cache, 3500 * MIB, &bytes));
    CHECK(bytes > 500 * MIB && bytes <= 1002 * MIB && bytes % GRANULE == 0);
    watch(start, 4 * MIB, bytes, stream);
    OK(drystone_allocate(&block, 3000 * MIB, 0, stream));
    OK(drystone_deallocate(block));

    let_go(start, 0, bytes);
    OK(drystone_growable_free(cache));
    CHECK(drystone_growable_free(cache) == DRYSTONE_STATUS_UNKNOWN_POINTER);
    OK(drystone_trim(0, NULL));
    CHECK(stats_of(0).reserved_bytes.current == 0);
    still_usable(0);
    return 0;
}
