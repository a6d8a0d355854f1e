/* A function that is told of mappings asks and gives up memory that grows, while other threads and
 * its own are using it: nobody waits for one who waits for him. */
#include <pthread.h>

#include "abuse.h"

static void *caches[2];
static volatile int is_over;
static volatile size_t asked, refused;

static void told(void *own, int device, void *address, size_t bytes, int is_backed) {
    (void)own, (void)device, (void)address, (void)bytes, (void)is_backed;
    for (int at = 0; at < 2 && caches[at] != NULL; at++) {
        size_t has = 1, room = 0;
        OK(drystone_growable_size(caches[at], &has, &room));
        CHECK(room == 200 * MIB && has <= room);
        asked++;
        enum drystone_status shrunk = drystone_growable_shrink_to(caches[at], has / 2);
        CHECK(shrunk == DRYSTONE_STATUS_OK || shrunk == DRYSTONE_STATUS_NOT_SUPPORTED);
        refused += shrunk == DRYSTONE_STATUS_NOT_SUPPORTED;
        CHECK(drystone_growable_grow_to(caches[at], room) != DRYSTONE_STATUS_OK);
    }
}

static void *grow(void *cache) {
    while (!is_over) {
        OK(drystone_growable_grow_to(cache, 100 * MIB));
        OK(drystone_growable_shrink_to(cache, 2 * MIB));
        OK(drystone_trim(0, NULL));
    }
    return NULL;
}

int main(void) {
    use_device(0);
    alarm(60);
    stream_t stream = new_stream();
    for (int at = 0; at < 2; at++)
        OK(drystone_growable_reserve(&caches[at], 200 * MIB, 0, stream));
    OK(drystone_on_remap(0, told, NULL));
    OK(drystone_growable_grow_to(caches[0], 20 * MIB));
    CHECK(asked > 0 && refused > 0);

    pthread_t threads[2];
    for (int at = 0; at < 2; at++)
        CHECK(pthread_create(&threads[at], NULL, grow, caches[at]) == 0);
    usleep(500000);
    is_over = 1;
    for (int at = 0; at < 2; at++) CHECK(pthread_join(threads[at], NULL) == 0);
    for (int at = 0; at < 2; at++) {
        void *cache = caches[at];
        caches[at] = NULL;
        OK(drystone_growable_free(cache));
    }
    still_usable(0);
    return 0;
}
