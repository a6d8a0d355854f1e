"""Kernels as PTX, which the driver compiles, and how they are launched."""

from __future__ import annotations

import ctypes

from cuda import Address, Cuda

#: A loop over all words from a thread's own; what is done to one is between.
HEAD = b""".version 6.0
.target sm_50
.address_size 64
"""

FILL = b""".visible .entry fill(.param .u64 start, .param .u64 words, .param .u32 value) {
  .reg .u64 %rd<8>; .reg .u32 %r<6>; .reg .pred %p;
  ld.param.u64 %rd1, [start]; ld.param.u64 %rd2, [words]; ld.param.u32 %r1, [value];
  cvta.to.global.u64 %rd1, %rd1;
  mov.u32 %r2, %ctaid.x; mov.u32 %r3, %ntid.x; mov.u32 %r4, %tid.x; mov.u32 %r5, %nctaid.x;
  mul.wide.u32 %rd3, %r2, %r3; cvt.u64.u32 %rd4, %r4; add.u64 %rd3, %rd3, %rd4;
  mul.wide.u32 %rd5, %r5, %r3;
next: setp.ge.u64 %p, %rd3, %rd2;
  @%p bra done;
  shl.b64 %rd6, %rd3, 2; add.u64 %rd6, %rd1, %rd6; st.global.u32 [%rd6], %r1;
  add.u64 %rd3, %rd3, %rd5; bra next;
done: ret;
}
"""

VERIFY = b""".visible .entry verify(.param .u64 start, .param .u64 words, .param .u32 value,
                       .param .u64 wrong) {
  .reg .u64 %rd<8>; .reg .u32 %r<8>; .reg .pred %p;
  ld.param.u64 %rd1, [start]; ld.param.u64 %rd2, [words]; ld.param.u32 %r1, [value];
  ld.param.u64 %rd7, [wrong];
  cvta.to.global.u64 %rd1, %rd1; cvta.to.global.u64 %rd7, %rd7;
  mov.u32 %r2, %ctaid.x; mov.u32 %r3, %ntid.x; mov.u32 %r4, %tid.x; mov.u32 %r5, %nctaid.x;
  mul.wide.u32 %rd3, %r2, %r3; cvt.u64.u32 %rd4, %r4; add.u64 %rd3, %rd3, %rd4;
  mul.wide.u32 %rd5, %r5, %r3;
next: setp.ge.u64 %p, %rd3, %rd2;
  @%p bra done;
  shl.b64 %rd6, %rd3, 2; add.u64 %rd6, %rd1, %rd6; ld.global.u32 %r6, [%rd6];
  add.u64 %rd3, %rd3, %rd5;
  setp.eq.u32 %p, %r6, %r1;
  @%p bra next;
  atom.global.add.u32 %r7, [%rd7], 1; bra next;
done: ret;
}
"""

#: Reads at random: ``words`` is a power of two. What is read decides nothing but must be read.
GATHER = b""".visible .entry gather(.param .u64 start, .param .u64 words, .param .u32 rounds,
                       .param .u64 sink) {
  .reg .u64 %rd<9>; .reg .u32 %r<8>; .reg .pred %p;
  ld.param.u64 %rd1, [start]; ld.param.u64 %rd2, [words]; ld.param.u32 %r1, [rounds];
  ld.param.u64 %rd7, [sink];
  cvta.to.global.u64 %rd1, %rd1; cvta.to.global.u64 %rd7, %rd7; sub.u64 %rd2, %rd2, 1;
  mov.u32 %r2, %ctaid.x; mov.u32 %r3, %ntid.x; mov.u32 %r4, %tid.x;
  mul.wide.u32 %rd3, %r2, %r3; cvt.u64.u32 %rd4, %r4; add.u64 %rd3, %rd3, %rd4;
  mov.u32 %r5, 0;
next: setp.eq.u32 %p, %r1, 0;
  @%p bra done;
  mul.lo.u64 %rd3, %rd3, 6364136223846793005; add.u64 %rd3, %rd3, 1442695040888963407;
  shr.u64 %rd5, %rd3, 24; and.b64 %rd5, %rd5, %rd2;
  shl.b64 %rd6, %rd5, 2; add.u64 %rd6, %rd1, %rd6; ld.global.u32 %r6, [%rd6];
  xor.b32 %r5, %r5, %r6; sub.u32 %r1, %r1, 1; bra next;
done: setp.ne.u32 %p, %r5, 305419896;
  @%p bra out;
  st.global.u32 [%rd7], %r5;
out: ret;
}
"""

#: The same fill and check, on the device before the kernel in front of them has ended.
EARLY_HEAD = b""".version 8.0
.target sm_90
.address_size 64
"""
EARLY = (EARLY_HEAD
         + FILL.replace(b"  .reg .u64", b"  griddepcontrol.launch_dependents;\n  .reg .u64", 1)
         + VERIFY.replace(b"next: setp", b"  griddepcontrol.wait;\nnext: setp", 1))

#: A block of 16 KiB from shared memory in one bulk copy (TMA); each group of threads writes one.
BULK_BYTES = 16 << 10
BULK = EARLY_HEAD + b""".visible .entry bulk(.param .u64 start, .param .u32 value) {
  .shared .align 128 .b8 block[16384];
  .reg .u64 %rd<6>; .reg .u32 %r<8>; .reg .pred %p;
  ld.param.u64 %rd1, [start]; ld.param.u32 %r1, [value];
  cvta.to.global.u64 %rd1, %rd1;
  mov.u32 %r2, %tid.x; mov.u32 %r3, %ntid.x; mov.u32 %r4, block; mov.u32 %r7, %r2;
next: setp.ge.u32 %p, %r7, 4096;
  @%p bra filled;
  shl.b32 %r5, %r7, 2; add.u32 %r5, %r4, %r5; st.shared.u32 [%r5], %r1;
  add.u32 %r7, %r7, %r3; bra next;
filled: fence.proxy.async.shared::cta;
  bar.sync 0;
  setp.ne.u32 %p, %r2, 0;
  @%p bra done;
  mov.u32 %r6, %ctaid.x; mul.wide.u32 %rd2, %r6, 16384; add.u64 %rd3, %rd1, %rd2;
  cp.async.bulk.global.shared::cta.bulk_group [%rd3], [%r4], 16384;
  cp.async.bulk.commit_group;
  cp.async.bulk.wait_group 0;
done: ret;
}
"""


class Attribute(ctypes.Structure):
    """``CUlaunchAttribute``"""

    _fields_ = [("id", ctypes.c_int), ("pad", ctypes.c_char * 4), ("value", ctypes.c_int),
                ("rest", ctypes.c_char * 60)]


class Config(ctypes.Structure):
    """``CUlaunchConfig``"""

    _fields_ = [("grid", ctypes.c_uint * 3), ("block", ctypes.c_uint * 3),
                ("shared_bytes", ctypes.c_uint), ("stream", ctypes.c_void_p),
                ("attributes", ctypes.POINTER(Attribute)), ("count", ctypes.c_uint)]


#: ``CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION``
DEPENDENT = 6


class Kernels:
    """The functions of a module."""

    def __init__(self, cuda: Cuda, text: bytes) -> None:
        self._cuda, self._module = cuda, ctypes.c_void_p()
        cuda("cuModuleLoadData", ctypes.byref(self._module), text)
        self._known: dict[str, ctypes.c_void_p] = {}

    def find(self, name: str) -> ctypes.c_void_p:
        """Looks a function up, once: no source says that captures permit it."""
        if name not in self._known:
            function = ctypes.c_void_p()
            self._cuda("cuModuleGetFunction", ctypes.byref(function), self._module,
                       name.encode())
            self._known[name] = function
        return self._known[name]

    def launch(self, name: str, stream: ctypes.c_void_p | None, *arguments: object,
               groups: int = 264, threads: int = 256, is_early: bool = False) -> None:
        """``is_early``: it may be on the device before what is in front of it has ended."""
        function = self.find(name)
        pointers = (ctypes.c_void_p * len(arguments))(
            *(ctypes.cast(ctypes.byref(one), ctypes.c_void_p) for one in arguments))
        attribute = Attribute(DEPENDENT, b"", 1)
        config = Config((groups, 1, 1), (threads, 1, 1), 0, stream, ctypes.pointer(attribute),
                        int(is_early))
        self._cuda("cuLaunchKernelEx", ctypes.byref(config), function, pointers, None)


def words(size: int) -> ctypes.c_uint64:
    return ctypes.c_uint64(size // 4)


def counter(cuda: Cuda) -> Address:
    """A word of 0 on the device."""
    at = Address()
    cuda("cuMemAlloc_v2", ctypes.byref(at), ctypes.c_size_t(512))
    cuda("cuMemsetD32_v2", at, ctypes.c_uint(0), ctypes.c_size_t(128))
    return at


def value_of(cuda: Cuda, at: Address) -> int:
    value = ctypes.c_uint()
    cuda("cuMemcpyDtoH_v2", ctypes.byref(value), at, ctypes.c_size_t(4))
    return value.value
