// What the program orders itself: its events, what its streams and its host wait for, and which
// streams it has.
//
// PyTorch says so to a tracer, of which it has one at most. Where nobody else is, this is the
// tracer, and tells Drystone: memory that one stream freed then serves another that waits for it
// anyway. Invariant: who traces beside, such as the sanitizer for streams, takes this one's place.

#pragma once

#include <c10/core/SymBool.h>
#include <c10/core/TensorImpl.h>
#include <c10/core/impl/GPUTrace.h>
#include <c10/core/impl/PyObjectSlot.h>
#include <cuda_runtime_api.h>

#include <type_traits>

#include "library.h"

namespace drystone {

inline void* pointer(uintptr_t number) {
  return reinterpret_cast<void*>(number);
}

// The device that is current, or -1: PyTorch makes that of the stream current before it tells.
inline int current_device() {
  int device = -1;
  return cudaGetDevice(&device) == cudaSuccess ? device : -1;
}

// What a capture orders are edges of its graph.
inline bool is_captured(uintptr_t stream) {
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  bool is_known = cudaStreamIsCapturing(static_cast<cudaStream_t>(pointer(stream)), &status) ==
      cudaSuccess;
  return !is_known || status != cudaStreamCaptureStatusNone;
}

[[noreturn]] inline void not_an_interpreter() {
  TORCH_CHECK(false, "drystone: only events are traced");
}

// No method is marked as an override: releases of PyTorch differ in which they have. What a later
// one adds leaves this abstract, and then nothing is traced.
class EventTracer : public c10::impl::PyInterpreterVTable {
 public:
  void trace_gpu_event_creation(c10::DeviceType, uintptr_t) const {}
  void trace_gpu_event_deletion(c10::DeviceType, uintptr_t event) const {
    (void)drystone_event_destroyed(pointer(event));
  }
  void trace_gpu_event_record(c10::DeviceType, uintptr_t event, uintptr_t stream) const {
    bool is_known = !is_captured(stream);
    (void)drystone_event_recorded(is_known ? current_device() : -1, pointer(event), pointer(stream));
  }
  void trace_gpu_event_wait(c10::DeviceType, uintptr_t event, uintptr_t stream) const {
    if (!is_captured(stream)) {
      (void)drystone_event_waited(current_device(), pointer(event), pointer(stream));
    }
  }
  void trace_gpu_device_synchronization(c10::DeviceType) const {
    (void)drystone_synchronizing(current_device());
  }
  void trace_gpu_memory_allocation(c10::DeviceType, uintptr_t) const {}
  void trace_gpu_memory_deallocation(c10::DeviceType, uintptr_t) const {}
  void trace_gpu_stream_creation(c10::DeviceType, uintptr_t) const {}
  void trace_gpu_stream_synchronization(c10::DeviceType, uintptr_t) const {}
  void trace_gpu_event_synchronization(c10::DeviceType, uintptr_t) const {}

  // PyTorch asks the rest of the interpreter of a tensor, which this is never.
  std::string name() const {
    return "drystone";
  }
  void incref(PyObject*) const {}
  void decref(PyObject*) const {}
  void decref(PyObject*, bool) const {}
  bool try_incref(const c10::impl::PyObjectSlot&) const {
    return false;
  }
  size_t refcnt(PyObject*) const {
    return 0;
  }
  c10::intrusive_ptr<c10::TensorImpl> detach(const c10::TensorImpl*) const {
    not_an_interpreter();
  }
  void dispatch(const c10::OperatorHandle&, torch::jit::Stack*) const {}
  void reportErrorCallback(PyObject*, c10::DispatchKey) const {}
  void python_op_registration_trampoline(
      const c10::OperatorHandle&, c10::DispatchKey, c10::DispatchKeySet, torch::jit::Stack*, bool,
      bool) const {}
  void throw_abstract_impl_not_imported_error(std::string, const char*, const char*) const {
    not_an_interpreter();
  }
  void python_dispatcher(
      const c10::OperatorHandle&, c10::DispatchKeySet, torch::jit::Stack*) const {}
  bool is_contiguous(const c10::TensorImpl*, at::MemoryFormat) const {
    not_an_interpreter();
  }
  c10::SymBool sym_is_contiguous(const c10::TensorImpl*, at::MemoryFormat) const {
    not_an_interpreter();
  }
  bool is_strides_like(const c10::TensorImpl*, at::MemoryFormat) const {
    not_an_interpreter();
  }
  bool is_non_overlapping_and_dense(const c10::TensorImpl*) const {
    not_an_interpreter();
  }
  c10::Device device(const c10::TensorImpl*) const {
    not_an_interpreter();
  }
  int64_t dim(const c10::TensorImpl*) const {
    not_an_interpreter();
  }
  c10::IntArrayRef strides(const c10::TensorImpl*) const {
    not_an_interpreter();
  }
  c10::IntArrayRef sizes(const c10::TensorImpl*) const {
    not_an_interpreter();
  }
  c10::SymIntArrayRef sym_sizes(const c10::TensorImpl*) const {
    not_an_interpreter();
  }
  c10::Layout layout(const c10::TensorImpl*) const {
    not_an_interpreter();
  }
  int64_t numel(const c10::TensorImpl*) const {
    not_an_interpreter();
  }
  c10::SymInt sym_numel(const c10::TensorImpl*) const {
    not_an_interpreter();
  }
  c10::SymIntArrayRef sym_strides(const c10::TensorImpl*) const {
    not_an_interpreter();
  }
  c10::SymInt sym_storage_offset(const c10::TensorImpl*) const {
    not_an_interpreter();
  }
  void reset_backward_hooks(const c10::TensorImpl*) const {}
};

// Becomes the tracer, if there is none and this PyTorch's is known. Lives as long as the process.
template <class Tracer = EventTracer>
inline void trace_events() {
  using c10::impl::GPUTrace;
  if constexpr (!std::is_abstract_v<Tracer>) {
    if (GPUTrace::get_trace() == nullptr) {
      // Not by `set_trace`, which serves the first caller alone: that stays the program's.
      GPUTrace::gpuTraceState.store(
          new c10::impl::PyInterpreter(new Tracer()), std::memory_order_release);
      GPUTrace::haveState = true;
    }
  }
}

}  // namespace drystone
