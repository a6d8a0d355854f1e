//! Boards that are not what they seem: whatever is in them, nothing is given back except a wish,
//! and every call ends.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::sync::atomic::{AtomicBool, Ordering};

use proptest::prelude::*;

use super::*;
use crate::neighbours::board::{LAYOUT, Layout, SLOTS, Slot};
use crate::neighbours::wish::{Stage, Wish};

#[test]
fn what_is_no_board_of_ours_is_left_alone() {
    let folder = Folder::new("strangers");
    let path = folder.board();
    let join = || Board::join_at(&path).is_some();
    let bytes = size_of::<Layout>();
    for content in [vec![1], vec![0; bytes - 1], vec![0; bytes + 1], vec![7; bytes]] {
        fs::write(&path, &content).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        assert!(!join(), "{} bytes", content.len());
        assert_eq!(fs::read(&path).unwrap(), content);
    }
    fs::write(&path, []).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
    assert!(!join(), "others may read it");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
    assert!(join(), "it is ours");
    let real = folder.0.join("real");
    fs::rename(&path, &real).unwrap();
    symlink(&real, &path).unwrap();
    assert!(!join(), "a link");
    fs::remove_file(&path).unwrap();
    fs::create_dir(&path).unwrap();
    assert!(!join(), "a folder");
    assert!(Board::join_at(&folder.0.join("not/there")).is_none());
}

/// A version that has another one rings where this one does not listen.
#[test]
fn whoever_moves_what_is_on_a_board_says_so() {
    use std::mem::offset_of;
    let places = [offset_of!(Slot, inbox), offset_of!(Slot, bell), offset_of!(Slot, answers)];
    assert_eq!((LAYOUT, places, size_of::<Slot>()), (3, [88, 96, 100], 128));
}

#[test]
fn a_board_has_room_for_so_many_and_a_slot_is_had_again() {
    let folder = Folder::new("full");
    let mut boards: Vec<Board> =
        (0..SLOTS).map(|_| Board::join_at(&folder.board()).unwrap()).collect();
    assert!(Board::join_at(&folder.board()).is_none());
    let gone = boards.remove(5);
    boards[0].own().tell(1, 1);
    assert!(gone.is_alive(0) && boards[0].is_alive(5));
    gone.leave();
    assert!(!boards[0].is_alive(5));
    assert_eq!(Board::join_at(&folder.board()).map(|board| board.own_index()), Some(5));
}

proptest! {
    #[test]
    fn a_wish_is_one_word(stage in 1..4u8, to: u8, number: u16, bytes in 0..1u64 << 48) {
        let stage = [Stage::Posted, Stage::Taken, Stage::Answered][usize::from(stage) - 1];
        let wish = Wish::new(to, number, bytes);
        prop_assert!(wish.bytes() >= bytes && wish.bytes() - bytes < 1 << 16);
        let wish = wish.at(stage, bytes);
        prop_assert_eq!(Wish::of(wish.word()), Some(wish));
        prop_assert!(wish.bytes() <= bytes);
    }

    /// Slots of nobody that hold anything at all: no wish is served, and nobody is asked.
    #[test]
    fn slots_of_nobody_are_believed_nothing(words in prop::collection::vec(any::<u64>(), 1040)) {
        let folder = Folder::new("nobody");
        let [first] = processes(&folder);
        let board = first.table.board.as_ref().unwrap();
        drop(first.allocate(64).unwrap());
        fill(board, 1, &words);
        while first.table.serve_one(board, &first.allocator) {}
        prop_assert_eq!(first.held(), 64);
        prop_assert_eq!(board.others().count(), 0);
    }
}

/// A living neighbour whose slot holds anything, near to what it should be: `DRYSTONE_TEST_BOARDS`
/// says how often. What is given back is a wish of it, and no more; nothing in it ends the thread.
#[test]
fn a_board_of_anything_gives_no_more_than_it_wishes() {
    let boards = std::env::var("DRYSTONE_TEST_BOARDS").map_or(20_000, |text| text.parse().unwrap());
    let folder = Folder::new("anything");
    let [first] = processes(&folder);
    let wild = Board::join_at(&folder.board()).unwrap();
    let board = first.table.board.as_ref().unwrap();
    let whole: Vec<u64> = wild.own().words().map(|word| word.load(Ordering::Relaxed)).collect();
    let mut state = 7_u64;
    let mut random = move || {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        state ^ state >> 29
    };
    let (mut wishes, mut given_bytes) = (0, 0);
    for number in 0..boards {
        if number % 64 == 0 {
            drop(first.allocate(512).unwrap());
        }
        for (word, &whole) in wild.own().words().zip(&whole) {
            let (how, any) = (random(), random());
            let written = match how % 16 {
                0 => any,
                1 => whole ^ 1 << (any % 64),
                2 => any % 1024,
                // Nearly a wish of some mebibytes.
                3 => {
                    let (mib, number) = (any % 256, (any >> 20) & 0xffff);
                    let (to, stage) = ((any >> 8) % 3, any % 5);
                    (mib << 36) | (number << 16) | (to << 8) | stage
                }
                _ => whole,
            };
            word.store(written, Ordering::Relaxed);
        }
        let wish = Wish::of(wild.own().wish.load(Ordering::Relaxed)).filter(|wish| {
            let is_to_first = usize::from(wish.to) == board.own_index();
            wish.stage == Stage::Posted && is_to_first && board.is_alive(wild.own_index())
        });
        let before = first.allocator.stats().all.reserved_bytes.current;
        while first.table.serve_one(board, &first.allocator) {}
        let given = before - first.allocator.stats().all.reserved_bytes.current;
        // A handle more, at most.
        let most = wish.map_or(0, |wish| (wish.bytes() + 128 * MIB) * u64::from(wish.bytes() > 0));
        assert!(given <= most, "board {number}: {given} of {most}");
        wishes += u64::from(wish.is_some());
        given_bytes += given;
        board.others().for_each(|(_, slot)| assert!(slot.name().len() <= 16));
        board.lacked_before(random() % 4096, Duration::from_millis(random() % 4096));
    }
    println!("{boards} boards, {wishes} wishes, {} MiB given", given_bytes / MIB);
    assert!(wishes > 0 && given_bytes > 0);
    first.allocator.check().unwrap();
}

/// Overwrites slots, all but one's own, with these words.
fn fill(board: &Board, from: usize, words: &[u64]) {
    let mut words = words.iter().copied().cycle();
    for slot in (from..SLOTS).filter(|&slot| slot != board.own_index()) {
        for word in board.slot(slot).unwrap().words() {
            word.store(words.next().unwrap(), Ordering::Relaxed);
        }
    }
}

/// A process that lives and writes anything at all to every slot, all the time: who asks and who
/// serves end in time, and are as before except what such a wish may have taken.
#[test]
fn a_neighbour_that_writes_anything_harms_nobody() {
    let folder = Folder::new("wild");
    let [first, second] = processes(&folder);
    let wild = Board::join_at(&folder.board()).unwrap();
    let is_over = AtomicBool::new(false);
    let kept = first.allocate(300).unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut state = 1_u64;
            let random = std::iter::from_fn(|| {
                state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
                Some(state ^ state >> 29)
            });
            let words: Vec<u64> = random.take(1 << 20).collect();
            for words in words.chunks(97).cycle() {
                fill(&wild, 0, words);
                if is_over.load(Ordering::Relaxed) {
                    break;
                }
            }
        });
        for round in 0..20 {
            let begun = Instant::now();
            let block = second.allocate(700 + round).unwrap();
            drop(second.allocate(400));
            drop(block);
            let _ = second.allocator.available();
            assert!(begun.elapsed() < Duration::from_secs(3), "{round}: {:?}", begun.elapsed());
        }
        is_over.store(true, Ordering::Relaxed);
    });
    first.allocator.check().unwrap();
    second.allocator.check().unwrap();
    drop(kept);
}
