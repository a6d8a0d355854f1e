//! Files of every format, and files of none.

use super::*;

const TRACE: &str = "op,id,bytes,stream,time_ns\na,0,1,0,0\n";

fn load(file: &[u8]) -> Result<Vec<Trace>, String> {
    read(file, "folder/x.y", &Limits::default()).map_err(|error| error.to_string())
}

fn zst(text: &[u8]) -> Vec<u8> {
    zstd::encode_all(text, 3).unwrap()
}

#[test]
fn content_decides_and_names_do_not() {
    let block = "{\"size\": 5, \"state\": \"active_allocated\"}";
    let segment = format!("{{\"address\": 1, \"total_size\": 5, \"blocks\": [{block}]}}");
    let json = format!(" \n{{\"segments\": [{segment}], \"device_traces\": []}}");
    let rmm = "Thread,Time,Action,Pointer,Size,Stream\n1,00:00:00.1,allocate,0x1,5,0x0\n";
    let pickle =
        b"}(S'segments'\n](}(S'address'\nK\x01S'total_size'\nK\x05S'blocks'\n](}(S'size'\n\
        K\x05S'state'\nS'active_allocated'\nueueu.";
    for file in [TRACE.as_bytes(), json.as_bytes(), rmm.as_bytes(), pickle] {
        for file in [file.to_vec(), zst(file)] {
            let traces = load(&file).unwrap();
            assert_eq!(traces[0].name, "x.y");
            assert_eq!(traces[0].events[0].kind, crate::model::Kind::Allocate);
            traces[0].check().unwrap();
        }
    }
}

#[test]
fn names_lose_folders_and_endings() {
    for (name, short) in [
        ("a/b.csv.zst", "b"),
        ("b.pickle", "b"),
        ("b.1.json", "b.1"),
        (r"c:\d\b.csv", "b"),
        ("-", "-"),
        (".csv", ".csv"),
    ] {
        assert_eq!(trace_name(name), short);
    }
}

#[test]
fn what_is_no_trace_is_refused() {
    let unknown = "folder/x.y: unknown format";
    assert_eq!(load(b"").unwrap_err(), "folder/x.y: the file is empty");
    assert_eq!(load(&zst(b"")).unwrap_err(), "folder/x.y: the file is empty");
    for file in [&b"\x89PNG"[..], b"hello\n", b"\0\0\0\0", &zst(&zst(TRACE.as_bytes()))] {
        let error = load(file).unwrap_err();
        assert!(error.starts_with(unknown), "{error}");
    }
    let error = load(b"PAR1\x15\x04").unwrap_err();
    assert!(error.contains("Parquet table is written and not read"), "{error}");
    let error = read_path(Path::new("/nonexistent/x.csv"), &Limits::default()).unwrap_err();
    assert!(error.to_string().starts_with("/nonexistent/x.csv: No such file"), "{error}");
    let error = read_path(Path::new("/"), &Limits::default()).unwrap_err();
    assert!(error.to_string().starts_with("/: "), "{error}");
}

#[test]
fn a_cut_or_damaged_compressed_file_is_an_error_in_one_line() {
    let mut text = TRACE.to_owned();
    for id in 1..50_000_u64 {
        text.push_str(&format!("a,{id},{},0,{}\n", id * 7919 % 100_000 + 1, id * id));
    }
    let file = zst(text.as_bytes());
    for len in [5, 20, file.len() / 2, file.len() - 1] {
        let error = load(&file[..len]).unwrap_err();
        assert!(error.starts_with("folder/x.y: ") && !error.contains('\n'), "{error}");
    }
    let error = load(&file[..file.len() / 2]).unwrap_err();
    assert!(error.contains("ends early, after ") && error.contains("line "), "{error}");
    let mut damaged = file.clone();
    let middle = file.len() / 2;
    damaged[middle..middle + 64].fill(0xff);
    assert!(load(&damaged).is_err());
    let mut trailing = file;
    trailing.extend_from_slice(b"garbage");
    assert!(load(&trailing).is_err());
}

#[test]
fn a_byte_order_mark_means_nothing() {
    let marked = format!("\u{feff}{TRACE}").into_bytes();
    for file in [marked.clone(), zst(&marked)] {
        assert_eq!(load(&file).unwrap()[0].events, load(TRACE.as_bytes()).unwrap()[0].events);
    }
    assert_eq!(load("\u{feff}".as_bytes()).unwrap_err(), "folder/x.y: the file is empty");
}

#[test]
fn json_errors_name_their_place_once() {
    let error = load(b"{\n  \"segments\": oops").unwrap_err();
    assert_eq!(error, "folder/x.y: line 2: expected value at column 15");
    let error = load(&[b'['; 1000]).unwrap_err();
    assert_eq!(error, "folder/x.y: line 1: recursion limit exceeded at column 128");
}

#[test]
fn decompressed_size_is_limited() {
    let zeros = zst(&vec![b'\n'; 10 << 20]);
    assert!(zeros.len() < 10_000, "a bomb is small");
    let limits = Limits { decoded_bytes: 1 << 20, ..Limits::default() };
    let mut file = zst(TRACE.as_bytes());
    file.extend_from_slice(&zeros);
    let error = read(&file[..], "x", &limits).unwrap_err().to_string();
    assert!(error.ends_with("more than 1048576 bytes when decompressed"), "{error}");

    let limits = Limits { snapshot_bytes: 1 << 20, ..Limits::default() };
    let lists = zst(&vec![b']'; 10 << 20]);
    let error = read(&lists[..], "x", &limits).unwrap_err().to_string();
    assert_eq!(error, "x: more than 1048576 bytes when decompressed");
}

#[test]
fn a_log_without_line_ends_is_refused() {
    let log = format!("Thread,Time,Action,Pointer,Size,Stream\n{}", "1,".repeat(1 << 20));
    let error = load(log.as_bytes()).unwrap_err();
    assert!(error.starts_with("folder/x.y: line 2: line longer than 65536"), "{error}");
}
