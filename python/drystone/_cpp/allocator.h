// PyTorch's CUDA allocator, made of Drystone's C interface.
//
// Lives here: what PyTorch calls. Memory, streams and statistics are Drystone's truth; this side
// keeps what PyTorch alone wants: history, names of pools, observers. Invariant: a pointer that was
// given out is Drystone's own, with nothing noted here, so that it may be freed at any time, from
// any thread, and while the process exits.

#pragma once

#include <c10/core/impl/GPUTrace.h>
#include <c10/util/Registry.h>

#include <array>
#include <cstdlib>

#include "figures.h"
#include "history.h"
#include "ipc.h"
#include "pool_figures.h"
#include "pools.h"

namespace drystone {

namespace cuda = c10::cuda;

using c10::DataPtr;

// The deleter of every tensor, but for those made while caching was off.
void deallocate(void* address);
void deallocate_uncached(void* address);

// What is kept of one device.
struct Device {
  Device(DeviceIndex index, double fraction)
      : index(index), trackers(index), history(index, trackers), pools(index),
        pool_figures(index), fraction(fraction) {}

  // Whether requests go the long way.
  bool is_watched() const {
    return history.is_wanted() || pools.take_requests();
  }

  const DeviceIndex index;
  Trackers trackers;
  History history;
  Pools pools;
  PoolFigures pool_figures;
  // Asking an untouched device for its figures would open it.
  std::atomic<bool> is_used{false};
  // By the low bits of its id, whether Drystone knows that a stream stays.
  std::array<std::atomic<bool>, 512> kept_streams{};
  std::atomic<int64_t> refusals{0};
  // Those that the program asked to be told of as rejected; none of them is a refusal.
  std::atomic<int64_t> rejections{0};
  // Refusals that are being explained.
  std::atomic<int64_t> looks_of_ours{0};
  // How often the program had unused memory given back.
  std::atomic<int64_t> trims{0};
  std::atomic<double> fraction;
  std::mutex mutex;
  Baseline baseline;
};

class Allocator final : public Interface {
 public:
  static Allocator& get();

  // Memory.
  DataPtr allocate(size_t bytes) override;
  c10::DeleterFnPtr raw_deleter() const override;
  void* raw_alloc(size_t bytes) override;
  void* raw_alloc_with_stream(size_t bytes, cudaStream_t stream) override;
  void raw_delete(void* address) override;
  void recordStream(const DataPtr& data, cuda::CUDAStream stream) override;
  void copy_data(void* to, const void* from, size_t bytes) const override;
  void emptyCache(PoolName pool) override;
  void* getBaseAllocation(void* address, size_t* bytes) override;
  DataPtr allocateWithAddress(size_t bytes, void* address) override;

  // The whole.
  // What every device is limited to before it is asked for anything.
  void limited_to(double fraction) {
    fraction_ = fraction;
  }
  void init(int device_count) override;
  bool initialized() override;
  void enable(bool is_enabled) override;
  bool isEnabled() const override;
  std::string name() override;
  double getMemoryFraction(DeviceIndex device) override;
  void setMemoryFraction(double fraction, DeviceIndex device) override;
  void cacheInfo(DeviceIndex device, size_t* largest) override;

  // Figures.
  DeviceStats getDeviceStats(DeviceIndex device) override;
  void resetAccumulatedStats(DeviceIndex device) override;
  void resetPeakStats(DeviceIndex device) override;
  caching::SnapshotInfo snapshot(PoolName pool, bool include_traces) override;
  std::vector<StreamSegmentSize> getExpandableSegmentSizes(DeviceIndex device) override;

  // History and observers.
  bool isHistoryEnabled() override;
  void recordHistory(
      bool enabled, CreateContextFn context, size_t entries_max, RecordContext when, bool clears,
      const Texts& skipped) override;
  void recordAnnotation(const std::vector<std::pair<std::string, std::string>>& texts) override;
  void pushCompileContext(std::string& text) override;
  void popCompileContext() override;
  void setUserMetadata(const std::string& text) override;
  std::string getUserMetadata() override;
  bool supportsUserMetadata() override;
  void annotateMemory(const void* address, const std::string& text) override;
  Context getContextForPointer(const void* address) override;
  void attachOutOfMemoryObserver(caching::OutOfMemoryObserver observer) override;
  void attachOomRejectionObserver(OomRejectionObserver observer) override;
  void attachAllocatorTraceTracker(AllocatorTraceTracker tracker) override;

  // Pools.
  void beginAllocateToPool(DeviceIndex device, PoolName pool, Filter filter) override;
  void endAllocateToPool(DeviceIndex device, PoolName pool) override;
  void releasePool(DeviceIndex device, PoolName pool) override;
  int getPoolUseCount(DeviceIndex device, PoolName pool) override;
  void createOrIncrefPool(DeviceIndex device, PoolName pool, Other allocator) override;
  void setUseOnOOM(DeviceIndex device, PoolName pool, bool is_spare) override;
  void setNoSplit(DeviceIndex device, PoolName pool) override;
  bool checkPoolLiveAllocations(
      DeviceIndex device, PoolName pool,
      const std::unordered_set<void*>& expected) override;
  std::shared_ptr<caching::AllocatorState> getCheckpointState(
      DeviceIndex device, PoolName pool) override;
  caching::CheckpointDelta setCheckpointPoolState(
      DeviceIndex device, std::shared_ptr<caching::AllocatorState> state) override;

  // Other devices and processes.
  caching::ShareableHandle shareIpcHandle(void* address) override;
  std::shared_ptr<void> getIpcDevPtr(std::string handle) override;
  void enablePeerAccess(DeviceIndex device, DeviceIndex peer) override;
  cudaError_t memcpyAsync(
      void* to, int to_device, const void* from, int from_device, size_t bytes,
      cudaStream_t stream, bool has_peer_access) override;

 private:
  Allocator() = default;

  Device& at(DeviceIndex index);
  void* take(size_t bytes, DeviceIndex device, cudaStream_t stream);
  cudaStream_t own(cuda::CUDAStream stream);
  static void* take_uncached(size_t bytes);
  void* take_watched(Device& device, size_t bytes, cudaStream_t stream, Refusal refusal);
  void* attempt(Device& device, const Request& request, Refusal& refusal);
  [[noreturn]] void refuse(Device& device, const Request& request, const Refusal& refusal);
  template <class Observer>
  std::vector<Observer> copy_of(const std::vector<Observer>& observers);
  // True if the block is the program's no more, or the process ends.
  drystone_status give(void* address);
  drystone_status give_watched(void* address);
  static void tell_profiler(void* address, int64_t bytes, DeviceIndex device);
  Context gather(RecordContext least);
  void add_segments(Device& device, PoolName pool, caching::SnapshotInfo& into);

  friend void deallocate(void* address);

  static constexpr size_t DEVICES_MAX = 64;

  std::array<std::atomic<Device*>, DEVICES_MAX> devices_{};
  std::atomic<int> device_count_{0};
  std::atomic<int> watched_histories_{0};
  double fraction_ = 1.0;
  // Turned off, memory is the driver's own.
  std::atomic<bool> is_caching_{std::getenv("PYTORCH_NO_CUDA_MEMORY_CACHING") == nullptr};
  std::mutex mutex_;
  std::vector<caching::OutOfMemoryObserver> observers_;
  std::vector<OomRejectionObserver> rejection_observers_;
  std::vector<AllocatorTraceTracker> trackers_;
  std::vector<AnnotationEntry> annotations_;
  size_t annotations_max_ = 0;
  // Of the recording under way.
  std::atomic<bool> is_recording_{false};
  std::atomic<CreateContextFn> make_context_{nullptr};
  std::atomic<RecordContext> contexts_{RecordContext::NEVER};
  Recording recording_;
  Imports imports_;
  c10::ApproximateClockToUnixTimeConverter clock_;
};

}  // namespace drystone
