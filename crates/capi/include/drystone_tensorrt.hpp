/*
 * TensorRT's memory from Drystone, for TensorRT 10 and later: link with drystone.
 *
 *     #include <NvInfer.h>
 *     #include <drystone_tensorrt.hpp>
 *
 *     drystone::TensorRtAllocator allocator(0);   // of device 0; outlives all that use it
 *     runtime->setGpuAllocator(&allocator);       // or a builder's, or an execution context's
 */
#ifndef DRYSTONE_TENSORRT_HPP
#define DRYSTONE_TENSORRT_HPP

#include <cstddef>
#include <cstdint>

#include "drystone.h"

namespace drystone {

/** What TensorRT calls for memory of one device. Any thread; a refusal is null, as it wants. */
class TensorRtAllocator : public nvinfer1::IGpuAsyncAllocator {
public:
    explicit TensorRtAllocator(int device) noexcept : device_(device) {}

    void *allocateAsync(uint64_t const size, uint64_t const alignment,
                        nvinfer1::AllocatorFlags const, CUstream_st *stream) noexcept override {
        void *ptr = nullptr;
        if (alignment > kAlignment) {
            return nullptr;
        }
        drystone_allocate(&ptr, static_cast<size_t>(size), device_, stream);
        return ptr;
    }

    /** Freed in the order of the stream it was allocated on, and behind this one. */
    bool deallocateAsync(void *const ptr, CUstream_st *stream) noexcept override {
        drystone_record_stream(ptr, stream);
        return drystone_deallocate(ptr) == DRYSTONE_STATUS_OK;
    }

private:
    /* Every block begins at a multiple of it. */
    static constexpr uint64_t kAlignment = 512;
    int const device_;
};

} // namespace drystone

#endif
