/* Eight devices, and 64 pools and 64 streams on each, with a small and a large block for each pool
 * and stream: the addresses of the process are enough, and all are given back. */
#include "abuse.h"

int simcuda_configure(const char *conf);
uint64_t simcuda_physical_bytes(int device);
int cuCtxSynchronize(void);

enum { DEVICES = 8, POOLS = 64, STREAMS = 64 };

static void *blocks[POOLS][STREAMS][2];

static void fill(int device, stream_t streams[STREAMS]) {
    for (int pool = 0; pool < POOLS; pool++) {
        OK(drystone_pool_create(device, 1, pool));
        for (int at = 0; at < STREAMS; at++) {
            void **both = blocks[pool][at];
            OK(drystone_allocate_from_pool(&both[0], MIB, device, streams[at], 1, pool));
            OK(drystone_allocate_from_pool(&both[1], 16 * MIB, device, streams[at], 1, pool));
        }
    }
}

static void give_back(int device) {
    for (int pool = 0; pool < POOLS; pool++) {
        for (int at = 0; at < STREAMS; at++)
            for (int of = 0; of < 2; of++) OK(drystone_deallocate(blocks[pool][at][of]));
        OK(drystone_pool_destroy(device, 1, pool));
    }
    CHECK(cuCtxSynchronize() == 0);
    OK(drystone_trim(device, NULL));
    CHECK(simcuda_physical_bytes(device) == 0);
}

int main(void) {
    static stream_t streams[STREAMS];
    /* Half of what a process has. */
    CHECK(simcuda_configure("devices:8,memory:80GiB,address_space:64TiB,oracle:false") == 0);
    for (int device = 0; device < DEVICES; device++) {
        use_device(device);
        for (int at = 0; at < STREAMS; at++) streams[at] = new_stream();
        fill(device, streams);
    }
    OK(drystone_check(DEVICES - 1));
    give_back(DEVICES - 1);
    return 0;
}
