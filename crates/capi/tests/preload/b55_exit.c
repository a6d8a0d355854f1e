/* B55, B56: frees at exit succeed, a forked child is told by the runtime, and nothing is said. */
#include "runtime.h"
#include <sys/wait.h>

static void *kept[3];

static void at_exit(void) {
    OK(cudaFreeAsync(kept[0], NULL));
    OK(cudaFree(kept[1]));
}

__attribute__((destructor)) static void at_the_very_end(void) {
    if (kept[2] != NULL) CHECK(cudaFreeAsync(kept[2], NULL) == SUCCESS);
}

int main(void) {
    atexit(at_exit);
    for (int at = 0; at < 3; at++) OK(cudaMallocAsync(&kept[at], 5 * MIB, NULL));
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        void *block;
        int codes = cudaMallocAsync(&block, MIB, NULL) != SUCCESS;
        codes += cudaFreeAsync(kept[0], NULL) != SUCCESS;
        _exit(codes == 2 ? 0 : 1);
    }
    int status;
    CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0);
    return 0;
}
