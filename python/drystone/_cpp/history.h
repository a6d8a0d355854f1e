// The history of a device's memory.
//
// Drystone keeps none. While somebody wants one, or follows blocks, every operation on the device is
// made under this one lock and followed by a look at what it changed: which blocks are no longer
// pending, and of a history which addresses have memory and which do not. Invariant: the entries
// since recording began turn what was held then into what is held now. Trackers are told of blocks
// here, of segments by themselves.

#pragma once

#include <c10/util/ApproximateClock.h>

#include <algorithm>
#include <atomic>
#include <mutex>
#include <unordered_map>
#include <unordered_set>

#include "library.h"
#include "request.h"
#include "trackers.h"

namespace drystone {

struct Recording {
  bool is_on = false;
  size_t entries_max = 1;
  RecordContext contexts = RecordContext::NEVER;
  std::unordered_set<int> skipped;
};

class History {
 public:
  using Lock = std::unique_lock<std::recursive_mutex>;

  History(DeviceIndex device, Trackers& trackers) : device_(device), trackers_(trackers) {}

  // Whether operations are to be made under the lock and told.
  bool is_wanted() const {
    return is_wanted_.load(std::memory_order_acquire);
  }

  Lock lock() {
    return is_wanted() ? Lock(mutex_) : Lock();
  }

  void record(Recording recording, bool clears) {
    Lock lock(mutex_);
    recording_ = std::move(recording);
    if (clears) {
      entries_.clear();
      oldest_ = 0;
    } else {
      keep_newest(recording_.entries_max);
    }
    begin();
  }

  void attach(AllocatorTraceTracker tracker) {
    Lock lock(mutex_);
    trackers_.attach(std::move(tracker));
    begin();
  }

  // The lock is held. The mark says how it was asked for, where that is unusual.
  void allocated(void* address, const Request& request, const char* mark = "") {
    settle(request.context);
    live_[address] = request;
    freed_.erase(address);
    tell(TraceEntry::ALLOC, number(address), request, request.bytes, mark);
  }

  // The lock is held, and the block still live.
  void frees(const drystone_block& block, const Context& context) {
    Request freed{block.requested_bytes, block.stream, DEFAULT_POOL, nullptr};
    if (auto known = live_.extract(block.address)) {
      freed = std::move(known.mapped());
    }
    Context allocated = freed.context;
    if (context) {
      freed.context = context;
    }
    tell(TraceEntry::FREE_REQUESTED, number(block.address), freed, freed.bytes);
    if (recording_.is_on) {
      freed_[block.address] = freed.bytes;
    }
    leaving_[block.address] = {std::move(freed), std::move(allocated)};
  }

  // Says what the last operation changed beside its own block. The lock is held.
  void settle(const Context& cause) {
    if (!is_wanted()) {
      return;
    }
    drystone_stats stats = stats_of(device_);
    size_t pending = stats.active_blocks.current - stats.allocations.current;
    bool has_memory_changed = recording_.is_on && !(Held(stats) == held_);
    if (!has_memory_changed && pending == leaving_.size()) {
      return;
    }
    if (!has_memory_changed && pending == 0) {
      complete([](void*) { return true; });
      return;
    }
    Layout layout = layout_of(device_);
    held_ = Held(stats);
    std::unordered_set<void*> waiting;
    for (const drystone_block& block : layout.blocks) {
      if (block.is_pending) {
        waiting.insert(block.address);
      }
    }
    complete([&](void* address) { return waiting.count(address) == 0; });
    if (recording_.is_on) {
      compare(ranges_of(layout), cause);
    }
  }

  // Says something of a block after its request.
  void annotate(const drystone_block& block, const std::string& text) {
    Lock lock = this->lock();
    auto known = live_.find(block.address);
    if (known == live_.end()) {
      return;
    }
    std::string before = std::exchange(metadata(), text);
    tell(ANNOTATION, number(block.address), known->second, known->second.bytes);
    metadata() = std::move(before);
  }

  void refused(const Request& request, size_t free_bytes) {
    Lock lock = this->lock();
    tell(TraceEntry::OOM, free_bytes, request, request.bytes);
  }

  void looked_at(size_t active_bytes) {
    Lock lock = this->lock();
    tell(TraceEntry::SNAPSHOT, 0, {0, nullptr, DEFAULT_POOL, nullptr}, active_bytes);
  }

  // Oldest first. The lock is held.
  std::vector<TraceEntry> entries() const {
    std::vector<TraceEntry> ordered;
    ordered.reserve(entries_.size());
    for (size_t at = 0; at < entries_.size(); ++at) {
      ordered.push_back(entries_[(oldest_ + at) % entries_.size()]);
    }
    return ordered;
  }

  // Where a live or pending block was allocated. The lock is held.
  Context context_of(void* address) const {
    if (auto found = live_.find(address); found != live_.end()) {
      return found->second.context;
    }
    auto found = leaving_.find(address);
    return found == leaving_.end() ? nullptr : found->second.allocated;
  }

  // What was last asked for where a free block begins, as PyTorch's free blocks have it; 0 if
  // nothing was recorded there. The lock is held.
  size_t asked_before(void* address) const {
    auto found = freed_.find(address);
    return found == freed_.end() ? 0 : found->second;
  }

  // Where a segment was obtained. The lock is held.
  Context context_of_segment(void* address) const {
    auto found = segment_contexts_.find(number(address));
    return found == segment_contexts_.end() ? nullptr : found->second;
  }

 private:
  // Figures that change whenever memory comes or goes.
  struct Held {
    Held() = default;
    explicit Held(const drystone_stats& stats) {
      size_t* to = figures;
      for (const auto* size_class : {&stats.small, &stats.large}) {
        for (const auto* gauge : {&size_class->reserved_bytes, &size_class->segments}) {
          *to++ = gauge->current;
          *to++ = gauge->total;
        }
      }
    }
    bool operator==(const Held& other) const {
      return std::equal(std::begin(figures), std::end(figures), other.figures);
    }
    size_t figures[8] = {};
  };

  // A block that was freed, with the context of its free, and where it had been allocated.
  struct Leaving {
    Request request;
    Context allocated;
  };

  // Contiguous memory of one stream. Its pool's name is no part of it, since memory outlives pools.
  struct Range {
    size_t start;
    size_t end;
    drystone_segment segment;

    bool is_of(const Range& other) const {
      return segment.stream == other.segment.stream &&
          segment.is_mapped == other.segment.is_mapped;
    }
    // What is allocated as one goes as one.
    bool overlaps(const Range& other) const {
      bool is_whole = start == other.start && end == other.end;
      return is_of(other) && (segment.is_mapped || is_whole) && start < other.end &&
          other.start < end;
    }
  };

  static std::vector<Range> ranges_of(const Layout& layout) {
    std::vector<Range> ranges;
    for (const drystone_segment& segment : layout.segments) {
      size_t start = number(segment.address);
      ranges.push_back({start, start + segment.bytes, segment});
    }
    return ranges;
  }

  // Takes what is held now as the start, as far as nothing is known yet.
  void begin() {
    bool was_wanted = is_wanted();
    bool was_compared = std::exchange(is_compared_, recording_.is_on);
    bool is_wanted = recording_.is_on || trackers_.are_any();
    is_wanted_.store(is_wanted, std::memory_order_release);
    if (was_wanted == is_wanted && was_compared == is_compared_) {
      return;
    }
    ranges_.clear();
    segment_contexts_.clear();
    freed_.clear();
    if (!is_wanted) {
      live_.clear();
      leaving_.clear();
      return;
    }
    held_ = Held();
    if (!is_in_use(device_)) {
      // It holds nothing, and a question would open it: a context on each device of each process.
      return;
    }
    held_ = Held(stats_of(device_));
    Layout layout = layout_of(device_);
    ranges_ = ranges_of(layout);
    if (was_wanted) {
      return;
    }
    each_segment(layout, [this](const drystone_segment& segment, const drystone_block* block) {
      for (size_t at = 0; at < segment.block_count; ++at, ++block) {
        Request known{block->requested_bytes, block->stream, {segment.id0, segment.id1}, nullptr};
        if (block->is_live) {
          live_[block->address] = known;
        } else if (block->is_pending) {
          leaving_[block->address] = {known, nullptr};
        }
      }
    });
  }

  template <typename Function>
  void complete(Function is_complete) {
    for (auto at = leaving_.begin(); at != leaving_.end();) {
      if (is_complete(at->first)) {
        const Request& freed = at->second.request;
        tell(TraceEntry::FREE_COMPLETED, number(at->first), freed, freed.bytes);
        at = leaving_.erase(at);
      } else {
        ++at;
      }
    }
  }

  // What went, then what came.
  void compare(std::vector<Range> now, const Context& cause) {
    each_difference(ranges_, now, [&](const Range& range, size_t start, size_t end) {
      segment_contexts_.erase(start);
      auto action = range.segment.is_mapped ? TraceEntry::SEGMENT_UNMAP : TraceEntry::SEGMENT_FREE;
      tell_segment(action, range, start, end, cause);
    });
    each_difference(now, ranges_, [&](const Range& range, size_t start, size_t end) {
      // Of live blocks alone nothing may be told that outlives them.
      segment_contexts_[start] = recording_.contexts >= RecordContext::ALLOC ? cause : nullptr;
      auto action = range.segment.is_mapped ? TraceEntry::SEGMENT_MAP : TraceEntry::SEGMENT_ALLOC;
      tell_segment(action, range, start, end, cause);
    });
    ranges_ = std::move(now);
  }

  // The parts of some ranges that the others do not cover. Both are in address order.
  template <typename Function>
  static void each_difference(
      const std::vector<Range>& some, const std::vector<Range>& others, Function function) {
    auto other = others.begin();
    for (const Range& range : some) {
      while (other != others.end() && other->end <= range.start) {
        ++other;
      }
      size_t start = range.start;
      for (auto at = other; at != others.end() && at->start < range.end; ++at) {
        if (!at->overlaps(range)) {
          continue;
        }
        if (at->start > start) {
          function(range, start, at->start);
        }
        start = std::max(start, at->end);
      }
      if (start < range.end) {
        function(range, start, range.end);
      }
    }
  }

  void tell_segment(
      TraceEntry::Action action, const Range& range, size_t start, size_t end,
      const Context& cause) {
    const drystone_segment& segment = range.segment;
    tell(action, start, {0, segment.stream, {segment.id0, segment.id1}, cause}, end - start);
  }

  void tell(
      TraceEntry::Action action, size_t address, const Request& of, size_t bytes,
      const char* mark = "") {
    if (!is_wanted() || recording_.skipped.count(action) != 0) {
      return;
    }
    bool has_context = recording_.contexts >= RecordContext::ALLOC;
    TraceEntry entry =
        entry_about(action, device_, address, bytes, of, has_context ? of.context : nullptr);
    set_mark(entry, mark);
    if (!is_of_segment(action)) {
      trackers_.tell(entry);
    }
    if (!recording_.is_on || recording_.entries_max == 0) {
      return;
    }
    if (entries_.size() < recording_.entries_max) {
      entries_.push_back(std::move(entry));
    } else {
      entries_[oldest_] = std::move(entry);
      oldest_ = (oldest_ + 1) % entries_.size();
    }
  }

  static bool is_of_segment(TraceEntry::Action action) {
    return action == TraceEntry::SEGMENT_ALLOC || action == TraceEntry::SEGMENT_FREE ||
        action == TraceEntry::SEGMENT_MAP || action == TraceEntry::SEGMENT_UNMAP;
  }

  void keep_newest(size_t count) {
    std::vector<TraceEntry> ordered = entries();
    size_t surplus = ordered.size() - std::min(ordered.size(), count);
    entries_.assign(
        std::make_move_iterator(ordered.begin() + static_cast<ptrdiff_t>(surplus)),
        std::make_move_iterator(ordered.end()));
    oldest_ = 0;
  }

  const DeviceIndex device_;
  std::recursive_mutex mutex_;
  std::atomic<bool> is_wanted_{false};
  Recording recording_;
  // Whether `ranges_` are those of now.
  bool is_compared_ = false;
  Trackers& trackers_;

  // A ring once it is full.
  std::vector<TraceEntry> entries_;
  size_t oldest_ = 0;

  // Blocks in the program's hands, and those it freed that are pending.
  std::unordered_map<void*, Request> live_;
  std::unordered_map<void*, Leaving> leaving_;
  // What was asked for where blocks were freed while a history was recorded, and none was given
  // since. Trackers alone, which a program may have all its life, leave none.
  std::unordered_map<void*, size_t> freed_;
  // Memory as far as it was told.
  std::vector<Range> ranges_;
  std::unordered_map<size_t, Context> segment_contexts_;
  Held held_;
};

}  // namespace drystone
