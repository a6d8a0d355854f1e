// Memory at an address that the program names: a tensor's storage back where it was.
//
// Invariant: what is given was free in the order of the stream that asks. Which memory that is, is
// looked up before it is asked for: a program that names addresses of a pool lets nobody else
// allocate there meanwhile.

#pragma once

#include "allocator.h"

namespace drystone {

// Whether all of a range is free memory of a pool that a stream may use at once.
inline bool is_free_for(
    DeviceIndex device, PoolName pool, cudaStream_t stream, size_t start, size_t end) {
  each_segment(layout_of(device), [&](const drystone_segment& segment, const auto* block) {
    bool is_there = PoolName{segment.id0, segment.id1} == pool;
    for (size_t at = 0; is_there && at < segment.block_count; ++at, ++block) {
      size_t first = number(block->address);
      bool is_usable = !block->is_live && !block->is_pending && block->stream == stream;
      if (is_usable && first <= start && start < first + block->bytes) {
        start = first + block->bytes;
      }
    }
  });
  return start >= end;
}

inline DataPtr Allocator::allocateWithAddress(size_t bytes, void* address) {
  constexpr size_t BLOCK_UNIT = 512;
  TORCH_CHECK(
      number(address) % BLOCK_UNIT == 0, "an exact address must be aligned to kMinBlockSize (",
      BLOCK_UNIT, "): ", address);
  DeviceIndex index = cuda::current_device();
  c10::Device owner(c10::DeviceType::CUDA, index);
  if (bytes == 0) {
    return {nullptr, nullptr, &deallocate, owner};
  }
  Device& device = at(index);
  cudaStream_t stream = own(cuda::getCurrentCUDAStream(index));
  Request request{bytes, stream, device.pools.of(stream), gather(RecordContext::STATE)};
  TORCH_CHECK(
      request.pool != DEFAULT_POOL,
      "an exact address can be had in a memory pool alone: ask for it under use_mem_pool");
  size_t block_bytes = (bytes + BLOCK_UNIT - 1) / BLOCK_UNIT * BLOCK_UNIT;
  size_t start = number(address);
  bool is_free = block_bytes >= bytes &&
      is_free_for(index, request.pool, stream, start, start + block_bytes);
  History::Lock lock = device.history.lock();
  drystone_status status = DRYSTONE_STATUS_INVALID_VALUE;
  if (is_free) {
    status = drystone_allocate_at(
        address, block_bytes, bytes, index, stream, request.pool.first, request.pool.second);
  }
  TORCH_CHECK(
      status == DRYSTONE_STATUS_OK, "cannot allocate ", bytes, " bytes at the exact address ",
      address, ": not all of it is free memory of the pool and stream in use",
      is_free ? std::string(": ") + drystone_last_error_message() : "");
  if (lock) {
    device.history.allocated(address, request, "mallocWithAddress");
  }
  tell_profiler(address, 1, index);
  if (const c10::impl::PyInterpreter* tracer = c10::impl::GPUTrace::get_trace()) {
    (*tracer)->trace_gpu_memory_allocation(c10::kCUDA, start);
  }
  return {address, address, &deallocate, owner};
}

}  // namespace drystone
