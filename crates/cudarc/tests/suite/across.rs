//! Captures of one stream, and memory of another that it uses.

use drystone::Options;
use drystone_cudarc::{Alloc, Graph, StreamMemory};

use crate::graphs::{FLAGS, RELAXED, pool_of, replay, untracked};
use crate::{MIB, alloc, memory, on_a_device};

/// Two streams of one device, neither tracked: memory of the second is used on the first.
fn two_streams() -> [StreamMemory; 2] {
    let first = untracked(memory(&Options::default()));
    let second = first.device().on(&first.stream().fork().unwrap()).unwrap();
    [first, second]
}

/// What both streams are given while the graph lives is not at an address, nor does a replay write
/// into it.
fn is_held(memories: &[StreamMemory; 2], graph: &Graph, address: u64) {
    let [first, second] = memories;
    first.stream().synchronize().unwrap();
    memories.iter().for_each(|memory| drop(alloc::<f32>(memory, 50 * MIB))); // a miss of each
    let ones = vec![1f32; 3 * MIB];
    let ones: Vec<_> = (0..4).map(|_| second.clone_htod(&ones).unwrap()).collect();
    second.stream().synchronize().unwrap();
    replay(first, graph);
    for slice in &ones {
        assert_eq!(second.stream().clone_dtoh(slice).unwrap()[..2], [1.0, 1.0]);
        assert_ne!(slice.address(), address, "handed out while the graph lives");
    }
}

fn reserved(memory: &StreamMemory) -> u64 {
    memory.stream().context().synchronize().unwrap();
    memory.allocator().trim().unwrap();
    memory.stream().context().check_err().unwrap();
    memory.allocator().stats().all.reserved_bytes.current
}

#[test]
fn i11_what_another_stream_has_made_and_is_dropped_during_a_capture_is_held() {
    let name = "across::i11_what_another_stream_has_made_and_is_dropped_during_a_capture_is_held";
    on_a_device(name, "memory:1GiB,backing:true", || {
        let memories = two_streams();
        let [memory, other] = &memories;
        let mut older = alloc::<f32>(other, 3 * MIB);
        memory.record_stream(&older).unwrap();
        memory.record_stream(&older).unwrap();
        other.stream().synchronize().unwrap();
        let address = older.address();
        let capture = memory.capture(&pool_of(memory), RELAXED).unwrap();
        memory.stream().memset_zeros(&mut older).unwrap();
        drop(older);
        let graph = capture.end(FLAGS).unwrap().unwrap();
        is_held(&memories, &graph, address);
        drop(graph);
        assert_eq!(reserved(memory), 0);
        // Without a session nobody knows how long: it stays.
        let mut older = alloc::<f32>(other, 3 * MIB);
        memory.record_stream(&older).unwrap();
        memory.stream().begin_capture(RELAXED).unwrap();
        memory.stream().memset_zeros(&mut older).unwrap();
        drop(older);
        memory.stream().end_capture(FLAGS).unwrap();
        assert_eq!(memory.allocator().stats().all.allocations.current, 1);
    });
}

#[test]
fn i11_what_a_pool_of_another_streams_graph_holds_is_held() {
    let name = "across::i11_what_a_pool_of_another_streams_graph_holds_is_held";
    on_a_device(name, "memory:1GiB,backing:true", || {
        let memories = two_streams();
        let [memory, other] = &memories;
        let pool = pool_of(other);
        let capture = other.capture(&pool, RELAXED).unwrap();
        let mut result = other.alloc_zeros::<f32>(3 * MIB).unwrap();
        let first = capture.end(FLAGS).unwrap().unwrap();
        memory.record_stream(&result).unwrap();
        let address = result.address();
        let capture = memory.capture(&pool_of(memory), RELAXED).unwrap();
        memory.stream().memset_zeros(&mut result).unwrap();
        drop(result);
        let second = capture.end(FLAGS).unwrap().unwrap();
        // Neither to who captures into the first pool again, nor to anybody once that is gone.
        reserved(memory);
        let capture = other.capture(&pool, RELAXED).unwrap();
        assert_ne!(other.alloc_zeros::<f32>(3 * MIB).unwrap().address(), address);
        drop((first, capture.end(FLAGS).unwrap(), pool));
        reserved(memory);
        is_held(&memories, &second, address);
        drop(second);
        assert_eq!(reserved(memory), 0);
    });
}

#[test]
fn i11_what_two_graphs_use_is_held_by_both() {
    let name = "across::i11_what_two_graphs_use_is_held_by_both";
    on_a_device(name, "memory:1GiB,backing:true", || {
        let memories = two_streams();
        let [memory, other] = &memories;
        let mut older = alloc::<f32>(other, 3 * MIB);
        memory.record_stream(&older).unwrap();
        let address = older.address();
        let captures = [memory, other].map(|one| one.capture(&pool_of(one), RELAXED).unwrap());
        memory.stream().memset_zeros(&mut older).unwrap();
        other.stream().memset_zeros(&mut older).unwrap();
        drop(older);
        let [first, second] = captures.map(|capture| capture.end(FLAGS).unwrap().unwrap());
        drop(second);
        is_held(&memories, &first, address);
        drop(first);
        assert_eq!(reserved(memory), 0);
    });
}

#[test]
fn what_a_captured_stream_does_not_use_serves_again_at_once() {
    let name = "across::what_a_captured_stream_does_not_use_serves_again_at_once";
    on_a_device(name, "memory:1GiB", || {
        let [memory, other] = two_streams();
        let capture = memory.capture(&pool_of(&memory), RELAXED).unwrap();
        let addresses = [0; 2].map(|_| alloc::<f32>(&other, MIB).address());
        assert_eq!(addresses[0], addresses[1]);
        drop(capture);
        assert_eq!(reserved(&memory), 0);
    });
}
