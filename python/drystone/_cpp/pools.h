// Private pools of a device, by PyTorch's names: who uses them, and which requests they take.
//
// Invariant: a pool of Drystone's is there from the first time that it takes requests until its last
// use here ends.

#pragma once

#include <atomic>
#include <functional>
#include <map>
#include <mutex>

#include <c10/core/DeviceGuard.h>
#include <c10/cuda/CUDAException.h>
#include <cuda_runtime_api.h>
#include <dlfcn.h>

#include "library.h"

namespace drystone {

using Filter = std::function<bool(cudaStream_t)>;

// Where a pool's memory comes from if it is not Drystone's to get: another allocator, or if that is
// null `cudaMalloc`. Lives as long as the process.
struct Origin {
  DeviceIndex device;
  Other allocator;
};

inline void* allocate_from(void* origin, size_t bytes) {
  auto* from = static_cast<Origin*>(origin);
  try {
    c10::DeviceGuard guard({c10::DeviceType::CUDA, from->device});
    if (from->allocator != nullptr) {
      return from->allocator->raw_alloc(bytes);
    }
    void* address = nullptr;
    C10_CUDA_CHECK(cudaMalloc(&address, bytes));
    return address;
  } catch (const std::exception&) {
    // Drystone goes on as where there is no memory.
    return nullptr;
  }
}

inline void free_to(void* origin, void* address, size_t) {
  auto* to = static_cast<Origin*>(origin);
  try {
    c10::DeviceGuard guard({c10::DeviceType::CUDA, to->device});
    if (to->allocator != nullptr) {
      to->allocator->raw_delete(address);
    } else {
      C10_CUDA_CHECK(cudaFree(address));
    }
  } catch (const std::exception& error) {
    TORCH_WARN("drystone: a pool's memory was not taken back: ", error.what());
  }
}

// Whether a preloaded library stands before the runtime's `cudaMalloc`, to do something to memory
// that a private pool gets: torch_memory_saver's way to have it paused.
inline bool is_runtime_interposed() {
  Dl_info found{};
  auto* known = reinterpret_cast<void*>(&cudaMalloc);
  if (dladdr(known, &found) == 0 || found.dli_fname == nullptr) {
    return false;
  }
  std::string path = found.dli_fname;
  std::string name = path.substr(path.rfind('/') + 1);
  return name.rfind("libcudart", 0) != 0 && name.rfind("libdrystone", 0) != 0;
}

class Pools {
 public:
  explicit Pools(DeviceIndex device) : device_(device) {}

  // One use more of a pool, over another allocator if that is not null.
  void acquire(PoolName name, Other origin = nullptr) {
    Lock lock(mutex_);
    Pool& pool = pools_[name];
    ++pool.uses;
    if (origin != nullptr) {
      pool.origin = std::move(origin);
    }
  }

  // One use less. With the last one its memory goes back as far as it is free.
  void release(PoolName name) {
    Lock lock(mutex_);
    auto found = pools_.find(name);
    TORCH_CHECK(found != pools_.end(), "releasePool: there is no pool ", text(name));
    if (--found->second.uses > 0) {
      return;
    }
    bool is_made = found->second.is_made;
    pools_.erase(found);
    if (!is_made) {
      return;
    }
    // At exit nothing is left to release.
    drystone_status status = drystone_pool_destroy(device_, name.first, name.second);
    if (status != DRYSTONE_STATUS_OK && status != DRYSTONE_STATUS_EXITING &&
        status != DRYSTONE_STATUS_FORKED) {
      // Pools end in destructors. What is left of this one goes with later trims.
      TORCH_WARN("drystone: not all of a pool's memory went back: ", drystone_last_error_message());
    }
  }

  int uses(PoolName name) {
    Lock lock(mutex_);
    auto found = pools_.find(name);
    return found == pools_.end() ? 0 : found->second.uses;
  }

  // From now on the pool takes the requests of streams that the filter says yes to.
  void begin(PoolName name, Filter filter) {
    Lock lock(mutex_);
    for (const Route& route : routes_) {
      TORCH_CHECK(
          route.pool != name, "beginAllocateToPool: already recording to mempool_id ", text(name));
    }
    acquire(name, origin_of(name));
    make(name);
    routes_.push_back({name, std::move(filter)});
    route_count_.store(routes_.size(), std::memory_order_release);
  }

  void end(PoolName name) {
    Lock lock(mutex_);
    for (auto route = routes_.begin(); route != routes_.end(); ++route) {
      if (route->pool == name) {
        routes_.erase(route);
        route_count_.store(routes_.size(), std::memory_order_release);
        return;
      }
    }
    TORCH_CHECK(false, "endAllocatePool: not currently recording to mempool_id ", text(name));
  }

  bool take_requests() const {
    return route_count_.load(std::memory_order_acquire) > 0;
  }

  // The pool that takes a stream's requests: the last that began to and whose filter says yes.
  PoolName of(cudaStream_t stream) {
    if (!take_requests()) {
      return DEFAULT_POOL;
    }
    Lock lock(mutex_);
    for (auto route = routes_.rbegin(); route != routes_.rend(); ++route) {
      if (route->takes(stream)) {
        return route->pool;
      }
    }
    return DEFAULT_POOL;
  }

  // Whether unused memory of a pool serves requests for which there is no other.
  void set_spare(PoolName name, bool is_spare) {
    Lock lock(mutex_);
    pools_[name].is_spare = is_spare;
  }

  // No two blocks of a pool share a segment. PyTorch says so before the pool has any memory.
  void set_unsplit(PoolName name) {
    Lock lock(mutex_);
    Pool& pool = pools_[name];
    TORCH_CHECK(!pool.is_made, "pool ", text(name), " has split segments already");
    pool.is_split = false;
  }

  std::vector<PoolName> spare() {
    Lock lock(mutex_);
    std::vector<PoolName> names;
    for (const auto& [name, pool] : pools_) {
      if (pool.is_spare && pool.is_made) {
        names.push_back(name);
      }
    }
    return names;
  }

 private:
  using Lock = std::lock_guard<std::recursive_mutex>;

  struct Pool {
    int uses = 0;
    Other origin;
    bool is_made = false;
    bool is_split = true;
    bool is_spare = false;
  };

  struct Route {
    PoolName pool;
    Filter filter;

    bool takes(cudaStream_t stream) const {
      return !filter || filter(stream);
    }
  };

  // The lock is held.
  void make(PoolName name) {
    Pool& pool = pools_.at(name);
    if (pool.is_made) {
      return;
    }
    bool has_origin = pool.origin != nullptr || is_runtime_interposed();
    auto* allocate = has_origin ? &allocate_from : nullptr;
    auto* free = has_origin ? &free_to : nullptr;
    auto* origin = has_origin ? new Origin{device_, pool.origin} : nullptr;
    if (has_origin || !pool.is_split) {
      unsigned flags = pool.is_split ? 0 : DRYSTONE_POOL_UNSPLIT;
      check(drystone_pool_create_plain(
          device_, name.first, name.second, allocate, free, origin, flags));
    } else {
      check(drystone_pool_create(device_, name.first, name.second));
    }
    pool.is_made = true;
  }

  static std::string text(PoolName name) {
    return c10::str("(", name.first, ", ", name.second, ")");
  }

  const DeviceIndex device_;
  // Filters may ask for streams and devices, but not for pools.
  std::recursive_mutex mutex_;
  std::map<PoolName, Pool> pools_;
  std::vector<Route> routes_;
  std::atomic<size_t> route_count_{0};
};

}  // namespace drystone
