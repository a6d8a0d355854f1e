//! Pickles written by hand, byte by byte.

use super::machine::read;
use crate::codec::graph::{Graph, Id, Node};

/// A value spelt like Python's.
fn spell(graph: &Graph<'_>, id: Id) -> String {
    let all = |ids: Vec<Id>| ids.iter().map(|id| spell(graph, *id)).collect::<Vec<_>>().join(", ");
    match graph.node(id) {
        Node::Null => "None".into(),
        Node::Bool(flag) => if flag { "True" } else { "False" }.into(),
        Node::Int(number) => number.to_string(),
        Node::Unsigned(number) => number.to_string(),
        Node::Float(number) => format!("{number:?}"),
        Node::Text(place) => format!("'{}'", String::from_utf8_lossy(graph.bytes(place))),
        Node::Bytes(place) => format!("b'{}'", graph.bytes(place).escape_ascii()),
        Node::List(items) => format!("[{}]", all(graph.items(items).collect())),
        Node::Tuple(items) => format!("({})", all(graph.items(items).collect())),
        Node::Dict(items) => {
            let pair = |(key, value)| format!("{}: {}", spell(graph, key), spell(graph, value));
            format!("{{{}}}", graph.entries(items).map(pair).collect::<Vec<_>>().join(", "))
        }
    }
}

fn load(pickle: &[u8]) -> Result<String, String> {
    match read(pickle) {
        Ok((graph, root)) => Ok(spell(&graph, root)),
        Err((place, problem)) => Err(format!("{place}{problem}")),
    }
}

#[test]
fn protocol_0_is_lines_of_text() {
    let pickle = b"(dp0\nVa\np1\n(lp2\nI1\naI01\naNaF2.5\naL-3L\nasVu\np3\n\
        V\\u20ac\\U0001f600\xe9\\u000a\\u005c\np4\nsS'b\\x41\\'\\n'\n(S\"\"\nI00\ng4\nts.";
    assert_eq!(
        load(pickle).unwrap(),
        "{'a': [1, True, None, 2.5, -3], 'u': '\u{20ac}\u{1f600}\u{e9}\n\\', \
         'bA'\n': ('', False, '\u{20ac}\u{1f600}\u{e9}\n\\')}"
    );
}

#[test]
fn protocol_2_is_binary() {
    let pickle = b"\x80\x02}q\x00(X\x01\x00\x00\x00aq\x01K\xffX\x01\x00\x00\x00lq\x02]q\x03(M\x01\
        \x02J\xfe\xff\xff\xffG@\x04\x00\x00\x00\x00\x00\x00eX\x01\x00\x00\x00tq\x04\x88\x89\x86q\
        \x05X\x01\x00\x00\x00eq\x06)X\x03\x00\x00\x00oneq\x07N\x85q\x08X\x05\x00\x00\x00threeq\tK\
        \x01K\x02K\x03\x87q\nX\x03\x00\x00\x00bigq\x0b\x8a\t\x00\x00\x00\x00\x00\x00\x00\x80\x00X\
        \x03\x00\x00\x00negq\x0c\x8a\x08\x00\x00\x00\x00\x00\x00\x00\x80X\x04\x00\x00\x00manyq\r\
        \x8a\t\xff\xff\xff\xff\xff\xff\xff\xff\x00u.";
    assert_eq!(
        load(pickle).unwrap(),
        "{'a': 255, 'l': [513, -2, 2.5], 't': (True, False), 'e': (), 'one': (None), \
         'three': (1, 2, 3), 'big': 9223372036854775808, 'neg': -9223372036854775808, \
         'many': 18446744073709551615}"
    );
}

#[test]
fn protocols_4_and_5_memoize_and_frame() {
    let pickle =
        b"\x80\x04\x95*\x00\x00\x00\x00\x00\x00\x00}\x94(\x8c\x01x\x94]\x94K\x01a\x8c\x01y\
        \x94h\x02\x8c\x01b\x94C\x02\x00\xff\x94\x8c\x01f\x94G~7\xe4<\x88\x00u\x9cu.";
    assert_eq!(load(pickle).unwrap(), r"{'x': [1], 'y': [1], 'b': b'\x00\xff', 'f': 1e300}");
    let pickle = b"\x80\x05\x95\x15\x00\x00\x00\x00\x00\x00\x00]\x94(\x96\x02\x00\x00\x00\x00\x00\
        \x00\x00xy\x94C\x01z\x94e.";
    assert_eq!(load(pickle).unwrap(), "[b'xy', b'z']");
}

#[test]
fn what_is_shared_stays_shared() {
    let (graph, root) = read(b"\x80\x02]q\x00(]q\x01K\x07ah\x01h\x01e.").unwrap();
    let Node::List(items) = graph.node(root) else { panic!("a list") };
    let items: Vec<Id> = graph.items(items).collect();
    assert_eq!(items, [items[0]; 3]);
}

#[test]
fn a_list_may_be_filled_in_several_goes_with_others_between() {
    assert_eq!(load(b"](K\x01(lK\x02e](K\x03ea0](K\x04eK\x05a.").unwrap(), "[4, 5]");
    assert_eq!(load(b"]K\x01a]K\x02aaK\x03a.").unwrap(), "[1, [2], 3]");
    // Two lists turn by turn, so that their items do not lie together.
    assert_eq!(
        load(b"]q\x00]q\x01\x86h\x00K\x01a0h\x01K\x02a0h\x00K\x03a0h\x01K\x04a0.").unwrap(),
        "([1, 3], [2, 4])"
    );
}

#[test]
fn what_is_not_plain_data_is_refused_by_name_and_place() {
    let cases: [(&[u8], &str); 14] = [
        (b"cos\nsystem\n(S'true'\ntR.", "byte 0: pickle opcode GLOBAL"),
        (b"\x80\x04\x8c\x02os\x8c\x06system\x93.", "byte 14: pickle opcode STACK_GLOBAL"),
        (b"N)R.", "byte 2: pickle opcode REDUCE"),
        (b"N}b.", "byte 2: pickle opcode BUILD"),
        (b"(ios\nsystem\n.", "byte 1: pickle opcode INST"),
        (b"(No.", "byte 2: pickle opcode OBJ"),
        (b"N)\x81.", "byte 2: pickle opcode NEWOBJ"),
        (b"N)}\x92.", "byte 3: pickle opcode NEWOBJ_EX"),
        (b"\x82\x01.", "byte 0: pickle opcode EXT1"),
        (b"\x83\x01\x01.", "byte 0: pickle opcode EXT2"),
        (b"\x84\x01\x01\x01\x01.", "byte 0: pickle opcode EXT4"),
        (b"P1\n.", "byte 0: pickle opcode PERSID"),
        (b"NQ.", "byte 1: pickle opcode BINPERSID"),
        (b"\x97.", "byte 0: pickle opcode NEXT_BUFFER"),
    ];
    for (pickle, message) in cases {
        let error = load(pickle).unwrap_err();
        let rest = error.strip_prefix(message).unwrap_or_else(|| panic!("{error}: {message}"));
        assert_eq!(rest, " is not plain data and is never carried out");
    }
}

#[test]
fn damaged_pickles_are_errors_with_their_place() {
    let cases: [(&[u8], &str); 26] = [
        (b"", "byte 0: the file ends here"),
        (b"\x80", "byte 0: the file ends here"),
        (b"\x80\x02]", "byte 3: the file ends here"),
        (b"\x80\x06N.", "byte 0: pickle protocol 6"),
        (b"\xff", "byte 0: 0xff is not a pickle opcode"),
        (b"N.N", "byte 2: 1 bytes follow"),
        (b".", "byte 0: the pickle takes a value from an empty stack"),
        (b"(.", "byte 1: the pickle takes a value from an empty stack"),
        (b"e.", "byte 0: the pickle takes"),
        (b"](a.", "byte 2: the pickle takes"),
        (b"]N(\x86.", "byte 3: the pickle takes"),
        (b"NNa.", "byte 2: the pickle adds items"),
        (b"](NNu.", "byte 4: the pickle adds items"),
        (b"}(Nu.", "byte 3: the pickle gives a dictionary a key without"),
        (b"(Nd.", "byte 2: the pickle gives a dictionary a key without"),
        (b"X\xff\xff\xff\x7fab", "byte 0: a length of 2147483647 bytes, but only 2 are left"),
        (b"\x8d\xff\xff\xff\xff\xff\xff\xff\xffab", "byte 0: a length of 18446744073709551615"),
        (b"\x8b\xff\xff\xff\xffab", "byte 0: a length of 4294967295 bytes"),
        (b"\x95\xff\x00\x00\x00\x00\x00\x00\x00N.", "byte 0: a length of 255 bytes"),
        (b"h\x05.", "byte 0: the pickle has no memo entry 5"),
        (b"g-1\n.", "byte 0: not a number"),
        (b"Nr\xff\xff\xff\xff.", "byte 1: the pickle has no memo entry 4294967295"),
        (b"\x8a\x09\x00\x00\x00\x00\x00\x00\x00\x00\x01.", "byte 0: not a number of at most 64"),
        (b"I99999999999999999999\n.", "byte 0: not a number of at most 64 bits"),
        (b"S'abc\n.", "byte 0: malformed text"),
        (b"V\\u12\n.", "byte 0: malformed text"),
    ];
    for (pickle, message) in cases {
        let error = load(pickle).unwrap_err();
        assert!(error.starts_with(message), "{error}, expected {message}");
    }
}

#[test]
fn depth_costs_no_stack_and_is_limited_for_marks() {
    let deep = 1_000_000;
    let mut lists = b"]".repeat(deep);
    lists.extend(b"a".repeat(deep - 1));
    lists.push(b'.');
    let (graph, root) = read(&lists).unwrap();
    assert_eq!(graph.children(), deep - 1);
    assert!(matches!(graph.node(root), Node::List(_)));
    let error = read(&b"(".repeat(deep)).map(|_| ()).unwrap_err();
    assert_eq!(error.1.to_string(), "nested more than 65536 deep");
}

/// Every single-byte change to a real pickle's beginning is an error or some value, never a panic.
#[test]
fn no_change_of_a_byte_panics() {
    let pickle =
        b"\x80\x02}q\x00(X\x01\x00\x00\x00aq\x01K\xff\x8c\x01b](NG@\x04\x00\x00\x00\x00\x00\
        \x00eV\\u20ac\nS'x'\n\x88\x89\x86h\x01\x8a\x02\x00\x01Nu.";
    assert!(load(pickle).is_ok());
    for at in 0..pickle.len() {
        for byte in 0..=255 {
            let mut changed = pickle.to_vec();
            changed[at] = byte;
            let _ = read(&changed);
            let _ = read(&changed[..at]);
        }
    }
}
