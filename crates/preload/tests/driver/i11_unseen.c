/* A stream that was not seen to be created: while it is captured the driver is not asked whose it
 * is, which broke the capture before CUDA 12.5. */
#define _GNU_SOURCE
#include "driver.h"
#include <elf.h>
#include <link.h>

/* The driver's own function, past all that may stand for it. */
static void *drivers(const char *name) {
    struct link_map *driver = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD);
    const Elf64_Sym *symbols = NULL;
    const char *names = NULL;
    for (const Elf64_Dyn *at = driver->l_ld; at->d_tag != DT_NULL; at++) {
        if (at->d_tag == DT_SYMTAB) symbols = (const Elf64_Sym *)at->d_un.d_ptr;
        if (at->d_tag == DT_STRTAB) names = (const char *)at->d_un.d_ptr;
    }
    while (strcmp(names + symbols->st_name, name) != 0) symbols++;
    return (char *)driver->l_addr + symbols->st_value;
}

int main(void) {
    address_t block;
    stream_t unseen;
    handle_t graph;
    OK(cuInit(0));
    primary(0);
    int (*create)(stream_t *, unsigned) = (int (*)(stream_t *, unsigned))drivers("cuStreamCreate");
    OK(create(&unseen, 1));
    OK(cuMemAllocAsync(&block, MIB, unseen));
    OK(cuMemFreeAsync(block, unseen));
    CHECK(native_allocations() == 0);

    OK(cuStreamBeginCapture_v2(unseen, 2));
    CHECK(cuStreamBeginCapture_v2(unseen, 2) != SUCCESS);
    OK(cuMemAllocAsync(&block, MIB, unseen));
    CHECK(native_allocations() == 1);
    OK(cuMemFreeAsync(block, unseen));
    OK(cuStreamEndCapture(unseen, &graph));

    OK(cuMemAllocAsync(&block, MIB, unseen));
    OK(cuMemFreeAsync(block, unseen));
    CHECK(native_allocations() == 1);
    return 0;
}
