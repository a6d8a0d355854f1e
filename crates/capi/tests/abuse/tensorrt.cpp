/* TensorRT's allocator over Drystone, by the part of TensorRT's interface that it implements. */
#include "abuse.h"

#include <cstdint>

namespace nvinfer1 {
using AllocatorFlags = uint32_t;

class IGpuAsyncAllocator {
public:
    virtual ~IGpuAsyncAllocator() = default;
    virtual void *allocateAsync(uint64_t const size, uint64_t const alignment,
                                AllocatorFlags const flags, CUstream_st *stream) noexcept = 0;
    virtual bool deallocateAsync(void *const memory, CUstream_st *stream) noexcept = 0;
};
} // namespace nvinfer1

#include "drystone_tensorrt.hpp"

int main() {
    use_device(0);
    drystone::TensorRtAllocator ours(0);
    nvinfer1::IGpuAsyncAllocator &allocator = ours;
    CHECK(allocator.allocateAsync(0, 256, 0, nullptr) == nullptr);
    CHECK(allocator.allocateAsync(1000, 1024, 0, nullptr) == nullptr);
    CHECK(allocator.allocateAsync(uint64_t(1) << 50, 256, 0, nullptr) == nullptr);

    void *block = allocator.allocateAsync(40 * MIB, 256, 0, nullptr);
    CHECK(block != nullptr && number_of(block) % 512 == 0);
    CHECK(allocator.deallocateAsync(block, nullptr));
    printf("drystone: drystone_record_stream: %p is free already\n", block);
    CHECK(!allocator.deallocateAsync(block, nullptr));
    /* A block that was used on another stream waits for that. */
    CUstream_st *other = new_stream();
    block = allocator.allocateAsync(40 * MIB, 256, 0, nullptr);
    CHECK(allocator.deallocateAsync(block, other));
    still_usable(0);
    return 0;
}
