/* Drystone, a CUDA caching allocator: the C interface of libdrystone.so.
 *
 * Made by cbindgen of crates/capi/src; do not edit. docs/use/c-api.md tells what holds for all of
 * it.
 *
 * Every function may be called from any thread, at any time, in any order, with any argument: what
 * it cannot do it refuses with a status, changes nothing, and keeps the reason as the calling
 * thread's last error. Statuses are named here without DRYSTONE_STATUS_; INTERNAL is possible
 * everywhere, POISONED after it, DEVICE_RESET wherever memory is asked for, and FILE_ERROR from the
 * first request of a process that records. The exceptions are pointers that a function reads or
 * writes through, which must be what it says, and streams, which the driver must still know. Signal
 * handlers may call nothing here, nor may host functions of a stream, which may not use CUDA. Once
 * the process exits, frees succeed and everything else fails with EXITING; in a forked child
 * everything fails with FORKED, unless the parent had not used CUDA.
 *
 * Streams are cudaStream_t or CUstream; neither of CUDA's headers is needed. A program that is
 * linked with the library asks for libdrystone.so.1: the number is that of the binary interface. */


#ifndef DRYSTONE_H
#define DRYSTONE_H

#include <stddef.h>
#include <stdint.h>

/* The version of this header. */
#define DRYSTONE_VERSION_MAJOR 0
#define DRYSTONE_VERSION_MINOR 1
#define DRYSTONE_VERSION_PATCH 0
#define DRYSTONE_VERSION \
    (DRYSTONE_VERSION_MAJOR * 1000000 + DRYSTONE_VERSION_MINOR * 1000 \
     + DRYSTONE_VERSION_PATCH)

/** The binary interface that this header describes. */
#define DRYSTONE_ABI_VERSION 1

/** For `drystone_pool_create_plain`: no two blocks of the pool share a segment. */
#define DRYSTONE_POOL_UNSPLIT 1

/** How a call ended. Values are never renumbered; later versions may add some. */
enum drystone_status {
    /** Done. */
    DRYSTONE_STATUS_OK = 0,
    /** An argument is none the function takes: a null pointer, a number out of range. */
    DRYSTONE_STATUS_INVALID_VALUE = 1,
    /** The size is larger than any block can be. */
    DRYSTONE_STATUS_INVALID_SIZE = 2,
    /** There is no such device. */
    DRYSTONE_STATUS_INVALID_DEVICE = 3,
    /**
     * Not enough memory, after everything unused was given back. The same call may succeed later.
     */
    DRYSTONE_STATUS_OUT_OF_MEMORY = 4,
    /** The pointer is not one of this library's. */
    DRYSTONE_STATUS_UNKNOWN_POINTER = 5,
    /** The pointer lies inside a block that starts elsewhere. */
    DRYSTONE_STATUS_INTERIOR_POINTER = 6,
    /** The block was freed already. */
    DRYSTONE_STATUS_ALREADY_FREE = 7,
    /** The block was allocated with another size. */
    DRYSTONE_STATUS_WRONG_SIZE = 8,
    /** The block belongs to another device. */
    DRYSTONE_STATUS_WRONG_DEVICE = 9,
    /** The block was allocated on another stream. */
    DRYSTONE_STATUS_WRONG_STREAM = 10,
    /** The driver does not know the stream. */
    DRYSTONE_STATUS_UNKNOWN_STREAM = 11,
    /** The pool was never made, or is released. */
    DRYSTONE_STATUS_UNKNOWN_POOL = 12,
    /** The text is not a list of options, or the device cannot do what they ask. */
    DRYSTONE_STATUS_BAD_OPTION = 13,
    /** The device is in use already, and its options are settled. */
    DRYSTONE_STATUS_ALREADY_IN_USE = 14,
    /** There is no CUDA driver that can be used. */
    DRYSTONE_STATUS_NO_DRIVER = 15,
    /** A driver call failed for another reason than a lack of memory. */
    DRYSTONE_STATUS_DRIVER_ERROR = 16,
    /** Not possible while a stream is being captured into a graph. */
    DRYSTONE_STATUS_CAPTURING = 17,
    /** The process is exiting. */
    DRYSTONE_STATUS_EXITING = 18,
    /** The process was forked from one that uses the library, and cannot use it. */
    DRYSTONE_STATUS_FORKED = 19,
    /** The device does not offer this. */
    DRYSTONE_STATUS_NOT_SUPPORTED = 20,
    /** A file could not be written. */
    DRYSTONE_STATUS_FILE_ERROR = 21,
    /** The buffer is too small for the text. */
    DRYSTONE_STATUS_BUFFER_TOO_SMALL = 22,
    /** A defect of the library. It was contained; please report it. */
    DRYSTONE_STATUS_INTERNAL = 23,
    /**
     * A defect broke the device's heap earlier, which was INTERNAL then. It gives and takes no
     * memory any more, but can be looked at: please report the defect, and restart the process.
     */
    DRYSTONE_STATUS_POISONED = 24,
    /**
     * The device was reset, and all its memory is gone. Nothing can be had from it any more:
     * restart the process, or free what is left and go on with another device.
     */
    DRYSTONE_STATUS_DEVICE_RESET = 25,
};

/** CUDA's stream, as `cudaStream_t` and `CUstream` point to it. */
struct CUstream_st;

/** A handle of physical memory, as it goes from process to process. */
struct drystone_shared_handle {
    /** Its size. */
    uint64_t bytes;
    /** A file descriptor that leads to it. */
    int descriptor;
};

/** One quantity over time. */
struct drystone_gauge {
    /** Now. */
    uint64_t current;
    /** The largest it ever was, or since `drystone_reset_peaks`. */
    uint64_t peak;
    /** Sum of all that was ever added. What was taken away is this less `current`. */
    uint64_t total;
};

/**
 * Statistics of the blocks of one size: small ones, up to 1 MiB, or large ones. The fields mean
 * what they mean in `struct drystone_stats`.
 */
struct drystone_size_class_stats {
    /** See there. */
    struct drystone_gauge requested_bytes;
    /** See there. */
    struct drystone_gauge allocated_bytes;
    /** See there. */
    struct drystone_gauge active_bytes;
    /**
     * See there. Unused memory that belongs to neither size is in `struct drystone_stats` alone.
     */
    struct drystone_gauge reserved_bytes;
    /** See there. */
    struct drystone_gauge allocations;
    /** See there. */
    struct drystone_gauge active_blocks;
    /** See there. */
    struct drystone_gauge segments;
};

/** How often a request that its own free memory could not serve was answered in which way. */
struct drystone_choices {
    /** Memory was created. */
    uint64_t growths;
    /** Free granules were remapped. */
    uint64_t remaps;
    /** The stream was made to wait for others. */
    uint64_t waits;
};

/**
 * Statistics of a device. Sizes in bytes. Requested <= allocated <= active <= reserved, except
 * that requested and active still count a block that is pending.
 */
struct drystone_stats {
    /**
     * Set it to `sizeof(struct drystone_stats)` before the call. No more is written than that, and
     * this field becomes what was written: a later version appends fields.
     */
    size_t struct_size;
    /** What the program asked for, of blocks that are live or pending. */
    struct drystone_gauge requested_bytes;
    /** Live blocks, after rounding. */
    struct drystone_gauge allocated_bytes;
    /**
     * Live and pending blocks. Pending is freed by the program, but maybe still in use on another
     * stream.
     */
    struct drystone_gauge active_bytes;
    /** Physical memory held from the driver. */
    struct drystone_gauge reserved_bytes;
    /** Number of live blocks. */
    struct drystone_gauge allocations;
    /** Number of live and pending blocks. */
    struct drystone_gauge active_blocks;
    /** Number of segments. */
    struct drystone_gauge segments;
    /** Blocks that were taken from another stream's free memory. */
    uint64_t cross_stream_reuses;
    /** Freed, but not used before the device was idle, since its last use could not be recorded. */
    uint64_t quarantined_bytes;
    /** Physical memory of the device. */
    uint64_t device_bytes;
    /** Granules of free blocks that were remapped to back requests, in all. */
    uint64_t granule_remaps;
    /**
     * Memory, event, stream and synchronisation calls of the driver's; what only asks is not
     * counted.
     */
    uint64_t driver_calls;
    /** Of blocks up to 1 MiB. */
    struct drystone_size_class_stats small;
    /** Of larger blocks. */
    struct drystone_size_class_stats large;
    /** Requests that had memory given back before they were served or refused. */
    uint64_t retries;
    /** Granules that are mapped away from home now. */
    uint64_t remapped_granules;
    /** Mappings now beyond those of homes: of windows, in use or idle. */
    uint64_t aliases;
    /** Addresses of these that back nothing now, in bytes: their granules back other addresses. */
    uint64_t alias_bytes;
    /** Memory that is pinned, in whole handles. */
    uint64_t pinned_bytes;
    /** What misses were answered with, with room to spare: time counts more than memory. */
    struct drystone_choices with_room;
    /** The same without: memory counts more than time. */
    struct drystone_choices under_pressure;
    /** How often the device was asked how much of it is free. */
    uint64_t device_looks;
};

/**
 * What one pool, size of blocks and stream have, in bytes. A block counts for the pool and stream
 * that it was requested for. The peaks of several entries need not have been at one time.
 */
struct drystone_pool_stream_stats {
    /** The stream. */
    struct CUstream_st *stream;
    /** The pool; 0, 0 is the default pool, and one without a name. */
    uint64_t id0;
    /** See `id0`. */
    uint64_t id1;
    /** Live and pending blocks. */
    struct drystone_gauge active_bytes;
    /** Live blocks. */
    uint64_t allocated_bytes;
    /** Free blocks. With backend `async` free memory is in no entry. */
    uint64_t free_bytes;
    /** The largest free block. */
    uint64_t largest_free_bytes;
    /** 1 if it is about blocks up to 1 MiB, 0 if about larger ones. */
    uint8_t is_small;
    /** 1 if the pool was released. */
    uint8_t is_released;
    /** 1 if it is about a block that grows in place, which has a pool of its own without a name. */
    uint8_t is_growing;
};

/** Contiguous memory, tiled by blocks. */
struct drystone_segment {
    /** Where it starts. */
    void *address;
    /** Its size. */
    size_t bytes;
    /** The stream that it was obtained for. */
    struct CUstream_st *stream;
    /** Its pool; 0, 0 is the default pool, and one that was released. */
    uint64_t id0;
    /** See `id0`. */
    uint64_t id1;
    /** How many blocks it has. */
    size_t block_count;
    /** 1 if it holds blocks up to 1 MiB, 0 if larger ones. */
    uint8_t is_small;
    /** 1 if it is virtual memory, 0 if one allocation of the driver. */
    uint8_t is_mapped;
};

/** A piece of a segment. */
struct drystone_block {
    /** Where it starts. */
    void *address;
    /** Its size. */
    size_t bytes;
    /** What the program asked for; 0 if it is neither live nor pending. */
    size_t requested_bytes;
    /** The stream in whose order it is used. */
    struct CUstream_st *stream;
    /** The device. */
    int device;
    /** 1 if it is in the program's hands. */
    uint8_t is_live;
    /** 1 if the program freed it, but another stream may still be using it. */
    uint8_t is_pending;
};

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

/** The version as text, such as "0.1.0". Valid forever. */
const char *drystone_version(void);

/**
 * The version as one number: major * 1000000 + minor * 1000 + patch, as `DRYSTONE_VERSION` in the
 * header that the program was compiled with.
 */
int drystone_version_number(void);

/**
 * The binary interface: programs compiled with the same `DRYSTONE_ABI_VERSION` run with this
 * library. It grows only when a function or a status changes its meaning.
 */
int drystone_abi_version(void);

/**
 * The name of a status, such as "DRYSTONE_STATUS_OUT_OF_MEMORY"; "unknown status" for a number
 * that is none. Valid forever, never null.
 */
const char *drystone_status_name(int status);

/**
 * The status of the calling thread's last failure; OK if there was none since the thread began or
 * `drystone_clear_error`. Success does not reset it.
 */
enum drystone_status drystone_last_error(void);

/**
 * What went wrong in the calling thread's last failure, with figures and the way out; empty if
 * nothing did. Never null. Valid until the thread's next failure, or its end.
 */
const char *drystone_last_error_message(void);

/** Forgets the calling thread's last failure. */
void drystone_clear_error(void);

/**
 * Allocates `size` bytes on a stream of a device and writes the address to `out`: a multiple of
 * 512, or null for size 0, which is no error. `stream` is a `cudaStream_t` or `CUstream`; null and
 * `cudaStreamLegacy` are the legacy default stream, `cudaStreamPerThread` the calling thread's
 * own.
 *
 * The block may be used on that stream at once, and on others once they are ordered behind it. On
 * failure `out` is set to null. Statuses: INVALID_VALUE (`out` is null), INVALID_SIZE,
 * INVALID_DEVICE, OUT_OF_MEMORY, UNKNOWN_STREAM, BAD_OPTION, NO_DRIVER, DRIVER_ERROR, EXITING,
 * FORKED. Any thread; the current device does not matter.
 *
 * Pointers:
 * `out` is null or writable.
 */
enum drystone_status drystone_allocate(void **out,
                                       size_t size,
                                       int device,
                                       struct CUstream_st *stream);

/**
 * The same from a private pool, named by two numbers; 0, 0 is the default pool, or the private one
 * that takes the stream's requests at the moment. Statuses as for `drystone_allocate`, and
 * UNKNOWN_POOL.
 *
 * Pointers:
 * `out` is null or writable.
 */
enum drystone_status drystone_allocate_from_pool(void **out,
                                                 size_t size,
                                                 int device,
                                                 struct CUstream_st *stream,
                                                 uint64_t id0,
                                                 uint64_t id1);

/**
 * Allocates free memory of a private pool at `ptr`, as a block of `block_bytes` bytes that was
 * there when `drystone_layout` told so: for putting a pool's blocks back as they were. It is not
 * ordered behind what other streams have queued there, and no driver call is made.
 *
 * Statuses: INVALID_VALUE (the memory is not all free, or no such block can be there; nothing has
 * changed), INVALID_SIZE, INVALID_DEVICE, UNKNOWN_STREAM, UNKNOWN_POOL, EXITING, FORKED. Any
 * thread.
 */
enum drystone_status drystone_allocate_at(void *ptr,
                                          size_t block_bytes,
                                          size_t size,
                                          int device,
                                          struct CUstream_st *stream,
                                          uint64_t id0,
                                          uint64_t id1);

/**
 * Frees a block of any device in the order of the stream it was allocated on. Null is ignored.
 *
 * Statuses: UNKNOWN_POINTER, INTERIOR_POINTER, ALREADY_FREE, FORKED; nothing has changed then.
 * Once the process exits it does nothing and succeeds. Any thread.
 */
enum drystone_status drystone_deallocate(void *ptr);

/**
 * The same if size, device and stream are those of the allocation; else nothing changes, and the
 * status says what is wrong: as for `drystone_deallocate`, and WRONG_SIZE, WRONG_DEVICE,
 * WRONG_STREAM. The stream may have been destroyed since. Any thread.
 */
enum drystone_status drystone_deallocate_checked(void *ptr,
                                                 size_t size,
                                                 int device,
                                                 struct CUstream_st *stream);

/**
 * Notes that a block is also used on another stream than its own: once freed, it is not used again
 * before that stream has passed the point it has reached by then. Null is ignored.
 *
 * Statuses: UNKNOWN_POINTER, INTERIOR_POINTER, ALREADY_FREE, UNKNOWN_STREAM, EXITING, FORKED. Any
 * thread.
 */
enum drystone_status drystone_record_use(void *ptr, struct CUstream_st *stream);

/**
 * Says of a stream, before its first use here, that it is there until `drystone_retire_stream`, or
 * forever: the driver may be asked about it at any time, and memory goes between such streams
 * sooner. Any other stream is asked by those calls alone that are given it.
 *
 * Statuses: INVALID_DEVICE, UNKNOWN_STREAM, BAD_OPTION, NO_DRIVER, DRIVER_ERROR, EXITING, FORKED.
 * Any thread.
 */
enum drystone_status drystone_add_stream(int device, struct CUstream_st *stream);

/**
 * Says that a stream is about to be destroyed. Blocks allocated on it stay valid and may be freed
 * later; its free memory serves other streams once its work is complete. Without this call that
 * memory serves again only once the device was idle.
 *
 * Statuses: INVALID_VALUE (the default stream), INVALID_DEVICE, UNKNOWN_STREAM, EXITING, FORKED.
 * Any thread; a thread ends its own `cudaStreamPerThread` with it.
 */
enum drystone_status drystone_retire_stream(int device, struct CUstream_st *stream);

/**
 * Reserves addresses for memory of up to `max_bytes` that grows and shrinks in place, in the order
 * of a stream, and writes where it starts to `out`: a multiple of the granule, which names it from
 * now on. It has no bytes yet. `max_bytes` is rounded up to whole granules, and may be more than
 * the device has. One driver call.
 *
 * Each growth asks the driver about the stream: it lives until the memory is freed, or until
 * `drystone_retire_stream`, after which the memory only shrinks.
 *
 * On failure `out` is set to null. Statuses: INVALID_VALUE (`out` is null), INVALID_SIZE,
 * INVALID_DEVICE, OUT_OF_MEMORY (of addresses), UNKNOWN_STREAM, BAD_OPTION, NO_DRIVER,
 * NOT_SUPPORTED (backend `async`, or a device without virtual memory), DRIVER_ERROR, EXITING,
 * FORKED. Any thread.
 *
 * Pointers:
 * `out` is null or writable.
 */
enum drystone_status drystone_growable_reserve(void **out,
                                               size_t max_bytes,
                                               int device,
                                               struct CUstream_st *stream);

/**
 * Moves the end of such memory forward, to `bytes`; does nothing if it is there or beyond. What is
 * before stays as it is, also for graphs; nothing is copied. Free memory is mapped first, whose
 * last use is complete; the rest is created. May wait and give memory back as
 * `drystone_allocate` does. Legal while its stream is captured.
 *
 * Statuses: UNKNOWN_POINTER (none starts there), INVALID_SIZE (more than was reserved),
 * OUT_OF_MEMORY, UNKNOWN_STREAM (it was retired), CAPTURING (in a capture, other streams still use
 * what was given up there), ALREADY_FREE (somebody has deallocated it), DRIVER_ERROR, EXITING,
 * FORKED; nothing has changed then. Any thread.
 */
enum drystone_status drystone_growable_grow_to(void *ptr, size_t bytes);

/**
 * Moves the end back, to `bytes`; does nothing if it is there or before. Never waits. What is
 * behind it serves the next growth without a driver call, or others, once its uses are over.
 *
 * Statuses: UNKNOWN_POINTER, ALREADY_FREE (somebody has deallocated it), NOT_SUPPORTED (for a
 * function that is told of mappings, while another call uses it), EXITING, FORKED. Any thread.
 */
enum drystone_status drystone_growable_shrink_to(void *ptr, size_t bytes);

/**
 * Moves the end forward over all that is left of the device, and within the limit, except
 * `margin_bytes`, which is what everything else may ask for in all beside what is in use now: once
 * weights are loaded and graphs are captured. Gives back what is unused first, and waits until the
 * device is idle. Writes how many bytes it has then to `bytes`, if that is not null.
 *
 * Statuses: UNKNOWN_POINTER, CAPTURING, and as for `drystone_growable_grow_to`. Any thread.
 *
 * Pointers:
 * `bytes` is null or writable.
 */
enum drystone_status drystone_growable_commit_rest(void *ptr, size_t margin_bytes, size_t *bytes);

/**
 * Notes that such memory is also used on another stream: what it gives up, also at its end, is not
 * used again before that stream has passed the point it has reached by then.
 *
 * Statuses: UNKNOWN_POINTER, ALREADY_FREE (somebody has deallocated it), UNKNOWN_STREAM, EXITING,
 * FORKED. Any thread.
 */
enum drystone_status drystone_growable_record_use(void *ptr, struct CUstream_st *stream);

/**
 * Writes how many bytes such memory has to `bytes`, and of how many it has addresses to
 * `room_bytes`, each unless null. Waits for no call that is moving its end.
 *
 * Statuses: UNKNOWN_POINTER, EXITING, FORKED. Any thread.
 *
 * Pointers:
 * Each is null or writable.
 */
enum drystone_status drystone_growable_size(void *ptr, size_t *bytes, size_t *room_bytes);

/**
 * Frees such memory and its addresses, in the order of its stream and of those that used it. Null
 * is ignored.
 *
 * Statuses: UNKNOWN_POINTER, FORKED; nothing has changed then. Once the process exits it does
 * nothing and succeeds. Any thread.
 */
enum drystone_status drystone_growable_free(void *ptr);

/**
 * Allocates on a stream (PyTorch's `alloc_fn`).
 *
 * `size` in bytes; `device` counts from 0; `stream` is a `cudaStream_t` or `CUstream` of that
 * device. Returns an address that is a multiple of 512, or null: for size 0, which is no error,
 * and on failure, which `drystone_last_error` tells. Any thread; the current device does not
 * matter.
 */
void *drystone_malloc(ptrdiff_t size, int device, struct CUstream_st *stream);

/**
 * Frees a block in the order of the stream it was allocated on (PyTorch's `free_fn`).
 *
 * `size` and `device` are those of its allocation; `stream` is ignored. Null is ignored. A
 * pointer, size or device that is wrong changes nothing, is the thread's last error, and is said
 * in one line on standard error, a few times. Any thread, also while the process exits.
 */
void drystone_free(void *ptr, ptrdiff_t size, int device, struct CUstream_st *stream);

/**
 * Notes that a block is also used on another stream (PyTorch's `record_stream_fn`): once freed, it
 * is not used again before that stream has passed the point it has reached by then.
 *
 * Null and pointers that are not this library's are ignored, as PyTorch passes both.
 */
void drystone_record_stream(void *ptr, struct CUstream_st *stream);

/**
 * Prepares for use (PyTorch's `init_fn`). Calls no driver and opens no device: that happens at
 * each device's first allocation. Says early what is wrong with `DRYSTONE_CONF`.
 *
 * It says, too, that streams live as long as the process, as PyTorch's own do: memory goes between
 * them sooner than without it. A program that destroys a stream calls `drystone_retire_stream`
 * before that, or does not call this.
 */
void drystone_init(int device_count);

/**
 * Gives unused memory of every device back (PyTorch's `reset_fn`, which `empty_cache` calls).
 * Waits until the devices are idle. While a stream is being captured nothing is given back, and
 * the last error says so.
 */
void drystone_reset(void);

/**
 * Limits the memory held to a fraction of the device's, from 0 to 1 (PyTorch's
 * `memory_fraction_fn`). What is held above it stays until it is freed and given back.
 */
void drystone_set_memory_fraction(double fraction, int device);

/**
 * The contiguous memory that a pointer lies in (PyTorch's `base_alloc_fn`): its first address, and
 * through `size`, if that is not null, its bytes. The pointer may lie inside a block. Null and 0
 * bytes if it is none of this library's.
 *
 * Pointers:
 * `size` is null or writable.
 */
void *drystone_base_allocation(void *ptr, size_t *size);

/**
 * From now on a private pool, named by two numbers, takes requests (PyTorch's
 * `begin_allocate_to_pool`). It is made if it is not there, and has one use more.
 *
 * `filter` points to a `std::function<bool(cudaStream_t)>` of libstdc++ that says which streams'
 * requests it takes; null stands for all streams of the device. It is copied, and the copy called
 * at each request until `drystone_end_allocate_to_pool`, from any thread, by several at once. It
 * must not call this library. What it throws comes out of `drystone_malloc` and
 * `drystone_torch_malloc`; in any other function it ends the process with a line.
 *
 * Pointers:
 * `filter` is null or points to such a function.
 */
void drystone_begin_allocate_to_pool(int device, uint64_t id0, uint64_t id1, void *filter);

/**
 * The pool takes no requests any more (PyTorch's `end_allocate_to_pool_fn`). What was allocated
 * from it stays, and its memory serves nobody else until it is released.
 */
void drystone_end_allocate_to_pool(int device, uint64_t id0, uint64_t id1);

/**
 * Gives up a use of a pool (PyTorch's `release_pool`). After the last one its unused memory goes
 * back to the device with the next trim; its live blocks stay valid.
 */
void drystone_release_pool(int device, uint64_t id0, uint64_t id1);

/**
 * As `drystone_malloc`, but failure is a C++ exception: `c10::OutOfMemoryError`, in Python
 * `torch.OutOfMemoryError`, for a lack of memory, and `c10::Error`, in Python `RuntimeError`, for
 * everything else. Only PyTorch can call it: elsewhere it returns null, as `drystone_malloc` does.
 */
void *drystone_torch_malloc(ptrdiff_t size, int device, struct CUstream_st *stream);

/**
 * Finds what throwing takes, in the PyTorch that is loaded. Optional: says early whether
 * `drystone_torch_malloc` can throw. From then on PyTorch is asked whose a new stream is: its own
 * stay, and the program's may end at any time.
 *
 * Statuses: NOT_SUPPORTED (no PyTorch is loaded, or it is none that this version knows), EXITING,
 * FORKED. Any thread.
 */
enum drystone_status drystone_torch_bind(void);

/** How often `drystone_torch_malloc` found no memory on a device; 0 if there is no such device. */
uint64_t drystone_torch_refusals(int device);

/**
 * Sets who is asked what holds memory each time PyTorch is told that a device has none left; null
 * for nobody, which waits a while for the answer under way. It is given the device, the size asked
 * for, and room for a text, and returns how many bytes of it it has written, without a NUL. It is
 * asked by a thread of its own, once at a time, with no lock held. Any thread.
 */
void drystone_torch_describe_with(size_t (*describe)(int, size_t, char*, size_t));

/**
 * Writes what PyTorch's users are to read of this thread's last failure, a request for `bytes`, to
 * `out`: what to do, who holds most, and figures. It ends with a NUL, cut if there is no room.
 * Returns how many bytes it takes with that; 0, and nothing is written, if the failure was no lack
 * of memory. Any thread.
 *
 * Pointers:
 * `out` points to `size` writable bytes.
 */
size_t drystone_torch_shortage(int device, size_t bytes, char *out, size_t size);

/**
 * Settles the options of a device before its first use, or with device -1 of every device that is
 * given none of its own. `options` is text as in the environment variable `DRYSTONE_CONF`, which
 * it replaces: `key:value,...`; null takes the environment's again.
 *
 * Statuses: BAD_OPTION (the message says what is valid), ALREADY_IN_USE, INVALID_DEVICE, EXITING,
 * FORKED. Calls no driver. Any thread.
 *
 * Pointers:
 * `options` is null or a C string.
 */
enum drystone_status drystone_configure(int device, const char *options);

/**
 * Gives the unused memory of a device back, or with device -1 of all, and writes how many bytes
 * that was to `given_back`, if that is not null. Waits until the device is idle. Memory of private
 * pools goes back once they are released. A device that is not in use has nothing to give back.
 *
 * Statuses: INVALID_DEVICE, CAPTURING, DRIVER_ERROR, EXITING, FORKED; what was given back before a
 * failure stays so. Any thread.
 *
 * Pointers:
 * `given_back` is null or writable.
 */
enum drystone_status drystone_trim(int device, size_t *given_back);

/**
 * Gives the unused memory of a device's released pools back, or with device -1 of all devices,
 * and leaves what the default pool has cached. Waits until the device is idle.
 *
 * Statuses: as `drystone_trim`. Any thread.
 */
enum drystone_status drystone_trim_released(int device);

/**
 * Whether live memory of a device moves together by itself where a request would be refused, and
 * when memory is given back. If not, the message says why.
 *
 * Statuses: NOT_SUPPORTED (it does not), INVALID_DEVICE, DRIVER_ERROR, EXITING, FORKED. Any
 * thread.
 */
enum drystone_status drystone_check_moves(int device);

/**
 * Moves what is live on a device together, for about so many milliseconds at most, so that whole
 * handles are left over; writes how many bytes were copied to `moved_bytes`, if that is not null.
 * Waits until the device is idle. What was emptied serves the next requests, or goes back with the
 * next `drystone_trim`, which moves by itself where all streams are known.
 *
 * The caller answers for it that no stream uses the memory meanwhile but those that were brought
 * by requests and uses, or that `drystone_stream_created` told of.
 *
 * Statuses: INVALID_DEVICE, CAPTURING, DRIVER_ERROR, EXITING, FORKED. Any thread.
 *
 * Pointers:
 * `moved_bytes` is null or writable.
 */
enum drystone_status drystone_compact(int device, uint32_t milliseconds, size_t *moved_bytes);

/**
 * Writes how many bytes can be had of a device to `bytes`: free on it, unused here, and unused at
 * other processes of the same user that run Drystone, which give it back for a request that is
 * refused. They are asked, which takes milliseconds at most; somebody else may be faster.
 *
 * Statuses: INVALID_VALUE (`bytes` is null), INVALID_DEVICE, BAD_OPTION, NO_DRIVER, DRIVER_ERROR,
 * EXITING, FORKED. Any thread.
 *
 * Pointers:
 * `bytes` is null or writable.
 */
enum drystone_status drystone_available(int device, size_t *bytes);

/**
 * Limits the memory that is held on a device, in bytes. What is held above it stays until it is
 * freed and given back.
 *
 * Statuses: INVALID_DEVICE, BAD_OPTION, NO_DRIVER, DRIVER_ERROR, EXITING, FORKED. Any thread.
 */
enum drystone_status drystone_set_limit(int device, size_t bytes);

/**
 * Lets another device use all of this one's memory, whether it is held now or later; asking again
 * is harmless.
 *
 * Statuses: INVALID_DEVICE (either), INVALID_VALUE (a device and itself), NOT_SUPPORTED (the two
 * are not connected), DRIVER_ERROR, EXITING, FORKED. Any thread.
 */
enum drystone_status drystone_enable_peer_access(int device, int peer);

/**
 * Takes a use of a private pool, named by two numbers; it is made if it is not there. Its memory
 * serves `drystone_allocate_from_pool` with its name, and nobody else.
 *
 * Statuses: INVALID_VALUE (0, 0 is the default pool), INVALID_DEVICE, BAD_OPTION, NO_DRIVER,
 * EXITING, FORKED. Any thread.
 */
enum drystone_status drystone_pool_create(int device, uint64_t id0, uint64_t id1);

/**
 * Gives up a use of a private pool. After the last one its unused memory goes back to the device
 * with the next trim; its live blocks stay valid, and are freed like any other.
 *
 * Statuses: UNKNOWN_POOL, INVALID_DEVICE, EXITING, FORKED. Any thread.
 */
enum drystone_status drystone_pool_destroy(int device, uint64_t id0, uint64_t id1);

/**
 * Says whether graphs that are captured in a private pool never run at the same time, and in the
 * order of their captures, as PyTorch wants it of graphs that share one. It is so unless said
 * otherwise: memory that one capture freed serves the next, whatever stream that captures. With 0
 * what a stream freed stays that stream's.
 *
 * Statuses: UNKNOWN_POOL, INVALID_DEVICE, EXITING, FORKED. Any thread.
 */
enum drystone_status drystone_set_pool_exclusive(int device,
                                                 uint64_t id0,
                                                 uint64_t id1,
                                                 int is_exclusive);

/**
 * Says that a capture may begin whose requests a private pool serves. Until the first request for
 * the pool, which tells whether one has begun, nothing is given back and the device not waited
 * for. A capture that is not announced is known from the first request that its stream makes.
 *
 * Statuses: UNKNOWN_POOL, NOT_SUPPORTED (within a function that `drystone_on_remap` names),
 * INVALID_DEVICE, BAD_OPTION, NO_DRIVER, DRIVER_ERROR, EXITING, FORKED. Any thread.
 */
enum drystone_status drystone_expect_capture(int device, uint64_t id0, uint64_t id1);

/**
 * Says that every capture is over whose requests a pool served; 0, 0 is the default pool. Without
 * it a capture counts as over once its stream makes another request, or is retired: until then
 * nothing is given back. Streams that use memory which was freed in the capture live until then.
 *
 * Statuses: UNKNOWN_POOL, INVALID_DEVICE, EXITING, FORKED. Any thread.
 */
enum drystone_status drystone_end_captures(int device, uint64_t id0, uint64_t id1);

/**
 * The largest free block of a device, in bytes, of any pool and stream.
 *
 * Statuses: INVALID_VALUE (`bytes` is null), INVALID_DEVICE, NO_DRIVER, EXITING, FORKED. Any
 * thread.
 *
 * Pointers:
 * `bytes` is null or writable.
 */
enum drystone_status drystone_largest_free(int device, size_t *bytes);

/**
 * Finds out whether the device was reset, and proves every invariant of its heap. Slow: for tests,
 * for hunting a defect, and after `cudaDeviceReset`.
 *
 * Statuses: DEVICE_RESET, INTERNAL (the message names the invariant), INVALID_DEVICE, EXITING,
 * FORKED. Any thread.
 */
enum drystone_status drystone_check(int device);

/**
 * Says that the program has recorded an event on a stream (a `cudaStream_t`): what was freed there
 * before serves streams that wait for the event. An event of Drystone's is recorded beside it,
 * where anything was freed since the last. A device of -1 says that the stream is captured.
 *
 * Statuses: EXITING, FORKED. Any thread.
 */
enum drystone_status drystone_event_recorded(int device, const void *event, const void *stream);

/**
 * Says that a stream, which is not captured, was made to wait for an event
 * (`cudaStreamWaitEvent`). It then waits for Drystone's event beside that one, too.
 *
 * Statuses: EXITING, FORKED. Any thread.
 */
enum drystone_status drystone_event_waited(int device, const void *event, const void *stream);

/**
 * Says that an event is destroyed.
 *
 * Statuses: EXITING, FORKED. Any thread. Makes no driver call.
 */
enum drystone_status drystone_event_destroyed(const void *event);

/**
 * Says that the host is about to wait for a device (`cudaDeviceSynchronize`). Records an event on
 * each stream that has free memory: once the wait is over, that is known to be anybody's. A device
 * that is not in use has none.
 *
 * Statuses: EXITING, FORKED. Any thread.
 */
enum drystone_status drystone_synchronizing(int device);

/**
 * Says that a stream was created on a device, which lives as long as the process: it stands still
 * while live memory moves.
 *
 * Statuses: INVALID_DEVICE, EXITING, FORKED. Any thread. Makes no driver call.
 */
enum drystone_status drystone_stream_created(int device, const void *stream);

/**
 * Says that every stream which may use Drystone's memory is told of by `drystone_stream_created`
 * from now on, or by a request or a use, and none has been there before. From then on live memory
 * may get other memory behind its addresses, by itself: see `docs/inside/remap.md`. A stream that
 * was met otherwise, and may end silently, forbids it for as long as it is known. Only the
 * preloaded library sees copies, memsets and questions about addresses: beside `libdrystone.so`
 * alone no other thread may make any while a request is under way.
 *
 * Statuses: EXITING, FORKED. Any thread.
 */
enum drystone_status drystone_know_all_streams(void);

/**
 * Pins a live block of any device: its memory stays where it is, also once the block is free,
 * until `drystone_unpin_mapping` was called as often. For memory that a network card, NCCL or
 * another process knows by its address: it is not remapped or given back, and serves requests at
 * its own addresses as before. A pin covers whole handles: a granule each, or up to 128 MiB.
 *
 * Statuses: UNKNOWN_POINTER, INTERIOR_POINTER, ALREADY_FREE, NOT_SUPPORTED (backend `async`),
 * EXITING, FORKED. Any thread.
 */
enum drystone_status drystone_pin_mapping(void *ptr);

/**
 * Takes a pin of an address back, whether its block is live still or not.
 *
 * Statuses: UNKNOWN_POINTER (nothing is pinned there), EXITING, FORKED. Any thread.
 */
enum drystone_status drystone_unpin_mapping(void *ptr);

/**
 * Calls a function whenever addresses of a device are backed by memory anew, or will be by none,
 * with `data`: before memory goes, after it came and before anybody is given it, in the order of
 * the changes. For tables by address, such as registrations, to drop a range. `backing` is 0 for
 * none, 1 for mapped memory, 2 for one plain allocation, which comes and goes as a whole.
 *
 * It is called from any thread but never by two at once, while memory grows or goes back. It may
 * free, pin, unpin and ask; allocations that need more memory, trims and announcements of captures
 * are refused from within (NOT_SUPPORTED). It must not throw, nor begin a capture, nor wait for a
 * thread that allocates or trims, and stays for as long as the process lives.
 *
 * Statuses: INVALID_VALUE (the function is null), NOT_SUPPORTED (backend `async`), INVALID_DEVICE,
 * BAD_OPTION, NO_DRIVER, EXITING, FORKED. Any thread.
 *
 * Pointers:
 * The function is null or such a function.
 */
enum drystone_status drystone_on_remap(int device, void (*function)(void *data,
                                                                    int device,
                                                                    void *ptr,
                                                                    size_t bytes,
                                                                    int backing), void *data);

/**
 * Counts a live block of any device under a tag until it is freed, and under no other: "weights",
 * "kv", "scratch". A null `name` takes its tag away. `drystone_stats_json` says how much each tag
 * has and had at most, the message of OUT_OF_MEMORY how much it has. While any block has a tag,
 * every free takes a lock more. Memory reserved by `drystone_growable_reserve` is a block while it
 * has some, and keeps its tag when it has none.
 *
 * Statuses: UNKNOWN_POINTER, INTERIOR_POINTER, ALREADY_FREE, INVALID_VALUE (the name is empty, not
 * UTF-8, or has control characters), EXITING, FORKED. Any thread; none may free, grow or shrink
 * the block meanwhile.
 *
 * Pointers:
 * `name` is null or a C string.
 */
enum drystone_status drystone_tag(void *ptr, const char *name);

/**
 * Writes by which handles another process can import the memory of a live block, and where in the
 * memory of all of them the block begins. The count is of what there is room for, and becomes that
 * of what there is.
 *
 * The block must stay live for as long as others use it. The descriptors are this library's and
 * stay open, the same for each block that has memory of a handle, until the memory goes back to
 * the device: send them over a socket, or their numbers, for `pidfd_getfd`. The first and the last
 * handle may hold memory of other blocks, too.
 *
 * Statuses: BUFFER_TOO_SMALL (nothing is written but the count), INVALID_VALUE (the count or
 * `offset` is null, or the array, and there is room), NOT_SUPPORTED (plain memory, which
 * `cudaIpcGetMemHandle` shares; backend `async`; a device that cannot share), UNKNOWN_POINTER,
 * INTERIOR_POINTER, ALREADY_FREE, CAPTURING, DRIVER_ERROR, EXITING, FORKED. Any thread.
 *
 * Pointers:
 * The count is null or readable and writable, the array has room for as many, `offset` is null or
 * writable.
 */
enum drystone_status drystone_export(void *ptr,
                                     struct drystone_shared_handle *handles,
                                     size_t *handle_count,
                                     size_t *offset);

/**
 * Maps memory of another process on a device, beside each other in the order of the handles, and
 * writes its address to `out`. The descriptors stay the caller's, and may be closed at once. No
 * statistics count the memory but those of the process that made it.
 *
 * On failure `out` is set to null. Statuses: INVALID_VALUE (a pointer is null; a descriptor leads
 * to no memory of the device, or to some of another size), NOT_SUPPORTED, OUT_OF_MEMORY,
 * CAPTURING, INVALID_DEVICE, BAD_OPTION, NO_DRIVER, DRIVER_ERROR, EXITING, FORKED. Any thread.
 *
 * Pointers:
 * The array has as many readable handles as are counted, `out` is null or writable.
 */
enum drystone_status drystone_import(int device,
                                     const struct drystone_shared_handle *handles,
                                     size_t handle_count,
                                     void **out);

/**
 * Gives up memory that was imported at an address. Waits until the device is idle; during a
 * capture the addresses go with the next that is closed, or the next trim.
 *
 * Statuses: UNKNOWN_POINTER (nothing is imported there), EXITING, FORKED. Any thread.
 */
enum drystone_status drystone_close_import(void *ptr);

/**
 * Writes the statistics of a device to `stats`, whose `struct_size` is set.
 *
 * Statuses: INVALID_VALUE (`stats` is null, or its size is below that of the first field),
 * INVALID_DEVICE, BAD_OPTION, NO_DRIVER, EXITING, FORKED. Any thread.
 *
 * Pointers:
 * `stats` is null or points to `struct_size` writable bytes, of which the first are that field.
 */
enum drystone_status drystone_get_stats(int device, struct drystone_stats *stats);

/**
 * Sets every peak of a device's statistics, also by pool and stream, to its current value.
 *
 * Statuses: INVALID_DEVICE, BAD_OPTION, NO_DRIVER, EXITING, FORKED. Any thread.
 */
enum drystone_status drystone_reset_peaks(int device);

/** The devices in use, as a set of bits: bit 0 is device 0. Opens none. Any thread. */
uint64_t drystone_devices_in_use(void);

/**
 * Writes the statistics of a device as JSON to `out`, ending with a NUL, and the number of bytes
 * that takes with it to `needed`, if that is not null. With a size of 0 nothing is written.
 *
 * The keys are those of `struct drystone_stats`, each a number or an object with `current`, `peak`
 * and `total`; `small` (blocks up to 1 MiB) and `large` have the same. Beside them:
 * `host_floor_bytes`; `moves`, handles emptied by moving live memory, and `moved_bytes`, copied
 * by that; `beside_live_bytes`, unused granules in handles with live memory; and `on_host_bytes`,
 * held in the host's memory. Reserved bytes count both, the latter since room is kept for its
 * return, and quarantined bytes, but no aliases.
 * `tags` has an object for each name that `drystone_tag` was given, with `current` and `peak`, in
 * bytes of live blocks. `neighbours` tells of other processes on the device: `others` is a list of
 * those that hold memory, `last` one of what went from and to them of late, `given_bytes`,
 * `given`, `taken_bytes` and `taken` are sums of that, and `idle_bytes` went back since nobody
 * used it for long.
 * `registered` has an object for each call of a library's by which memory is registered now, and
 * stays where it is: how many `ranges`, and their `bytes`. `shared` has one for each call of the
 * driver by which others got to know memory, which does not move while it is live: how many
 * `handles`, and their `bytes`.
 * Statuses: BUFFER_TOO_SMALL (nothing is written), INVALID_VALUE (`out` is null and `size` is not
 * 0), INVALID_DEVICE, BAD_OPTION, NO_DRIVER, EXITING, FORKED. Any thread.
 *
 * Pointers:
 * `out` points to `size` writable bytes, `needed` is null or writable.
 */
enum drystone_status drystone_stats_json(int device, char *out, size_t size, size_t *needed);

/**
 * Writes what every device in use holds to a file, in the format of
 * `torch.cuda.memory._dump_snapshot`, to open at pytorch.org/memory_viz or with
 * `drystone inspect`. A file that is there is replaced once all is written, and else stays.
 *
 * Statuses: INVALID_VALUE (`path` is null), FILE_ERROR, EXITING, FORKED. Any thread.
 *
 * Pointers:
 * `path` is null or a C string.
 */
enum drystone_status drystone_snapshot(const char *path);

/**
 * Writes what each pool, size of blocks and stream of a device has: those that have anything, or
 * had since `drystone_reset_peaks`, in no particular order. The count is of what there is room
 * for, and becomes that of what there is.
 *
 * Statuses: BUFFER_TOO_SMALL (nothing is written but the count), INVALID_VALUE (the count is null,
 * or the array, and there is room), INVALID_DEVICE, BAD_OPTION, NO_DRIVER, EXITING, FORKED. Any
 * thread.
 *
 * Pointers:
 * The count is null or readable and writable, and the array has room for as many.
 */
enum drystone_status drystone_get_pool_stream_stats(int device,
                                                    struct drystone_pool_stream_stats *entries,
                                                    size_t *count);

/**
 * Writes what a device holds: segments in address order, and all their blocks in the same order.
 * The counts are of what there is room for, and become those of what there is.
 *
 * Statuses: BUFFER_TOO_SMALL (nothing is written but the counts), INVALID_VALUE (a count is null,
 * or an array that has room), INVALID_DEVICE, BAD_OPTION, NO_DRIVER, EXITING, FORKED. Any thread.
 *
 * Pointers:
 * The counts are null or readable and writable, and each array has room for as many.
 */
enum drystone_status drystone_layout(int device,
                                     struct drystone_segment *segments,
                                     size_t *segment_count,
                                     struct drystone_block *blocks,
                                     size_t *block_count);

/**
 * Writes what is known of the live block that starts at an address, on whichever device.
 *
 * Statuses: INVALID_VALUE (`block` is null), UNKNOWN_POINTER, INTERIOR_POINTER, ALREADY_FREE,
 * EXITING, FORKED. Any thread.
 *
 * Pointers:
 * `block` is null or writable.
 */
enum drystone_status drystone_block_at(void *ptr, struct drystone_block *block);

/**
 * As `drystone_pool_create`, but of plain memory, which the program provides, or the driver if
 * both functions are null. `allocate` returns the address of so many bytes of the device, a
 * multiple of 512, or null if there are none. `free` is called with each of them once nothing uses
 * it any more, after the pool was released. A pool that exists already keeps its memory, and has
 * one use more.
 *
 * Both functions are called with `data`, from any thread but never by two at once, and must
 * neither throw nor call this library. They must stay for as long as the process lives.
 *
 * `flags` is 0, or DRYSTONE_POOL_UNSPLIT: for memory that others keep a note of by its segment,
 * such as a signal pad of symmetric memory. Each block is a whole number of 2 MiB then.
 *
 * Statuses: INVALID_VALUE (0, 0 is the default pool; one function is null; a flag is unknown),
 * INVALID_DEVICE, BAD_OPTION (also: backend `async` has no such pools), NO_DRIVER, EXITING,
 * FORKED. Any thread.
 *
 * Pointers:
 * The functions are null or such functions.
 */
enum drystone_status drystone_pool_create_plain(int device,
                                                uint64_t id0,
                                                uint64_t id1,
                                                void *(*allocate)(void *data, size_t bytes),
                                                void (*free)(void *data, void *ptr, size_t bytes),
                                                void *data,
                                                unsigned int flags);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* DRYSTONE_H */
