/* P3, B42: every wrong free is found out, said in one line, and changes nothing. */
#include "abuse.h"

static void expect(const char *format, uint64_t a, uint64_t b) {
    printf("drystone: drystone_free: ");
    printf(format, (unsigned long long)a, (unsigned long long)b);
    printf("\n");
}

int main(void) {
    use_device(0);
    stream_t other = new_stream();
    char *block = (char *)drystone_malloc(5000, 0, NULL);
    char *elsewhere = (char *)drystone_malloc(5000, 1, NULL);
    int local;
    CHECK(block != NULL && elsewhere != NULL && number_of(block) % 512 == 0);
    uint64_t held = stats_of(0).allocated_bytes.current;

    LEAVES(drystone_free(&local, 5000, 0, NULL), DRYSTONE_STATUS_UNKNOWN_POINTER, "");
    expect("%#llx is not an address of this allocator", number_of(&local), 0);
    LEAVES(drystone_free(block + 1024, 5000, 0, NULL), DRYSTONE_STATUS_INTERIOR_POINTER, "");
    expect("%#llx lies inside the block of 5120 bytes at %#llx", number_of(block) + 1024,
           number_of(block));
    LEAVES(drystone_free(block + 1, 5000, 0, NULL), DRYSTONE_STATUS_INTERIOR_POINTER, "");
    expect("%#llx lies inside the block of 5120 bytes at %#llx", number_of(block) + 1,
           number_of(block));
    LEAVES(drystone_free(block, 4999, 0, NULL), DRYSTONE_STATUS_WRONG_SIZE, "");
    expect("the block at %#llx was allocated with 5000 bytes, not 4999", number_of(block), 0);
    LEAVES(drystone_free(block, 5000, 1, NULL), DRYSTONE_STATUS_WRONG_DEVICE, "");
    expect("%#llx belongs to device 0, not 1", number_of(block), 0);
    LEAVES(drystone_free(elsewhere, 5000, 0, NULL), DRYSTONE_STATUS_WRONG_DEVICE, "");
    expect("%#llx belongs to device 1, not 0", number_of(elsewhere), 0);
    CHECK(stats_of(0).allocated_bytes.current == held);

    FAILS(drystone_deallocate_checked(block, 5000, 0, other), DRYSTONE_STATUS_WRONG_STREAM,
          "was allocated on stream 0x0, not ");
    FAILS(drystone_deallocate(block + 512), DRYSTONE_STATUS_INTERIOR_POINTER, "lies inside");
    FAILS(drystone_deallocate(&local), DRYSTONE_STATUS_UNKNOWN_POINTER, "is not an address");
    CHECK(stats_of(0).allocated_bytes.current == held);

    drystone_clear_error();
    drystone_free(block, 5000, 0, other); /* B64: its own stream counts, whatever is passed. */
    CHECK(drystone_last_error() == DRYSTONE_STATUS_OK);
    CHECK(drystone_malloc(5000, 0, NULL) == block);
    drystone_free(block, 5000, 0, NULL);
    LEAVES(drystone_free(block, 5000, 0, NULL), DRYSTONE_STATUS_ALREADY_FREE, "");
    expect("%#llx is free already", number_of(block), 0);
    LEAVES(drystone_free(block, 5000, 0, NULL), DRYSTONE_STATUS_ALREADY_FREE, "");
    expect("%#llx is free already", number_of(block), 0);

    /* B32: from the ninth on a line only each time their number has doubled. */
    for (int failure = 9; failure <= 40; failure++) {
        drystone_free(block, 5000, 0, NULL);
        if (failure == 16 || failure == 32)
            expect("%#llx is free already (failure %lld)", number_of(block), (uint64_t)failure);
    }
    drystone_free(elsewhere, 5000, 1, NULL);
    still_usable(0);
    still_usable(1);
    return 0;
}
