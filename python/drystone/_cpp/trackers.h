// Those who follow a device's memory as it changes, such as tables of registrations: PyTorch's
// trackers.
//
// Of segments they are told as the driver's calls change them: of memory that goes before it does,
// of what came before anybody is given it. While a program goes back and forth between addresses
// that stay mapped, they are told of no segment. Invariants: what is told to go was told to come, or
// was held when the first of them came; they are called one at a time. The lock is the last of all:
// a history's lock, and that under which memory grows, may be held when it is taken.

#pragma once

#include <algorithm>
#include <atomic>
#include <map>
#include <mutex>
#include <vector>

#include "library.h"
#include "request.h"

namespace drystone {

class Trackers {
 public:
  explicit Trackers(DeviceIndex device) : device_(device) {}

  bool are_any() const {
    return are_any_.load(std::memory_order_acquire);
  }

  void attach(AllocatorTraceTracker tracker) {
    Lock lock(mutex_);
    trackers_.push_back(std::move(tracker));
    are_any_.store(true, std::memory_order_release);
  }

  // While this lives, memory that comes by this thread is its request's.
  class Serving {
   public:
    explicit Serving(const Request& request) : before_(std::exchange(serving(), &request)) {}
    ~Serving() {
      serving() = before_;
    }
    Serving(const Serving&) = delete;
    Serving& operator=(const Serving&) = delete;

   private:
    const Request* before_;
  };

  // Before the first request that they are told of: a device is not opened for them. The history's
  // lock is held.
  void begin() {
    if (!are_any() || has_begun_) {
      return;
    }
    has_begun_ = true;
    check(drystone_on_remap(device_, &changed, this));
    Lock lock(mutex_);
    for (const drystone_segment& segment : layout_of(device_).segments) {
      size_t start = number(segment.address);
      Request of{0, segment.stream, {segment.id0, segment.id1}, nullptr};
      known_.insert({start, {start + segment.bytes, of, segment.is_mapped != 0}});
    }
  }

  void tell(const TraceEntry& entry) {
    Lock lock(mutex_);
    for (const AllocatorTraceTracker& tracker : trackers_) {
      tracker(entry);
    }
  }

  // A block that is about to be given. It may lie where memory was mapped before they came.
  void given(size_t start, const Request& of) {
    if (!has_begun_) {
      return;
    }
    Lock lock(mutex_);
    size_t end = start + of.bytes;
    while (start < end) {
      auto next = known_.upper_bound(start);
      if (next != known_.begin() && std::prev(next)->second.end > start) {
        start = std::prev(next)->second.end;
        continue;
      }
      size_t until = next == known_.end() ? end : std::min(end, next->first);
      came(start, until, of, true);
      start = until;
    }
  }

 private:
  using Lock = std::lock_guard<std::recursive_mutex>;

  // Memory that was told to be there.
  struct Known {
    size_t end;
    Request of;
    bool is_mapped;
  };

  static const Request*& serving() {
    thread_local const Request* request = nullptr;
    return request;
  }

  // Called by Drystone, through C.
  static void changed(void* self, int, void* address, size_t bytes, int backing) noexcept {
    try {
      auto* trackers = static_cast<Trackers*>(self);
      Lock lock(trackers->mutex_);
      size_t start = number(address);
      trackers->went(start, start + bytes);
      if (backing != 0) {
        const Request* of = serving();
        trackers->came(
            start, start + bytes, of != nullptr ? *of : Request{0, nullptr, DEFAULT_POOL, nullptr},
            backing == 1);
      }
    } catch (const std::exception& error) {
      TORCH_WARN("drystone: a tracker of memory failed: ", error.what());
    }
  }

  void came(size_t start, size_t end, const Request& of, bool is_mapped) {
    known_.insert({start, {end, {0, of.stream, of.pool, nullptr}, is_mapped}});
    auto action = is_mapped ? TraceEntry::SEGMENT_MAP : TraceEntry::SEGMENT_ALLOC;
    tell(entry_about(action, device_, start, end - start, of, nullptr));
  }

  // Of what is known to be there, this will not be.
  void went(size_t start, size_t end) {
    auto at = known_.upper_bound(start);
    if (at != known_.begin() && std::prev(at)->second.end > start) {
      --at;
    }
    while (at != known_.end() && at->first < end) {
      auto [first, known] = *at;
      at = known_.erase(at);
      if (first < start) {
        known_.insert({first, {start, known.of, known.is_mapped}});
      }
      if (known.end > end) {
        known_.insert({end, known});
      }
      size_t from = std::max(first, start);
      auto action = known.is_mapped ? TraceEntry::SEGMENT_UNMAP : TraceEntry::SEGMENT_FREE;
      tell(entry_about(
          action, device_, from, std::min(known.end, end) - from, known.of, nullptr));
    }
  }

  const DeviceIndex device_;
  // A tracker may ask.
  std::recursive_mutex mutex_;
  std::vector<AllocatorTraceTracker> trackers_;
  std::atomic<bool> are_any_{false};
  std::atomic<bool> has_begun_{false};
  // By first address.
  std::map<size_t, Known> known_;
};

}  // namespace drystone
