//! [`Legality`], and [`Group`]s: functions that allocators do not call, and what captures forbid of
//! them. With the rows of the table these are all functions of the simulated `libcuda`.
//!
//! Invariant: a function stands in one place. Where the source of a neighbour tells nothing of a
//! function, it is among those of which nobody has told.

use drystone_driver::CaptureMode;
use std::fmt::Write;

/// Who may make a call while a stream is captured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Legality {
    /// Everybody, in every capture.
    Always,
    /// Everybody: on a stream that takes part, the call becomes part of the graph.
    Captured,
    /// Nobody whom a capture forbids "potentially unsafe" calls. It breaks those captures.
    Unsafe,
    /// Nobody has said. Forbidden as if unsafe.
    Unproven,
    /// Nobody, in whatever mode: the call is about all streams. It breaks every capture.
    Nobody,
}

impl Legality {
    /// Whether a capture in mode `capture` lets a thread in mode `thread` make the call; `is_own`
    /// when that thread began the capture. The rule is that of
    /// `cuThreadExchangeStreamCaptureMode`.
    pub fn permits(self, capture: CaptureMode, is_own: bool, thread: CaptureMode) -> bool {
        let by_own = is_own && capture != CaptureMode::Relaxed;
        match (self, thread) {
            (Self::Always | Self::Captured, _) => true,
            (Self::Nobody, _) => false,
            (_, CaptureMode::Relaxed) => true,
            (_, CaptureMode::ThreadLocal) => !by_own,
            (_, CaptureMode::Global) => !by_own && capture != CaptureMode::Global,
        }
    }

    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Always => "always legal",
            Self::Captured => "captured",
            Self::Unsafe => "unsafe",
            Self::Unproven => "unproven",
            Self::Nobody => "never legal",
        }
    }
}

/// Functions of the driver API to which the same applies, for the same reason.
#[derive(Clone, Copy, Debug)]
pub struct Group {
    /// Their names, without versions, with spaces between.
    functions: &'static str,
    /// Who may call them.
    pub legality: Legality,
    /// Whether they are refused to everybody, and break the capture, on a stream that takes part.
    pub breaks_its_own: bool,
    /// Where that is written.
    pub source: &'static str,
}

const fn group(legality: Legality, source: &'static str, functions: &'static str) -> Group {
    Group { functions, legality, breaks_its_own: false, source }
}

impl Group {
    const fn and_break_their_own(self) -> Self {
        Self { breaks_its_own: true, ..self }
    }

    /// Their names, without versions.
    pub fn functions(&self) -> impl Iterator<Item = &'static str> + use<> {
        self.functions.split(' ')
    }

    /// The groups as Markdown, as `captures.md` has them.
    pub fn markdown() -> String {
        let mut text = String::from("| kind | functions | of what is captured itself | source |\n");
        text += "| --- | --- | --- | --- |\n";
        for group in GROUPS {
            let own = if group.breaks_its_own { "breaks" } else { "" };
            let functions: Vec<_> = group.functions().map(|one| format!("`{one}`")).collect();
            let (kind, functions) = (group.legality.name(), functions.join(", "));
            let _ = writeln!(text, "| {kind} | {functions} | {own} | {} |", group.source);
        }
        text
    }
}

/// All of them.
pub(super) const GROUPS: &[Group] = {
    use Legality::{Always, Captured, Nobody, Unsafe};
    &[
        group(
            Always,
            "PyTorch's device guards ask for the device, and set it, around every captured \
             operation",
            "cuDeviceGet cuDeviceGetCount cuDevicePrimaryCtxGetState",
        ),
        group(
            Always,
            "Triton's launcher (`ensureCudaContext`) retains it in threads that have no context, \
             unguarded, while PyTorch captures",
            "cuDevicePrimaryCtxRetain",
        ),
        group(
            Always,
            "each copy of NVIDIA's runtime in a process (cuBLAS and NCCL have one) starts at its \
             own first call, unguarded; PyTorch asks for a device's properties at first use",
            "cuInit cuDeviceTotalMem",
        ),
        group(
            Always,
            "NVIDIA/cccl#9119: CUB's check of a stream's device, in its tests of captures; \
             NVIDIA/warp's `ContextGuard`",
            "cuCtxGetCurrent cuCtxSetCurrent cuCtxPushCurrent cuCtxPopCurrent cuCtxGetDevice",
        ),
        group(
            Always,
            "NVIDIA/cuda-python (`_get_conditional_context`): of a captured stream since CUDA \
             12.5; before, it breaks the capture",
            "cuStreamGetCtx",
        ),
        group(
            Always,
            "CUB and CUTLASS ask and set these before each launch, and PyTorch captures them",
            "cuDeviceGetAttribute cuFuncGetAttribute cuFuncSetAttribute \
             cuOccupancyMaxActiveBlocksPerMultiprocessor \
             cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags cuOccupancyMaxActiveClusters \
             cuTensorMapEncodeTiled cuTensorMapEncodeIm2col",
        ),
        group(
            Always,
            "looked up at first use, and to tell of an error, in captures too: PyTorch's \
             `DriverAPI` and `C10_CUDA_DRIVER_CHECK`",
            "cuGetProcAddress cuDriverGetVersion cuGetErrorName cuGetErrorString",
        ),
        group(
            Always,
            "Triton's launcher asks about each pointer that it passes; NCCL asks about captured \
             buffers (graph registration)",
            "cuPointerGetAttribute cuPointerGetAttributes cuMemGetAddressRange",
        ),
        group(
            Always,
            "NCCL (`strongstream.cc`) calls them, unguarded, for a stream that is captured",
            "cuStreamCreate cuStreamCreateWithPriority cuStreamDestroy cuUserObjectCreate",
        ),
        group(
            Always,
            "CUDA driver API, stream management: they begin, tell of, lead on and end captures",
            "cuStreamBeginCapture cuStreamBeginCaptureToGraph cuStreamEndCapture \
             cuStreamGetCaptureInfo cuStreamUpdateCaptureDependencies",
        ),
        group(
            Always,
            "CUDA driver API, `cuStreamGetCaptureInfo`: on a graph under capture all is permitted \
             but its end and the removal of nodes",
            "cuGraphAddChildGraphNode cuGraphAddDependencies cuGraphAddEmptyNode \
             cuGraphAddEventRecordNode cuGraphAddEventWaitNode cuGraphAddHostNode \
             cuGraphAddKernelNode cuGraphAddMemcpyNode cuGraphAddMemsetNode cuGraphAddNode \
             cuGraphClone cuGraphConditionalHandleCreate cuGraphDebugDotPrint cuGraphGetEdges \
             cuGraphGetNodes cuGraphGetRootNodes cuGraphKernelNodeGetAttribute \
             cuGraphKernelNodeGetParams cuGraphKernelNodeSetAttribute cuGraphKernelNodeSetParams \
             cuGraphNodeGetDependencies cuGraphNodeGetDependentNodes cuGraphNodeGetType \
             cuGraphReleaseUserObject cuGraphRemoveDependencies cuGraphRetainUserObject",
        ),
        group(
            Always,
            "NVIDIA/cccl#11360, NVIDIA/cuda-python#2834: a pool may be asked for, its attributes \
             not",
            "cuDeviceGetDefaultMemPool cuDeviceGetMemPool cuMemGetDefaultMemPool",
        ),
        group(
            Captured,
            "CUDA programming guide, CUDA graphs, node types and stream capture",
            "cuEventRecordWithFlags cuLaunchCooperativeKernel cuLaunchHostFunc cuLaunchKernel \
             cuLaunchKernelEx cuMemcpy2DAsync cuMemcpy3DAsync cuMemcpyDtoDAsync cuMemcpyDtoHAsync \
             cuMemcpyHtoDAsync cuMemsetD16Async cuMemsetD2D16Async cuMemsetD2D32Async \
             cuMemsetD2D8Async cuMemsetD32Async cuMemsetD8Async",
        ),
        group(
            Captured,
            "NCCL captures them in collectives by copy engines (`ce_coll.cc`); CUDA driver API, \
             `cuGraphAddBatchMemOpNode`",
            "cuStreamWaitValue32 cuStreamWaitValue64 cuStreamWriteValue32 cuStreamWriteValue64",
        ),
        group(Captured, "microsoft/onnxruntime#32081 measured error 900", "cuGraphLaunch")
            .and_break_their_own(),
        group(
            Captured,
            "CUDA driver API, `cuStreamAddCallback`; CUDA programming guide, CUDA graphs, \
             prohibited and unhandled operations",
            "cuStreamAddCallback cuStreamAttachMemAsync",
        )
        .and_break_their_own(),
        group(
            Captured,
            "NVIDIA/warp (`wp_memcpy_p2p`): not supported during capture",
            "cuMemcpyPeerAsync cuMemcpy3DPeerAsync",
        )
        .and_break_their_own(),
        group(
            Unsafe,
            "CUDA programming guide, CUDA graphs, prohibited and unhandled operations: they use \
             the legacy stream and wait for it; aws/aws-ofi-nccl#1342",
            "cuMemcpy cuMemcpy2D cuMemcpy2DUnaligned cuMemcpy3D cuMemcpy3DPeer cuMemcpyDtoD \
             cuMemcpyDtoH cuMemcpyHtoD cuMemcpyPeer cuMemsetD16 cuMemsetD2D16 cuMemsetD2D32 \
             cuMemsetD2D8 cuMemsetD32 cuMemsetD8",
        ),
        group(
            Unsafe,
            "CUDA driver API, `cuThreadExchangeStreamCaptureMode`, of `cudaMalloc`",
            "cuMemAllocManaged cuMemAllocPitch",
        ),
        group(
            Unsafe,
            "PyTorch's caching host allocator and NCCL (`linux.cc`) are relaxed around them",
            "cuMemAllocHost cuMemHostRegister cuMemHostGetDevicePointer",
        ),
        group(
            Unsafe,
            "NCCL's registration of windows (`dev_runtime.cc`) is relaxed around it",
            "cuMemRetainAllocationHandle",
        ),
        group(Unsafe, "NVIDIA/warp (`wp_memcpy_p2p`) must not call it", "cuMemPoolGetAccess"),
        group(
            Unsafe,
            "NVIDIA/warp's notes on captures, newton-physics/newton#892: refused before CUDA \
             12.3, legal since; NVIDIA/warp#401 of unloading",
            "cuModuleLoadData cuModuleLoadDataEx cuModuleUnload",
        ),
        group(
            Unsafe,
            "microsoft/onnxruntime#32081 (error 900); NVIDIA/warp puts both off until no capture \
             is left",
            "cuGraphExecDestroy cuGraphDestroy",
        ),
        group(Unsafe, "NVIDIA/cccl#9119: not permitted during capture", "cuStreamGetDevice")
            .and_break_their_own(),
        group(
            Nobody,
            "CUDA driver API, `cuCtxRecordEvent`, `cuCtxWaitEvent`",
            "cuCtxRecordEvent cuCtxWaitEvent",
        ),
        UNPROVEN,
    ]
};

/// Those of which nobody has told.
const UNPROVEN: Group = group(
    Legality::Unproven,
    "no public source: treated as illegal",
    "cuCtxAttach cuCtxCreate cuCtxDestroy cuCtxDetach cuCtxDisablePeerAccess cuCtxGetApiVersion \
     cuCtxGetCacheConfig cuCtxGetExecAffinity cuCtxGetFlags cuCtxGetId cuCtxGetLimit \
     cuCtxGetSharedMemConfig cuCtxGetStreamPriorityRange cuCtxResetPersistingL2Cache \
     cuCtxSetCacheConfig cuCtxSetFlags cuCtxSetLimit cuCtxSetSharedMemConfig cuDeviceCanAccessPeer \
     cuDeviceComputeCapability cuDeviceGetByPCIBusId cuDeviceGetExecAffinitySupport \
     cuDeviceGetGraphMemAttribute cuDeviceGetLuid cuDeviceGetName cuDeviceGetP2PAttribute \
     cuDeviceGetPCIBusId cuDeviceGetProperties cuDeviceGetUuid cuDeviceGraphMemTrim \
     cuDevicePrimaryCtxRelease cuDevicePrimaryCtxReset cuDevicePrimaryCtxSetFlags \
     cuDeviceRegisterAsyncNotification cuDeviceSetGraphMemAttribute cuDeviceSetMemPool \
     cuDeviceUnregisterAsyncNotification cuEventElapsedTime cuFlushGPUDirectRDMAWrites \
     cuFuncGetModule cuFuncGetName cuFuncGetParamInfo cuFuncIsLoaded cuFuncLoad \
     cuFuncSetCacheConfig cuFuncSetSharedMemConfig cuGetExportTable cuGraphCreate \
     cuGraphDestroyNode cuGraphExecGetFlags cuGraphExecKernelNodeSetParams cuGraphExecUpdate \
     cuGraphInstantiate cuGraphInstantiateWithFlags cuGraphInstantiateWithParams \
     cuGraphNodeGetEnabled cuGraphNodeSetEnabled cuGraphUpload cuIpcCloseMemHandle \
     cuIpcGetEventHandle cuIpcGetMemHandle cuIpcOpenEventHandle cuIpcOpenMemHandle \
     cuKernelGetAttribute cuKernelGetFunction cuKernelGetLibrary cuKernelGetName \
     cuKernelGetParamInfo cuKernelSetAttribute cuKernelSetCacheConfig cuLibraryEnumerateKernels \
     cuLibraryGetGlobal cuLibraryGetKernel cuLibraryGetKernelCount cuLibraryGetManaged \
     cuLibraryGetModule cuLibraryGetUnifiedFunction cuLibraryLoadData cuLibraryLoadFromFile \
     cuLibraryUnload cuLinkAddData cuLinkAddFile cuLinkComplete cuLinkCreate cuLinkDestroy \
     cuMemAdvise cuMemGetAccess cuMemGetAllocationGranularity \
     cuMemGetAllocationPropertiesFromHandle cuMemGetHandleForAddressRange cuMemGetMemPool \
     cuMemHostGetFlags cuMemHostUnregister cuMemPoolExportPointer cuMemPoolExportToShareableHandle \
     cuMemPoolImportFromShareableHandle cuMemPoolImportPointer cuMemPrefetchAsync \
     cuMemRangeGetAttribute cuMemSetMemPool cuMemcpyBatchAsync cuModuleEnumerateFunctions \
     cuModuleGetFunction cuModuleGetFunctionCount cuModuleGetGlobal cuModuleGetLoadingMode \
     cuModuleGetSurfRef cuModuleGetTexRef cuModuleLoad cuModuleLoadFatBinary cuMulticastAddDevice \
     cuMulticastBindAddr cuMulticastBindMem cuMulticastCreate cuMulticastGetGranularity \
     cuMulticastUnbind cuOccupancyAvailableDynamicSMemPerBlock cuOccupancyMaxPotentialBlockSize \
     cuOccupancyMaxPotentialBlockSizeWithFlags cuOccupancyMaxPotentialClusterSize \
     cuPointerSetAttribute cuProfilerInitialize cuProfilerStart cuProfilerStop \
     cuStreamCopyAttributes cuStreamGetAttribute cuStreamGetFlags cuStreamGetGreenCtx \
     cuStreamGetPriority cuStreamSetAttribute cuTensorMapReplaceAddress cuUserObjectRelease \
     cuUserObjectRetain",
);
