/* cuDNN's graph interface, by which PyTorch runs convolutions and attention: what is described is
 * kept as far as it decides how large a workspace may be.
 *
 * Which algorithm a convolution takes is chosen by cuDNN, or measured on the device, so no figure
 * of its workspace is right. Plans here ask for the least; what is likely, and the most, are told to
 * the simulated driver. Where its settings say how much, engines that PyTorch tries first ask for
 * that, and only those that it falls back to for the least. Both are that of the larger of two:
 *  - Kernels on tensor cores work on tensors whose channels lie side by side. Others are transposed
 *    first (NVIDIA, "Convolutional Layers User's Guide", tensor layouts), for which there is room.
 *  - An explicit matrix product has room for the matrix that the input is made into, one row for
 *    each output and one column for each weight of a filter (cuDNN's CONVOLUTION_FWD_ALGO_GEMM).
 *    Of groups it is likely one matrix at a time; at the most there are those of all.
 * Every other attribute is absent or zero. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int simcuda_count(const char* name);
int simcuda_workspace(unsigned long long address);
int simcuda_convolution(unsigned long long likely, unsigned long long most);
unsigned long long simcuda_engine_bytes(void);

#define COUNT simcuda_count(__func__)
/* Bytes that any plan asks for, so that a workspace is allocated. */
#define LEAST 65536
/* Batch, channels, and up to three of space. */
#define DIMENSIONS 5

enum kind { TENSOR = 17 };
enum mode { INSTANT = 0 };
enum type { BOOLEAN = 2, INT64 = 3, DESCRIPTOR = 15, INT32 = 23 };
enum attribute {
  HEURISTIC_MODE = 200,
  HEURISTIC_RESULTS = 202,
  CONFIG_ENGINE = 300,
  PLAN_CONFIG = 401,
  PLAN_WORKSPACE = 402,
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
  PACK_WORKSPACE = 1003
};

/* Of a tensor what it is like; of a convolution its tensors: filters, input, output; of engines and
 * their plans whether PyTorch tries them first. */
struct descriptor {
  enum kind kind;
  int is_first;
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
  if (!*made) return 2002;
  (*made)->kind = kind;
  return 0;
}
int cudnnBackendDestroyDescriptor(struct descriptor* descriptor) {
  COUNT;
  free(descriptor);
  return 0;
}
int cudnnBackendFinalize(const struct descriptor* descriptor) {
  COUNT;
  if (descriptor && descriptor->w && descriptor->x && descriptor->y)
    simcuda_convolution(work_bytes(descriptor, descriptor->w->sizes[1]),
                        work_bytes(descriptor, descriptor->x->sizes[1]));
  return 0;
}

int cudnnBackendSetAttribute(struct descriptor* descriptor, int name, int type, int64_t count,
                             const void* values) {
  struct descriptor* const* parts = values;
  const int64_t* numbers = values;
  size_t kept = count < DIMENSIONS ? count : DIMENSIONS;
  COUNT;
  if (!descriptor || !values || count < 1) return 0;
  if (name == PACK_WORKSPACE) simcuda_workspace(*(const unsigned long long*)values);
  if (name == FORWARD_W || name == DATA_W || name == FILTER_W) descriptor->w = parts[0];
  if (name == FORWARD_X || name == DATA_X || name == FILTER_X) descriptor->x = parts[0];
  if (name == FORWARD_Y || name == DATA_Y || name == FILTER_Y) descriptor->y = parts[0];
  if (name == HEURISTIC_MODE) descriptor->is_first = *(const int*)values == INSTANT;
  if (name == PLAN_CONFIG) descriptor->is_first = parts[0]->is_first;
  if (descriptor->kind != TENSOR) return 0;
  if (name == TENSOR_TYPE) descriptor->element_bytes = type_bytes(*(const int*)values);
  if (name == TENSOR_STRIDES && count > 1) descriptor->channel_stride = numbers[1];
  if (name == TENSOR_SIZES) memcpy(descriptor->sizes, numbers, kept * sizeof *numbers);
  return 0;
}

static int64_t plan_bytes(const struct descriptor* plan) {
  unsigned long long asked = plan->is_first ? simcuda_engine_bytes() : 0;
  return asked > LEAST ? asked : LEAST;
}

int cudnnBackendGetAttribute(const struct descriptor* descriptor, int name, int type,
                             int64_t wanted, int64_t* count, void* values) {
  int64_t found = name == HEURISTIC_RESULTS || name == CONFIG_ENGINE;
  COUNT;
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
  /* What was found is written into descriptors that the caller made. */
  if (name == HEURISTIC_RESULTS && wanted > 0 && values)
    (*(struct descriptor**)values)->is_first = descriptor->is_first;
  if (count) *count = found;
  return 0;
}
