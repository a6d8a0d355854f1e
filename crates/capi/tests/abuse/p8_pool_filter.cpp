/* P8, B26: PyTorch's way with pools: a std::function that lives only during the call says which
 * streams' requests a pool takes. What it throws comes out of the request. */
#include "abuse.h"

#include <functional>
#include <memory>
#include <stdexcept>

static void begin(stream_t wanted, std::shared_ptr<int> alive) {
    std::function<bool(stream_t)> filter = [wanted, alive](stream_t stream) {
        return *alive == 7 && stream == wanted;
    };
    drystone_begin_allocate_to_pool(0, 5, 6, &filter);
}

int main() {
    use_device(0);
    stream_t wanted = new_stream(), other = new_stream();
    auto alive = std::make_shared<int>(7);
    begin(wanted, alive);
    CHECK(alive.use_count() == 2); /* The library's copy. */
    void *inside = drystone_malloc(3 * MIB, 0, wanted);
    void *outside = drystone_malloc(3 * MIB, 0, other);
    void *base = drystone_base_allocation(inside, nullptr);
    CHECK(base != nullptr && base != drystone_base_allocation(outside, nullptr));
    drystone_end_allocate_to_pool(0, 5, 6);
    CHECK(alive.use_count() == 1);
    drystone_free(inside, 3 * MIB, 0, wanted);
    /* Free again, but the pool's: nobody else is served from it. */
    void *after = drystone_malloc(3 * MIB, 0, wanted);
    CHECK(after != inside && drystone_base_allocation(after, nullptr) != base);
    void *more;
    OK(drystone_allocate_from_pool(&more, 3 * MIB, 0, wanted, 5, 6));
    CHECK(more == inside);

    std::function<bool(stream_t)> empty; /* Stands for every stream. */
    drystone_begin_allocate_to_pool(0, 5, 6, &empty);
    CHECK(drystone_base_allocation(drystone_malloc(3 * MIB, 0, other), nullptr) !=
          drystone_base_allocation(outside, nullptr));
    begin(wanted, alive);
    drystone_release_pool(0, 5, 6);
    drystone_release_pool(0, 5, 6);
    CHECK(alive.use_count() == 2); /* Three began. */
    drystone_release_pool(0, 5, 6);
    CHECK(alive.use_count() == 1); /* Released: it takes no more requests. */
    CHECK(drystone_last_error() == DRYSTONE_STATUS_OK);

    std::function<bool(stream_t)> throws = [](stream_t) -> bool {
        throw std::runtime_error("an error of CUDA's");
    };
    drystone_begin_allocate_to_pool(0, 8, 9, &throws);
    for (int time = 0; time < 3; time++) {
        bool has_thrown = false;
        try {
            (void)(time < 2 ? drystone_malloc(MIB, 0, wanted) : drystone_torch_malloc(MIB, 0, wanted));
        } catch (const std::runtime_error &error) {
            has_thrown = strcmp(error.what(), "an error of CUDA's") == 0;
        }
        CHECK(has_thrown);
    }
    drystone_end_allocate_to_pool(0, 8, 9);
    drystone_release_pool(0, 8, 9);
    CHECK(drystone_last_error() == DRYSTONE_STATUS_OK);
    still_usable(0);
    return 0;
}
