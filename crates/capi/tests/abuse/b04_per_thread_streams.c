/* B4: the per-thread default stream has one handle in every thread and is another stream in each:
 * what one thread freed does not serve another that is not ordered behind it. */
#include <pthread.h>

#include "abuse.h"

static void *freed;

static void *use_it(void *unused) {
    use_device(0);
    void *block = drystone_malloc(4 * MIB, 0, (stream_t)2);
    CHECK(block != NULL && block != freed);
    CHECK(simcuda_check_alloc(0, number_of(block), 4 * MIB, (stream_t)2) == 0);
    return unused;
}

int main(void) {
    pthread_t thread;
    setenv("DRYSTONE_CONF", "cross_stream:never", 1);
    use_device(0);
    freed = drystone_malloc(4 * MIB, 0, (stream_t)2);
    CHECK(simcuda_check_alloc(0, number_of(freed), 4 * MIB, (stream_t)2) == 0);
    CHECK(simcuda_launch(0, (stream_t)2, 1000000000) == 0);
    CHECK(simcuda_check_free(0, number_of(freed)) == 0);
    drystone_free(freed, 4 * MIB, 0, NULL);
    CHECK(pthread_create(&thread, NULL, use_it, NULL) == 0);
    CHECK(pthread_join(thread, NULL) == 0);
    /* This thread's stream is no new one because another thread used the same handle. */
    CHECK(drystone_malloc(4 * MIB, 0, (stream_t)2) == freed);
    OK(drystone_check(0));
    CHECK(simcuda_violation_count(0) == 0);
    return 0;
}
