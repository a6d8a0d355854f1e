//! Functions of the runtime that are exported, so that programs load, and refuse to work.
//!
//! A call is counted under its name, tells `cudaErrorNotSupported`, and changes nothing. What a
//! program may do with CUDA besides memory, streams, captures and launches is here: textures, nodes
//! added to graphs by hand, memory of other libraries, binaries loaded by name.

use crate::driver;
use crate::error::{self, Status, record};

macro_rules! unsupported {
    ($($name:ident)*) => {$(
        #[unsafe(no_mangle)]
        pub extern "C" fn $name() -> Status {
            let name = concat!(stringify!($name), "\0");
            // SAFETY: the name ends with a zero.
            unsafe { driver::simcuda_count(name.as_ptr().cast()) };
            record(error::NOT_SUPPORTED)
        }
    )*};
}

unsupported! {
    // Arrays, textures and surfaces.
    cudaArrayGetInfo cudaArrayGetMemoryRequirements cudaArrayGetPlane cudaArrayGetSparseProperties
    cudaCreateSurfaceObject cudaCreateTextureObject cudaDestroySurfaceObject
    cudaDestroyTextureObject cudaDeviceGetTexture1DLinearMaxWidth
    cudaExternalMemoryGetMappedMipmappedArray cudaFreeArray cudaFreeMipmappedArray
    cudaGetChannelDesc cudaGetMipmappedArrayLevel cudaGetSurfaceObjectResourceDesc
    cudaGetTextureObjectResourceDesc cudaGetTextureObjectResourceViewDesc
    cudaGetTextureObjectTextureDesc cudaMalloc3DArray cudaMallocArray cudaMallocMipmappedArray
    cudaMemcpy2DArrayToArray cudaMemcpy2DArrayToArray_ptds cudaMemcpy2DFromArray
    cudaMemcpy2DFromArrayAsync cudaMemcpy2DFromArrayAsync_ptsz cudaMemcpy2DFromArray_ptds
    cudaMemcpy2DToArray cudaMemcpy2DToArrayAsync cudaMemcpy2DToArrayAsync_ptsz
    cudaMemcpy2DToArray_ptds cudaMemcpyArrayToArray cudaMemcpyArrayToArray_ptds cudaMemcpyFromArray
    cudaMemcpyFromArrayAsync cudaMemcpyFromArrayAsync_ptsz cudaMemcpyFromArray_ptds
    cudaMemcpyToArray cudaMemcpyToArrayAsync cudaMemcpyToArrayAsync_ptsz cudaMemcpyToArray_ptds
    cudaMipmappedArrayGetMemoryRequirements cudaMipmappedArrayGetSparseProperties
    // Graphs: nodes added and changed by hand, memory of graphs, edges.
    cudaDeviceGetGraphMemAttribute cudaDeviceGraphMemTrim cudaDeviceSetGraphMemAttribute
    cudaGraphAddChildGraphNode cudaGraphAddDependencies cudaGraphAddDependencies_v2
    cudaGraphAddEmptyNode cudaGraphAddEventRecordNode cudaGraphAddEventWaitNode
    cudaGraphAddExternalSemaphoresSignalNode cudaGraphAddExternalSemaphoresWaitNode
    cudaGraphAddHostNode cudaGraphAddKernelNode cudaGraphAddMemAllocNode cudaGraphAddMemFreeNode
    cudaGraphAddMemcpyNode cudaGraphAddMemcpyNode1D cudaGraphAddMemcpyNodeFromSymbol
    cudaGraphAddMemcpyNodeToSymbol cudaGraphAddMemsetNode cudaGraphAddNode cudaGraphAddNode_v2
    cudaGraphChildGraphNodeGetGraph cudaGraphConditionalHandleCreate cudaGraphDestroyNode
    cudaGraphEventRecordNodeGetEvent cudaGraphEventRecordNodeSetEvent cudaGraphEventWaitNodeGetEvent
    cudaGraphEventWaitNodeSetEvent cudaGraphExecChildGraphNodeSetParams
    cudaGraphExecEventRecordNodeSetEvent cudaGraphExecEventWaitNodeSetEvent
    cudaGraphExecExternalSemaphoresSignalNodeSetParams
    cudaGraphExecExternalSemaphoresWaitNodeSetParams cudaGraphExecHostNodeSetParams
    cudaGraphExecKernelNodeSetParams cudaGraphExecMemcpyNodeSetParams
    cudaGraphExecMemcpyNodeSetParams1D cudaGraphExecMemcpyNodeSetParamsFromSymbol
    cudaGraphExecMemcpyNodeSetParamsToSymbol cudaGraphExecMemsetNodeSetParams
    cudaGraphExecNodeSetParams cudaGraphExternalSemaphoresSignalNodeGetParams
    cudaGraphExternalSemaphoresSignalNodeSetParams cudaGraphExternalSemaphoresWaitNodeGetParams
    cudaGraphExternalSemaphoresWaitNodeSetParams cudaGraphGetEdges cudaGraphGetEdges_v2
    cudaGraphGetRootNodes cudaGraphHostNodeGetParams cudaGraphHostNodeSetParams
    cudaGraphInstantiateWithParams_ptsz cudaGraphKernelNodeCopyAttributes
    cudaGraphKernelNodeGetAttribute cudaGraphKernelNodeGetParams cudaGraphKernelNodeSetAttribute
    cudaGraphKernelNodeSetParams cudaGraphMemAllocNodeGetParams cudaGraphMemFreeNodeGetParams
    cudaGraphMemcpyNodeGetParams cudaGraphMemcpyNodeSetParams cudaGraphMemcpyNodeSetParams1D
    cudaGraphMemcpyNodeSetParamsFromSymbol cudaGraphMemcpyNodeSetParamsToSymbol
    cudaGraphMemsetNodeGetParams cudaGraphMemsetNodeSetParams cudaGraphNodeFindInClone
    cudaGraphNodeGetDependentNodes cudaGraphNodeGetDependentNodes_v2 cudaGraphNodeGetEnabled
    cudaGraphNodeGetType cudaGraphNodeSetEnabled cudaGraphNodeSetParams cudaGraphRemoveDependencies
    cudaGraphRemoveDependencies_v2
    // Memory of other libraries.
    cudaDestroyExternalMemory cudaDestroyExternalSemaphore cudaExternalMemoryGetMappedBuffer
    cudaGraphicsMapResources cudaGraphicsResourceGetMappedEglFrame
    cudaGraphicsResourceGetMappedMipmappedArray cudaGraphicsResourceGetMappedPointer
    cudaGraphicsResourceSetMapFlags cudaGraphicsSubResourceGetMappedArray cudaGraphicsUnmapResources
    cudaGraphicsUnregisterResource cudaImportExternalMemory cudaImportExternalSemaphore
    cudaSignalExternalSemaphoresAsync cudaSignalExternalSemaphoresAsync_ptsz
    cudaSignalExternalSemaphoresAsync_v2 cudaSignalExternalSemaphoresAsync_v2_ptsz
    cudaWaitExternalSemaphoresAsync cudaWaitExternalSemaphoresAsync_ptsz
    cudaWaitExternalSemaphoresAsync_v2 cudaWaitExternalSemaphoresAsync_v2_ptsz
    // Code loaded by name, and what is asked of it.
    cudaFuncGetParamInfo cudaFuncSetSharedMemConfig cudaGetExportTable
    cudaKernelSetAttributeForDevice cudaLaunchCooperativeKernelMultiDevice
    cudaLibraryEnumerateKernels cudaLibraryGetGlobal cudaLibraryGetKernel cudaLibraryGetKernelCount
    cudaLibraryGetManaged cudaLibraryGetUnifiedFunction cudaLibraryLoadData cudaLibraryLoadFromFile
    cudaLibraryUnload cudaOccupancyAvailableDynamicSMemPerBlock cudaOccupancyMaxActiveClusters
    cudaOccupancyMaxPotentialClusterSize
    // Copies, fills and requests of three dimensions; many at once.
    cudaMalloc3D cudaMemDiscardAndPrefetchBatchAsync cudaMemDiscardAndPrefetchBatchAsync_ptsz
    cudaMemDiscardBatchAsync cudaMemDiscardBatchAsync_ptsz cudaMemPrefetchBatchAsync
    cudaMemPrefetchBatchAsync_ptsz cudaMemRangeGetAttributes cudaMemcpy3D cudaMemcpy3DAsync
    cudaMemcpy3DAsync_ptsz cudaMemcpy3DBatchAsync cudaMemcpy3DBatchAsync_ptsz cudaMemcpy3DPeer
    cudaMemcpy3DPeerAsync cudaMemcpy3DPeerAsync_ptsz cudaMemcpy3DPeer_ptds cudaMemcpy3D_ptds
    cudaMemcpyBatchAsync_v12 cudaMemset3D cudaMemset3DAsync cudaMemset3DAsync_ptsz cudaMemset3D_ptds
    // Devices, logs, and what was given up long ago.
    cudaDeviceGetHostAtomicCapabilities cudaDeviceGetP2PAtomicCapabilities
    cudaDeviceGetSharedMemConfig cudaDeviceRegisterAsyncNotification cudaDeviceSetSharedMemConfig
    cudaDeviceUnregisterAsyncNotification cudaLogsCurrent cudaLogsDumpToFile cudaLogsDumpToMemory
    cudaLogsRegisterCallback cudaLogsUnregisterCallback cudaSetDoubleForDevice cudaSetDoubleForHost
    cudaSetValidDevices cudaThreadExit cudaThreadGetCacheConfig cudaThreadGetLimit
    cudaThreadSetCacheConfig cudaThreadSetLimit cudaThreadSynchronize
}
