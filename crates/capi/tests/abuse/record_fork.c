/* A recorded program has children: what they inherit of the recording they neither write nor wait
 * for. */
#include <pthread.h>
#include <sys/wait.h>

#include "abuse.h"

static volatile int is_over;

static void *keep_busy(void *unused) {
    while (!is_over) {
        void *block;
        for (int at = 0; at < 50; at++) {
            OK(drystone_allocate(&block, 1000, 0, NULL));
            OK(drystone_deallocate(block));
        }
        usleep(50);
    }
    return unused;
}

int main(void) {
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, keep_busy, NULL) == 0);
    for (int at = 0; at < 50; at++) {
        int status;
        usleep(500 + 7 * at);
        pid_t pid = fork();
        if (pid == 0) {
            alarm(10);
            exit(0); /* With the exit handlers of both. */
        }
        CHECK(pid > 0 && waitpid(pid, &status, 0) == pid);
        CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    }
    is_over = 1;
    CHECK(pthread_join(thread, NULL) == 0);
    return 0;
}
