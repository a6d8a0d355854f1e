/* A look-up finds ours where it would find a driver's function that ours stands in for, whichever
 * way it goes, and else what it would find without the library. */
#include "driver.h"

static void *library_of(void *function) {
    Dl_info about;
    CHECK(function != NULL && dladdr(function, &about) != 0);
    return about.dli_fbase;
}

static void *by_proc(const char *name, int version, uint64_t flags) {
    int (*get)(const char *, void **, int, uint64_t, int *);
    void *driver = dlopen("libcuda.so.1", RTLD_NOW), *found = NULL;
    int status = 7;
    *(void **)&get = dlsym(driver, "cuGetProcAddress_v2");
    int code = get(name, &found, version, flags, &status);
    CHECK(code == SUCCESS && (found == NULL) == (status != 0));
    return found;
}

int main(void) {
    void *driver = dlopen("libcuda.so.1", RTLD_NOW), *itself = dlopen(NULL, RTLD_NOW);
    void *drivers = library_of(dlsym(driver, "cuInit"));
    void *ours = library_of(dlsym(driver, "cuMemAllocAsync"));
    CHECK(ours != drivers && library_of(dlsym(driver, "simcuda_launch")) == drivers);
    CHECK(dlsym(driver, "cuMemAllocAsync") == dlsym(itself, "cuMemAllocAsync"));
    CHECK(dlsym(driver, "cuMemAllocAsync") == dlsym(RTLD_DEFAULT, "cuMemAllocAsync"));
    CHECK(dlsym(driver, "cuMemAllocAsync") != dlsym(driver, "cuMemAllocAsync_ptsz"));
    CHECK(dlsym(driver, "cuNothing") == NULL && dlerror() != NULL);
    CHECK(dlsym(driver, "cudaMalloc") == NULL);

    /* By the name without its version, as every version of CUDA has it; by flags; as it is. */
    CHECK(by_proc("cuMemAlloc", 12000, 0) == dlsym(driver, "cuMemAlloc_v2"));
    CHECK(by_proc("cuMemAlloc_v2", 12000, 0) == dlsym(driver, "cuMemAlloc_v2"));
    CHECK(by_proc("cuMemAllocAsync", 11020, 0) == dlsym(driver, "cuMemAllocAsync"));
    CHECK(by_proc("cuMemAllocAsync", 13000, 1) == dlsym(driver, "cuMemAllocAsync"));
    CHECK(by_proc("cuMemAllocAsync", 12000, 2) == dlsym(driver, "cuMemAllocAsync_ptsz"));
    CHECK(by_proc("cuStreamBeginCapture", 10000, 0) == dlsym(driver, "cuStreamBeginCapture"));
    CHECK(by_proc("cuStreamBeginCapture", 12000, 0) == dlsym(driver, "cuStreamBeginCapture_v2"));
    CHECK(by_proc("cuGetProcAddress", 12000, 0) == dlsym(driver, "cuGetProcAddress_v2"));
    CHECK(by_proc("cuGetProcAddress", 11030, 0) == dlsym(driver, "cuGetProcAddress"));
    CHECK(by_proc("cuGetProcAddress", 12000, 2) == dlsym(driver, "cuGetProcAddress_v2_ptsz"));
    CHECK(by_proc("cuCtxCreate", 12000, 0) == dlsym(driver, "cuCtxCreate_v3"));
    CHECK(by_proc("cuStreamDestroy", 12000, 0) == dlsym(driver, "cuStreamDestroy_v2"));
    CHECK(by_proc("cuEventRecord", 12000, 0) == dlsym(driver, "cuEventRecord"));
    CHECK(by_proc("cuEventRecord", 12000, 2) == dlsym(driver, "cuEventRecord_ptsz"));
    CHECK(by_proc("cuEventDestroy", 12000, 0) == dlsym(driver, "cuEventDestroy_v2"));
    CHECK(by_proc("cuStreamWaitEvent", 12000, 2) == dlsym(driver, "cuStreamWaitEvent_ptsz"));
    CHECK(by_proc("cuCtxSynchronize", 12000, 0) == dlsym(driver, "cuCtxSynchronize"));
    CHECK(by_proc("cuCtxSynchronize", 13000, 0) == dlsym(driver, "cuCtxSynchronize_v2"));
    CHECK(library_of(by_proc("cuCtxSynchronize", 13000, 0)) == ours);
    CHECK(library_of(by_proc("cuEventQuery", 12000, 0)) == drivers);
    CHECK(library_of(by_proc("cuCtxCreate", 13000, 0)) == ours);
    CHECK(by_proc("cuMemcpyDtoH", 12000, 0) == dlsym(driver, "cuMemcpyDtoH_v2"));
    CHECK(by_proc("cuMemcpyDtoH", 12000, 2) == dlsym(driver, "cuMemcpyDtoH_v2_ptds"));
    CHECK(by_proc("cuMemsetD8Async", 12000, 2) == dlsym(driver, "cuMemsetD8Async_ptsz"));
    CHECK(library_of(by_proc("cuMemcpyDtoH", 12000, 2)) == ours);
    CHECK(by_proc("cuNothing", 12000, 0) == NULL);

    /* Another driver has functions of its own, whose memory is nothing to the first. */
    Dl_info about;
    char path[] = "/tmp/drystone-driver-XXXXXX", command[4096];
    CHECK(dladdr(dlsym(driver, "cuInit"), &about) != 0 && close(mkstemp(path)) == 0);
    CHECK(snprintf(command, sizeof command, "cp -L '%s' %s", about.dli_fname, path) > 0);
    CHECK(system(command) == 0);
    void *other = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    CHECK(unlink(path) == 0 && other != NULL && other != driver);
    CHECK(library_of(dlsym(other, "cuMemAllocAsync")) == library_of(dlsym(other, "cuInit")));
    return 0;
}
