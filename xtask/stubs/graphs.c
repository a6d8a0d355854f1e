/* cuDNN's graph interface, by which PyTorch runs convolutions and attention: what is described is
 * kept as far as it decides how large a workspace is.
 *
 * Kernels on tensor cores work on tensors whose channels lie side by side. Others are transposed
 * first (NVIDIA, "Convolutional Layers User's Guide", tensor layouts), for which the workspace of a
 * convolution here has room: as much as the tensors that it reads and writes, without those that
 * lie so already. Real engines may take less, or many times more; which one is chosen is measured
 * on the device. A search for engines finds two, the second of which needs hardly any: PyTorch passes
 * over those that it has no room for. Every other attribute is absent or zero. */
#include <stdint.h>
#include <stdlib.h>

int simcuda_count(const char* name);
int simcuda_workspace(unsigned long long address);

#define COUNT simcuda_count(__func__)
/* Bytes that any plan asks for, so that a workspace is allocated. */
#define LEAST 65536

enum kind { FORWARD = 10, BACKWARD_FILTER, BACKWARD_DATA, TENSOR = 17 };
enum type { DATA_TYPE = 1, BOOLEAN = 2, INT64 = 3, DESCRIPTOR = 15, INT32 = 23 };
enum attribute {
  HEURISTIC_RESULTS = 202,
  CONFIG_ENGINE = 300,
  PLAN_WORKSPACE = 402,
  TENSOR_TYPE = 901,
  TENSOR_SIZES = 902,
  TENSOR_STRIDES = 903,
  PACK_WORKSPACE = 1003
};

/* Bytes are those of the tensors that are to be transposed, of whatever is made of descriptors. */
struct descriptor {
  enum kind kind;
  int64_t elements, element_bytes, channel_stride, bytes;
};

static int64_t tensor_bytes(const struct descriptor* tensor) {
  return tensor->channel_stride == 1 ? 0 : tensor->elements * tensor->element_bytes;
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

/* Parts of a convolution are tensors; a graph, an engine and a plan each have what they are of. */
static void add(struct descriptor* to, const struct descriptor* part) {
  int is_convolution = to->kind >= FORWARD && to->kind <= BACKWARD_DATA;
  if (!part) return;
  if (part->kind != TENSOR)
    to->bytes += part->bytes;
  else if (is_convolution)
    to->bytes += tensor_bytes(part);
}

int cudnnBackendSetAttribute(struct descriptor* descriptor, int name, int type, int64_t count,
                             const void* values) {
  const int64_t* numbers = values;
  COUNT;
  if (!descriptor || !values || count < 1) return 0;
  if (name == PACK_WORKSPACE) simcuda_workspace(*(const unsigned long long*)values);
  if (type == DESCRIPTOR)
    for (int64_t i = 0; i < count; i++) add(descriptor, ((struct descriptor* const*)values)[i]);
  if (descriptor->kind != TENSOR) return 0;
  if (name == TENSOR_TYPE) descriptor->element_bytes = type_bytes(*(const int*)values);
  if (name == TENSOR_STRIDES && count > 1) descriptor->channel_stride = numbers[1];
  if (name == TENSOR_SIZES) {
    descriptor->elements = 1;
    for (int64_t i = 0; i < count; i++) descriptor->elements *= numbers[i];
  }
  return 0;
}

int cudnnBackendGetAttribute(struct descriptor* descriptor, int name, int type, int64_t wanted,
                             int64_t* count, void* values) {
  int64_t found = name == HEURISTIC_RESULTS ? 2 : name == CONFIG_ENGINE;
  COUNT;
  if (wanted > 0 && values && type == INT64) {
    *(int64_t*)values = name == PLAN_WORKSPACE ? descriptor->bytes + LEAST : 0;
    found = 1;
  } else if (wanted > 0 && values && type == INT32) {
    *(int32_t*)values = 0;
    found = 1;
  } else if (wanted > 0 && values && type == BOOLEAN) {
    *(char*)values = 0;
    found = 1;
  } else if (wanted > 0 && values && type == DESCRIPTOR && found) {
    /* The caller made these, for what was found to be written into. */
    struct descriptor** made = values;
    if (found > wanted) found = wanted;
    if (made[0]) made[0]->bytes = descriptor->bytes;
    if (found > 1 && made[1]) made[1]->bytes = 0;
  }
  if (count) *count = found;
  return 0;
}
