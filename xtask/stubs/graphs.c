/* cuDNN's graph interface, by which PyTorch runs convolutions and attention: what is described is
 * kept as far as it decides how large a workspace may be.
 *
 * Which algorithm a convolution takes is chosen by cuDNN, or measured on the device, so no figure
 * of its workspace is right. Plans here ask for the least; what is likely, and the most, are told to
 * the simulated driver. Where its settings say how much, engines that PyTorch tries first ask for
 * that, and only those that it falls back to for the least. Where NVIDIA's cuDNN can be asked, each
 * descriptor has one of its own behind it: which engines there are is its word, and what those of
 * convolutions ask for is told to the simulated driver, too, as long as there is room for it.
 * Without it, what is likely, and the most, are that of the larger of two:
 *  - Kernels on tensor cores work on tensors whose channels lie side by side. Others are transposed
 *    first (NVIDIA, "Convolutional Layers User's Guide", tensor layouts), for which there is room.
 *  - An explicit matrix product has room for the matrix that the input is made into, one row for
 *    each output and one column for each weight of a filter (cuDNN's CONVOLUTION_FWD_ALGO_GEMM).
 *    Of groups it is likely one matrix at a time; at the most there are those of all.
 * Every other attribute is absent or zero. */
#include "engines.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int cuMemGetInfo_v2(size_t* free, size_t* total);
int simcuda_count(const char* name);
int simcuda_workspace(unsigned long long address);
int simcuda_convolution(unsigned long long likely, unsigned long long most);
unsigned long long simcuda_engine_bytes(void);
int simcuda_engine(unsigned long long bytes);

#define COUNT simcuda_count(__func__)
#define NOT_ALLOCATED 2002
/* Bytes that any plan asks for, so that a workspace is allocated. */
#define LEAST 65536
/* Batch, channels, and up to three of space. */
#define DIMENSIONS 5

enum kind { TENSOR = 17 };
enum mode { INSTANT = 0 };
enum type { HANDLE = 0, BOOLEAN = 2, INT64 = 3, DESCRIPTOR = 15, INT32 = 23 };
enum attribute {
  HEURISTIC_MODE = 200,
  HEURISTIC_GRAPH = 201,
  HEURISTIC_RESULTS = 202,
  HEURISTIC_DEVICE = 204,
  CONFIG_ENGINE = 300,
  PLAN_CONFIG = 401,
  PLAN_WORKSPACE = 402,
  PLAN_DEVICE = 407,
  FORWARD_W = 703,
  FORWARD_X,
  FORWARD_Y,
  DATA_W = 709,
  DATA_X,
  DATA_Y,
  FILTER_W = 715,
  FILTER_X,
  FILTER_Y,
  TENSOR_TYPE = 901,
  TENSOR_SIZES = 902,
  TENSOR_STRIDES = 903,
  PACK_WORKSPACE = 1003,
  ENGINE_GRAPH = 1300,
  ENGINE_DEVICE = 1307
};

/* Of a tensor what it is like; of a convolution its tensors: filters, input, output; of engines and
 * their plans whether PyTorch tries them first; of all that is made of a convolution that it is; and
 * cuDNN's own, if it can be asked. */
struct descriptor {
  enum kind kind;
  int is_first, is_convolution;
  void* real;
  int64_t element_bytes, channel_stride, sizes[DIMENSIONS];
  const struct descriptor *w, *x, *y;
};

/* How many elements a tensor has, from one of its dimensions on. */
static int64_t elements(const struct descriptor* tensor, int from) {
  int64_t product = 1;
  for (int i = from; i < DIMENSIONS; i++) product *= tensor->sizes[i] ? tensor->sizes[i] : 1;
  return product;
}
static int64_t to_transpose(const struct descriptor* tensor) {
  return tensor->channel_stride == 1 ? 0 : elements(tensor, 0) * tensor->element_bytes;
}
static int64_t work_bytes(const struct descriptor* of, int64_t channels) {
  int64_t transposed = to_transpose(of->w) + to_transpose(of->x) + to_transpose(of->y);
  int64_t filter = elements(of->w, 2);
  int64_t rows = of->y->sizes[0] * elements(of->y, 2);
  /* A filter of one element makes no matrix: the input is one. */
  int64_t matrix = filter > 1 ? rows * channels * filter * of->x->element_bytes : 0;
  return matrix > transposed ? matrix : transposed;
}

/* By cuDNN's numbers of types: float, double, half, and so on; what is not known is a byte. */
static int64_t type_bytes(int type) {
  static const int64_t bytes[] = {4, 8, 2, 1, 4, 4, 1, 4, 1, 2, 8};
  return type >= 0 && type < (int)(sizeof bytes / sizeof *bytes) ? bytes[type] : 1;
}

int cudnnBackendCreateDescriptor(int kind, struct descriptor** made) {
  COUNT;
  *made = calloc(1, sizeof **made);
  if (!*made) return NOT_ALLOCATED;
  (*made)->kind = kind;
  return real_cudnn() ? real_cudnn()->create(kind, &(*made)->real) : 0;
}
int cudnnBackendDestroyDescriptor(struct descriptor* descriptor) {
  int refused = 0;
  COUNT;
  if (descriptor && real_cudnn()) refused = real_cudnn()->destroy(descriptor->real);
  free(descriptor);
  return refused;
}
int cudnnBackendFinalize(const struct descriptor* descriptor) {
  COUNT;
  if (descriptor && descriptor->w && descriptor->x && descriptor->y)
    simcuda_convolution(work_bytes(descriptor, descriptor->w->sizes[1]),
                        work_bytes(descriptor, descriptor->x->sizes[1]));
  return descriptor && real_cudnn() ? real_cudnn()->finalize(descriptor->real) : 0;
}

/* cuDNN's own descriptors in place of those here; the caller frees them. */
static void* real_values(int type, int64_t count, const void* values) {
  if (type != DESCRIPTOR || !values) return NULL;
  void** real = malloc(count * sizeof *real);
  for (int64_t i = 0; real && i < count; i++) real[i] = ((struct descriptor* const*)values)[i]->real;
  return real;
}
/* cuDNN is told of the device where it would be told of a handle. */
static int set_real(struct descriptor* descriptor, int name, int type, int64_t count,
                    const void* values) {
  const struct real_cudnn* real = real_cudnn();
  int device = name == HEURISTIC_GRAPH ? HEURISTIC_DEVICE
               : name == PLAN_CONFIG   ? PLAN_DEVICE
               : name == ENGINE_GRAPH  ? ENGINE_DEVICE
                                       : 0;
  if (!real || type == HANDLE) return 0;
  if (device) {
    int refused = real->set(descriptor->real, device, DESCRIPTOR, 1, &real->device);
    if (refused) return refused;
  }
  void* others = real_values(type, count, values);
  if (type == DESCRIPTOR && !others) return NOT_ALLOCATED;
  int refused = real->set(descriptor->real, name, type, count, others ? others : values);
  free(others);
  return refused;
}
static int get_real(const struct descriptor* descriptor, int name, int type, int64_t wanted,
                    int64_t* count, void* values) {
  size_t room, all;
  void* others = real_values(type, wanted, values);
  int refused =
      real_cudnn()->get(descriptor->real, name, type, wanted, count, others ? others : values);
  free(others);
  if (refused || name != PLAN_WORKSPACE || wanted < 1 || !values) return refused;
  int64_t* bytes = values;
  /* PyTorch leaves out engines for which there is no room. */
  if (descriptor->is_convolution && !cuMemGetInfo_v2(&room, &all) && *bytes <= room)
    simcuda_engine(*bytes);
  if (descriptor->is_convolution && *bytes > LEAST) *bytes = LEAST;
  return 0;
}

static void set_tensor(struct descriptor* tensor, int name, int64_t count, const int64_t* numbers) {
  size_t kept = count < DIMENSIONS ? count : DIMENSIONS;
  if (name == TENSOR_TYPE) tensor->element_bytes = type_bytes(*(const int*)numbers);
  if (name == TENSOR_STRIDES && count > 1) tensor->channel_stride = numbers[1];
  if (name == TENSOR_SIZES) memcpy(tensor->sizes, numbers, kept * sizeof *numbers);
}
int cudnnBackendSetAttribute(struct descriptor* descriptor, int name, int type, int64_t count,
                             const void* values) {
  struct descriptor* const* parts = values;
  COUNT;
  if (!descriptor || !values || count < 1) return 0;
  if (name == PACK_WORKSPACE) simcuda_workspace(*(const unsigned long long*)values);
  if (name == FORWARD_W || name == DATA_W || name == FILTER_W) descriptor->w = parts[0];
  if (name == FORWARD_X || name == DATA_X || name == FILTER_X) descriptor->x = parts[0];
  if (name == FORWARD_Y || name == DATA_Y || name == FILTER_Y) descriptor->y = parts[0];
  if (name == HEURISTIC_MODE) descriptor->is_first = *(const int*)values == INSTANT;
  if (name == PLAN_CONFIG) descriptor->is_first = parts[0]->is_first;
  if (descriptor->w || (type == DESCRIPTOR && parts[0]->is_convolution))
    descriptor->is_convolution = 1;
  if (descriptor->kind == TENSOR) set_tensor(descriptor, name, count, values);
  return set_real(descriptor, name, type, count, values);
}

static int64_t plan_bytes(const struct descriptor* plan) {
  unsigned long long asked = plan->is_first ? simcuda_engine_bytes() : 0;
  return asked > LEAST ? asked : LEAST;
}

int cudnnBackendGetAttribute(const struct descriptor* descriptor, int name, int type,
                             int64_t wanted, int64_t* count, void* values) {
  int64_t found = name == HEURISTIC_RESULTS || name == CONFIG_ENGINE;
  COUNT;
  /* What is found is written into descriptors that the caller made. */
  for (int64_t i = 0; name == HEURISTIC_RESULTS && values && i < wanted; i++) {
    struct descriptor* made = ((struct descriptor**)values)[i];
    made->is_first = descriptor->is_first;
    made->is_convolution = descriptor->is_convolution;
  }
  if (real_cudnn()) return get_real(descriptor, name, type, wanted, count, values);
  if (wanted > 0 && values && type == INT64) {
    *(int64_t*)values = name == PLAN_WORKSPACE ? plan_bytes(descriptor) : 0;
    found = 1;
  } else if (wanted > 0 && values && type == INT32) {
    *(int32_t*)values = 0;
    found = 1;
  } else if (wanted > 0 && values && type == BOOLEAN) {
    *(char*)values = 0;
    found = 1;
  }
  if (count) *count = found;
  return 0;
}
