/* P9: a program provides the same memory twice, which no heap can be true of. The call that finds
 * out is INTERNAL; from then on the device gives and takes nothing, can be looked at, and the other
 * device goes on. */
#include <fcntl.h>

#include "abuse.h"

static void *same_memory(void *data, size_t bytes) {
    (void)bytes;
    return data;
}

static void never_called(void *data, void *ptr, size_t bytes) {
    (void)data;
    (void)ptr;
    (void)bytes;
    _exit(2);
}

/* Rust says on standard error where it panicked, which no test can foresee. */
static int allocate_silently(void **block, size_t bytes) {
    int kept = dup(2), nowhere = open("/dev/null", O_WRONLY);
    CHECK(kept >= 0 && nowhere >= 0 && dup2(nowhere, 2) == 2);
    int status = drystone_allocate_from_pool(block, bytes, 0, NULL, 7, 7);
    CHECK(dup2(kept, 2) == 2);
    close(kept);
    close(nowhere);
    return status;
}

int main(void) {
    const char *advice = "report the defect, and restart the process";
    const enum drystone_status poisoned = DRYSTONE_STATUS_POISONED;
    void *before, *other, *first, *second, *memory = (void *)((uintptr_t)1 << 50);
    size_t bytes = 1;
    struct drystone_block block;
    use_device(0);
    OK(drystone_allocate(&before, 3 * MIB, 0, NULL));
    OK(drystone_allocate(&other, 3 * MIB, 1, NULL));
    OK(drystone_pool_create_plain(0, 7, 7, same_memory, never_called, memory, 0));
    OK(drystone_allocate_from_pool(&first, 30 * MIB, 0, NULL, 7, 7));
    CHECK(first == memory);
    uint64_t held = stats_of(0).reserved_bytes.current;
    FAILS(allocate_silently(&second, 40 * MIB), DRYSTONE_STATUS_INTERNAL, "overlaps another");
    CHECK(second == NULL);

    for (size_t size = 512; size <= 64 * MIB; size *= 8) {
        FAILS(drystone_allocate(&second, size, 0, NULL), poisoned, advice);
        FAILS(drystone_allocate(&second, size, 0, new_stream()), poisoned, advice);
        CHECK(second == NULL);
    }
    FAILS(drystone_deallocate(before), poisoned, advice);
    FAILS(drystone_deallocate_checked(before, 3 * MIB, 0, NULL), poisoned, advice);
    FAILS(drystone_record_use(before, NULL), poisoned, advice);
    FAILS(drystone_allocate_at(first, 512, 512, 0, NULL, 7, 7), poisoned, advice);
    FAILS(drystone_trim(0, &bytes), poisoned, advice);
    CHECK(bytes == 0);
    FAILS(drystone_enable_peer_access(0, 1), poisoned, advice);
    FAILS(drystone_pin_mapping(before), poisoned, advice);
    FAILS(drystone_pool_create_plain(0, 8, 8, same_memory, never_called, memory, 0), poisoned, advice);
    FAILS(drystone_pool_destroy(0, 7, 7), poisoned, advice);
    printf("drystone: drystone_malloc: %s\n", drystone_last_error_message());
    CHECK(drystone_malloc(MIB, 0, NULL) == NULL);
    printf("drystone: drystone_free: %s\n", drystone_last_error_message());
    LEAVES(drystone_free(before, 3 * MIB, 0, NULL), poisoned, advice);

    CHECK(stats_of(0).reserved_bytes.current == held);
    OK(drystone_block_at(before, &block));
    CHECK(strcmp(drystone_status_name(poisoned), "DRYSTONE_STATUS_POISONED") == 0);
    OK(drystone_deallocate(other));
    still_usable(1);
    return 0;
}
