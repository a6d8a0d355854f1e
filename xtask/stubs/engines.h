/* NVIDIA's cuDNN as far as stubs ask it: functions of its graph interface. */
#include <stdint.h>

struct real_cudnn {
  int (*create)(int kind, void** made);
  int (*destroy)(void* descriptor);
  int (*finalize)(void* descriptor);
  int (*set)(void* descriptor, int name, int type, int64_t count, const void* values);
  int (*get)(const void* descriptor, int name, int type, int64_t wanted, int64_t* count,
             void* values);
  /* A descriptor of the simulated device. */
  void* device;
};

/* Null where it cannot be asked. */
const struct real_cudnn* real_cudnn(void);
