// Included by PyTorch's headers; all there is to it is in the one below.

#pragma once

#include "cuda_runtime_api.h"
