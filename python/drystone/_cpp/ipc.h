// Memory that goes from process to process, by the text that PyTorch sends.
//
// Plain memory goes by the driver's own handle. Mapped memory goes by the descriptors of its
// handles, which the receiver takes out of the sender by their numbers. That is the way of
// PyTorch's expandable segments, and their form is spoken where it can be: where all handles have
// one size. Another form of ours gives each its size.
//
// Invariant: a text is opened once while anybody uses it; what it is read from may be anything.

#pragma once

#include <c10/core/DeviceGuard.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAFunctions.h>

#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <map>
#include <memory>
#include <mutex>
#include <type_traits>
#include <vector>

#include "library.h"

// Of kernels since 5.3 and 5.6, which the C library may be older than.
#ifndef SYS_pidfd_open
#define SYS_pidfd_open 434
#endif
#ifndef SYS_pidfd_getfd
#define SYS_pidfd_getfd 438
#endif
#ifndef PR_SET_PTRACER
#define PR_SET_PTRACER 0x59616d61
#define PR_SET_PTRACER_ANY (-1UL)
#endif

namespace drystone {

// The oldest version whose forms these are: PyTorch reads all up to its own.
constexpr char FORM_VERSION = 1;
// The last version in which expandable segments have this form: that of 2.8 to 2.12.
constexpr char LAST_EXPANDABLE = 2;
constexpr char PLAIN = 'c';
constexpr char EXPANDABLE = 'e';
// Ours.
constexpr char MAPPED = 'd';

// How expandable segments begin; then the number of each descriptor.
struct ExpandableForm {
  int32_t process;
  int32_t unused;
  uint64_t handle_bytes;
  uint64_t handle_count;
};

// How our form begins; then each handle.
struct MappedForm {
  int32_t process;
  int32_t unused;
  uint64_t handle_count;
};

// Without padding, whose bytes would tell two texts of one memory apart.
struct MappedHandle {
  uint64_t bytes;
  int64_t descriptor;
};

template <class T>
void put(std::string& text, const T& value) {
  static_assert(std::is_trivially_copyable<T>::value);
  text.append(reinterpret_cast<const char*>(&value), sizeof value);
}

// Reads a text from its start to its end.
class Reader {
 public:
  Reader(const std::string& text, size_t at) : text_(text), at_(at) {}

  // Whether there is nothing left but so many of a type.
  template <class T>
  bool has_just(uint64_t count) const {
    size_t rest = text_.size() - at_;
    return rest % sizeof(T) == 0 && rest / sizeof(T) == count;
  }

  template <class T>
  T take() {
    T value{};
    TORCH_CHECK(text_.size() - at_ >= sizeof value, "the handle of another process's memory is cut off");
    std::memcpy(&value, text_.data() + at_, sizeof value);
    at_ += sizeof value;
    return value;
  }

 private:
  const std::string& text_;
  size_t at_;
};

// The Yama security module may let a process's descriptors be taken by its ancestors alone. A
// receiver is rarely one, so who shares memory lets others, of the same user as ever.
inline void let_others_take_descriptors() {
  static const bool is_done = [] {
    int scope = 0;
    std::ifstream("/proc/sys/kernel/yama/ptrace_scope") >> scope;
    return scope == 1 && prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY, 0, 0, 0) == 0;
  }();
  (void)is_done;
}

inline caching::ShareableHandle share_plain(void* address, const std::string& refusal) {
  size_t bytes = 0;
  void* base = drystone_base_allocation(address, &bytes);
  TORCH_CHECK(base != nullptr, "drystone: ", drystone_last_error_message());
  cudaIpcMemHandle_t handle;
  if (cudaIpcGetMemHandle(&handle, base) != cudaSuccess) {
    (void)cudaGetLastError();
    TORCH_CHECK(false, "this memory cannot be shared with another process: ", refusal);
  }
  std::string text(handle.reserved, sizeof handle.reserved);
  return {static_cast<char*>(address) - static_cast<char*>(base), std::move(text)};
}

// What to send for the block at an address. Every version of PyTorch takes the handle of plain
// memory as bare bytes.
inline caching::ShareableHandle share(void* address) {
  std::vector<drystone_shared_handle> handles(16);
  size_t count = 0;
  size_t offset = 0;
  drystone_status status = DRYSTONE_STATUS_OK;
  for (;;) {
    count = handles.size();
    status = drystone_export(address, handles.data(), &count, &offset);
    if (status != DRYSTONE_STATUS_BUFFER_TOO_SMALL) {
      break;
    }
    handles.resize(count);
  }
  if (status == DRYSTONE_STATUS_NOT_SUPPORTED) {
    return share_plain(address, drystone_last_error_message());
  }
  check(status);
  handles.resize(count);
  let_others_take_descriptors();
  uint64_t bytes = handles.front().bytes;
  bool is_expandable = DRYSTONE_TORCH < 213 &&
      std::all_of(handles.begin(), handles.end(), [&](auto& one) { return one.bytes == bytes; });
  std::string text{FORM_VERSION, is_expandable ? EXPANDABLE : MAPPED};
  if (is_expandable) {
    put(text, ExpandableForm{getpid(), 0, bytes, count});
    for (const drystone_shared_handle& one : handles) {
      put(text, one.descriptor);
    }
  } else {
    put(text, MappedForm{getpid(), 0, count});
    for (const drystone_shared_handle& one : handles) {
      put(text, MappedHandle{one.bytes, one.descriptor});
    }
  }
  return {static_cast<ptrdiff_t>(offset), std::move(text)};
}

// Descriptors of another process, as this one's while it lives.
class Descriptors {
 public:
  explicit Descriptors(int32_t process) : process_(process) {
    file_ = static_cast<int>(syscall(SYS_pidfd_open, process, 0));
    TORCH_CHECK(file_ != -1, refusal("pidfd_open"));
  }
  ~Descriptors() {
    for (int own : own_) {
      close(own);
    }
    close(file_);
  }
  Descriptors(const Descriptors&) = delete;
  Descriptors& operator=(const Descriptors&) = delete;

  int take(int number) {
    int own = static_cast<int>(syscall(SYS_pidfd_getfd, file_, number, 0));
    TORCH_CHECK(own != -1, refusal("pidfd_getfd"));
    own_.push_back(own);
    return own;
  }

 private:
  std::string refusal(const char* call) const {
    std::string text = "memory of process " + std::to_string(process_) + " cannot be opened: ";
    text += std::string(call) + ": " + std::strerror(errno) + ". ";
    switch (errno) {
      case ESRCH:
        return text + "The process has ended.";
      case EBADF:
        return text + "It has freed the tensor, or is in another container.";
      case EMFILE:
        return text + "No descriptor is left: raise `ulimit -n`.";
      default:
        return text +
            "The system must let one process take descriptors of another (kernel 5.6; in a "
            "container --cap-add=SYS_PTRACE); else run the sender with drystone's "
            "backend=\"malloc\", or without expandable segments.";
    }
  }

  int32_t process_;
  int file_;
  std::vector<int> own_;
};

// Memory of other processes, opened once while anybody uses it.
class Imports {
 public:
  std::shared_ptr<void> open(const std::string& handle) {
    std::lock_guard<std::mutex> lock(mutex_);
    auto known = open_.find(handle);
    if (known != open_.end()) {
      if (auto memory = known->second.lock()) {
        return memory;
      }
    }
    DeviceIndex device = c10::cuda::current_device();
    bool is_mapped = false;
    void* address = import(handle, device, is_mapped);
    auto close = [this, handle, device, is_mapped](void* opened) {
      c10::DeviceGuard guard({c10::DeviceType::CUDA, device});
      std::lock_guard<std::mutex> lock(mutex_);
      if (is_mapped) {
        (void)drystone_close_import(opened);
      } else {
        (void)cudaIpcCloseMemHandle(opened);
      }
      auto found = open_.find(handle);
      if (found != open_.end() && found->second.expired()) {
        open_.erase(found);
      }
    };
    std::shared_ptr<void> memory(address, close);
    open_[handle] = memory;
    return memory;
  }

 private:
  static void* import(const std::string& text, DeviceIndex device, bool& is_mapped) {
    constexpr size_t PLAIN_BYTES = sizeof(cudaIpcMemHandle_t::reserved);
    bool is_bare = text.size() == PLAIN_BYTES;
    TORCH_CHECK(is_bare || text.size() > 2, "the handle of another process's memory is cut off");
    Reader reader(text, is_bare ? 0 : 2);
    char kind = is_bare ? PLAIN : text[1];
    is_mapped = kind != PLAIN;
    switch (kind) {
      case PLAIN:
        return open_plain(reader.take<cudaIpcMemHandle_t>());
      case EXPANDABLE:
        TORCH_CHECK(
            text[0] <= LAST_EXPANDABLE,
            "the sender's expandable segments have the form of PyTorch 2.13 or later, which "
            "drystone cannot read: run the sender under drystone, or without expandable segments");
        return open_expandable(reader, device);
      case MAPPED:
        return open_mapped(reader, device);
      default:
        TORCH_CHECK(
            false, "the handle of another process's memory has a form that is not known: '", kind,
            "', version ", static_cast<int>(text[0]));
    }
  }

  static void* open_plain(const cudaIpcMemHandle_t& handle) {
    void* address = nullptr;
    C10_CUDA_CHECK(cudaIpcOpenMemHandle(&address, handle, cudaIpcMemLazyEnablePeerAccess));
    return address;
  }

  static void* open_expandable(Reader reader, DeviceIndex device) {
    auto form = reader.take<ExpandableForm>();
    TORCH_CHECK(
        reader.has_just<int32_t>(form.handle_count),
        "the sender shares memory by other handles than descriptors, over fabric perhaps: run it "
        "under drystone, or without expandable segments");
    Descriptors descriptors(form.process);
    std::vector<drystone_shared_handle> handles(form.handle_count);
    for (drystone_shared_handle& one : handles) {
      one = {form.handle_bytes, descriptors.take(reader.take<int32_t>())};
    }
    return map(handles, device);
  }

  static void* open_mapped(Reader reader, DeviceIndex device) {
    auto form = reader.take<MappedForm>();
    TORCH_CHECK(
        reader.has_just<MappedHandle>(form.handle_count),
        "the handle of another process's memory is cut off");
    Descriptors descriptors(form.process);
    std::vector<drystone_shared_handle> handles(form.handle_count);
    for (drystone_shared_handle& one : handles) {
      auto sent = reader.take<MappedHandle>();
      one = {sent.bytes, descriptors.take(static_cast<int>(sent.descriptor))};
    }
    return map(handles, device);
  }

  static void* map(const std::vector<drystone_shared_handle>& handles, DeviceIndex device) {
    void* address = nullptr;
    check(drystone_import(device, handles.data(), handles.size(), &address));
    return address;
  }

  std::mutex mutex_;
  std::map<std::string, std::weak_ptr<void>> open_;
};

}  // namespace drystone
