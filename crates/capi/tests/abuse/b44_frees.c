/* B44: every function that frees keeps the same count, whichever gave the block. */
#include "abuse.h"

enum { WAYS = 4 };

static void *allocated(int way, stream_t stream) {
    void *block = NULL;
    if (way == WAYS - 1) {
        OK(drystone_growable_reserve(&block, 8 * MIB, 0, stream));
        OK(drystone_growable_grow_to(block, 4 * MIB));
    } else if (way % 2 == 0) {
        OK(drystone_allocate(&block, 4 * MIB, 0, stream));
    } else {
        block = drystone_malloc(4 * MIB, 0, stream);
    }
    return block;
}

static void freed(int way, void *block, stream_t stream) {
    switch (way) {
    case 0: OK(drystone_deallocate(block)); break;
    case 1: OK(drystone_deallocate_checked(block, 4 * MIB, 0, stream)); break;
    case 2: drystone_free(block, 4 * MIB, 0, stream); break;
    default: OK(drystone_growable_free(block));
    }
}

int main(void) {
    use_device(0);
    stream_t stream = new_stream();
    for (int way = 0; way < 2 * WAYS; way++) {
        void *block = allocated(way % WAYS, stream);
        CHECK(stats_of(0).allocations.current == 1);
        CHECK(stats_of(0).allocated_bytes.current == 4 * MIB);
        freed(way % WAYS, block, stream);
        CHECK(stats_of(0).allocations.current == 0);
        CHECK(stats_of(0).allocated_bytes.current == 0);
        CHECK(stats_of(0).allocations.total == (uint64_t)way + 1);
    }
    still_usable(0);
    return 0;
}
