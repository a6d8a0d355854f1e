/* B43, B55: two copies of the library in one process know nothing of each other's blocks; and
 * neither dlclose nor exit takes the ground from under live blocks. Arguments: the two files. */
#include <dlfcn.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef void *(*malloc_fn)(ptrdiff_t, int, void *);
typedef void (*free_fn)(void *, ptrdiff_t, int, void *);
typedef int (*deallocate_fn)(void *);

static deallocate_fn deallocate_at_exit;
static void *kept;

static void at_exit(void) {
    if (deallocate_at_exit(kept) != 0) _Exit(9);
}

static void *symbol(void *library, const char *name) {
    void *found = dlsym(library, name);
    if (found == NULL) exit(8);
    return found;
}

int main(int count, char **arguments) {
    if (count != 3) return 2;
    void *one = dlopen(arguments[1], RTLD_NOW | RTLD_LOCAL);
    void *two = dlopen(arguments[2], RTLD_NOW | RTLD_LOCAL);
    if (one == NULL || two == NULL || one == two) return 3;
    void *first = ((malloc_fn)symbol(one, "drystone_malloc"))(4000, 0, NULL);
    void *second = ((malloc_fn)symbol(two, "drystone_malloc"))(4000, 0, NULL);
    if (first == NULL || second == NULL || first == second) return 4;
    if (((deallocate_fn)symbol(two, "drystone_deallocate"))(first) != 5) return 5;
    ((free_fn)symbol(one, "drystone_free"))(second, 4000, 0, NULL);
    printf("drystone: drystone_free: %p is not an address of this allocator\n", second);
    free_fn free_first = (free_fn)symbol(one, "drystone_free");
    deallocate_at_exit = (deallocate_fn)symbol(two, "drystone_deallocate");
    kept = second;
    atexit(at_exit);
    /* The code stays, whoever still calls it; opened again it is the same. */
    for (int time = 0; time < 3; time++)
        if (dlclose(one) != 0 || (one = dlopen(arguments[1], RTLD_NOW)) == NULL) return 6;
    if (dlclose(one) != 0 || dlclose(two) != 0) return 7;
    free_first(first, 4000, 0, NULL);
    return 0;
}
