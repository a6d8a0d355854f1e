/* Memory goes to another process over a socket, and both see the same bytes; a receiver that is
 * killed takes nothing with it. */
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include "abuse.h"

int simcuda_configure(const char *conf);
uint64_t simcuda_physical_bytes(int device);
int cuMemcpyDtoH_v2(void *to, uint64_t from, size_t bytes);
int cuMemsetD8_v2(uint64_t at, unsigned char value, size_t bytes);
int cuCtxSynchronize(void);

#define HANDLES_MAX 64
#define BLOCK_BYTES (37 * MIB)

struct message {
    size_t count;
    size_t offset;
    struct drystone_shared_handle handles[HANDLES_MAX];
};

static void transfer(int socket, struct message *message, int is_sent) {
    char control[CMSG_SPACE(HANDLES_MAX * sizeof(int))] = {0};
    struct iovec part = {message, sizeof *message};
    struct msghdr whole = {0};
    whole.msg_iov = &part;
    whole.msg_iovlen = 1;
    whole.msg_control = control;
    whole.msg_controllen = sizeof control;
    if (is_sent) {
        whole.msg_controllen = CMSG_SPACE(message->count * sizeof(int));
        struct cmsghdr *header = CMSG_FIRSTHDR(&whole);
        header->cmsg_level = SOL_SOCKET;
        header->cmsg_type = SCM_RIGHTS;
        header->cmsg_len = CMSG_LEN(message->count * sizeof(int));
        for (size_t at = 0; at < message->count; at++) {
            int descriptor = message->handles[at].descriptor;
            memcpy(CMSG_DATA(header) + at * sizeof(int), &descriptor, sizeof(int));
        }
        CHECK(sendmsg(socket, &whole, 0) == (ssize_t)sizeof *message);
        return;
    }
    CHECK(recvmsg(socket, &whole, 0) == (ssize_t)sizeof *message);
    struct cmsghdr *header = CMSG_FIRSTHDR(&whole);
    CHECK(header != NULL && header->cmsg_type == SCM_RIGHTS);
    for (size_t at = 0; at < message->count; at++) {
        int descriptor;
        memcpy(&descriptor, CMSG_DATA(header) + at * sizeof(int), sizeof(int));
        message->handles[at].descriptor = descriptor;
    }
}

static int all_are(uint64_t at, unsigned char value) {
    static unsigned char seen[BLOCK_BYTES];
    CHECK(cuCtxSynchronize() == 0);
    CHECK(cuMemcpyDtoH_v2(seen, at, BLOCK_BYTES) == 0);
    return seen[0] == value && memcmp(seen, seen + 1, BLOCK_BYTES - 1) == 0;
}

/* Imports what the other process sends. */
static void *import_from(int socket, struct message *message) {
    void *base;
    transfer(socket, message, 0);
    use_device(0);
    OK(drystone_import(0, message->handles, message->count, &base));
    for (size_t at = 0; at < message->count; at++) close(message->handles[at].descriptor);
    return base;
}

static void receive(int socket) {
    struct message message;
    void *base = import_from(socket, &message);
    FAILS(drystone_import(0, message.handles, message.count, &base), DRYSTONE_STATUS_INVALID_VALUE,
          "is no descriptor");
    CHECK(base == NULL);
}

static void answer(int socket) {
    struct message message;
    void *base = import_from(socket, &message);
    uint64_t block = number_of(base) + message.offset;
    CHECK(all_are(block, 77));
    CHECK(cuMemsetD8_v2(block, 78, BLOCK_BYTES) == 0 && cuCtxSynchronize() == 0);
    CHECK(drystone_deallocate(base) == DRYSTONE_STATUS_UNKNOWN_POINTER);
    OK(drystone_close_import(base));
    FAILS(drystone_close_import(base), DRYSTONE_STATUS_UNKNOWN_POINTER, "closed already");
    CHECK(simcuda_physical_bytes(0) == 0);
}

/* A receiver, and the socket that it listens to. */
static pid_t start(void (*work)(int), int is_killed, int *socket) {
    int ends[2];
    CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0);
    *socket = ends[0];
    pid_t child = fork();
    if (child == 0) {
        alarm(60);
        work(ends[1]);
        if (is_killed) kill(getpid(), SIGKILL);
        _exit(0);
    }
    return child;
}

int main(void) {
    CHECK(simcuda_configure("backing:true") == 0);
    int sockets[2], status;
    /* Before CUDA is in use. */
    pid_t good = start(answer, 0, &sockets[0]), killed = start(receive, 1, &sockets[1]);
    struct message message;
    void *small, *block;
    use_device(0);
    OK(drystone_allocate(&small, 700, 0, NULL));
    OK(drystone_allocate(&block, BLOCK_BYTES, 0, NULL));
    CHECK(cuMemsetD8_v2(number_of(block), 77, BLOCK_BYTES) == 0 && cuCtxSynchronize() == 0);
    message.count = HANDLES_MAX;
    OK(drystone_export(block, message.handles, &message.count, &message.offset));
    transfer(sockets[0], &message, 1);
    CHECK(waitpid(good, &status, 0) == good && WIFEXITED(status) && WEXITSTATUS(status) == 0);
    CHECK(all_are(number_of(block), 78));
    transfer(sockets[1], &message, 1);
    CHECK(waitpid(killed, &status, 0) == killed && WIFSIGNALED(status));
    CHECK(all_are(number_of(block), 78));
    OK(drystone_deallocate(block));
    OK(drystone_deallocate(small));
    OK(drystone_trim(0, NULL));
    CHECK(simcuda_physical_bytes(0) == 0);
    still_usable(0);
    return 0;
}
