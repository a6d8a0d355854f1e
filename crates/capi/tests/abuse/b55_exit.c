/* B55, P6: frees while the process exits succeed; nothing is given out; no driver call is made. */
#include "abuse.h"

static void *first, *second, *third;

/* Registered before the first use, so it runs after the library's own handler. */
static void late(void) {
    drystone_clear_error();
    drystone_free(first, 5000, 0, NULL);
    drystone_free(first, 5000, 0, NULL); /* Whatever it is: nobody needs it any more. */
    OK(drystone_deallocate(second));
    OK(drystone_deallocate_checked(second, 1, 1, NULL));
    CHECK(drystone_last_error() == DRYSTONE_STATUS_OK);
    drystone_record_stream(second, NULL);
    CHECK(drystone_malloc(5000, 0, NULL) == NULL);
    CHECK(drystone_last_error() == DRYSTONE_STATUS_EXITING);
    FAILS(drystone_trim(-1, NULL), DRYSTONE_STATUS_EXITING, "the process is exiting");
    drystone_reset();
    drystone_release_pool(0, 1, 0);
    CHECK(drystone_base_allocation(second, NULL) == NULL);
}

/* Registered after the first use: all is as ever. */
static void early(void) {
    drystone_free(third, 5000, 0, NULL);
    CHECK(drystone_malloc(5000, 0, NULL) == third);
}

__attribute__((destructor)) static void destructor(void) {
    drystone_free(third, 5000, 0, NULL);
    CHECK(drystone_malloc(5000, 0, NULL) == NULL);
    CHECK(drystone_last_error() == DRYSTONE_STATUS_EXITING);
}

int main(void) {
    atexit(late);
    first = drystone_malloc(5000, 0, NULL);
    second = drystone_malloc(5000, 0, NULL);
    third = drystone_malloc(5000, 0, NULL);
    drystone_pool_create(0, 1, 0);
    CHECK(first != NULL && second != NULL && third != NULL);
    atexit(early);
    exit(0);
}
