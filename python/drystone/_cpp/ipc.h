// Memory of another process, by the handles that PyTorch sends.

#pragma once

#include <c10/core/DeviceGuard.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAFunctions.h>

#include <cstring>
#include <map>
#include <memory>
#include <mutex>

#include "library.h"

namespace drystone {

// The handle of the allocation that an address lies in. Every version of PyTorch takes it as bare
// bytes.
inline caching::ShareableHandle share(void* address) {
  size_t bytes = 0;
  void* base = drystone_base_allocation(address, &bytes);
  TORCH_CHECK(base != nullptr, "drystone: ", drystone_last_error_message());
  cudaIpcMemHandle_t handle;
  cudaError_t error = cudaIpcGetMemHandle(&handle, base);
  if (error != cudaSuccess) {
    (void)cudaGetLastError();
    TORCH_CHECK(
        false, "this memory cannot be shared with another process (", cudaGetErrorString(error),
        "): the driver shares only what cudaMalloc gave; enable drystone with "
        "backend=\"malloc\", or send a copy on the CPU");
  }
  std::string text(handle.reserved, sizeof handle.reserved);
  return {static_cast<char*>(address) - static_cast<char*>(base), std::move(text)};
}

// Memory of other processes, opened once while anybody uses it.
class Imports {
 public:
  std::shared_ptr<void> open(const std::string& handle) {
    std::lock_guard<std::mutex> lock(mutex_);
    auto known = open_.find(handle);
    if (known != open_.end()) {
      if (auto memory = known->second.lock()) {
        return memory;
      }
    }
    DeviceIndex device = c10::cuda::current_device();
    void* address = nullptr;
    C10_CUDA_CHECK(
        cudaIpcOpenMemHandle(&address, parse(handle), cudaIpcMemLazyEnablePeerAccess));
    auto close = [this, handle, device](void* opened) {
      c10::DeviceGuard guard({c10::DeviceType::CUDA, device});
      std::lock_guard<std::mutex> lock(mutex_);
      (void)cudaIpcCloseMemHandle(opened);
      auto found = open_.find(handle);
      if (found != open_.end() && found->second.expired()) {
        open_.erase(found);
      }
    };
    std::shared_ptr<void> memory(address, close);
    open_[handle] = memory;
    return memory;
  }

 private:
  // Bare, or behind a version and the letter of its kind.
  static cudaIpcMemHandle_t parse(const std::string& text) {
    cudaIpcMemHandle_t handle;
    size_t bytes = sizeof handle.reserved;
    bool is_bare = text.size() == bytes;
    bool is_marked = text.size() == bytes + 2 && text[1] == 'c';
    TORCH_CHECK(
        is_bare || is_marked,
        "the handle of another process's memory is not that of an allocation: run the sender "
        "with drystone's backend=\"malloc\", or without expandable segments");
    std::memcpy(handle.reserved, text.data() + (is_bare ? 0 : 2), bytes);
    return handle;
  }

  std::mutex mutex_;
  std::map<std::string, std::weak_ptr<void>> open_;
};

}  // namespace drystone
