/* Stands in for libraries that register memory: libibverbs, cuFile, NCCL, NVSHMEM. Each answer is
 * what theirs would be; `fails` makes all of them fail, `last` is the address they were given. */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

int fails;
void *last;

static void *region(void *address) {
    last = address;
    return fails ? NULL : malloc(48);
}

static int answer(void *address) {
    last = address;
    return fails;
}

void *ibv_reg_mr_iova2(void *domain, void *address, size_t bytes, uint64_t iova, unsigned access) {
    (void)domain, (void)bytes, (void)iova, (void)access;
    return region(address);
}

/* These two call the third, as theirs do, through whoever stands before it. */
void *ibv_reg_mr_iova(void *domain, void *address, size_t bytes, uint64_t iova, int access) {
    return ibv_reg_mr_iova2(domain, address, bytes, iova, (unsigned)access);
}

void *ibv_reg_mr(void *domain, void *address, size_t bytes, int access) {
    return ibv_reg_mr_iova2(domain, address, bytes, (uint64_t)address, (unsigned)access);
}

int ibv_rereg_mr(void *mr, int flags, void *domain, void *address, size_t bytes, int access) {
    (void)mr, (void)flags, (void)domain, (void)bytes, (void)access;
    last = address;
    return fails;
}

void *ibv_reg_dmabuf_mr(
    void *domain, uint64_t offset, size_t bytes, uint64_t iova, int file, int access) {
    (void)domain, (void)offset, (void)bytes, (void)file, (void)access;
    return region((void *)iova);
}

int ibv_dereg_mr(void *mr) {
    if (!fails) free(mr);
    return fails;
}

struct cufile { int error, driver; };

struct cufile cuFileBufRegister(const void *address, size_t bytes, int flags) {
    (void)bytes, (void)flags;
    return (struct cufile){answer((void *)address), 7};
}

struct cufile cuFileBufDeregister(const void *address) {
    return (struct cufile){answer((void *)address), 7};
}

struct cufile cuFileDriverClose(void) { return (struct cufile){fails, 7}; }

struct cufile cuFileDriverClose_v2(void) { return (struct cufile){fails, 7}; }

int ncclCommRegister(void *owner, void *address, size_t bytes, void **to) {
    (void)bytes;
    *to = owner == NULL ? NULL : (char *)address + 1;
    return answer(address);
}

int ncclCommDeregister(void *owner, void *name) {
    (void)owner;
    return answer(name);
}

int ncclCommWindowRegister(void *owner, void *address, size_t bytes, void **to, int flags) {
    (void)owner, (void)bytes;
    if (flags != 9) *to = (char *)address + 2;
    return answer(address);
}

int ncclCommWindowDeregister(void *owner, void *name) {
    (void)owner;
    return answer(name);
}

int ncclCommDestroy(void *owner) { return answer(owner); }

int ncclCommAbort(void *owner) { return answer(owner); }

int nvshmemx_buffer_register(void *address, size_t bytes) {
    (void)bytes;
    return answer(address);
}

int nvshmemx_buffer_unregister(void *address) { return answer(address); }

void nvshmemx_buffer_unregister_all(void) {}
