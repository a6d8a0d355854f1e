// What PyTorch asks beside memory: figures, limits, snapshots, history, pools, other devices.

#pragma once

#include "allocator.h"

namespace drystone {

inline void Allocator::init(int device_count) {
  std::lock_guard<std::mutex> lock(mutex_);
  TORCH_CHECK(
      device_count <= static_cast<int>(DEVICES_MAX), "drystone: ", device_count,
      " devices, and no more than ", DEVICES_MAX, " can be served");
  for (int index = device_count_; index < device_count; ++index) {
    auto* device = new Device(static_cast<DeviceIndex>(index), fraction_);
    for (const AllocatorTraceTracker& tracker : trackers_) {
      device->history.attach(tracker);
    }
    devices_[static_cast<size_t>(index)].store(device, std::memory_order_release);
  }
  device_count_.store(std::max(device_count, device_count_.load()), std::memory_order_release);
}

inline bool Allocator::initialized() {
  return device_count_ > 0;
}

inline void Allocator::enable(bool is_enabled) {
  is_caching_ = is_enabled;
}

inline bool Allocator::isEnabled() const {
  return is_caching_;
}

inline std::string Allocator::name() {
  return "drystone";
}

inline double Allocator::getMemoryFraction(DeviceIndex device) {
  return at(device).fraction;
}

inline void Allocator::setMemoryFraction(double fraction, DeviceIndex device) {
  TORCH_CHECK(
      0 <= fraction && fraction <= 1, "invalid fraction:", fraction,
      ". Please set within [0, 1].");
  Device& of = at(device);
  of.is_used = true;
  drystone_set_memory_fraction(fraction, device);
  of.fraction = fraction;
}

inline void Allocator::cacheInfo(DeviceIndex device, size_t* largest) {
  size_t bytes = 0;
  if (*largest == 0) {
    size_t total = 0;
    c10::DeviceGuard guard({c10::DeviceType::CUDA, device});
    C10_CUDA_CHECK(cudaMemGetInfo(largest, &total));
  }
  check(drystone_largest_free(device, &bytes));
  *largest = std::max(*largest, bytes);
}

// Of the default pool and of all that are over; for a pool's own end, in a destructor, of those
// that are over alone.
inline void Allocator::emptyCache(PoolName pool) {
  Context context = gather(RecordContext::ALL);
  drystone_status status =
      pool == DEFAULT_POOL ? drystone_trim(-1, nullptr) : drystone_trim_released(-1);
  // What a capture, a fork or the end of the process forbids is left.
  bool is_forbidden = status == DRYSTONE_STATUS_CAPTURING || status == DRYSTONE_STATUS_FORKED ||
      status == DRYSTONE_STATUS_EXITING;
  if (pool != DEFAULT_POOL && status != DRYSTONE_STATUS_OK && !is_forbidden) {
    TORCH_WARN("drystone: not all of a pool's memory went back: ", drystone_last_error_message());
  } else if (!is_forbidden) {
    check(status);
  }
  for (int index = 0; index < device_count_; ++index) {
    Device& device = at(static_cast<DeviceIndex>(index));
    ++device.trims;
    if (HAS_POOL_FIGURES && device.is_used && !is_forbidden) {
      device.pool_figures.look();
    }
    if (History::Lock lock = device.history.lock()) {
      device.history.settle(context);
    }
  }
}

inline DeviceStats Allocator::getDeviceStats(DeviceIndex device) {
  Device& of = at(device);
  std::lock_guard<std::mutex> lock(of.mutex);
  drystone_stats now{};
  if (of.is_used) {
    now = stats_of(device);
  }
  DeviceStats stats = device_stats(now, of.baseline);
  stats.num_ooms = of.refusals;
  set_rejections(stats, of.rejections);
  // Either waits for all streams.
  stats.num_sync_all_streams = of.trims + stats.num_alloc_retries;
  if (HAS_POOL_FIGURES && of.is_used) {
    of.pool_figures.tell(stats);
  }
  return stats;
}

inline void Allocator::resetAccumulatedStats(DeviceIndex device) {
  Device& of = at(device);
  std::lock_guard<std::mutex> lock(of.mutex);
  if (!of.is_used) {
    return;
  }
  drystone_stats now = stats_of(device);
  of.baseline.stats = device_stats(now, Baseline{});
  of.baseline.retries = now.retries;
  of.refusals = 0;
  of.rejections = 0;
  of.trims = 0;
  if (HAS_POOL_FIGURES) {
    of.pool_figures.reset_accumulated();
  }
}

inline void Allocator::resetPeakStats(DeviceIndex device) {
  Device& of = at(device);
  if (!of.is_used) {
    return;
  }
  check(drystone_reset_peaks(device));
  if (HAS_POOL_FIGURES) {
    of.pool_figures.reset_peaks();
  }
}

inline std::vector<StreamSegmentSize> Allocator::getExpandableSegmentSizes(
    DeviceIndex device) {
  std::map<std::pair<cudaStream_t, bool>, size_t> bytes;
  for (const drystone_segment& segment : layout_of(device).segments) {
    if (segment.is_mapped) {
      bytes[{segment.stream, segment.is_small != 0}] += segment.bytes;
    }
  }
  std::vector<StreamSegmentSize> sizes;
  for (const auto& [of, total] : bytes) {
    sizes.emplace_back(of.first, of.second, total);
  }
  return sizes;
}

inline caching::SnapshotInfo Allocator::snapshot(PoolName pool, bool include_traces) {
  caching::SnapshotInfo found{};
  found.config_metadata.max_split_size = std::numeric_limits<size_t>::max();
  set_pinned(found.config_metadata);
  found.config_metadata.last_allocator_settings = settings_text();
  found.config_metadata.roundup_power2_divisions.assign(16, 0);
  auto to_nanoseconds = clock_.makeConverter();
  auto set_time = [&](auto& entry) {
    entry.time_.t_ = to_nanoseconds(entry.time_.approx_t_) / 1000;
  };
  for (int index = 0; index < device_count_; ++index) {
    Device& device = at(static_cast<DeviceIndex>(index));
    History::Lock lock = device.history.lock();
    if (lock && device.is_used) {
      device.history.settle(nullptr);
    }
    found.device_traces.emplace_back();
    if (include_traces) {
      found.device_traces.back() = device.history.entries();
    }
    std::for_each(found.device_traces.back().begin(), found.device_traces.back().end(), set_time);
    if (device.is_used) {
      add_segments(device, pool, found);
      if (device.looks_of_ours == 0) {
        device.history.looked_at(stats_of(device.index).active_bytes.current);
      }
    }
  }
  std::lock_guard<std::mutex> lock(mutex_);
  found.external_annotations = annotations_;
  std::for_each(found.external_annotations.begin(), found.external_annotations.end(), set_time);
  return found;
}

inline void Allocator::add_segments(
    Device& device, PoolName pool, caching::SnapshotInfo& into) {
  auto add = [&](const drystone_segment& segment, const drystone_block* block) {
    PoolName owner{segment.id0, segment.id1};
    if (pool != DEFAULT_POOL && pool != owner) {
      return;
    }
    caching::SegmentInfo one;
    one.device = device.index;
    one.address = number(segment.address);
    one.total_size = segment.bytes;
    one.stream = segment.stream;
    one.is_large = !segment.is_small;
    one.is_expandable = segment.is_mapped != 0;
    one.owner_private_pool_id = owner;
    one.context_when_allocated = device.history.context_of_segment(segment.address);
    for (size_t at = 0; at < segment.block_count; ++at, ++block) {
      caching::BlockInfo info;
      info.size = block->bytes;
      info.requested_size = block->requested_bytes;
      info.allocated = block->is_live != 0;
      info.active = block->is_live != 0 || block->is_pending != 0;
      info.context_when_allocated = device.history.context_of(block->address);
      one.requested_size += info.requested_size;
      if (!info.active) {
        info.requested_size = device.history.asked_before(block->address);
      }
      one.allocated_size += info.allocated ? info.size : 0;
      one.active_size += info.active ? info.size : 0;
      one.blocks.push_back(std::move(info));
    }
    into.segments.push_back(std::move(one));
  };
  each_segment(layout_of(device.index), add);
}

inline bool Allocator::isHistoryEnabled() {
  return is_recording_;
}

inline void Allocator::recordHistory(
    bool enabled, CreateContextFn context, size_t entries_max, RecordContext when, bool clears,
    const Texts& skipped) {
  TORCH_CHECK(when == RecordContext::NEVER || context != nullptr);
  Recording recording;
  recording.is_on = enabled;
  recording.entries_max = std::max<size_t>(entries_max, 1);
  recording.contexts = enabled ? when : RecordContext::NEVER;
  for (const std::string& action : skipped) {
    recording.skipped.insert(action_of(action));
  }
  std::lock_guard<std::mutex> lock(mutex_);
  annotations_max_ = entries_max;
  if (clears || !enabled) {
    annotations_.clear();
  }
  make_context_ = enabled ? context : nullptr;
  contexts_ = recording.contexts;
  is_recording_ = enabled;
  watched_histories_ = enabled || !trackers_.empty() ? 1 : 0;
  for (int index = 0; index < device_count_; ++index) {
    at(static_cast<DeviceIndex>(index)).history.record(recording, clears || !enabled);
  }
}

inline void Allocator::recordAnnotation(
    const std::vector<std::pair<std::string, std::string>>& texts) {
  if (!is_recording_) {
    return;
  }
  DeviceIndex device = cuda::current_device();
  AnnotationEntry entry(device, c10::getApproximateTime());
  for (const auto& [key, text] : texts) {
    entry.recordUserMetadata(key, text);
  }
  std::lock_guard<std::mutex> lock(mutex_);
  if (annotations_.size() >= annotations_max_ && !annotations_.empty()) {
    annotations_.erase(annotations_.begin());
  }
  annotations_.push_back(std::move(entry));
}

inline void Allocator::pushCompileContext(std::string& text) {
  compile_contexts().push(text);
}

inline void Allocator::popCompileContext() {
  if (!compile_contexts().empty()) {
    compile_contexts().pop();
  }
}

inline void Allocator::setUserMetadata(const std::string& text) {
  metadata() = text;
}

inline std::string Allocator::getUserMetadata() {
  return metadata();
}

inline bool Allocator::supportsUserMetadata() {
  return true;
}

inline void Allocator::annotateMemory(const void* address, const std::string& text) {
  drystone_block block{};
  bool is_live = drystone_block_at(const_cast<void*>(address), &block) == DRYSTONE_STATUS_OK;
  TORCH_CHECK(is_live, "annotateMemory: no live allocation found at pointer ", address);
  at(static_cast<DeviceIndex>(block.device)).history.annotate(block, text);
}

inline Context Allocator::getContextForPointer(const void* address) {
  drystone_block block{};
  auto* known = const_cast<void*>(address);
  if (drystone_block_at(known, &block) != DRYSTONE_STATUS_OK) {
    return nullptr;
  }
  History& history = at(static_cast<DeviceIndex>(block.device)).history;
  History::Lock lock = history.lock();
  return lock ? history.context_of(known) : nullptr;
}

inline void Allocator::attachOutOfMemoryObserver(caching::OutOfMemoryObserver observer) {
  std::lock_guard<std::mutex> lock(mutex_);
  observers_.push_back(std::move(observer));
}

inline void Allocator::attachOomRejectionObserver(OomRejectionObserver observer) {
  std::lock_guard<std::mutex> lock(mutex_);
  rejection_observers_.push_back(std::move(observer));
}

inline void Allocator::attachAllocatorTraceTracker(AllocatorTraceTracker tracker) {
  std::lock_guard<std::mutex> lock(mutex_);
  trackers_.push_back(tracker);
  watched_histories_ = 1;
  for (int index = 0; index < device_count_; ++index) {
    at(static_cast<DeviceIndex>(index)).history.attach(tracker);
  }
}

inline void Allocator::beginAllocateToPool(
    DeviceIndex device, PoolName pool, Filter filter) {
  at(device).is_used = true;
  at(device).pools.begin(pool, std::move(filter));
  // PyTorch says so before a capture begins, and at other times.
  check(drystone_expect_capture(device, pool.first, pool.second));
}

inline void Allocator::endAllocateToPool(DeviceIndex device, PoolName pool) {
  at(device).pools.end(pool);
  // A capture is over before it says so here. At exit nobody asks any more.
  drystone_status status = drystone_end_captures(device, pool.first, pool.second);
  if (status != DRYSTONE_STATUS_EXITING && status != DRYSTONE_STATUS_FORKED) {
    check(status);
  }
}

inline void Allocator::releasePool(DeviceIndex device, PoolName pool) {
  at(device).pools.release(pool);
}

inline int Allocator::getPoolUseCount(DeviceIndex device, PoolName pool) {
  return at(device).pools.uses(pool);
}

inline void Allocator::createOrIncrefPool(
    DeviceIndex device, PoolName pool, Other allocator) {
  at(device).is_used = true;
  // Drystone over itself is Drystone.
  at(device).pools.acquire(pool, allocator.get() == this ? nullptr : allocator);
}

inline void Allocator::setUseOnOOM(DeviceIndex device, PoolName pool, bool is_spare) {
  at(device).pools.set_spare(pool, is_spare);
}

inline void Allocator::setNoSplit(DeviceIndex device, PoolName pool) {
  at(device).pools.set_unsplit(pool);
}

inline caching::ShareableHandle Allocator::shareIpcHandle(void* address) {
  return share(address);
}

inline std::shared_ptr<void> Allocator::getIpcDevPtr(std::string handle) {
  return imports_.open(handle);
}

inline void Allocator::enablePeerAccess(DeviceIndex device, DeviceIndex peer) {
  c10::DeviceGuard guard({c10::DeviceType::CUDA, device});
  cudaError_t error = cudaDeviceEnablePeerAccess(peer, 0);
  if (error == cudaErrorPeerAccessAlreadyEnabled) {
    (void)cudaGetLastError();
  } else {
    C10_CUDA_CHECK(error);
  }
  at(peer).is_used = true;
  check(drystone_enable_peer_access(peer, device));
}

inline cudaError_t Allocator::memcpyAsync(
    void* to, int to_device, const void* from, int from_device, size_t bytes, cudaStream_t stream,
    bool has_peer_access) {
  // Mapped memory of a device without access is copied by the driver alone.
  if (has_peer_access || to_device == from_device) {
    return cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, stream);
  }
  return cudaMemcpyPeerAsync(to, to_device, from, from_device, bytes, stream);
}

}  // namespace drystone
