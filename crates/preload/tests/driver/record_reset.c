/* What was recorded before a reset of the device, and what is after it. */
#include "driver.h"

int main(void) {
    OK(cuInit(0));
    for (int turn = 0; turn < 2; turn++) {
        primary(0);
        stream_t stream = new_stream();
        address_t block;
        for (int at = 0; at < (turn ? 3 : 4000); at++) {
            OK(cuMemAllocAsync(&block, MIB, stream));
            OK(cuMemFreeAsync(block, stream));
        }
        if (turn == 0) OK(cuDevicePrimaryCtxReset_v2(0));
    }
    return 0;
}
