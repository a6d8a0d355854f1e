// Drystone's C interface as the rest of this folder calls it.
//
// Invariant: a failure that nobody here deals with is an exception of PyTorch's, with Drystone's
// words.

#pragma once

#include <c10/util/Exception.h>

#include <string>
#include <vector>

#include "drystone.h"
#include "version.h"

namespace drystone {

inline void check(drystone_status status) {
  TORCH_CHECK(status == DRYSTONE_STATUS_OK, "drystone: ", drystone_last_error_message());
}

// Why a request was not served, if it was refused.
struct Refusal {
  drystone_status status = DRYSTONE_STATUS_OK;
  std::string cause;

  bool is_memory() const {
    return status == DRYSTONE_STATUS_OUT_OF_MEMORY || status == DRYSTONE_STATUS_INVALID_SIZE;
  }
};

inline Refusal last_refusal() {
  return {drystone_last_error(), drystone_last_error_message()};
}

inline drystone_stats stats_of(DeviceIndex device) {
  drystone_stats stats{};
  stats.struct_size = sizeof stats;
  check(drystone_get_stats(device, &stats));
  return stats;
}

// Whether a device was opened. To ask it anything else opens it.
inline bool is_in_use(DeviceIndex device) {
  return (drystone_devices_in_use() >> device & 1) != 0;
}

// What each pool, size of blocks and stream of a device has.
inline std::vector<drystone_pool_stream_stats> pool_stream_stats_of(DeviceIndex device) {
  std::vector<drystone_pool_stream_stats> entries(64);
  for (;;) {
    size_t count = entries.size();
    drystone_status status = drystone_get_pool_stream_stats(device, entries.data(), &count);
    entries.resize(count);
    if (status != DRYSTONE_STATUS_BUFFER_TOO_SMALL) {
      check(status);
      return entries;
    }
  }
}

// What a device holds: segments, and the blocks that tile them, in the same order.
struct Layout {
  std::vector<drystone_segment> segments;
  std::vector<drystone_block> blocks;
};

inline Layout layout_of(DeviceIndex device) {
  Layout layout;
  size_t segments = 64;
  size_t blocks = 1024;
  for (;;) {
    layout.segments.resize(segments);
    layout.blocks.resize(blocks);
    drystone_status status = drystone_layout(
        device, layout.segments.data(), &segments, layout.blocks.data(), &blocks);
    if (status != DRYSTONE_STATUS_BUFFER_TOO_SMALL) {
      check(status);
      layout.segments.resize(segments);
      layout.blocks.resize(blocks);
      return layout;
    }
    // Others may allocate meanwhile.
    segments += segments / 8 + 8;
    blocks += blocks / 8 + 8;
  }
}

// Calls a function with every segment and its first block.
template <typename Function>
void each_segment(const Layout& layout, Function function) {
  const drystone_block* block = layout.blocks.data();
  for (const drystone_segment& segment : layout.segments) {
    function(segment, block);
    block += segment.block_count;
  }
}

inline size_t number(const void* address) {
  return reinterpret_cast<size_t>(address);
}

}  // namespace drystone
