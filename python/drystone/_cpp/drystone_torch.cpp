// Drystone as PyTorch's own kind of allocator: the one file that is compiled.
//
// Invariant: PyTorch's allocator is changed before CUDA is used, at both places where PyTorch keeps
// it, and never again.

#include "address.h"
#include "allocator.h"
#include "checkpoint.h"
#include "memory.h"
#include "order.h"
#include "service.h"

extern "C" {

// Null, or why nothing was changed. Valid for ever. The fraction is what devices are limited to.
__attribute__((visibility("default"))) const char* drystone_native_install(double fraction) {
  auto& current = drystone::caching::allocator;
  if (current.load() != nullptr && current.load()->initialized()) {
    return "CUDA is in use already";
  }
  drystone::Allocator& own = drystone::Allocator::get();
  own.limited_to(fraction);
  current.store(&own);
  // Before those of PyTorch, of any priority.
  c10::SetAllocator(c10::DeviceType::CUDA, &own, UINT8_MAX);
  drystone::trace_events();
  return nullptr;
}

}  // extern "C"
