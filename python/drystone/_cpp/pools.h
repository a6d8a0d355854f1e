// Private pools of a device, by PyTorch's names: who uses them, and which requests they take.
//
// Invariant: a pool of Drystone's has one use while the pool here has any.

#pragma once

#include <atomic>
#include <functional>
#include <map>
#include <mutex>
#include <set>

#include <c10/core/DeviceGuard.h>

#include "library.h"

namespace drystone {

using Filter = std::function<bool(cudaStream_t)>;
using Other = std::shared_ptr<c10::cuda::CUDACachingAllocator::CUDAAllocator>;

// Where a pool's memory comes from if it is not Drystone's to get. Lives as long as the process.
struct Origin {
  DeviceIndex device;
  Other allocator;
};

inline void* supply(void* origin, size_t bytes) {
  auto* from = static_cast<Origin*>(origin);
  try {
    c10::DeviceGuard guard({c10::DeviceType::CUDA, from->device});
    return from->allocator->raw_alloc(bytes);
  } catch (const std::exception&) {
    // Drystone goes on as where there is no memory.
    return nullptr;
  }
}

inline void take_back(void* origin, void* address, size_t) {
  auto* to = static_cast<Origin*>(origin);
  try {
    c10::DeviceGuard guard({c10::DeviceType::CUDA, to->device});
    to->allocator->raw_delete(address);
  } catch (const std::exception& error) {
    TORCH_WARN("drystone: a pool's memory was not taken back: ", error.what());
  }
}

class Pools {
 public:
  explicit Pools(DeviceIndex device) : device_(device) {}

  // One use more of a pool, which is made if it is not there, over another allocator if that is
  // not null.
  void acquire(PoolName name, const Other& other = nullptr) {
    Lock lock(mutex_);
    if (uses_.count(name) == 0 && other == nullptr) {
      check(drystone_pool_create(device_, name.first, name.second));
    } else if (uses_.count(name) == 0) {
      auto* origin = new Origin{device_, other};
      check(drystone_pool_create_over(
          device_, name.first, name.second, &supply, &take_back, origin));
    }
    ++uses_[name];
  }

  // One use less. With the last one its memory goes back as far as it is free.
  void release(PoolName name) {
    Lock lock(mutex_);
    auto found = uses_.find(name);
    TORCH_CHECK(found != uses_.end(), "releasePool: there is no pool ", text(name));
    if (--found->second > 0) {
      return;
    }
    uses_.erase(found);
    spare_.erase(name);
    // At exit nothing is left to release.
    drystone_status status = drystone_pool_destroy(device_, name.first, name.second);
    if (status != DRYSTONE_STATUS_EXITING && status != DRYSTONE_STATUS_FORKED) {
      check(status);
    }
  }

  int uses(PoolName name) {
    Lock lock(mutex_);
    auto found = uses_.find(name);
    return found == uses_.end() ? 0 : found->second;
  }

  // From now on the pool takes the requests of streams that the filter says yes to.
  void begin(PoolName name, Filter filter) {
    Lock lock(mutex_);
    for (const Route& route : routes_) {
      TORCH_CHECK(
          route.pool != name, "beginAllocateToPool: already recording to mempool_id ", text(name));
    }
    acquire(name);
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
    if (is_spare) {
      spare_.insert(name);
    } else {
      spare_.erase(name);
    }
  }

  std::vector<PoolName> spare() {
    Lock lock(mutex_);
    return {spare_.begin(), spare_.end()};
  }

 private:
  using Lock = std::lock_guard<std::recursive_mutex>;

  struct Route {
    PoolName pool;
    Filter filter;

    bool takes(cudaStream_t stream) const {
      return !filter || filter(stream);
    }
  };

  static std::string text(PoolName name) {
    return c10::str("(", name.first, ", ", name.second, ")");
  }

  const DeviceIndex device_;
  // Filters may ask for streams and devices, but not for pools.
  std::recursive_mutex mutex_;
  std::map<PoolName, int> uses_;
  std::set<PoolName> spare_;
  std::vector<Route> routes_;
  std::atomic<size_t> route_count_{0};
};

}  // namespace drystone
