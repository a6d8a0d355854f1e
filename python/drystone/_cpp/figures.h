// Figures of a device in PyTorch's terms, and its words where there is no memory.

#pragma once

#include <algorithm>
#include <string>

#include "library.h"

namespace drystone {

// Where totals were when they were reset, and what Drystone does not count.
struct Baseline {
  DeviceStats stats;
  uint64_t retries = 0;
};

inline Stat stat_of(const drystone_gauge& gauge, const Stat& before) {
  Stat stat;
  stat.current = static_cast<int64_t>(gauge.current);
  stat.peak = static_cast<int64_t>(gauge.peak);
  stat.allocated = static_cast<int64_t>(gauge.total) - before.allocated;
  stat.freed = static_cast<int64_t>(gauge.total - gauge.current) - before.freed;
  return stat;
}

// Drystone's gauges under PyTorch's names, but for `inactive_split`: every whole granule that is
// free can be given back.
inline DeviceStats device_stats(const drystone_stats& now, const Baseline& before) {
  DeviceStats stats{};
  auto fill = [&](StatType type, const auto& from) {
    auto at = static_cast<size_t>(type);
    const DeviceStats& old = before.stats;
    stats.allocation[at] = stat_of(from.allocations, old.allocation[at]);
    stats.segment[at] = stat_of(from.segments, old.segment[at]);
    stats.active[at] = stat_of(from.active_blocks, old.active[at]);
    stats.allocated_bytes[at] = stat_of(from.allocated_bytes, old.allocated_bytes[at]);
    stats.reserved_bytes[at] = stat_of(from.reserved_bytes, old.reserved_bytes[at]);
    stats.active_bytes[at] = stat_of(from.active_bytes, old.active_bytes[at]);
    stats.requested_bytes[at] = stat_of(from.requested_bytes, old.requested_bytes[at]);
  };
  fill(StatType::AGGREGATE, now);
  fill(StatType::SMALL_POOL, now.small);
  fill(StatType::LARGE_POOL, now.large);
  const Stat& segments = stats.segment[static_cast<size_t>(StatType::AGGREGATE)];
  stats.num_device_alloc = segments.allocated;
  stats.num_device_free = segments.freed;
  stats.num_alloc_retries = static_cast<int64_t>(now.retries - before.retries);
  stats.max_split_size = -1;
  return stats;
}

// Why there was no memory, in words: as this thread's last failure has it, if that is the refusal.
inline std::string shortage_text(DeviceIndex device, size_t bytes, const Refusal& refusal) {
  std::string text(8192, '\0');
  size_t taken = drystone_torch_shortage(device, bytes, text.data(), text.size());
  text.resize(std::min(taken, text.size()));
  if (text.empty()) {
    return refusal.cause;
  }
  text.pop_back();
  return text;
}

}  // namespace drystone
