/* Memory of ours goes to other processes by the driver's old calls: by requests in stream order, or
 * with "own" by the C interface, where the library only gives back. With "refused" memory was not
 * made to be shared. Two children are there before CUDA is: one opens, one gives and is killed. */
#include "driver.h"
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>

struct token { char bytes[64]; };

#define MORE(X)                                                                                  \
    X(cuIpcOpenMemHandle_v2, cuIpcOpenMemHandle, 12000, (address_t *, struct token, unsigned))   \
    X(cuIpcCloseMemHandle, cuIpcCloseMemHandle, 12000, (address_t))

#if WAY == 0
MORE(DECLARE)
#else
MORE(DECLARE)
__attribute__((constructor)) static void find_more(void) {
    void *driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    MORE(FIND)
}
#endif

enum { INVALID_CONTEXT = 201, INVALID_HANDLE = 400 };
enum { BUFFER = 7, OLD_CALLS = 10, START = 11, BYTES = 12 };
#define SIZE (5 * MIB)

static int is_own;
static int (*allocate)(void **, size_t, int, stream_t);
static void (*release)(void *, size_t, int, stream_t);
static int (*trim)(int, size_t *);

static address_t take(size_t bytes) {
    address_t block = 0;
    if (is_own) OK(allocate((void **)&block, bytes, 0, NULL));
    else OK(cuMemAllocAsync(&block, bytes, NULL));
    return block;
}

static void give_back(address_t block, size_t bytes) {
    if (is_own) release((void *)block, bytes, 0, NULL);
    else OK(cuMemFreeAsync(block, NULL));
    OK(cuCtxSynchronize());
}

static size_t free_bytes(void) {
    size_t free, total;
    if (is_own) OK(trim(0, &free));
    else OK(cuMemPoolTrimTo(default_pool(0), 0));
    OK(cuMemGetInfo_v2(&free, &total));
    return free;
}

static void put(int to, const void *data, size_t bytes) {
    CHECK(write(to, data, bytes) == (ssize_t)bytes);
}

static void get(int from, void *data, size_t bytes) {
    CHECK(recv(from, data, bytes, MSG_WAITALL) == (ssize_t)bytes);
}

static uint64_t told(address_t block, int attribute) {
    uint64_t value = 0, none = 0;
    int attributes[] = {attribute, START};
    void *places[] = {&value, &none};
    OK(cuPointerGetAttribute(&none, attribute, block));
    OK(cuPointerGetAttributes(2, attributes, places, block));
    return value;
}

static unsigned char last_byte(address_t block) {
    unsigned char byte = 0;
    OK(cuMemcpyDtoH_v2(&byte, block + SIZE - 1, 1));
    return byte;
}

static void fill(address_t block, int byte) {
    OK(cuMemsetD8Async(block, byte, SIZE, NULL));
    OK(cuCtxSynchronize());
}

/* Opens what it is sent, writes there, closes it; opens it once more and waits to be killed. */
static void opener(int line) {
    struct token token;
    address_t first, second, start = 0;
    size_t bytes = 0;
    get(line, &token, sizeof token);
    OK(cuInit(0));
    primary(0);
    OK(cuIpcOpenMemHandle_v2(&first, token, 1));
    OK(cuIpcOpenMemHandle_v2(&second, token, 1));
    CHECK(first == second && last_byte(first) == 7);
    OK(cuPointerGetAttribute(&start, START, first + 3 * MIB));
    OK(cuPointerGetAttribute(&bytes, BYTES, first + 3 * MIB));
    CHECK(start == first && bytes == SIZE);
    fill(first, 9);
    OK(cuIpcCloseMemHandle(first));
    CHECK(last_byte(first) == 9);
    OK(cuIpcCloseMemHandle(first));
    CHECK(cuIpcCloseMemHandle(first) != SUCCESS);
    put(line, "w", 1);
    get(line, &token, sizeof token);
    get(line, &start, sizeof start);
    OK(cuIpcOpenMemHandle_v2(&first, token, 1));
    CHECK(last_byte(first + start) == 9);
    put(line, "o", 1);
    pause();
}

/* Gives memory and waits to be killed. */
static void giver(int line) {
    char go;
    struct token token;
    get(line, &go, 1);
    OK(cuInit(0));
    primary(0);
    take(MIB + MIB / 2);
    address_t block = take(SIZE);
    fill(block, 3);
    OK(cuIpcGetMemHandle(&token, block));
    put(line, &token, sizeof token);
    pause();
}

static pid_t begin(void (*run)(int), int *line) {
    int lines[2];
    CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, lines) == 0);
    pid_t child = fork();
    if (child == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        run(lines[1]);
        _exit(0);
    }
    close(lines[1]);
    *line = lines[0];
    return child;
}

static void end(pid_t child) {
    CHECK(kill(child, SIGKILL) == 0 && waitpid(child, NULL, 0) == child);
}

int main(int count, char **arguments) {
    int to_opener, to_giver, is_refused = 0;
    char answer;
    struct token token, again;
    address_t opened;
    for (int at = 1; at < count; at++) {
        is_own |= strcmp(arguments[at], "own") == 0;
        is_refused |= strcmp(arguments[at], "refused") == 0;
    }
    *(void **)&allocate = dlsym(RTLD_DEFAULT, "drystone_allocate");
    *(void **)&release = dlsym(RTLD_DEFAULT, "drystone_free");
    *(void **)&trim = dlsym(RTLD_DEFAULT, "drystone_trim");
    CHECK(allocate != NULL && release != NULL && trim != NULL);
    pid_t opens = begin(opener, &to_opener), gives = begin(giver, &to_giver);

    OK(cuInit(0));
    primary(0);
    address_t before = take(MIB + MIB / 2), block = take(SIZE);
    CHECK((told(block, OLD_CALLS) & 0xff) == !is_refused);
    if (is_refused) {
        CHECK(cuIpcGetMemHandle(&token, block) == INVALID_VALUE);
        end(opens);
        end(gives);
        return 0;
    }
    fill(block, 7);
    OK(cuIpcGetMemHandle(&token, block));
    OK(cuIpcGetMemHandle(&again, block));
    CHECK(memcmp(&token, &again, sizeof token) == 0);
    CHECK(cuIpcOpenMemHandle_v2(&opened, token, 1) == INVALID_CONTEXT);
    put(to_opener, &token, sizeof token);
    get(to_opener, &answer, 1);
    CHECK(answer == 'w' && last_byte(block) == 9);

    /* Who asks where the allocation begins counts from there. */
    address_t start, ahead;
    size_t range;
    uint64_t number = told(block, BUFFER);
    CHECK(number == told(block + MIB, BUFFER) && number != told(before, BUFFER));
    OK(cuMemGetAddressRange_v2(&start, &range, block));
    CHECK(is_own ? start < block : start == block);
    OK(cuIpcGetMemHandle(&token, block));
    ahead = block - start;

    /* Who opened it is killed, and the memory goes back. */
    put(to_opener, &token, sizeof token);
    put(to_opener, &ahead, sizeof ahead);
    get(to_opener, &answer, 1);
    end(opens);
    CHECK(last_byte(block) == 9);
    give_back(block, SIZE);
    give_back(before, MIB + MIB / 2);
    size_t whole = free_bytes();

    /* Who gave it is killed: it stays until it is closed. */
    put(to_giver, "g", 1);
    get(to_giver, &token, sizeof token);
    OK(cuIpcOpenMemHandle_v2(&opened, token, 1));
    end(gives);
    CHECK(last_byte(opened) == 3 && free_bytes() < whole);
    OK(cuIpcOpenMemHandle_v2(&opened, token, 1));
    OK(cuIpcCloseMemHandle(opened));
    OK(cuIpcCloseMemHandle(opened));
    CHECK(free_bytes() == whole);
    CHECK(cuIpcOpenMemHandle_v2(&opened, token, 1) == INVALID_HANDLE);
    no_violation(0);
    return 0;
}
