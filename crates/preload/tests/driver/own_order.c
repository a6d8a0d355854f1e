/* What one stream freed serves another that comes after it by the program's own events and waits,
 * without more of the device; what is not ordered so does not. Where there is nothing to tell, a
 * call of the program's is one of the driver's. */
#include "driver.h"

#define BLOCK (64 * MIB)
#define LONG 50000000

static stream_t own = (stream_t)2; /* Of the thread. */

static event_t new_event(void) {
    event_t event;
    OK(cuEventCreate(&event, 2));
    return event;
}

/* Allocates on a stream, works there for so long, and frees. */
static void use(stream_t stream, uint64_t ns) {
    address_t block;
    OK(cuMemAllocAsync(&block, BLOCK, stream));
    OK(simcuda_check_alloc(0, block, BLOCK, stream));
    OK(simcuda_launch(0, stream, ns));
    OK(simcuda_check_use(0, block, stream));
    OK(simcuda_check_free(0, block));
    OK(cuMemFreeAsync(block, stream));
}

/* Calls of functions, without the device's own count of what comes to it. */
static long calls(void) {
    return calls_of(NULL) - calls_of("ordinal");
}

/* Whether the use of a stream takes more of the device. */
static int grows(stream_t stream) {
    uint64_t before = figure(RESERVED);
    use(stream, LONG);
    return figure(RESERVED) != before;
}

static void start_anew(void) {
    OK(cuCtxSynchronize());
    OK(cuMemPoolTrimTo(default_pool(0), 0));
    CHECK(figure(RESERVED) == 0);
}

static void a_stream_waits(void) {
    for (int way = 0; way < 4; way++) {
        start_anew();
        stream_t once = new_stream(), main = new_stream();
        event_t event = new_event();
        use(once, LONG);
        if (way == 1) OK(cuEventRecord(event, once));
        if (way == 2) OK(cuEventRecordWithFlags(event, once, 0));
        if (way == 3) OK(cuEventRecord_ptsz(event, once));
        OK(cuStreamWaitEvent(main, event, 0));
        CHECK(grows(main) == (way == 0));
        OK(cuEventDestroy_v2(event));
        OK(cuStreamDestroy_v2(once));
        OK(cuStreamDestroy_v2(main));
    }
}

static void default_streams_wait(void) {
    stream_t once = new_stream();
    for (int way = 0; way < 4; way++) {
        start_anew();
        event_t event = new_event();
        stream_t first = way == 0 ? once : way == 1 ? own : way == 2 ? NULL : once;
        stream_t second = way == 0 ? own : way == 1 ? once : way == 2 ? own : NULL;
        use(first, LONG);
        if (first == own) OK(cuEventRecord_ptsz(event, NULL));
        else OK(cuEventRecord(event, first));
        if (second == own) OK(cuStreamWaitEvent_ptsz(NULL, event, 0));
        else OK(cuStreamWaitEvent(second, event, 0));
        CHECK(!grows(second));
        OK(cuEventDestroy_v2(event));
    }
    OK(cuStreamDestroy_v2(once));
}

static void only_what_was_freed_before_is_ordered(void) {
    start_anew();
    stream_t once = new_stream(), main = new_stream();
    event_t event = new_event(), other = new_event();
    OK(cuEventRecord(event, once)); /* It has freed nothing. */
    use(once, LONG);
    OK(cuStreamWaitEvent(main, event, 0));
    CHECK(grows(main));

    start_anew();
    use(once, LONG);
    OK(cuEventRecord(event, once));
    OK(cuEventRecord(event, main)); /* It stands for another stream now. */
    OK(cuStreamWaitEvent(main, event, 0));
    CHECK(grows(main));

    start_anew();
    use(once, LONG);
    OK(cuEventRecord(event, once));
    OK(cuEventDestroy_v2(event));
    event = new_event(); /* Perhaps by the same handle. */
    OK(cuStreamWaitEvent(main, event, 0));
    CHECK(grows(main));
    OK(cuEventDestroy_v2(event));
    OK(cuEventDestroy_v2(other));
}

/* The host waits: what a stream freed before is anybody's from then on. */
static void the_host_waits(void) {
    for (int way = 0; way < 3; way++) {
        start_anew();
        stream_t once = new_stream(), main = new_stream();
        event_t event = new_event();
        use(once, 1000);
        if (way == 0) OK(cuStreamSynchronize(once));
        if (way == 1) OK(cuCtxSynchronize());
        if (way == 2) {
            OK(cuEventRecord(event, once));
            OK(cuEventSynchronize(event));
        }
        CHECK(!grows(main));
        OK(cuEventDestroy_v2(event));
        OK(cuStreamDestroy_v2(once));
        OK(cuStreamDestroy_v2(main));
    }
}

/* What a capture orders is its graph's, also what it has joined. */
static void captures_are_left_alone(void) {
    start_anew();
    stream_t once = new_stream(), main = new_stream(), joined = new_stream(), beside = new_stream();
    event_t event = new_event(), outside = new_event(), back = new_event(), older = new_event();
    handle_t graph;
    use(once, LONG);
    OK(cuEventRecord(event, once));
    OK(cuEventRecord(older, once));
    OK(cuStreamBeginCapture_v2(main, 2));
    long before = calls();
    OK(cuEventRecord(event, main));
    OK(cuStreamWaitEvent(joined, event, 0));
    OK(simcuda_launch(0, joined, 1000));
    OK(cuEventRecord(back, joined));
    OK(cuStreamWaitEvent(main, back, 0));
    OK(cuEventRecord(outside, once));
    OK(cuStreamWaitEvent(beside, older, 0));
    CHECK(calls() == before + 6);
    OK(cuStreamEndCapture(main, &graph));
    /* What was recorded meanwhile stands for nothing. */
    OK(cuStreamWaitEvent(main, outside, 0));
    CHECK(grows(main));
}

static void what_tells_nothing_costs_nothing(void) {
    start_anew();
    stream_t once = new_stream(), main = new_stream(), unused = new_stream();
    event_t event = new_event(), last = new_event();
    use(once, LONG);
    use(main, LONG);
    long before = calls();
    OK(cuEventRecord(event, once));
    CHECK(calls() > before + 1);
    OK(cuStreamWaitEvent(main, event, 0));
    before = calls();
    for (int turn = 0; turn < 10; turn++) {
        OK(cuEventRecord(last, once)); /* Nothing was freed since. */
        OK(cuStreamWaitEvent(main, last, 0)); /* It waits already. */
        OK(cuStreamWaitEvent(once, last, 0));
        OK(cuEventRecord(last, unused));
        OK(cuStreamWaitEvent(main, last, 0));
    }
    CHECK(calls() == before + 50);
}

/* Of one stream nobody else wants anything. */
static void one_stream_costs_nothing(void) {
    event_t event = new_event();
    stream_t stream = new_stream();
    use(stream, 1000);
    long before = calls();
    OK(cuEventRecord(event, stream));
    OK(cuStreamWaitEvent(stream, event, 0));
    OK(cuStreamSynchronize(stream));
    OK(cuCtxSynchronize());
    CHECK(calls() == before + 4);
    OK(cuEventDestroy_v2(event));
}

/* Events end with a reset, and what stands for them. */
static void a_reset_forgets(void) {
    enum { EVENTS = 100 };
    stream_t once = new_stream(), main;
    event_t event;
    use(once, LONG);
    for (int at = 0; at < EVENTS; at++) OK(cuEventRecord(new_event(), once));
    OK(cuDevicePrimaryCtxReset_v2(0));
    primary(0);
    once = new_stream(), main = new_stream();
    use(once, LONG);
    long before = calls();
    for (int at = 0; at < EVENTS; at++) {
        OK(cuEventCreate(&event, 2));
        OK(cuStreamWaitEvent(main, event, 0));
    }
    CHECK(calls() == before + 2 * EVENTS);
    CHECK(grows(main));
    a_stream_waits();
}

int main(void) {
    OK(cuInit(0));
    primary(0);
    one_stream_costs_nothing();
    a_stream_waits();
    default_streams_wait();
    only_what_was_freed_before_is_ordered();
    the_host_waits();
    captures_are_left_alone();
    what_tells_nothing_costs_nothing();
    a_reset_forgets();
    CHECK(native_allocations() == 0);
    no_violation(0);
    return 0;
}
