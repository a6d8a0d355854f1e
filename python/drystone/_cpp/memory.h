// Allocating and freeing: the way of every tensor.
//
// Invariant: no lock is held while contexts are gathered, callbacks asked or observers told, since
// they may take Python's lock.

#pragma once

#include <c10/cuda/CUDAGraphsC10Utils.h>

#include "allocator.h"

namespace drystone {

// The deleter of every tensor. Must not throw: tensors end in destructors.
inline void deallocate(void* address) {
  drystone_status status = Allocator::get().give(address);
  // A forked child, or an ending process, leaves everything as it is.
  if (status != DRYSTONE_STATUS_OK && status != DRYSTONE_STATUS_FORKED &&
      status != DRYSTONE_STATUS_EXITING) {
    TORCH_WARN("drystone: ", drystone_last_error_message());
  }
}

// The deleter of tensors that were made while caching was off.
inline void deallocate_uncached(void* address) {
  if (const c10::impl::PyInterpreter* tracer = c10::impl::GPUTrace::get_trace()) {
    (*tracer)->trace_gpu_memory_deallocation(c10::kCUDA, number(address));
  }
  cudaError_t error = cudaFree(address);
  // At exit the driver may be gone already.
  if (error != cudaSuccess && error != cudaErrorCudartUnloading) {
    (void)cudaGetLastError();
    TORCH_WARN("drystone: cudaFree: ", cudaGetErrorString(error));
  }
}

inline Allocator& Allocator::get() {
  // Never destroyed: tensors end at any time.
  static Allocator* allocator = new Allocator();
  return *allocator;
}

inline Device& Allocator::at(DeviceIndex index) {
  bool is_valid = index >= 0 && index < device_count_.load(std::memory_order_acquire);
  TORCH_CHECK(
      is_valid, "Allocator not initialized for device ", static_cast<int>(index),
      ": did you call init?");
  return *devices_[static_cast<size_t>(index)].load(std::memory_order_acquire);
}

inline DataPtr Allocator::allocate(size_t bytes) {
  DeviceIndex device = 0;
  C10_CUDA_CHECK(cuda::GetDevice(&device));
  void* address = nullptr;
  c10::DeleterFnPtr deleter = &deallocate;
  if (bytes != 0 && !is_caching_) {
    address = take_uncached(bytes);
    deleter = &deallocate_uncached;
  } else if (bytes != 0) {
    address = take(bytes, device, own(cuda::getCurrentCUDAStream(device)));
  }
  return {address, address, deleter, c10::Device(c10::DeviceType::CUDA, device)};
}

inline c10::DeleterFnPtr Allocator::raw_deleter() const {
  return is_caching_ ? &deallocate : &deallocate_uncached;
}

inline void* Allocator::raw_alloc(size_t bytes) {
  if (bytes == 0) {
    return nullptr;
  }
  cuda::CUDAStream stream = cuda::getCurrentCUDAStream(cuda::current_device());
  return raw_alloc_with_stream(bytes, own(stream));
}

// PyTorch's own streams are never destroyed, so the driver may be asked about them at any time. Their
// ids are odd; that of another is its handle, and the default stream's is 0.
inline cudaStream_t Allocator::own(cuda::CUDAStream stream) {
  cudaStream_t handle = stream.stream();
  auto id = static_cast<uint64_t>(stream.id());
  if (id % 2 == 1) {
    DeviceIndex index = stream.device_index();
    auto& kept = at(index).kept_streams;
    auto& is_kept = kept[id / 2 % kept.size()];
    if (C10_UNLIKELY(!is_kept.load(std::memory_order_relaxed))) {
      // Where it fails, so will what comes next, and that says so.
      is_kept = drystone_add_stream(index, handle) == DRYSTONE_STATUS_OK;
    }
  }
  return handle;
}

inline void* Allocator::raw_alloc_with_stream(size_t bytes, cudaStream_t stream) {
  if (bytes == 0) {
    return nullptr;
  }
  return is_caching_ ? take(bytes, cuda::current_device(), stream) : take_uncached(bytes);
}

inline void Allocator::raw_delete(void* address) {
  drystone_block known{};
  if (!is_caching_ && drystone_block_at(address, &known) == DRYSTONE_STATUS_UNKNOWN_POINTER) {
    return deallocate_uncached(address);
  }
  drystone_status status = give(address);
  TORCH_CHECK(
      status != DRYSTONE_STATUS_UNKNOWN_POINTER, "invalid device pointer: ", address);
  if (status != DRYSTONE_STATUS_FORKED) {
    check(status);
  }
}

inline void* Allocator::take(size_t bytes, DeviceIndex index, cudaStream_t stream) {
  Device& device = at(index);
  void* address = nullptr;
  if (C10_UNLIKELY(device.is_watched())) {
    address = take_watched(device, bytes, stream, Refusal{});
  } else if (C10_UNLIKELY(drystone_allocate(&address, bytes, index, stream) != 0)) {
    address = take_watched(device, bytes, stream, last_refusal());
  }
  if (C10_UNLIKELY(!device.is_used.load(std::memory_order_relaxed))) {
    device.is_used = true;
  }
  if (C10_UNLIKELY(c10::memoryProfilingEnabled())) {
    tell_profiler(address, 1, index);
  }
  if (const c10::impl::PyInterpreter* tracer = c10::impl::GPUTrace::get_trace()) {
    (*tracer)->trace_gpu_memory_allocation(c10::kCUDA, number(address));
  }
  return address;
}

// Memory of the driver's own, in no figure, as PyTorch's allocator gives it while caching is off.
inline void* Allocator::take_uncached(size_t bytes) {
  void* address = nullptr;
  cudaError_t error = cudaMalloc(&address, bytes);
  if (error == cudaErrorMemoryAllocation) {
    (void)cudaGetLastError();
    TORCH_CHECK_WITH(
        OutOfMemoryError, false, "CUDA out of memory. Tried to allocate ", bytes,
        " bytes with caching turned off.");
  }
  C10_CUDA_CHECK(error);
  if (const c10::impl::PyInterpreter* tracer = c10::impl::GPUTrace::get_trace()) {
    (*tracer)->trace_gpu_memory_allocation(c10::kCUDA, number(address));
  }
  return address;
}

// A request that is told of, goes to a pool, or was refused once, which is not tried again.
inline void* Allocator::take_watched(
    Device& device, size_t bytes, cudaStream_t stream, Refusal refusal) {
  constexpr size_t ONE_EXABYTE = 1152921504606846976ULL;
  TORCH_CHECK_WITH(
      OutOfMemoryError, bytes < ONE_EXABYTE,
      "CUDA out of memory. Tried to allocate more than 1EB memory.");
  Request request{bytes, stream, device.pools.of(stream), gather(RecordContext::STATE)};
  for (bool is_last = false;; is_last = true) {
    if (void* address = attempt(device, request, refusal)) {
      return address;
    }
    bool has_freed = false;
    if (refusal.is_memory() && !is_last) {
      for (const auto& name : c10::FreeCudaMemoryCallbacksRegistry()->Keys()) {
        has_freed |= c10::FreeCudaMemoryCallbacksRegistry()->Create(name)->Execute();
      }
    }
    if (!has_freed) {
      refuse(device, request, refusal);
    }
    refusal = Refusal{};
  }
}

// Null if there is no memory, also not in pools that serve others out of memory; then the refusal
// says why. Where it does so before, those pools alone are asked.
inline void* Allocator::attempt(Device& device, const Request& request, Refusal& refusal) {
  History::Lock lock = device.history.lock();
  device.trackers.begin();
  Request served = request;
  Trackers::Serving serving(served);
  void* address = nullptr;
  auto from = [&](PoolName pool) {
    drystone_status status = drystone_allocate_from_pool(
        &address, request.bytes, device.index, request.stream, pool.first, pool.second);
    if (status != DRYSTONE_STATUS_OK) {
      refusal = last_refusal();
    }
    return status;
  };
  if (refusal.status == DRYSTONE_STATUS_OK) {
    from(request.pool);
  }
  if (refusal.status == DRYSTONE_STATUS_OUT_OF_MEMORY && request.pool == DEFAULT_POOL) {
    std::vector<PoolName> spares = device.pools.spare();
    for (PoolName spare : spares) {
      served.pool = spare;
      if (from(spare) == DRYSTONE_STATUS_OK) {
        break;
      }
    }
    if (address == nullptr && !spares.empty()) {
      // What is told is of the pool that was asked.
      served.pool = request.pool;
      from(request.pool);
    }
  }
  if (HAS_POOL_FIGURES && served.pool != DEFAULT_POOL) {
    device.pool_figures.requested();
  }
  if (lock && address != nullptr) {
    device.trackers.given(number(address), served);
    device.history.allocated(address, served);
  } else if (lock) {
    device.history.settle(request.context);
  }
  return address;
}

inline void Allocator::refuse(
    Device& device, const Request& request, const Refusal& refusal) {
  TORCH_CHECK(refusal.is_memory(), "drystone: ", refusal.cause);
  // Asked first: what follows may fail, too. Who holds memory is told from a snapshot, which is
  // none of the program's.
  ++device.looks_of_ours;
  std::string text = shortage_text(device.index, request.bytes, refusal);
  --device.looks_of_ours;
  drystone_stats stats = stats_of(device.index);
  size_t free_bytes = 0;
  size_t total_bytes = stats.device_bytes;
  {
    c10::DeviceGuard guard({c10::DeviceType::CUDA, device.index});
    // A capture may forbid the question to a restricted thread.
    cuda::CUDAStreamCaptureModeGuard relaxed(cudaStreamCaptureModeRelaxed);
    if (cudaMemGetInfo(&free_bytes, &total_bytes) != cudaSuccess) {
      // Else the next kernel would be blamed for it.
      (void)cudaGetLastError();
    }
  }
  auto allowed_bytes = static_cast<size_t>(device.fraction * static_cast<double>(total_bytes));
  if (is_rejecting() && stats.allocated_bytes.current + request.bytes > allowed_bytes) {
    ++device.rejections;
    for (const auto& observer : copy_of(rejection_observers_)) {
      observer(device.index, request.bytes, stats.reserved_bytes.current, total_bytes);
    }
    TORCH_CHECK_WITH(
        OutOfMemoryError, false, text, " It was rejected because it would exceed the limit of "
        "per_process_memory_fraction (throw_on_cudamalloc_oom).");
  }
  ++device.refusals;
  device.history.refused(request, free_bytes);
  c10::reportOutOfMemoryToProfiler(
      static_cast<int64_t>(request.bytes), stats.allocated_bytes.current,
      stats.reserved_bytes.current, c10::Device(c10::DeviceType::CUDA, device.index));
  for (const auto& observer : copy_of(observers_)) {
    observer(device.index, request.bytes, allowed_bytes, free_bytes);
  }
  TORCH_CHECK_WITH(OutOfMemoryError, false, text);
}

// They are called without the lock.
template <class Observer>
std::vector<Observer> Allocator::copy_of(const std::vector<Observer>& observers) {
  std::lock_guard<std::mutex> lock(mutex_);
  return observers;
}

inline drystone_status Allocator::give(void* address) {
  if (address == nullptr) {
    return DRYSTONE_STATUS_OK;
  }
  if (const c10::impl::PyInterpreter* tracer = c10::impl::GPUTrace::get_trace()) {
    (*tracer)->trace_gpu_memory_deallocation(c10::kCUDA, number(address));
  }
  drystone_status status = DRYSTONE_STATUS_OK;
  bool is_watched = watched_histories_.load(std::memory_order_acquire) > 0;
  if (C10_UNLIKELY(is_watched || c10::memoryProfilingEnabled())) {
    status = give_watched(address);
  } else {
    status = drystone_deallocate(address);
  }
  return status;
}

inline drystone_status Allocator::give_watched(void* address) {
  drystone_block block{};
  drystone_status status = drystone_block_at(address, &block);
  if (status != DRYSTONE_STATUS_OK) {
    return status;
  }
  auto index = static_cast<DeviceIndex>(block.device);
  Device& device = at(index);
  if (device.history.is_wanted()) {
    Context context = gather(RecordContext::ALL);
    History::Lock lock = device.history.lock();
    device.history.frees(block, context);
    status = drystone_deallocate(address);
    device.history.settle(context);
  } else {
    status = drystone_deallocate(address);
  }
  tell_profiler(address, -static_cast<int64_t>(block.bytes), index);
  return status;
}

// Bytes above 0 stand for those of the block.
inline void Allocator::tell_profiler(void* address, int64_t bytes, DeviceIndex device) {
  if (!c10::memoryProfilingEnabled()) {
    return;
  }
  drystone_block block{};
  if (bytes > 0 && drystone_block_at(address, &block) == DRYSTONE_STATUS_OK) {
    bytes = static_cast<int64_t>(block.bytes);
  }
  drystone_stats stats = stats_of(device);
  c10::reportMemoryUsageToProfiler(
      address, bytes, stats.allocated_bytes.current, stats.reserved_bytes.current,
      c10::Device(c10::DeviceType::CUDA, device));
}

inline Context Allocator::gather(RecordContext least) {
  CreateContextFn make = make_context_.load();
  return make != nullptr && contexts_.load() >= least ? make() : nullptr;
}

inline void Allocator::recordStream(const DataPtr& data, cuda::CUDAStream stream) {
  // PyTorch asks it of everything, also of what is not this allocator's.
  if (data.get() == nullptr || data.get_deleter() != &deallocate) {
    return;
  }
  check(drystone_record_use(data.get(), own(stream)));
}

inline void Allocator::copy_data(void* to, const void* from, size_t bytes) const {
  C10_CUDA_CHECK(cudaMemcpy(to, from, bytes, cudaMemcpyDeviceToDevice));
}

inline void* Allocator::getBaseAllocation(void* address, size_t* bytes) {
  size_t size = 0;
  void* base = drystone_base_allocation(address, &size);
  TORCH_CHECK(base != nullptr, "invalid device pointer: ", address);
  if (bytes != nullptr) {
    *bytes = size;
  }
  return base;
}

}  // namespace drystone
