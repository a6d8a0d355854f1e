/* A snapshot replaces what was there once all of it is written, and never what a link leads to. */
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include "abuse.h"

static void write_text(const char *path, const char *text) {
    FILE *file = fopen(path, "w");
    CHECK(file != NULL && fputs(text, file) >= 0 && fclose(file) == 0);
}

static int begins_with(const char *path, const char *text) {
    char read[16] = "";
    FILE *file = fopen(path, "r");
    CHECK(file != NULL && fgets(read, sizeof read, file) != NULL && fclose(file) == 0);
    return strncmp(read, text, strlen(text)) == 0;
}

/* As threads do that run out of memory together. */
static void *write_many(void *unused) {
    (void)unused;
    for (int i = 0; i < 200; i++) {
        OK(drystone_snapshot("both"));
    }
    return NULL;
}

int main(void) {
    char folder[] = "/tmp/drystone-snapshot-XXXXXX";
    CHECK(mkdtemp(folder) != NULL && chdir(folder) == 0);
    use_device(0);
    void *block = drystone_malloc(MIB, 0, NULL);
    CHECK(block != NULL);

    /* There is no room for all of it: the file of before stays, and nothing beside it. */
    write_text("before", "before");
    struct rlimit limit;
    CHECK(getrlimit(RLIMIT_FSIZE, &limit) == 0);
    rlim_t was = limit.rlim_cur;
    limit.rlim_cur = 100;
    CHECK(signal(SIGXFSZ, SIG_IGN) != SIG_ERR && setrlimit(RLIMIT_FSIZE, &limit) == 0);
    CHECK(drystone_snapshot("before") == DRYSTONE_STATUS_FILE_ERROR);
    limit.rlim_cur = was;
    CHECK(setrlimit(RLIMIT_FSIZE, &limit) == 0);
    CHECK(begins_with("before", "before") && unlink("before") == 0);
    CHECK(chdir("/") == 0 && rmdir(folder) == 0 && mkdir(folder, 0700) == 0 && chdir(folder) == 0);

    /* Links that lie in the way, of the name and of the part that is written first. */
    char part[64];
    snprintf(part, sizeof part, "link.%d.part", (int)getpid());
    write_text("other", "other");
    CHECK(symlink("other", "link") == 0 && symlink("other", part) == 0);
    OK(drystone_snapshot("link"));
    struct stat found;
    CHECK(lstat("link", &found) == 0 && S_ISREG(found.st_mode) && found.st_size > 100);
    CHECK(begins_with("other", "other"));
    CHECK(access(part, F_OK) != 0);

    pthread_t other;
    CHECK(pthread_create(&other, NULL, write_many, NULL) == 0);
    write_many(NULL);
    CHECK(pthread_join(other, NULL) == 0 && unlink("both") == 0);

    CHECK(drystone_snapshot("/dev/full") == DRYSTONE_STATUS_FILE_ERROR);
    OK(drystone_snapshot("/dev/null"));
    CHECK(drystone_snapshot("missing/file") == DRYSTONE_STATUS_FILE_ERROR);
    CHECK(unlink("link") == 0 && unlink("other") == 0);
    CHECK(chdir("/") == 0 && rmdir(folder) == 0);
    drystone_free(block, MIB, 0, NULL);
    still_usable(0);
    return 0;
}
