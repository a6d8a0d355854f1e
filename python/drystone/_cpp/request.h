// What a thread asks for, and what it says of itself: the part of an entry that no figure tells.

#pragma once

#include <stack>
#include <string>

#include "version.h"

namespace drystone {

// A request to allocate, or a block that it gave.
struct Request {
  size_t bytes;
  cudaStream_t stream;
  PoolName pool;
  Context context;
};

// The text that a thread is compiling, as PyTorch names it.
inline std::stack<std::string>& compile_contexts() {
  thread_local std::stack<std::string> texts;
  return texts;
}

// What a thread says of its requests.
inline std::string& metadata() {
  thread_local std::string text;
  return text;
}

// An entry about a block or segment of a request.
inline TraceEntry entry_about(
    TraceEntry::Action action, DeviceIndex device, size_t address, size_t bytes, const Request& of,
    const Context& context) {
  auto& texts = compile_contexts();
  return entry_of(
      action, device, address, bytes, of.stream, of.pool, context,
      texts.empty() ? "N/A" : texts.top(), metadata());
}

}  // namespace drystone
