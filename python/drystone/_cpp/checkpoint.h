// Live blocks of a private pool, noted and put back: what trees of CUDA graphs need.
//
// Invariant: a pool that is put back has the live blocks that were noted, at their addresses, and
// no others; no driver call is made.

#pragma once

#include "allocator.h"

namespace drystone {

struct Checkpoint final : caching::AllocatorState {
  PoolName pool;
  std::vector<drystone_block> blocks;
};

// The live blocks of a pool, in address order.
inline std::vector<drystone_block> live_blocks(DeviceIndex device, PoolName pool) {
  std::vector<drystone_block> live;
  each_segment(layout_of(device), [&](const drystone_segment& segment, const auto* block) {
    if (PoolName{segment.id0, segment.id1} != pool) {
      return;
    }
    for (size_t at = 0; at < segment.block_count; ++at) {
      TORCH_CHECK(
          !block[at].is_pending,
          "Events should have synchronized when checkpointing block at ", block[at].address);
      if (block[at].is_live) {
        live.push_back(block[at]);
      }
    }
  });
  return live;
}

inline bool Allocator::checkPoolLiveAllocations(
    DeviceIndex device, PoolName pool, const std::unordered_set<void*>& expected) {
  TORCH_CHECK(at(device).pools.uses(pool) > 0, "Could not find pool of id");
  std::vector<drystone_block> live = live_blocks(device, pool);
  auto is_expected = [&](const drystone_block& block) {
    return expected.count(block.address) != 0;
  };
  return live.size() == expected.size() && std::all_of(live.begin(), live.end(), is_expected);
}

inline std::shared_ptr<caching::AllocatorState> Allocator::getCheckpointState(
    DeviceIndex device, PoolName pool) {
  TORCH_CHECK(at(device).pools.uses(pool) > 0, "Could not find pool of id");
  auto state = std::make_shared<Checkpoint>();
  state->pool = pool;
  state->blocks = live_blocks(device, pool);
  return state;
}

inline caching::CheckpointDelta Allocator::setCheckpointPoolState(
    DeviceIndex device, std::shared_ptr<caching::AllocatorState> state) {
  auto* checkpoint = dynamic_cast<Checkpoint*>(state.get());
  TORCH_CHECK(checkpoint != nullptr, "this checkpoint is not one of drystone's");
  TORCH_CHECK(at(device).pools.uses(checkpoint->pool) > 0, "Could not find pool of id");
  caching::CheckpointDelta delta;
  for (const drystone_block& block : live_blocks(device, checkpoint->pool)) {
    check(give(block.address));
    delta.ptrs_freed.push_back(block.address);
  }
  Device& of = at(device);
  Context context = gather(RecordContext::STATE);
  c10::Device owner(c10::DeviceType::CUDA, device);
  for (const drystone_block& block : checkpoint->blocks) {
    History::Lock lock = of.history.lock();
    check(drystone_allocate_at(
        block.address, block.bytes, block.requested_bytes, device, block.stream,
        checkpoint->pool.first, checkpoint->pool.second));
    if (lock) {
      of.history.allocated(
          block.address, {block.requested_bytes, block.stream, checkpoint->pool, context});
    }
    delta.dataptrs_allocd.emplace_back(block.address, block.address, &deallocate, owner);
  }
  return delta;
}

}  // namespace drystone
