// What differs between the versions of PyTorch that this folder is compiled for, 2.6 to 2.15.
//
// Invariant: no other file asks for the version. The rest is written for the newest interface; what
// an older PyTorch asks in other words is put into those here.

#pragma once

#include <c10/cuda/CUDAAllocatorConfig.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <torch/csrc/api/include/torch/version.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

// 2.11 is 211.
#define DRYSTONE_TORCH (TORCH_VERSION_MAJOR * 100 + TORCH_VERSION_MINOR)
#if DRYSTONE_TORCH < 206 || DRYSTONE_TORCH > 215
#error "drystone knows the C++ of PyTorch 2.6 to 2.15"
#endif

namespace drystone {

namespace caching = c10::cuda::CUDACachingAllocator;

using c10::DeviceIndex;
// The same type everywhere, under a name of its own up to 2.8.
using PoolName = std::pair<unsigned long long, unsigned long long>;
using Context = std::shared_ptr<c10::GatheredContext>;
using Other = std::shared_ptr<caching::CUDAAllocator>;
using Texts = std::vector<std::string>;

using c10::CachingDeviceAllocator::DeviceStats;
using c10::CachingDeviceAllocator::Stat;
using c10::CachingDeviceAllocator::StatArray;
using c10::CachingDeviceAllocator::StatType;
using caching::AllocatorTraceTracker;
using caching::CreateContextFn;
using caching::RecordContext;
using caching::TraceEntry;

inline const PoolName DEFAULT_POOL{0, 0};

#if DRYSTONE_TORCH >= 211
using c10::CachingDeviceAllocator::AnnotationEntry;
#else
using caching::AnnotationEntry;
#endif

#if DRYSTONE_TORCH >= 210
using caching::StreamSegmentSize;
#else
struct StreamSegmentSize {
  StreamSegmentSize(cudaStream_t, bool, size_t) {}
};
#endif

#if DRYSTONE_TORCH >= 212
using caching::OomRejectionObserver;
#else
using OomRejectionObserver = std::function<void(int64_t, size_t, size_t, size_t)>;
#endif

// Of an allocator that PyTorch keeps alive for as long as it has to.
inline Other unowned(caching::CUDAAllocator* allocator) {
  return Other(Other(), allocator);
}

// PyTorch's interface as that of 2.15, for every version.
class Interface : public caching::CUDAAllocator {
 public:
#if DRYSTONE_TORCH < 208
  virtual void emptyCache(PoolName pool) = 0;
  void emptyCache() final {
    emptyCache(DEFAULT_POOL);
  }
  caching::SnapshotInfo snapshot() final {
    return snapshot(DEFAULT_POOL, true);
  }
  void recordHistory(
      bool enabled, CreateContextFn context, size_t entries_max, RecordContext when) final {
    recordHistory(enabled, context, entries_max, when, false, {});
  }
  void ensureExistsAndIncrefPool(DeviceIndex device, PoolName pool) final {
    createOrIncrefPool(device, pool, nullptr);
  }
  virtual void pushCompileContext(std::string& text) = 0;
  virtual void popCompileContext() = 0;
#elif DRYSTONE_TORCH < 211
  caching::SnapshotInfo snapshot(PoolName pool) final {
    return snapshot(pool, true);
  }
  void recordHistory(
      bool enabled, CreateContextFn context, size_t entries_max, RecordContext when,
      bool clears) final {
    recordHistory(enabled, context, entries_max, when, clears, {});
  }
  void createOrIncrefPool(
      DeviceIndex device, PoolName pool, caching::CUDAAllocator* allocator) final {
    createOrIncrefPool(device, pool, unowned(allocator));
  }
  void setUseOnOOM(DeviceIndex device, PoolName pool) final {
    setUseOnOOM(device, pool, true);
  }
#endif

#if DRYSTONE_TORCH < 211
  virtual caching::SnapshotInfo snapshot(PoolName pool, bool include_traces) = 0;
  virtual void recordHistory(
      bool enabled, CreateContextFn context, size_t entries_max, RecordContext when, bool clears,
      const Texts& skipped) = 0;
  virtual void createOrIncrefPool(DeviceIndex device, PoolName pool, Other allocator) = 0;
  virtual void setUseOnOOM(DeviceIndex device, PoolName pool, bool is_spare) = 0;
#endif
#if DRYSTONE_TORCH < 210
  virtual std::vector<StreamSegmentSize> getExpandableSegmentSizes(DeviceIndex device) = 0;
  virtual void setNoSplit(DeviceIndex device, PoolName pool) = 0;
  virtual void setUserMetadata(const std::string& text) = 0;
  virtual std::string getUserMetadata() = 0;
#endif
#if DRYSTONE_TORCH < 212
  virtual Context getContextForPointer(const void* address) = 0;
  virtual void attachOomRejectionObserver(OomRejectionObserver observer) = 0;
#endif
#if DRYSTONE_TORCH < 214
  virtual bool supportsUserMetadata() = 0;
  virtual void annotateMemory(const void* address, const std::string& text) = 0;
#endif
#if DRYSTONE_TORCH < 215
  virtual c10::DataPtr allocateWithAddress(size_t bytes, void* address) = 0;
#endif
};

// The allocator that a pool is over, where only the thread that begins to use it knows.
inline Other origin_of([[maybe_unused]] PoolName pool) {
#if DRYSTONE_TORCH < 208
  c10::cuda::MemPool* active = c10::cuda::MemPoolContext::getActiveMemPool();
  if (active != nullptr && active->id() == pool && active->allocator() != nullptr) {
    return unowned(active->allocator());
  }
#endif
  return nullptr;
}

// Whether there are figures of private pools, and the place of one pool's.
#if DRYSTONE_TORCH >= 213
inline constexpr bool HAS_POOL_FIGURES = true;
inline void set_reserved(DeviceStats& stats, PoolName pool, const StatArray& of) {
  stats.reserved_bytes_by_private_pools[pool] = of;
}
#else
inline constexpr bool HAS_POOL_FIGURES = false;
inline void set_reserved(DeviceStats&, PoolName, const StatArray&) {}
#endif

// What PyTorch's own settings say. They are read when they are first asked for, and what is wrong
// with them is an exception each time: the program was told of it when Drystone was enabled.
template <typename Value, typename Function>
Value setting(Function ask, Value otherwise) {
  try {
    return ask();
  } catch (const std::exception&) {
    return otherwise;
  }
}

inline std::string settings_text() {
  return setting([] { return caching::CUDAAllocatorConfig::last_allocator_settings(); },
                 std::string());
}

// Whether the program wants to hear of what would pass its limit as rejected, and how often it was.
#if DRYSTONE_TORCH >= 212
inline bool is_rejecting() {
  return setting([] { return caching::CUDAAllocatorConfig::throw_on_cudamalloc_oom(); }, false);
}
inline void set_rejections(DeviceStats& stats, int64_t count) {
  stats.num_oom_rejections = count;
}
#else
inline bool is_rejecting() {
  return false;
}
inline void set_rejections(DeviceStats&, int64_t) {}
#endif

// The action of a name. Before 2.11 nobody names any, before 2.14 there is no annotation.
inline int action_of([[maybe_unused]] const std::string& name) {
#if DRYSTONE_TORCH >= 211
  return c10::CachingDeviceAllocator::parseTraceEntryAction(name);
#else
  return -1;
#endif
}

#if DRYSTONE_TORCH >= 214
inline constexpr TraceEntry::Action ANNOTATION = TraceEntry::ANNOTATE;
#else
inline constexpr auto ANNOTATION = static_cast<TraceEntry::Action>(-1);
#endif

// An entry, as far as this version tells of it.
inline TraceEntry entry_of(
    TraceEntry::Action action, DeviceIndex device, size_t address, size_t bytes,
    cudaStream_t stream, [[maybe_unused]] PoolName pool, Context context,
    [[maybe_unused]] const std::string& compiled, [[maybe_unused]] const std::string& metadata) {
  auto now = c10::getApproximateTime();
#if DRYSTONE_TORCH < 208
  return {action, device, address, bytes, stream, now, std::move(context)};
#elif DRYSTONE_TORCH < 210
  return {action, device, address, bytes, stream, pool, now, std::move(context), compiled};
#else
  return {action, device, address, bytes, stream, pool, now, std::move(context), compiled,
          metadata};
#endif
}

// Settings of pinned memory, which is PyTorch's own: snapshots are where programs read them.
inline void set_pinned(caching::AllocatorConfigInfo& settings) {
  settings.pinned_num_register_threads = 1;
#if DRYSTONE_TORCH >= 215
  using Config = c10::CachingAllocator::AcceleratorAllocatorConfig;
  settings.max_round_threshold = setting(&Config::pinned_max_round_threshold, size_t{});
  settings.max_cached_size = setting(&Config::pinned_max_cached_size, size_t{});
#endif
}

// What the allocator itself says of an entry, beside the program's words.
inline void set_mark([[maybe_unused]] TraceEntry& entry, [[maybe_unused]] const char* mark) {
#if DRYSTONE_TORCH >= 215
  entry.internal_metadata_ = mark;
#endif
}

}  // namespace drystone
