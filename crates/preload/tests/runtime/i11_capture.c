/* I11: what is asked for on a stream that is being captured is the graph's, and what is asked for
 * beside it is not. */
#include "runtime.h"

int main(void) {
    stream_t captured = new_stream(), other = new_stream();
    void *in_graph, *beside, *before, *graph, *executable;
    OK(cudaMallocAsync(&before, MIB, captured));
    OK(cudaStreamBeginCapture(captured, 2));
    OK(cudaMallocAsync(&in_graph, 8 * MIB, captured));
    CHECK(native_allocations() == 1);
    OK(cudaMallocAsync(&beside, 8 * MIB, other));
    CHECK(native_allocations() == 1 && in_graph != beside);
    OK(cudaFreeAsync(beside, other));
    OK(cudaFreeAsync(in_graph, captured));
    OK(cudaStreamEndCapture(captured, &graph));
    OK(cudaGraphInstantiate(&executable, graph, 0));
    for (int turn = 0; turn < 3; turn++) OK(cudaGraphLaunch(executable, captured));
    OK(cudaFreeAsync(before, captured));
    OK(cudaStreamSynchronize(captured));
    OK(cudaGraphExecDestroy(executable));
    OK(cudaGraphDestroy(graph));
    CHECK(figure(default_pool(0), USED) == 0);
    no_violation(0);
    return 0;
}
