// What each private pool of a device holds, held at most, and took and gave back in all.
//
// Drystone knows the first of these. The others are of what was seen: after each request for a
// private pool that took a call of the driver's, and whenever unused memory may have gone back.
// Invariant: a pool's memory grows at no other time, so that no peak is missed. Pools that are gone
// stay, as PyTorch's own allocator has it.

#pragma once

#include <array>
#include <atomic>
#include <map>
#include <mutex>

#include "library.h"

namespace drystone {

class PoolFigures {
 public:
  explicit PoolFigures(DeviceIndex device) : device_(device) {}

  // A private pool was asked for memory.
  void requested() {
    uint64_t calls = stats_of(device_).driver_calls;
    if (seen_calls_.exchange(calls, std::memory_order_relaxed) != calls) {
      look();
    }
  }

  void look() {
    std::map<PoolName, Bytes> now = held();
    Lock lock(mutex_);
    for (const auto& [pool, bytes] : now) {
      pools_.try_emplace(pool);
    }
    for (auto& [pool, stats] : pools_) {
      auto found = now.find(pool);
      for (size_t type = 0; type < stats.size(); ++type) {
        int64_t bytes = found == now.end() ? 0 : found->second[type];
        int64_t grown = bytes - stats[type].current;
        if (grown > 0) {
          stats[type].increase(static_cast<size_t>(grown));
        } else {
          stats[type].decrease(static_cast<size_t>(-grown));
        }
      }
    }
  }

  void tell(DeviceStats& stats) {
    look();
    Lock lock(mutex_);
    for (const auto& [pool, of] : pools_) {
      set_reserved(stats, pool, of);
    }
  }

  void reset_peaks() {
    each(&Stat::reset_peak);
  }

  void reset_accumulated() {
    each(&Stat::reset_accumulated);
  }

 private:
  using Lock = std::lock_guard<std::mutex>;
  using Bytes = std::array<int64_t, std::tuple_size_v<StatArray>>;

  // By pool; a released one's memory is nobody's.
  std::map<PoolName, Bytes> held() {
    std::map<PoolName, Bytes> held;
    for (const drystone_pool_stream_stats& one : pool_stream_stats_of(device_)) {
      PoolName pool{one.id0, one.id1};
      if (pool == DEFAULT_POOL) {
        continue;
      }
      auto bytes = static_cast<int64_t>(one.active_bytes.current + one.free_bytes);
      Bytes& of = held[pool];
      of[static_cast<size_t>(StatType::AGGREGATE)] += bytes;
      of[static_cast<size_t>(one.is_small ? StatType::SMALL_POOL : StatType::LARGE_POOL)] += bytes;
    }
    return held;
  }

  void each(void (Stat::*reset)()) {
    look();
    Lock lock(mutex_);
    for (auto& [pool, stats] : pools_) {
      for (Stat& stat : stats) {
        (stat.*reset)();
      }
    }
  }

  const DeviceIndex device_;
  std::atomic<uint64_t> seen_calls_{0};
  std::mutex mutex_;
  std::map<PoolName, StatArray> pools_;
};

}  // namespace drystone
