#!/usr/bin/env python3
"""Proves that a snapshot opens in PyTorch's viewers.

Usage: memory_viz.py PATH_OF/_memory_viz.py SNAPSHOT.pickle [ORIGINAL.pickle]

_memory_viz.py is torch/cuda/_memory_viz.py of any PyTorch; it needs nothing else of it. Its
commands are run on the snapshot; the opcodes are held against what MemoryViz's own reader
understands; with ORIGINAL the two files must hold equal values.
"""

import pickle
import pickletools
import subprocess
import sys
import tempfile

UNDERSTOOD = set(
    """PROTO FRAME STOP MARK EMPTY_DICT EMPTY_LIST EMPTY_TUPLE DICT LIST TUPLE TUPLE1 TUPLE2 TUPLE3
    APPEND APPENDS SETITEM SETITEMS BINPUT LONG_BINPUT BINGET LONG_BINGET MEMOIZE BININT BININT1
    BININT2 LONG1 BINFLOAT BINUNICODE SHORT_BINUNICODE NEWTRUE NEWFALSE NONE""".split()
)


def check_opcodes(data):
    stack = []  # for each open mark the number of values above it
    values = 0
    for opcode, argument, at in pickletools.genops(data):
        name = opcode.name
        assert name in UNDERSTOOD, f"byte {at}: {name}"
        assert name != "PROTO" or 2 <= argument <= 4, f"byte {at}: protocol {argument}"
        if name == "LONG1":
            assert -(2**63) <= argument < 2**64, f"byte {at}: {argument}"
        if name == "MARK":
            stack.append(values)
            values = 0
        elif name in ("APPENDS", "SETITEMS"):
            most = 1000 if name == "APPENDS" else 2000
            assert values <= most, f"byte {at}: {values} values at once"
            values = stack.pop()
        elif name in ("TUPLE2", "TUPLE3"):
            values -= 1 if name == "TUPLE2" else 2
        elif not name.endswith("PUT") and name not in ("PROTO", "FRAME", "MEMOIZE", "STOP"):
            values += 1


def check_state(snapshot):
    """Replays every trace backwards from the segments, as the viewer does."""
    for device, trace in enumerate(snapshot["device_traces"]):
        live = {
            block["address"]
            for segment in snapshot["segments"]
            if segment["device"] == device
            for block in segment["blocks"]
            if block["state"] == "active_allocated"
        }
        for index in range(len(trace) - 1, -1, -1):
            action, address = trace[index]["action"], trace[index].get("addr")
            if action == "alloc":
                assert address in live, f"entry {index}: {address:#x} is not live after its alloc"
                live.remove(address)
            elif action == "free_requested":
                assert address not in live, f"entry {index}: {address:#x} is live after its free"
                live.add(address)


def main():
    viz, path, *original = sys.argv[1:]
    data = open(path, "rb").read()
    check_opcodes(data)
    snapshot = pickle.loads(data)
    check_state(snapshot)
    if original:
        assert snapshot == pickle.load(open(original[0], "rb")), "not the original's values"
    for command in ("stats", "trace"):
        run = subprocess.run([sys.executable, viz, command, path], capture_output=True, text=True)
        assert run.returncode == 0 and run.stdout, f"{command}: {run.stderr}"
    with tempfile.NamedTemporaryFile(suffix=".html") as html:
        for command in ("trace_plot", "segment_plot"):
            subprocess.run([sys.executable, viz, command, path, "-o", html.name], check=True)
            assert len(open(html.name).read()) > len(data), command
    entries = sum(map(len, snapshot["device_traces"]))
    print(f"{path}: {len(snapshot['segments'])} segments and {entries} entries open in MemoryViz")


if __name__ == "__main__":
    main()
