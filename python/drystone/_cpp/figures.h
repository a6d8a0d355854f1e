// Figures of a device in PyTorch's terms, and its words where there is no memory.

#pragma once

#include <iomanip>
#include <optional>
#include <sstream>

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

// Bytes as PyTorch writes them.
inline std::string size_text(uint64_t bytes) {
  std::ostringstream text;
  text << std::fixed << std::setprecision(2);
  if (bytes <= 1024) {
    text << bytes << " bytes";
  } else if (bytes <= 1048576) {
    text << static_cast<double>(bytes) / 1024.0 << " KiB";
  } else if (bytes <= 1073741824ULL) {
    text << static_cast<double>(bytes) / 1048576.0 << " MiB";
  } else {
    text << static_cast<double>(bytes) / 1073741824.0 << " GiB";
  }
  return text.str();
}

// Why there was no memory, and what is known of the device.
struct Shortage {
  DeviceIndex device;
  size_t bytes;
  size_t device_free;
  size_t device_total;
  std::optional<size_t> allowed;
  size_t allocated;
  size_t allocated_in_pools;
  size_t reserved;
  std::string cause;
};

// Drystone's advice: after two sentences, and before the device. Other refusals have none.
inline std::string advice_of(const std::string& cause) {
  size_t begin = cause.find(". ", cause.find("Tried to allocate"));
  size_t end = cause.find("GPU ");
  bool is_there = begin != std::string::npos && end != std::string::npos && begin + 2 < end;
  return is_there ? cause.substr(begin + 2, end - begin - 2) : "";
}

// What to do, PyTorch's words and figures, then what only Drystone knows.
inline std::string shortage_text(const Shortage& of) {
  std::ostringstream text;
  text << "CUDA out of memory. Tried to allocate " << size_text(of.bytes) << ". " << advice_of(of.cause) << "GPU "
       << static_cast<int>(of.device) << " has a total capacity of " << size_text(of.device_total)
       << " of which " << size_text(of.device_free) << " is free. ";
  if (of.allowed) {
    text << size_text(*of.allowed) << " allowed; ";
  }
  text << "Of the allocated memory " << size_text(of.allocated) << " is allocated by PyTorch, ";
  if (of.allocated_in_pools > 0) {
    text << "with " << size_text(of.allocated_in_pools)
         << " allocated in private pools (e.g., CUDA Graphs), ";
  }
  size_t unused = of.reserved - std::min(of.reserved, of.allocated);
  // Drystone's own words begin as PyTorch's do.
  size_t own = of.cause.find("Drystone holds");
  text << "and " << size_text(unused) << " is reserved by PyTorch but unallocated. "
       << of.cause.substr(own == std::string::npos ? 0 : own);
  return text.str();
}

}  // namespace drystone
