/* B55, B56: frees at exit succeed, a forked child is told by the driver, and nothing is said. A
 * child that was forked before the parent used CUDA is served. */
#include "driver.h"
#include <sys/wait.h>

static address_t kept[3];

static void at_exit(void) {
    OK(cuMemFreeAsync(kept[0], NULL));
    OK(cuMemFree_v2(kept[1]));
}

__attribute__((destructor)) static void at_the_very_end(void) {
    if (kept[2] != 0) OK(cuMemFreeAsync(kept[2], NULL));
}

static void ends_well(pid_t child) {
    int status;
    CHECK(child > 0 && waitpid(child, &status, 0) == child);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

static void allocates(void) {
    OK(cuInit(0));
    primary(0);
    for (int at = 0; at < 3; at++) OK(cuMemAllocAsync(&kept[at], 5 * MIB, NULL));
    CHECK(native_allocations() == 0);
}

int main(void) {
    pid_t child = fork();
    if (child == 0) {
        allocates();
        _exit(0);
    }
    ends_well(child);
    atexit(at_exit);
    allocates();
    child = fork();
    if (child == 0) {
        address_t block;
        int codes = cuMemAllocAsync(&block, MIB, NULL) != SUCCESS;
        codes += cuMemFreeAsync(kept[0], NULL) != SUCCESS;
        _exit(codes == 2 ? 0 : 1);
    }
    ends_well(child);
    return 0;
}
