/* A process without CUDA finds none of it, loads none of it, and looks other things up as ever. */
#define _GNU_SOURCE
#include "../../lab/testkit/c/check.h"
#include <dlfcn.h>

static int maps_name(const char *name) {
    char line[4096];
    FILE *maps = fopen("/proc/self/maps", "r");
    int found = 0;
    while (fgets(line, sizeof line, maps) != NULL) found |= strstr(line, name) != NULL;
    fclose(maps);
    return found;
}

/* What is looked for behind this program is not what is in it. */
pid_t getppid(void) { return 7; }

int main(void) {
    static const char *const names[] = {"cuMemAllocAsync", "cuMemFree_v2", "cuGetProcAddress",
                                        "cudaMalloc",      "cuNothing",    "cuInit"};
    void *itself = dlopen(NULL, RTLD_NOW);
    for (int at = 0; at < 6; at++) {
        dlerror();
        CHECK(dlsym(RTLD_DEFAULT, names[at]) == NULL);
        CHECK(dlerror() != NULL);
        CHECK(dlsym(itself, names[at]) == NULL);
        CHECK(dlerror() != NULL && dlerror() == NULL);
    }
    CHECK(dlsym(RTLD_DEFAULT, "strlen") != NULL && dlerror() == NULL);
    pid_t (*next)(void) = (pid_t(*)(void))dlsym(RTLD_NEXT, "getppid");
    pid_t (*first)(void) = (pid_t(*)(void))dlsym(RTLD_DEFAULT, "getppid");
    CHECK(first() == 7 && next != NULL && next() != 7);
    CHECK(!maps_name("libcuda"));

    /* Once there is a driver it is found where it is: in its library, and everywhere once that is
     * opened for all. */
    void *driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    if (driver != NULL) {
        CHECK(dlsym(driver, "cuMemAllocAsync") != NULL && dlsym(driver, "cuInit") != NULL);
        CHECK(dlsym(driver, "cuNothing") == NULL && dlerror() != NULL);
        CHECK(dlsym(RTLD_DEFAULT, "cuMemAllocAsync") == NULL && dlerror() != NULL);
        CHECK(dlsym(itself, "cuMemAllocAsync") == NULL && dlerror() != NULL);
        CHECK(dlopen("libcuda.so.1", RTLD_NOW | RTLD_GLOBAL) == driver);
        CHECK(dlsym(RTLD_DEFAULT, "cuMemAllocAsync") == dlsym(driver, "cuMemAllocAsync"));
        CHECK(dlsym(itself, "cuMemAllocAsync") == dlsym(driver, "cuMemAllocAsync"));
    }
    return 0;
}
