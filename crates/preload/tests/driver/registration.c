/* What a library registers stays where it is until it is given up, also once it is free; and who
 * registered it is told. The stand-in library is linked, or with "looked-up" found by dlsym. */
#include "driver.h"

struct cufile { int error, driver; };

#define LIBRARY(X)                                                                               \
    X(void *, ibv_reg_mr, (void *, void *, size_t, int))                                         \
    X(void *, ibv_reg_mr_iova, (void *, void *, size_t, uint64_t, int))                          \
    X(void *, ibv_reg_mr_iova2, (void *, void *, size_t, uint64_t, unsigned))                    \
    X(void *, ibv_reg_dmabuf_mr, (void *, uint64_t, size_t, uint64_t, int, int))                 \
    X(int, ibv_rereg_mr, (void *, int, void *, void *, size_t, int))                             \
    X(int, ibv_dereg_mr, (void *))                                                               \
    X(struct cufile, cuFileBufRegister, (const void *, size_t, int))                             \
    X(struct cufile, cuFileBufDeregister, (const void *))                                        \
    X(struct cufile, cuFileDriverClose, (void))                                                  \
    X(struct cufile, cuFileDriverClose_v2, (void))                                               \
    X(int, ncclCommRegister, (void *, void *, size_t, void **))                                  \
    X(int, ncclCommDeregister, (void *, void *))                                                 \
    X(int, ncclCommWindowRegister, (void *, void *, size_t, void **, int))                       \
    X(int, ncclCommWindowDeregister, (void *, void *))                                           \
    X(int, ncclCommDestroy, (void *))                                                            \
    X(int, ncclCommAbort, (void *))                                                              \
    X(int, nvshmemx_buffer_register, (void *, size_t))                                           \
    X(int, nvshmemx_buffer_unregister, (void *))                                                 \
    X(void, nvshmemx_buffer_unregister_all, (void))

#ifdef LOOKED_UP
#define PLACE(answer, name, arguments) static answer(*name) arguments;
LIBRARY(PLACE)
static int *fails;
static void **last;
__attribute__((constructor)) static void find_library(void) {
    void *library = dlopen(STAND_IN, RTLD_NOW | RTLD_LOCAL);
    CHECK(library != NULL);
#define LOOK(answer, name, arguments) CHECK((*(void **)&name = dlsym(library, #name)) != NULL);
    LIBRARY(LOOK)
    fails = dlsym(library, "fails");
    last = dlsym(library, "last");
}
#else
#define NAMED(answer, name, arguments) answer name arguments;
LIBRARY(NAMED)
extern int fails_of_library __asm__("fails");
extern void *last_of_library __asm__("last");
static int *const fails_ = &fails_of_library;
static void **const last_ = &last_of_library;
#define fails fails_
#define last last_
#endif

static int (*trim)(int, size_t *);
static int (*stats)(int, char *, size_t, size_t *);

/* What is told of a call: bytes that are registered by it. */
static long told(const char *call) {
    char text[1 << 14], key[64];
    size_t needed;
    OK(stats(0, text, sizeof text, &needed));
    const char *all = strstr(text, "\"registered\":{");
    CHECK(all != NULL);
    snprintf(key, sizeof key, "\"%s\":{\"ranges\":", call);
    const char *at = strstr(all, key);
    if (at == NULL) return 0;
    return strtol(strstr(at, "\"bytes\":") + strlen("\"bytes\":"), NULL, 10);
}

#define SIZE (64 * MIB)
/* In the middle of the block. */
#define PART (5 * MIB)
#define OFFSET (20 * MIB + 512)

static size_t held(void) {
    size_t released;
    OK(trim(0, &released));
    return figure(RESERVED);
}

static int owner[1];

/* Registers memory with `DO`, frees it, and gives it up with `UNDO`: `address` is the memory. */
#define KEPT(call, DO, UNDO)                                                                     \
    do {                                                                                         \
        address_t block;                                                                         \
        CHECK(held() == 0);                                                                      \
        OK(cuMemAllocAsync(&block, SIZE, NULL));                                                 \
        void *address = (void *)(block + OFFSET), *name = NULL;                                  \
        *fails = 1;                                                                              \
        DO;                                                                                      \
        CHECK(told(call) == 0 && *last == address);                                              \
        *fails = 0;                                                                              \
        DO;                                                                                      \
        CHECK(told(call) == PART && *last == address);                                           \
        OK(cuMemFreeAsync(block, NULL));                                                         \
        OK(cuCtxSynchronize());                                                                  \
        CHECK(held() >= PART);                                                                   \
        *fails = 1;                                                                              \
        UNDO;                                                                                    \
        CHECK(told(call) == PART);                                                               \
        *fails = 0;                                                                              \
        UNDO;                                                                                    \
        CHECK(told(call) == 0 && held() == 0);                                                   \
        (void)name;                                                                              \
    } while (0)

int main(void) {
    *(void **)&trim = dlsym(RTLD_DEFAULT, "drystone_trim");
    *(void **)&stats = dlsym(RTLD_DEFAULT, "drystone_stats_json");
    CHECK(trim != NULL && stats != NULL);
    OK(cuInit(0));
    primary(0);
    KEPT("ibv_reg_mr", name = ibv_reg_mr(NULL, address, PART, 7), ibv_dereg_mr(name));
    KEPT("ibv_reg_mr_iova", name = ibv_reg_mr_iova(NULL, address, PART, 0, 7), ibv_dereg_mr(name));
    KEPT("ibv_reg_mr_iova2", name = ibv_reg_mr_iova2(NULL, address, PART, 0, 7),
         ibv_dereg_mr(name));
    KEPT("ibv_reg_dmabuf_mr",
         name = ibv_reg_dmabuf_mr(NULL, 0, PART, (uint64_t)address, 3, 7), ibv_dereg_mr(name));
    KEPT("cuFileBufRegister", CHECK(cuFileBufRegister(address, PART, 0).driver == 7),
         CHECK(cuFileBufDeregister(address).driver == 7));
    KEPT("cuFileBufRegister", CHECK(cuFileBufRegister(address, PART, 0).driver == 7),
         CHECK(cuFileDriverClose().driver == 7));
    KEPT("cuFileBufRegister", CHECK(cuFileBufRegister(address, PART, 0).driver == 7),
         CHECK(cuFileDriverClose_v2().driver == 7));
    KEPT("ncclCommRegister", ncclCommRegister(owner, address, PART, &name),
         ncclCommDeregister(owner, name));
    KEPT("ncclCommRegister", ncclCommRegister(owner, address, PART, &name),
         ncclCommDestroy(owner));
    KEPT("ncclCommWindowRegister", ncclCommWindowRegister(owner, address, PART, &name, 0),
         ncclCommWindowDeregister(owner, name));
    /* In a group, where the window has no name yet. */
    KEPT("ncclCommWindowRegister", ncclCommWindowRegister(owner, address, PART, &name, 9),
         ncclCommAbort(owner));
    KEPT("nvshmemx_buffer_register", nvshmemx_buffer_register(address, PART),
         nvshmemx_buffer_unregister(address));
    KEPT("nvshmemx_buffer_register", nvshmemx_buffer_register(address, PART),
         if (!*fails) nvshmemx_buffer_unregister_all());

    /* Memory that is none of ours, or only in part, or nothing; NCCL that does not register. */
    address_t block;
    void *name;
    OK(cuMemAllocAsync(&block, 4 * MIB, NULL));
    CHECK((name = ibv_reg_mr(NULL, (void *)block, 0, 7)) != NULL && told("ibv_reg_mr") == 0);
    OK(ibv_dereg_mr(name));
    CHECK((name = ibv_reg_mr(NULL, owner, sizeof owner, 7)) != NULL && told("ibv_reg_mr") == 0);
    OK(ibv_dereg_mr(name));
    CHECK((name = ibv_reg_mr(NULL, (void *)block, (size_t)-1, 7)) != NULL);
    CHECK(told("ibv_reg_mr") == 0);
    OK(ibv_dereg_mr(name));
    OK(ncclCommRegister(NULL, (void *)block, MIB, &name));
    CHECK(told("ncclCommRegister") == 0);

    /* One name for a whole and its part: given up from the last on, in whatever order of others. */
    void *other;
    char *whole = (char *)block;
    OK(ncclCommWindowRegister(owner, whole + MIB, MIB, &other, 0));
    OK(ncclCommRegister(owner, whole, 3 * MIB, &name));
    OK(ncclCommRegister(owner, whole, 2 * MIB, &name));
    OK(ncclCommWindowDeregister(owner, other));
    OK(ncclCommDeregister(owner, name));
    CHECK(told("ncclCommRegister") == 3 * MIB);
    OK(ncclCommDeregister(owner, name));
    /* A window without a name is nobody else's. */
    void *stale = other;
    OK(ncclCommWindowRegister(owner, whole, MIB, &stale, 9));
    CHECK(stale == NULL);
    OK(ncclCommWindowDeregister(fails, NULL));
    CHECK(told("ncclCommWindowRegister") == MIB);
    OK(ncclCommDestroy(owner));
    CHECK(told("ncclCommWindowRegister") == 0);
    /* Moved to another place. */
    name = ibv_reg_mr(NULL, whole, MIB, 7);
    OK(ibv_rereg_mr(name, 1, NULL, whole + 2 * MIB, MIB, 7));
    CHECK(told("ibv_reg_mr") == MIB && told("ibv_rereg_mr") == MIB);
    OK(ibv_rereg_mr(name, 2, NULL, NULL, 0, 7));
    OK(ibv_dereg_mr(name));
    CHECK(told("ibv_reg_mr") == 0 && told("ibv_rereg_mr") == 0);

    /* Twice the same, and it serves requests where it lies. */
    void *first = ibv_reg_mr(NULL, (void *)block, 4 * MIB, 7);
    void *second = ibv_reg_mr(NULL, (void *)block, 4 * MIB, 7);
    CHECK(told("ibv_reg_mr") == 8 * MIB);
    OK(cuMemFreeAsync(block, NULL));
    address_t again;
    OK(cuMemAllocAsync(&again, 4 * MIB, NULL));
    CHECK(again == block);
    OK(cuMemFreeAsync(again, NULL));
    OK(cuCtxSynchronize());
    OK(ibv_dereg_mr(first));
    CHECK(held() > 0);
    OK(ibv_dereg_mr(second));
    CHECK(held() == 0);
    no_violation(0);
    return 0;
}
