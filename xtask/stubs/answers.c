/* What stub libraries answer where PyTorch reads an answer.
 *
 * Every other function of a stub library counts itself and returns zero, which is success in all of
 * them; handles that `...Create...` functions make are one address that is never looked at. What a
 * real library would run on the device is a kernel of the simulated one, in the same stream. A
 * definition here takes the place of the generated one, in the library that exports the name.
 * `ANSWER(f, type, at, value)` defines a function that writes the value through argument number
 * `at`; none of those before it is a floating-point number. Sizes are made up: small, and not zero,
 * so that workspaces are allocated. */
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int simcuda_count(const char* name);
int simcuda_workspace(unsigned long long address);
int simcuda_launch(int ordinal, void* stream, uint64_t ns);
int cuCtxGetDevice(int* ordinal);
int cuMemAlloc_v2(unsigned long long* address, size_t bytes);
int cuMemFree_v2(unsigned long long address);

#define COUNT simcuda_count(__func__)
/* Elements or bytes of a workspace. */
#define WORKSPACE 65536

static char handle[64];

/* The stream that this thread gave to the library last: handles are not told apart, and PyTorch
 * states the stream before every use. */
static _Thread_local void* own_stream;

static void work_on(void* stream) {
  const uint64_t as_configured = UINT64_MAX;
  int ordinal;
  if (cuCtxGetDevice(&ordinal) == 0) simcuda_launch(ordinal, stream, as_configured);
}
void work(void) { work_on(own_stream); }

#define SET_STREAM(name)                    \
  int name(long library, void* stream) {    \
    COUNT;                                  \
    own_stream = stream;                    \
    return 0;                               \
  }
SET_STREAM(cublasSetStream_v2)
SET_STREAM(cudnnSetStream)
SET_STREAM(cufftSetStream)
SET_STREAM(cusolverDnSetStream)
SET_STREAM(cusparseSetStream)

/* As many as any has: those that a caller does not pass are not looked at. */
#define ARGUMENTS                                                                            \
  long a1, long a2, long a3, long a4, long a5, long a6, long a7, long a8, long a9, long a10, \
      long a11, long a12, long a13, long a14, long a15, long a16, long a17, long a18,        \
      long a19, long a20

#define ANSWER(name, type, at, value)                    \
  int name(ARGUMENTS) {                                  \
    COUNT;                                               \
    if (a##at) *(type*)a##at = (value);                  \
    return 0;                                            \
  }
#define ANSWER_2(name, type, at, value, also, other)     \
  int name(ARGUMENTS) {                                  \
    COUNT;                                               \
    if (a##at) *(type*)a##at = (value);                  \
    if (a##also) *(type*)a##also = (other);              \
    return 0;                                            \
  }
/* The same for the four types of numbers. */
#define ANSWERS(prefix, suffix, type, at, value)         \
  ANSWER(prefix##S##suffix, type, at, value)             \
  ANSWER(prefix##D##suffix, type, at, value)             \
  ANSWER(prefix##C##suffix, type, at, value)             \
  ANSWER(prefix##Z##suffix, type, at, value)
/* The same for functions that real and complex numbers name differently. */
#define ANSWERS_RC(prefix, real, complex, type, at, value)    \
  ANSWER(prefix##S##real, type, at, value)                    \
  ANSWER(prefix##D##real, type, at, value)                    \
  ANSWER(prefix##C##complex, type, at, value)                 \
  ANSWER(prefix##Z##complex, type, at, value)
/* A function that works in the stream that is its last argument. */
#define WORKER(name, at)                                 \
  int name(ARGUMENTS) {                                  \
    COUNT;                                               \
    work_on((void*)a##at);                               \
    return 0;                                            \
  }
/* One that ends what another made. */
#define FREES(name)                                      \
  int name(void* made) {                                 \
    COUNT;                                               \
    free(made);                                          \
    return 0;                                            \
  }
/* A text for any error. */
#define TEXT(name) \
  const char* name(long status) { return status == 0 ? "success" : "error of a stub library"; }

/* ---- cuBLAS, cuBLASLt ---- */

/* PyTorch saves and restores the modes: the default ones. */
ANSWER(cublasGetMathMode, int, 2, 0)
ANSWER(cublasGetPointerMode_v2, int, 2, 0)
TEXT(cublasGetStatusString)

/* Says that there is one algorithm, which needs no workspace: PyTorch refuses to go on with none. */
int cublasLtMatmulAlgoGetHeuristic(long lt, long op, long a, long b, long c, long d, long preference,
                                   int wanted, char* results, int* found) {
  enum { RESULT_BYTES = 96 };
  COUNT;
  if (wanted > 0) memset(results, 0, RESULT_BYTES);
  *found = wanted > 0;
  return 0;
}

int cublasLtMatmul(ARGUMENTS) {
  COUNT;
  simcuda_workspace(a14);
  work_on((void*)a16);
  return 0;
}
int cublasSetWorkspace_v2(long library, long workspace, size_t bytes) {
  COUNT;
  simcuda_workspace(workspace);
  return 0;
}

/* Compared with the version that PyTorch was built with. */
size_t cublasLtGetVersion(void) { return 130100; }

/* ---- cuSOLVER: sizes of workspaces, in elements or, for X functions, in bytes ---- */

ANSWERS(cusolverDn, geqrf_bufferSize, int, 6, WORKSPACE)
ANSWERS(cusolverDn, gesvd_bufferSize, int, 4, WORKSPACE)
ANSWERS(cusolverDn, gesvdj_bufferSize, int, 13, WORKSPACE)
ANSWERS(cusolverDn, gesvdjBatched_bufferSize, int, 12, WORKSPACE)
ANSWERS(cusolverDn, gesvdaStridedBatched_bufferSize, int, 17, WORKSPACE)
ANSWERS(cusolverDn, getrf_bufferSize, int, 6, WORKSPACE)
ANSWERS(cusolverDn, potrf_bufferSize, int, 6, WORKSPACE)
ANSWERS(cusolverDn, sytrf_bufferSize, int, 5, WORKSPACE)
ANSWERS_RC(cusolverDn, syevd_bufferSize, heevd_bufferSize, int, 8, WORKSPACE)
ANSWERS_RC(cusolverDn, syevj_bufferSize, heevj_bufferSize, int, 8, WORKSPACE)
ANSWERS_RC(cusolverDn, syevjBatched_bufferSize, heevjBatched_bufferSize, int, 8, WORKSPACE)
ANSWERS_RC(cusolverDn, orgqr_bufferSize, ungqr_bufferSize, int, 8, WORKSPACE)
ANSWERS_RC(cusolverDn, ormqr_bufferSize, unmqr_bufferSize, int, 12, WORKSPACE)
ANSWER_2(cusolverDnXgeev_bufferSize, size_t, 18, WORKSPACE, 19, WORKSPACE)
ANSWER_2(cusolverDnXgeqrf_bufferSize, size_t, 11, WORKSPACE, 12, WORKSPACE)
ANSWER_2(cusolverDnXpotrf_bufferSize, size_t, 9, WORKSPACE, 10, WORKSPACE)
ANSWER_2(cusolverDnXsyevd_bufferSize, size_t, 12, WORKSPACE, 13, WORKSPACE)
ANSWER_2(cusolverDnXsyevBatched_bufferSize, size_t, 12, WORKSPACE, 13, WORKSPACE)
ANSWER_2(cusolverDnXsytrs_bufferSize, size_t, 12, WORKSPACE, 13, WORKSPACE)

/* ---- cuSPARSE: sizes of workspaces in bytes ---- */

ANSWERS(cusparse, bsrsm2_bufferSize, int, 14, WORKSPACE)
ANSWERS(cusparse, bsrsv2_bufferSize, int, 12, WORKSPACE)
ANSWERS(cusparse, csrgeam2_bufferSizeExt, size_t, 20, WORKSPACE)
ANSWER(cusparseSDDMM_bufferSize, size_t, 11, WORKSPACE)
ANSWER(cusparseSpMM_bufferSize, size_t, 11, WORKSPACE)
ANSWER(cusparseSpMV_bufferSize, size_t, 10, WORKSPACE)
ANSWER(cusparseSpSM_bufferSize, size_t, 11, WORKSPACE)
ANSWER(cusparseSpSV_bufferSize, size_t, 10, WORKSPACE)
ANSWER(cusparseSpGEMM_workEstimation, size_t, 12, WORKSPACE)
ANSWER(cusparseSpGEMM_compute, size_t, 12, WORKSPACE)
ANSWER(cusparseXcoosort_bufferSizeExt, size_t, 7, WORKSPACE)
ANSWER(cusparseXcsrsort_bufferSizeExt, size_t, 7, WORKSPACE)
/* A product whose size is asked for has no elements. */
ANSWER(cusparseXcsrgeam2Nnz, int, 14, 0)
int cusparseSpMatGetSize(long matrix, int64_t* rows, int64_t* columns, int64_t* elements) {
  COUNT;
  *rows = *columns = *elements = 0;
  return 0;
}
/* The one function with "Create" in its name that makes no handle: it fills an array on the device. */
int cusparseCreateIdentityPermutation(long sparse, int n, int* permutation) {
  COUNT;
  return 0;
}
TEXT(cusparseGetErrorString)

/* ---- cuSPARSELt ---- */

ANSWER(cusparseLtMatmulGetWorkspace, size_t, 3, WORKSPACE)
ANSWER_2(cusparseLtSpMMACompressedSize2, size_t, 3, WORKSPACE, 4, WORKSPACE)
/* The algorithm chosen: the first. */
int cusparseLtMatmulAlgGetAttribute(long lt, long selection, long attribute, void* value, size_t size) {
  COUNT;
  memset(value, 0, size);
  return 0;
}

/* ---- cuFFT ---- */

/* Plans are numbers; zero is taken for none. */
int cufftCreate(int* plan) {
  static int plans;
  COUNT;
  *plan = __atomic_add_fetch(&plans, 1, __ATOMIC_RELAXED);
  return 0;
}
ANSWER(cufftXtMakePlanMany, size_t, 13, WORKSPACE)

/* ---- cuDNN ---- */

/* PyTorch refuses another major version than it was built with. */
size_t cudnnGetVersion(void) { return 91900; }
size_t cudnnGetCudartVersion(void) { return 13000; }
int cudnnGetProperty(int part, int* value) {
  static const int version[] = {9, 19, 0};
  *value = part >= 0 && part < 3 ? version[part] : 0;
  return 0;
}
TEXT(cudnnGetErrorString)
void cudnnGetLastErrorString(char* text, size_t room) {
  if (room) text[0] = 0;
}

/* The older interface of convolutions: one algorithm, the workspace that it needs. */
struct performance {
  int algorithm, status;
  float time;
  size_t memory;
  int is_deterministic, math, reserved[3];
};
static int perform(int* found, struct performance* result) {
  struct performance one = {.algorithm = 1, .time = 1, .memory = WORKSPACE, .is_deterministic = 1};
  *found = 1;
  *result = one;
  return 0;
}
#define CONVOLUTION(direction)                                                                     \
  ANSWER(cudnnGetConvolution##direction##WorkspaceSize, size_t, 7, WORKSPACE)                   \
  int cudnnGetConvolution##direction##Algorithm_v7(long cudnn, long a, long b, long c, long d,     \
                                                   int wanted, int* found, struct performance* p) { \
    COUNT;                                                                                         \
    return perform(found, p);                                                                      \
  }                                                                                                \
  int cudnnFindConvolution##direction##AlgorithmEx(long cudnn, long a, long b, long c, long d,     \
                                                   long e, long f, long g, int wanted, int* found, \
                                                   struct performance* p, void* workspace,         \
                                                   size_t bytes) {                                 \
    COUNT;                                                                                         \
    return perform(found, p);                                                                      \
  }
CONVOLUTION(Forward)
CONVOLUTION(BackwardData)
CONVOLUTION(BackwardFilter)

/* Sizes of what else needs room. */
ANSWER(cudnnDropoutGetStatesSize, size_t, 2, WORKSPACE)
ANSWER(cudnnGetBatchNormalizationForwardTrainingExWorkspaceSize, size_t, 9, WORKSPACE)
ANSWER(cudnnGetBatchNormalizationBackwardExWorkspaceSize, size_t, 11, WORKSPACE)
ANSWER(cudnnGetBatchNormalizationTrainingExReserveSpaceSize, size_t, 6, WORKSPACE)
ANSWER(cudnnGetCTCLossWorkspaceSize, size_t, 9, WORKSPACE)
ANSWER(cudnnGetCTCLossWorkspaceSize_v8, size_t, 6, WORKSPACE)
ANSWER(cudnnGetStream, void*, 2, own_stream)

/* Recurrent networks: PyTorch keeps all weights in one block and asks where each matrix lies in it.
 * Here they lie behind each other, layer by layer, and the biases behind all of them. */
ANSWER_2(cudnnGetRNNTempSpaceSizes, size_t, 5, WORKSPACE, 6, WORKSPACE)
struct tensor {
  int rows, columns;
};
struct recurrent {
  int gates, element_bytes, input, hidden, projection, layers, directions, has_bias;
};
int cudnnCreateTensorDescriptor(struct tensor** made) {
  COUNT;
  *made = calloc(1, sizeof **made);
  return *made ? 0 : 2002;
}
FREES(cudnnDestroyTensorDescriptor)
int cudnnGetTensorNdDescriptor(struct tensor* tensor, int wanted, int* type, int* dimensions,
                               int sizes[], int strides[]) {
  int all[3] = {1, tensor->rows, tensor->columns};
  int steps[3] = {tensor->rows * tensor->columns, tensor->columns, 1};
  COUNT;
  *type = 0;
  *dimensions = 3;
  for (int i = 0; i < wanted && i < 3; i++) sizes[i] = all[i], strides[i] = steps[i];
  return 0;
}
int cudnnCreateRNNDescriptor(struct recurrent** made) {
  COUNT;
  *made = calloc(1, sizeof **made);
  return *made ? 0 : 2002;
}
FREES(cudnnDestroyRNNDescriptor)
int cudnnSetRNNDescriptor_v8(struct recurrent* network, int algorithm, int cell, int bias,
                             int direction, int input_mode, int type, int precision, int math,
                             int input, int hidden, int projection, int layers, long dropout,
                             int flags) {
  /* Of a plain cell with either function, a long short-term memory, a gated unit. */
  static const int gates[] = {1, 1, 4, 3};
  enum { DOUBLE = 1, HALF = 2, BFLOAT16 = 9 };
  COUNT;
  network->gates = gates[cell & 3];
  network->element_bytes = type == DOUBLE ? 8 : type == HALF || type == BFLOAT16 ? 2 : 4;
  network->input = input;
  network->hidden = hidden;
  network->projection = projection == hidden ? 0 : projection;
  network->layers = layers;
  network->directions = direction ? 2 : 1;
  network->has_bias = bias != 0;
  return 0;
}
/* A matrix of a layer and direction: of the input, of the state, or the projection behind both. */
static struct tensor matrix(const struct recurrent* network, int layer, int which) {
  int state = network->projection ? network->projection : network->hidden;
  int input = layer < network->directions ? network->input : state * network->directions;
  if (which < network->gates) return (struct tensor){network->hidden, input};
  if (which < 2 * network->gates) return (struct tensor){network->hidden, state};
  return (struct tensor){network->projection, network->hidden};
}
/* Elements before a matrix; before the biases, for the layer behind the last. */
static size_t elements_before(const struct recurrent* network, int layer, int which) {
  int matrices = 2 * network->gates + (network->projection != 0);
  size_t before = 0;
  for (int i = 0; i <= layer; i++)
    for (int k = 0; k < (i < layer ? matrices : which); k++) {
      struct tensor one = matrix(network, i, k);
      before += (size_t)one.rows * one.columns;
    }
  return before;
}
static size_t biases(const struct recurrent* network) {
  return network->has_bias ? (size_t)2 * network->gates * network->hidden : 0;
}
int cudnnGetRNNWeightSpaceSize(long cudnn, struct recurrent* network, size_t* bytes) {
  int layers = network->layers * network->directions;
  COUNT;
  *bytes = (elements_before(network, layers, 0) + layers * biases(network)) * network->element_bytes;
  return 0;
}
int cudnnGetRNNWeightParams(long cudnn, struct recurrent* network, int layer, size_t bytes,
                            char* weights, int which, struct tensor* weight, char** weight_at,
                            struct tensor* bias, char** bias_at) {
  int layers = network->layers * network->directions;
  int is_projection = which == 2 * network->gates;
  size_t before = elements_before(network, layers, 0) + layer * biases(network) +
                  (size_t)which * network->hidden;
  COUNT;
  /* PyTorch asks for one of the two at a time, and has no room for the other. */
  if (weight) *weight = matrix(network, layer, which);
  if (weight_at)
    *weight_at = weights + elements_before(network, layer, which) * network->element_bytes;
  if (bias) *bias = (struct tensor){network->hidden, 1};
  if (bias_at)
    *bias_at = network->has_bias && !is_projection ? weights + before * network->element_bytes : 0;
  return 0;
}

/* ---- NCCL: communicators know their size and rank; nothing is sent ---- */

struct communicator {
  int size, rank;
};
struct unique_id {
  char bytes[128];
};
static int communicate(struct communicator** to, int size, int rank) {
  struct communicator* made = malloc(sizeof *made);
  if (!made) return 2;
  made->size = size;
  made->rank = rank;
  *to = made;
  return 0;
}
int ncclGetVersion(int* version) {
  *version = 22809;
  return 0;
}
TEXT(ncclGetErrorString)
const char* ncclGetLastError(long communicator) { return ""; }
int ncclGetUniqueId(struct unique_id* id) {
  COUNT;
  memset(id, 0, sizeof *id);
  return 0;
}
int ncclCommInitRank(struct communicator** to, int size, struct unique_id id, int rank) {
  COUNT;
  return communicate(to, size, rank);
}
int ncclCommInitRankConfig(struct communicator** to, int size, struct unique_id id, int rank,
                           void* config) {
  COUNT;
  return communicate(to, size, rank);
}
int ncclCommInitRankScalable(struct communicator** to, int size, int rank, int ids, void* all,
                             void* config) {
  COUNT;
  return communicate(to, size, rank);
}
int ncclCommInitAll(struct communicator** to, int size, const int* devices) {
  COUNT;
  for (int rank = 0; rank < size; rank++)
    if (communicate(to + rank, size, rank)) return 2;
  return 0;
}
/* Who is in the part is not known here: all, with the ranks they had. */
int ncclCommSplit(struct communicator* of, int color, int key, struct communicator** to, void* config) {
  COUNT;
  return communicate(to, of->size, of->rank);
}
int ncclCommShrink(struct communicator* of, int* excluded, int count, struct communicator** to,
                   void* config, int flags) {
  COUNT;
  return communicate(to, of->size - count, of->rank);
}
FREES(ncclCommDestroy)
FREES(ncclCommAbort)
int ncclCommCount(struct communicator* of, int* count) {
  *count = of->size;
  return 0;
}
int ncclCommUserRank(struct communicator* of, int* rank) {
  *rank = of->rank;
  return 0;
}
WORKER(ncclAllReduce, 7)
WORKER(ncclReduceScatter, 7)
WORKER(ncclBroadcast, 7)
WORKER(ncclReduce, 8)
WORKER(ncclAllGather, 6)
WORKER(ncclAlltoAll, 6)
WORKER(ncclBcast, 6)
WORKER(ncclSend, 6)
WORKER(ncclRecv, 6)
/* Watched by a thread of PyTorch: there is never an error. */
ANSWER(ncclCommGetAsyncError, int, 2, 0)
ANSWER(ncclCommRegister, void*, 4, handle)
ANSWER(ncclCommWindowRegister, void*, 4, handle)
/* An operation of its own: the first number behind the built-in ones. */
ANSWER(ncclRedOpCreatePreMulSum, int, 1, 5)
int ncclMemAlloc(unsigned long long* address, size_t bytes) {
  COUNT;
  return cuMemAlloc_v2(address, bytes) ? 1 : 0;
}
int ncclMemFree(unsigned long long address) {
  COUNT;
  return cuMemFree_v2(address) ? 1 : 0;
}

/* ---- NVRTC: every program compiles, to nothing ---- */

int nvrtcVersion(int* major, int* minor) {
  *major = 13;
  *minor = 0;
  return 0;
}
TEXT(nvrtcGetErrorString)
ANSWER(nvrtcCreateProgram, void*, 1, handle)
/* Texts of one byte, the final zero. */
ANSWER(nvrtcGetPTXSize, size_t, 2, 1)
ANSWER(nvrtcGetCUBINSize, size_t, 2, 1)
ANSWER(nvrtcGetProgramLogSize, size_t, 2, 1)
ANSWER(nvrtcGetPTX, char, 2, 0)
ANSWER(nvrtcGetCUBIN, char, 2, 0)
ANSWER(nvrtcGetProgramLog, char, 2, 0)
int nvrtcGetLoweredName(long program, const char* name, const char** lowered) {
  *lowered = name;
  return 0;
}

/* ---- CUPTI: a profiler that sees no device ---- */

ANSWER(cuptiGetVersion, unsigned, 1, 130000)
ANSWER(cuptiGetResultString, const char*, 2, "a stub library profiles nothing")
/* Refused, so that PyTorch's profiler records the host alone. */
int cuptiSubscribe(void** subscriber) {
  enum { NOT_INITIALIZED = 15 };
  COUNT;
  *subscriber = 0;
  return NOT_INITIALIZED;
}
/* There are no records. */
int cuptiActivityGetNextRecord(long buffer, size_t bytes, void** record) {
  enum { NO_MORE = 12 };
  *record = 0;
  return NO_MORE;
}
ANSWER(cuptiActivityGetNumDroppedRecords, size_t, 3, 0)
