/* B56, P6: a forked child gets a clean error and never hangs, though another thread of the parent
 * was inside the library; a fork before the first use is no matter. */
#include <pthread.h>
#include <sys/wait.h>

#include "abuse.h"

static volatile int is_over;

static void *keep_busy(void *unused) {
    while (!is_over) {
        void *block = drystone_malloc(1000, 0, NULL);
        CHECK(block != NULL);
        drystone_free(block, 1000, 0, NULL);
        drystone_reset();
    }
    return unused;
}

static void child(void *block) {
    void *more = &more;
    alarm(10);
    drystone_clear_error();
    CHECK(drystone_malloc(1000, 0, NULL) == NULL);
    CHECK(drystone_last_error() == DRYSTONE_STATUS_FORKED);
    drystone_free(block, 1000, 0, NULL);
    drystone_record_stream(block, NULL);
    drystone_reset();
    FAILS(drystone_allocate(&more, 1000, 1, NULL), DRYSTONE_STATUS_FORKED, "was forked");
    CHECK(more == NULL);
    FAILS(drystone_deallocate(block), DRYSTONE_STATUS_FORKED, "start it anew");
    FAILS(drystone_trim(-1, NULL), DRYSTONE_STATUS_FORKED, "");
    FAILS(drystone_check(0), DRYSTONE_STATUS_FORKED, "");
    FAILS(drystone_snapshot("never-written"), DRYSTONE_STATUS_FORKED, "");
    exit(0); /* With the exit handlers of both. */
}

static void join_child(pid_t pid) {
    int status;
    CHECK(pid > 0 && waitpid(pid, &status, 0) == pid);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

int main(void) {
    pid_t pid = fork();
    if (pid == 0) {
        void *own = drystone_malloc(1000, 0, NULL);
        CHECK(own != NULL);
        drystone_free(own, 1000, 0, NULL);
        _exit(0);
    }
    join_child(pid);

    void *block = drystone_malloc(1000, 0, NULL);
    CHECK(block != NULL);
    pthread_t threads[2];
    for (int at = 0; at < 2; at++) CHECK(pthread_create(&threads[at], NULL, keep_busy, NULL) == 0);
    for (int time = 0; time < 20; time++) {
        usleep(500);
        pid = fork();
        if (pid == 0) child(block);
        join_child(pid);
    }
    is_over = 1;
    for (int at = 0; at < 2; at++) CHECK(pthread_join(threads[at], NULL) == 0);
    OK(drystone_deallocate(block));
    still_usable(0);
    return 0;
}
