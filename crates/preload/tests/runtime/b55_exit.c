/* B55, B56: frees at exit succeed or are told what the runtime tells everybody then, so is a forked
 * child, and nothing is said. */
#include "runtime.h"
#include <sys/wait.h>

static void *kept[3];

/* `cudaErrorCudartUnloading`: what it says without the library, too. */
enum { UNLOADING = 4 };

static int is_quiet(int code) { return code == SUCCESS || code == UNLOADING; }

static void at_exit(void) {
    CHECK(is_quiet(cudaFreeAsync(kept[0], NULL)));
    CHECK(is_quiet(cudaFree(kept[1])));
}

__attribute__((destructor)) static void at_the_very_end(void) {
    if (kept[2] != NULL) CHECK(is_quiet(cudaFreeAsync(kept[2], NULL)));
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
