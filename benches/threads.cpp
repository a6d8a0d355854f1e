// Threads that share a device, through PyTorch's own allocator or the library, on the PyTorch rig.
//
//   threads random|lifo|handover [--so LIBRARY] [--ops N]     without --so: PyTorch's own allocator
//
// random: two threads, 256 live blocks each, sizes of 512 bytes to 16 MiB, any of four streams.
// lifo: two threads, a stream each; 64 sizes are allocated and freed again, the last one first.
// handover: one thread allocates; the other one records a use on its own stream, and frees.
//
// Prints processor time of all threads for each operation, and how long mallocs took; the best of
// five passes after a first one. DIR is where the rig was built:
//
//   g++ -O2 -std=c++20 -I../shared/rig -IDIR/hdr/nvidia/cu13/include
//     -IDIR/torch-2.11.0/torch/include benches/threads.cpp -o DIR/out/threads
//     -LDIR/torch-2.11.0/torch/lib -lc10_cuda -lc10 DIR/out/libcud*.so*
//     -Wl,-rpath,DIR/out:DIR/torch-2.11.0/torch/lib,--no-as-needed DIR/out/libnvidia-ml.so.1
//   FAKECUDA_EVENT_DELAY=64 DIR/out/threads random [--so libdrystone.so]
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAStream.h>
#include <c10/cuda/PeerToPeerAccess.h>
#include <cuda_runtime_api.h>
#include <dlfcn.h>
#include <time.h>
#include <x86intrin.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

#include "fakecuda_core.h"

// Exported by libc10_cuda.so; libtorch_cuda installs it otherwise.
namespace c10::cuda::_internal {
void setHasPrimaryContext(bool (*)(c10::DeviceIndex));
}

constexpr int kThreads = 2;
constexpr int kSizes = 64;
constexpr size_t kLive = 256;

struct Native {
  c10::cuda::CUDACachingAllocator::CUDAAllocator* allocator;
  void* allocate(size_t bytes, cudaStream_t s) {
    return allocator->raw_alloc_with_stream(bytes, s);
  }
  void free(void* at, size_t, cudaStream_t) { allocator->raw_delete(at); }
  void record(void* at, cudaStream_t s) {
    c10::DataPtr data(at, at, allocator->raw_deleter(), c10::Device(c10::DeviceType::CUDA, 0));
    allocator->recordStream(data, c10::cuda::getStreamFromExternal(s, 0));
    (void)data.release_context();
  }
};

struct Library {
  void* (*malloc_)(size_t, int, cudaStream_t);
  void (*free_)(void*, size_t, int, cudaStream_t);
  void (*record_)(void*, cudaStream_t);
  void* allocate(size_t bytes, cudaStream_t s) { return malloc_(bytes, 0, s); }
  void free(void* at, size_t bytes, cudaStream_t s) { free_(at, bytes, 0, s); }
  void record(void* at, cudaStream_t s) { record_(at, s); }
};

struct Block {
  void* at;
  size_t bytes;
  cudaStream_t stream;
};

using Cycles = std::vector<uint32_t>;
using Streams = std::vector<cudaStream_t>;

// What a thread has of its own.
struct Worker {
  int number;
  uint64_t random;
  std::vector<Block> live = std::vector<Block>(kLive);
  Cycles mallocs;

  uint64_t next() {
    random ^= random << 13;
    random ^= random >> 7;
    return random ^= random << 17;
  }

  template <class A>
  Block allocate(A& allocator, size_t bytes, cudaStream_t stream) {
    const uint64_t before = __rdtsc();
    void* at = allocator.allocate(bytes, stream);
    mallocs.push_back(uint32_t(__rdtsc() - before));
    if (!at) fprintf(stderr, "out of memory\n"), exit(1);
    return {at, bytes, stream};
  }
};

template <class A>
void random_sizes(A& allocator, Worker& own, const Streams& streams, size_t ops) {
  for (size_t i = 0; i < ops; i += 2) {
    Block& block = own.live[own.next() % kLive];
    if (block.at) allocator.free(block.at, block.bytes, block.stream);
    const uint64_t drawn = own.next();
    const size_t bytes = 512 + (drawn >> 20) % (512ull << drawn % 16);
    block = own.allocate(allocator, bytes, streams[(drawn >> 8) % streams.size()]);
  }
}

size_t size_of(size_t number) { return 1000 * (number + 1) * (number + 1); }

template <class A>
void last_in_first_out(A& allocator, Worker& own, const Streams& streams, size_t ops) {
  for (size_t i = 0; i < ops; i += 2 * kSizes) {
    for (int n = 0; n < kSizes; n++)
      own.live[n] = own.allocate(allocator, size_of(n), streams[own.number]);
    for (int n = kSizes; n-- > 0;)
      allocator.free(own.live[n].at, own.live[n].bytes, own.live[n].stream);
  }
}

// Blocks on their way from the thread that allocates to the one that frees.
static Block on_the_way[kLive];
static std::atomic<size_t> sent, taken;

template <class A>
void handover(A& allocator, Worker& own, const Streams& streams, size_t ops) {
  for (size_t i = 0; i < ops; i++) {
    if (own.number == 0) {
      Block block = own.allocate(allocator, size_of(i % kSizes), streams[0]);
      fakecuda_work(streams[0]);
      while (sent.load() - taken.load() >= kLive) std::this_thread::yield();
      on_the_way[sent.load() % kLive] = block;
      sent++;
    } else {
      while (sent.load() == taken.load()) std::this_thread::yield();
      Block block = on_the_way[taken.load() % kLive];
      taken++;
      allocator.record(block.at, streams[1]);
      fakecuda_work(streams[1]);
      allocator.free(block.at, block.bytes, block.stream);
    }
  }
}

double nanoseconds(clockid_t clock) {
  timespec now;
  clock_gettime(clock, &now);
  return now.tv_sec * 1e9 + now.tv_nsec;
}

template <class A>
void measure(A allocator, const std::string& program, size_t ops, const Streams& streams) {
  std::vector<Worker> workers(kThreads);
  for (int n = 0; n < kThreads; n++) {
    workers[n].number = n;
    workers[n].random = 0x9E3779B97F4A7C15ull * (n + 1);
  }
  auto pass = [&](size_t ops) {
    std::atomic<int> ready{0};
    std::vector<std::thread> threads;
    for (Worker& own : workers) {
      own.mallocs.clear();
      own.mallocs.reserve(ops);
      threads.emplace_back([&] {
        for (ready++; ready < kThreads;) std::this_thread::yield();
        if (program == "random") random_sizes(allocator, own, streams, ops);
        else if (program == "lifo") last_in_first_out(allocator, own, streams, ops);
        else handover(allocator, own, streams, ops);
      });
    }
    for (std::thread& thread : threads) thread.join();
  };
  pass(ops / 4);
  double processor = 1e300, wall = 1e300, calls = 0;
  uint32_t p50 = ~0u, p99 = ~0u;
  for (int n = 0; n < 5; n++) {
    const double before = nanoseconds(CLOCK_PROCESS_CPUTIME_ID);
    const double began = nanoseconds(CLOCK_MONOTONIC);
    const uint64_t calls_before = fakecuda_total_calls();
    pass(ops);
    const double all = double(ops) * kThreads;
    processor = std::min(processor, (nanoseconds(CLOCK_PROCESS_CPUTIME_ID) - before) / all);
    wall = std::min(wall, (nanoseconds(CLOCK_MONOTONIC) - began) / all);
    calls = (fakecuda_total_calls() - calls_before) / all;
    Cycles mallocs;
    for (const Cycles& of : {workers[0].mallocs, workers[1].mallocs})
      mallocs.insert(mallocs.end(), of.begin(), of.end());
    std::sort(mallocs.begin(), mallocs.end());
    p50 = std::min(p50, mallocs[mallocs.size() / 2]);
    p99 = std::min(p99, mallocs[mallocs.size() * 99 / 100]);
  }
  printf("%s: processor %.1f ns an operation, wall %.1f; malloc p50 %u, p99 %u cycles; "
         "%.5f driver calls an operation\n", program.c_str(), processor, wall, p50, p99, calls);
}

int main(int argc, char** argv) {
  const char* library = nullptr;
  size_t ops = 1 << 18;
  for (int i = 2; i + 1 < argc; i += 2) {
    if (std::string(argv[i]) == "--so") library = argv[i + 1];
    if (std::string(argv[i]) == "--ops") ops = strtoull(argv[i + 1], nullptr, 10);
  }
  if (argc < 2) return fprintf(stderr, "usage: see the top of threads.cpp\n"), 2;
  Streams streams(4);
  for (cudaStream_t& s : streams) cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking);
  if (library) {
    void* handle = dlopen(library, RTLD_NOW);
    if (!handle) return fprintf(stderr, "%s\n", dlerror()), 2;
    Library functions;
    functions.malloc_ = (decltype(functions.malloc_))dlsym(handle, "drystone_malloc");
    functions.free_ = (decltype(functions.free_))dlsym(handle, "drystone_free");
    functions.record_ = (decltype(functions.record_))dlsym(handle, "drystone_record_stream");
    measure(functions, argv[1], ops, streams);
  } else {
    c10::cuda::_internal::setHasPrimaryContext([](c10::DeviceIndex) { return true; });
    c10::cuda::detail::init_p2p_access_cache(1);
    c10::cuda::CUDACachingAllocator::init(1);
    measure(Native{c10::cuda::CUDACachingAllocator::get()}, argv[1], ops, streams);
  }
  fflush(stdout);
  _Exit(0);
}
