/* B55, B57: frees, failures and their messages while a thread ends, from destructors of its own
 * keys, which run after the library's thread locals may be gone. */
#include <pthread.h>

#include "abuse.h"

static pthread_key_t key;

static void at_thread_end(void *block) {
    drystone_free(block, 1000, 0, NULL);
    FAILS(drystone_deallocate(block), DRYSTONE_STATUS_ALREADY_FREE, "is free already");
    stream_t stream = new_stream();
    void *again = drystone_malloc(1000, 0, stream);
    CHECK(again != NULL);
    drystone_free(again, 1000, 0, NULL);
    OK(drystone_retire_stream(0, stream));
    CHECK(cuStreamDestroy_v2(stream) == 0);
}

static void *work(void *unused) {
    use_device(0);
    CHECK(pthread_setspecific(key, drystone_malloc(1000, 0, (stream_t)2)) == 0);
    return unused;
}

int main(void) {
    pthread_t thread;
    CHECK(pthread_key_create(&key, at_thread_end) == 0);
    for (int time = 0; time < 20; time++) {
        CHECK(pthread_create(&thread, NULL, work, NULL) == 0);
        CHECK(pthread_join(thread, NULL) == 0);
    }
    CHECK(drystone_last_error() == DRYSTONE_STATUS_OK); /* Another thread's. */
    still_usable(0);
    return 0;
}
