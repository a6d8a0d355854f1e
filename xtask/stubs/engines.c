/* The engines of NVIDIA's cuDNN, where it is installed: which there are for a graph, and how much
 * each works in.
 *
 * cuDNN tells this of a device that is only described ("deviceless ahead-of-time compilation", from
 * 9.8 on). So descriptors may be its own, with a description of the simulated device wherever
 * there would be a handle. Nothing of it runs, and it finds no driver. Keeps: where the library is
 * missing, does not load or takes no description, `real_cudnn` gives null each time. */
#include "engines.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int cuCtxGetDevice(int* ordinal);
int cuDeviceGetAttribute(int* value, int attribute, int device);
int cuDeviceGetName(char* name, int room, int device);
int cuDeviceTotalMem_v2(size_t* bytes, int device);
int cuDriverGetVersion(int* version);
unsigned long long simcuda_engine_bytes(void);

/* The folder of its libraries. */
#define FOLDER "DRYSTONE_CUDNN"
#define LIBRARY "libcudnn_graph.so.9"

enum { DESCRIPTION = 38, DESCRIPTION_TEXT = 2702, CHARACTERS = 24 };

static struct real_cudnn functions;
static const struct real_cudnn* found;

/* What cuDNN calls an attribute of a device, and its number in cuda.h. */
static const struct {
  const char* name;
  int attribute;
} ATTRIBUTES[] = {
    {"regsPerBlock", 12},      {"multiProcessorCount", 16},
    {"warpSize", 10},          {"maxSharedMemoryPerBlock", 8},
    {"maxRegistersPerSM", 82}, {"maxSharedMemoryPerBlockOptin", 97},
    {"maxCtasPerSM", 106},     {"reservedSharedMemoryPerBlock", 111},
    {"maxThreadsPerBlock", 1}, {"maxThreadsPerSM", 39},
    {"pciDeviceId", 34},       {"isTccDriver", 35},
    {"supportCoopLaunch", 95}, {"smClockRateKHz", 13},
    {"memClockRateKHz", 36},   {"l2CacheSize", 38},
};

static int attribute(int device, int number) {
  int value = 0;
  cuDeviceGetAttribute(&value, number, device);
  return value;
}

/* The simulated device in the words of cuDNN, which says what it misses. */
static void describe(int device, char* text, size_t room) {
  char name[256] = "";
  size_t bytes = 0;
  int driver = 0;
  cuDeviceGetName(name, sizeof name, device);
  cuDeviceTotalMem_v2(&bytes, device);
  cuDriverGetVersion(&driver);
  int at = snprintf(text, room,
                    "{\"deviceName\":\"%s\",\"totalGlobalMem\":%zu,\"driverVer\":%d,"
                    "\"cudaDeviceId\":%d,\"deviceVer\":%d,"
                    "\"maxBlockSize\":[%d,%d,%d],\"maxGridSize\":[%d,%d,%d]",
                    name, bytes, driver, device,
                    attribute(device, 75) * 100 + attribute(device, 76) * 10,
                    attribute(device, 2), attribute(device, 3), attribute(device, 4),
                    attribute(device, 5), attribute(device, 6), attribute(device, 7));
  for (size_t i = 0; i < sizeof ATTRIBUTES / sizeof *ATTRIBUTES; i++)
    at += snprintf(text + at, room - at, ",\"%s\":%d", ATTRIBUTES[i].name,
                   attribute(device, ATTRIBUTES[i].attribute));
  snprintf(text + at, room - at, "}");
}

static void load(void) {
  const char* folder = getenv(FOLDER);
  char text[4096];
  int device;
  /* Where the settings say what engines ask for, no library is asked. */
  if (!folder || !*folder || simcuda_engine_bytes() || cuCtxGetDevice(&device)) return;
  snprintf(text, sizeof text, "%s/" LIBRARY, folder);
  void* library = dlopen(text, RTLD_NOW | RTLD_LOCAL | RTLD_DEEPBIND);
  if (!library) return;
  functions.create = dlsym(library, "cudnnBackendCreateDescriptor");
  functions.destroy = dlsym(library, "cudnnBackendDestroyDescriptor");
  functions.finalize = dlsym(library, "cudnnBackendFinalize");
  functions.set = dlsym(library, "cudnnBackendSetAttribute");
  functions.get = dlsym(library, "cudnnBackendGetAttribute");
  if (!functions.create || !functions.destroy || !functions.finalize || !functions.set ||
      !functions.get || functions.create(DESCRIPTION, &functions.device))
    return;
  describe(device, text, sizeof text);
  if (functions.set(functions.device, DESCRIPTION_TEXT, CHARACTERS, strlen(text), text) ||
      functions.finalize(functions.device))
    return;
  found = &functions;
}

const struct real_cudnn* real_cudnn(void) {
  static pthread_once_t once = PTHREAD_ONCE_INIT;
  pthread_once(&once, load);
  return found;
}
