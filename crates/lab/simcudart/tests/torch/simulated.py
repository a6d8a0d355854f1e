"""What tests ask of the simulated driver that PyTorch runs on, besides CUDA itself."""

import ctypes
import json

MIB = 1 << 20
GIB = 1 << 30

# PyTorch has loaded it, or the library path leads to it.
_driver = ctypes.CDLL("libcuda.so.1")
for _name in ("calls", "physical_bytes", "peak_physical_bytes", "violation_count", "now_ns"):
    getattr(_driver, "simcuda_" + _name).restype = ctypes.c_uint64
for _name in ("violations", "live_objects", "stats_json"):
    getattr(_driver, "simcuda_" + _name).restype = ctypes.c_uint64


def physical_bytes(device=0):
    """Memory that the device holds, whoever owns it."""
    return _driver.simcuda_physical_bytes(device)


def calls(device=0):
    """Calls that do something, so far."""
    return _driver.simcuda_calls(device)


def now_ns(device=0):
    return _driver.simcuda_now_ns(device)


def launch(stream, ns, device=0):
    """Gives a stream a kernel that takes so long on the device's clock."""
    done = _driver.simcuda_launch(
        device, ctypes.c_void_p(stream.cuda_stream), ctypes.c_uint64(ns))
    assert done == 0, f"simcuda_launch: {done}"


def advance(ns, device=0):
    """Lets the device's clock run on."""
    assert _driver.simcuda_advance_ns(device, ctypes.c_uint64(ns)) == 0


def check(what, address, *rest, device=0):
    """Tells the oracle of a block's begin ("alloc"), its use on a stream, or its end ("free")."""
    arguments = [ctypes.c_uint64(address)]
    for one in rest:
        is_size = isinstance(one, int)
        arguments.append(ctypes.c_uint64(one) if is_size else ctypes.c_void_p(one.cuda_stream))
    assert getattr(_driver, "simcuda_check_" + what)(device, *arguments) == 0


def violation_count(device=0):
    return _driver.simcuda_violation_count(device)


def violations(device=0):
    """What was done that CUDA forbids, one line each."""
    return _text(lambda room, size: _driver.simcuda_violations(device, room, size))


def live_objects(device=0):
    return _text(lambda room, size: _driver.simcuda_live_objects(device, room, size))


def statistics():
    """The statistics that are also written at exit."""
    return json.loads(_text(_driver.simcuda_stats_json))


def calls_of(function):
    """How often a function of the driver was called in this process."""
    return statistics()["functions"].get(function, {"calls": 0})["calls"]


def counted(function):
    """How often a function of a stub library, or a launch of the runtime, was called."""
    return statistics()["counted"].get(function, 0)


def configure(text):
    """Changes the environment's settings for this process, before anything else is called."""
    assert _driver.simcuda_configure(text.encode()) == 0


def fail(function, error, nth=1, for_ever=False, device=0):
    """Makes the nth call of a function from now on fail, and every later one if for ever."""
    done = _driver.simcuda_fail(
        device, function.encode(), ctypes.c_uint64(nth), int(for_ever), error)
    assert done == 0, f"simcuda_fail: {done}"


def clear_faults(device=0):
    assert _driver.simcuda_clear_faults(device) == 0


def _text(ask):
    size = ask(None, ctypes.c_uint64(0)) + 4096
    room = ctypes.create_string_buffer(size)
    ask(room, ctypes.c_uint64(size))
    return room.value.decode()
