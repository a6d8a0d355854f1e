/* Libraries that are there before Drystone's comes get what it holds unused, and those that come
 * later do, however their functions are bound. What one has looked up before, and what another
 * stands for, stays. FOLDER has libraries. */
#define WAY 1
#include "../driver/driver.h"
#include <pthread.h>

static int (*allocate)(void **, size_t, int, stream_t);
static void (*release)(void *, size_t, int, stream_t);
typedef int asks(const char *, address_t *, size_t);

static void *open_one(const char *name) {
    void *library = dlopen(name, RTLD_LAZY | RTLD_LOCAL);
    if (library == NULL) fprintf(stderr, "%s\n", dlerror());
    CHECK(library != NULL);
    return library;
}

/* What a library is told that asks while most of the device is unused. */
static int told(void *library, const char *how) {
    enum { MOST = 600 };
    void *unused;
    address_t plain;
    OK(allocate(&unused, MOST * MIB, 0, NULL));
    release(unused, MOST * MIB, 0, NULL);
    int code = ((asks *)dlsym(library, "ask"))(how, &plain, MOST * MIB);
    if (code == SUCCESS) OK(cuMemFree_v2(plain));
    return code;
}

/* But by what it has looked up as it was loaded. */
static void gets_it(void *library) {
    OK(told(library, "name"));
    OK(told(library, "table"));
    OK(told(library, "look-up"));
    OK(told(library, "get"));
    CHECK(told(library, "early") == OUT_OF_MEMORY);
}

static void *comes_and_goes(void *path) {
    for (int turn = 0; turn < 300; turn++) {
        void *library = open_one(path);
        Dl_info about;
        void *asked = *(void **)dlsym(library, "table");
        CHECK(dladdr(asked, &about) != 0 && strstr(about.dli_fname, "preload") != NULL);
        CHECK(dlclose(library) == 0);
    }
    return NULL;
}

int main(void) {
    OK(cuInit(0));
    primary(0);
    void *lazy = open_one(FOLDER "/lazy.so"), *now = open_one(FOLDER "/now.so");
    void *others = open_one(FOLDER "/others.so");
    CHECK(setenv("COVERED", getenv("DRYSTONE"), 1) == 0);
    void *plain_open = dlsym(RTLD_DEFAULT, "dlopen");
    load_to_cover();
    *(void **)&allocate = dlsym(RTLD_DEFAULT, "drystone_allocate");
    *(void **)&release = dlsym(RTLD_DEFAULT, "drystone_free");
    gets_it(lazy);
    gets_it(now);
    CHECK(told(others, "name") == 77 && told(others, "table") == 77);
    CHECK(dlsym(RTLD_DEFAULT, "dlopen") == plain_open);

    /* By a path, by a name in the folder of whoever asks, again, and as another needs it. */
    void *later = open_one(FOLDER "/later-now.so");
    gets_it(later);
    CHECK(dlclose(later) == 0);
    gets_it(open_one(FOLDER "/later-now.so"));
    gets_it(open_one("later-lazy.so"));
    CHECK(dlopen(FOLDER "/none.so", RTLD_NOW) == NULL && dlerror() != NULL);
    CHECK(dlopen("none.so", RTLD_NOW) == NULL && dlerror() != NULL);
    CHECK(dlsym(later, "none") == NULL && dlerror() != NULL);

    pthread_t threads[2];
    char *paths[2] = {FOLDER "/turn-lazy.so", FOLDER "/turn-now.so"};
    for (int at = 0; at < 2; at++)
        CHECK(pthread_create(&threads[at], NULL, comes_and_goes, paths[at]) == 0);
    for (int at = 0; at < 2; at++) pthread_join(threads[at], NULL);
    no_violation(0);
    return 0;
}
