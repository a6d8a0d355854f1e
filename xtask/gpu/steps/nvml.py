"""What NVML says of memory: of whole devices, by all programs together. Takes no part of a device."""

from __future__ import annotations

import ctypes


class Memory(ctypes.Structure):
    """``nvmlMemory_t``"""

    _fields_ = [("total", ctypes.c_ulonglong), ("free", ctypes.c_ulonglong),
                ("used", ctypes.c_ulonglong)]


def used_mib(uuid: str | None = None) -> list[int] | str:
    """MiB in use on every device of the machine, or on that of this name; or why nobody knows.
    NVML counts devices that CUDA is kept from seeing, too."""
    try:
        nvml = ctypes.CDLL("libnvidia-ml.so.1")
        code = nvml.nvmlInit_v2()
    except (OSError, AttributeError) as error:
        return str(error)
    if code:
        return f"nvmlInit_v2 returned {code}"
    count, used = ctypes.c_uint(), []
    nvml.nvmlDeviceGetCount_v2(ctypes.byref(count))
    for index in range(1 if uuid else count.value):
        device, memory = ctypes.c_void_p(), Memory()
        name = (uuid or "").encode()
        # A part of a device, or an older PyTorch, has no such name.
        if not uuid or nvml.nvmlDeviceGetHandleByUUID(name, ctypes.byref(device)):
            nvml.nvmlDeviceGetHandleByIndex_v2(index, ctypes.byref(device))
        if code := nvml.nvmlDeviceGetMemoryInfo(device, ctypes.byref(memory)):
            return f"nvmlDeviceGetMemoryInfo returned {code}"
        used.append(memory.used >> 20)
    return used
