//! The opcodes of the pickle format.
//!
//! Invariant: every opcode there is has a constant here or a name in [`refused`].

macro_rules! opcodes {
    ($($name:ident $opcode:literal)*) => { $(pub(super) const $name: u8 = $opcode;)* };
}

opcodes! {
    MARK b'('   STOP b'.'   POP b'0'   POP_MARK b'1'   DUP b'2'   FLOAT b'F'   INT b'I'
    BININT b'J'   BININT1 b'K'   LONG b'L'   BININT2 b'M'   NONE b'N'   STRING b'S'
    BINSTRING b'T'   SHORT_BINSTRING b'U'   UNICODE b'V'   BINUNICODE b'X'   APPEND b'a'
    DICT b'd'   EMPTY_DICT b'}'   APPENDS b'e'   GET b'g'   BINGET b'h'   LONG_BINGET b'j'
    LIST b'l'   EMPTY_LIST b']'   PUT b'p'   BINPUT b'q'   LONG_BINPUT b'r'   SETITEM b's'
    TUPLE b't'   EMPTY_TUPLE b')'   SETITEMS b'u'   BINFLOAT b'G'   BINBYTES b'B'
    SHORT_BINBYTES b'C'   PROTO 0x80   TUPLE1 0x85   TUPLE2 0x86   TUPLE3 0x87   NEWTRUE 0x88
    NEWFALSE 0x89   LONG1 0x8a   LONG4 0x8b   SHORT_BINUNICODE 0x8c   BINUNICODE8 0x8d
    BINBYTES8 0x8e   MEMOIZE 0x94   FRAME 0x95   BYTEARRAY8 0x96
}

pub(super) fn refused(opcode: u8) -> Option<&'static str> {
    Some(match opcode {
        b'P' => "PERSID",
        b'Q' => "BINPERSID",
        b'R' => "REDUCE",
        b'b' => "BUILD",
        b'c' => "GLOBAL",
        b'i' => "INST",
        b'o' => "OBJ",
        0x81 => "NEWOBJ",
        0x82 => "EXT1",
        0x83 => "EXT2",
        0x84 => "EXT4",
        0x8f => "EMPTY_SET",
        0x90 => "ADDITEMS",
        0x91 => "FROZENSET",
        0x92 => "NEWOBJ_EX",
        0x93 => "STACK_GLOBAL",
        0x97 => "NEXT_BUFFER",
        0x98 => "READONLY_BUFFER",
        _ => return None,
    })
}
