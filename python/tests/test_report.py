"""The report: its figures are the device's, its page stands alone, and it says what is not known."""

import gc
import json
import os
import pickle
import re
import shutil
import sys
import tempfile
import unittest
from html.parser import HTMLParser
from pathlib import Path
from unittest import mock

import torch

import drystone
from drystone import _document, _figures, _holders, _replay, _room, _text
from support import GIB, MIB, python

drystone.enable(route="plugin", prefer="memory")  # figures below are exact

# A history as PyTorch records it: one tensor with a stack, of a program with two streams.
STACK = [
    {"filename": "/lib/torch/nn/linear.py", "line": 7, "name": "forward"},
    {"filename": "/home/me/train.py", "line": 42, "name": "<module>"},
]


def history(sizes=((MIB, 0), (3 * MIB, 7))):
    trace, segments, at = [], [], 0x10000000
    for size, stream in sizes:
        entry = {"addr": at, "size": size, "stream": stream, "frames": STACK, "time_us": 1 + at}
        trace += [{**entry, "action": action} for action in ("segment_alloc", "alloc")]
        block = {"address": at, "size": size, "requested_size": size, "frames": STACK,
                 "state": "active_allocated"}
        segments.append({
            "device": 0, "address": at, "total_size": size, "allocated_size": size,
            "active_size": size, "requested_size": size, "stream": stream,
            "segment_type": "large", "segment_pool_id": (0, 0), "is_expandable": False,
            "blocks": [block]})
        at += 64 * MIB
    return {"segments": segments, "device_traces": [trace]}


class Page(HTMLParser):
    """What a page consists of, and what is drawn on it."""

    def __init__(self, text):
        super().__init__()
        self.references, self.open = [], []
        self.data, self.is_data = None, False
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        self.references += [text for name, text in attributes if name in ("src", "href")]
        self.is_data = ("id", "data") in attributes
        if tag != "meta":
            self.open.append(tag)

    def handle_endtag(self, tag):
        if self.open.pop() != tag:
            raise AssertionError(f"{tag} ends where it is not open")

    def handle_data(self, data):
        if self.is_data and self.data is None:
            self.data = json.loads(data)

    def words(self):
        """Every text of the data, one after the other."""
        def texts(value):
            if isinstance(value, dict):
                value = list(value.values())
            if isinstance(value, list):
                return [text for one in value for text in texts(one)]
            return [value] if isinstance(value, str) else []
        return texts(self.data)

    def parts(self, kind):
        return [part[kind] for section in self.data["sections"] for part in section["parts"]
                if kind in part]


class OnDevice(unittest.TestCase):
    def setUp(self):
        gc.collect()
        torch.cuda.synchronize()
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)

    def empty(self, size, device="cuda"):
        return torch.empty(size, dtype=torch.uint8, device=device)


class Report(OnDevice):
    def test_figures_are_those_of_pytorchs_statistics(self):
        kept, gone = self.empty(40 * MIB), self.empty(100 * MIB)
        del gone
        small = self.empty(1000)
        lines = drystone.report().splitlines()
        self.assertRegex(lines[0], r"^Drystone 0\.1\.0, PyTorch's allocator, process \d+, ")
        reserved = torch.cuda.memory_reserved()
        headline = next(line for line in lines if line.startswith("GPU 0: "))
        text = _figures.text_of_bytes
        self.assertEqual(
            headline,
            f"GPU 0: {text(reserved)} reserved of 8.00 GiB, {text(40 * MIB + 1024)} in use "
            f"({(40 * MIB + 1024) / reserved:.1%})")
        row = next(line.split() for line in lines if line.startswith("  requested"))
        self.assertEqual(row[1:5], [*text(40 * MIB + 1000).split(), *text(140 * MIB).split()])
        self.assertEqual(row[5:7], ["1000", "B"])
        del kept, small

    def test_pools_and_streams_are_told_apart_and_cover_what_is_reserved(self):
        side = torch.cuda.Stream()
        kept = [self.empty(30 * MIB)]
        with torch.cuda.stream(side):
            kept += [self.empty(10 * MIB), self.empty(2000)]
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            kept.append(self.empty(4 * MIB))
        gone = self.empty(6 * MIB)
        gone.record_stream(side)
        [device] = _figures.gather()
        names = {account.name: account for account in device.accounts}
        handle = f"stream {side.cuda_stream:#x}"
        self.assertEqual(names["default pool, large, default stream"].live, 36 * MIB)
        self.assertEqual(names[f"default pool, large, {handle}"].live, 10 * MIB)
        self.assertGreaterEqual(names[f"default pool, small, {handle}"].live, 2048)
        private = next(one for name, one in names.items() if re.match(r"pool \d", name))
        self.assertEqual((private.live, private.name.split(", ")[1]), (4 * MIB, "large"))
        self.assertEqual(
            sum(account.reserved for account in device.accounts) + device.idle,
            torch.cuda.memory_reserved())
        for account in device.accounts:
            self.assertGreaterEqual(account.pending, 0)
            self.assertGreaterEqual(account.peak, account.active)
            self.assertLessEqual(account.largest_free, account.free)
            self.assertIn(account.name, drystone.report())
        self.assertEqual(
            max(account.largest_free for account in device.accounts), device.largest_free)
        self.assertEqual(
            sum(account.active for account in device.accounts),
            torch.cuda.memory_stats()["active_bytes.all.current"])
        del kept, graph, gone

    def test_what_grows_in_place_is_told_apart(self):
        with drystone.reserve(256 * MIB) as cache:
            cache.grow_to(64 * MIB)
            drystone.tag(cache, "kv")
            [device] = _figures.gather()
            names = {account.name: account.live for account in device.accounts}
        self.assertEqual(names["reserved to grow, large, default stream"], 64 * MIB)
        self.assertEqual(device.stats["tags"]["kv"]["current"], 64 * MIB)

    def test_each_pool_and_stream_has_its_peak_with_no_recording(self):
        side = torch.cuda.Stream()
        with torch.cuda.stream(side):
            gone = self.empty(50 * MIB)
            del gone
        # In memory that the other stream had.
        kept = self.empty(20 * MIB)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            first = self.empty(6 * MIB)
            del first
            second = self.empty(4 * MIB)

        def peaks():
            [device] = _figures.gather()
            return {one.name: (one.active, one.peak) for one in device.accounts}
        mine, other = "default pool, large, default stream", (
            f"default pool, large, stream {side.cuda_stream:#x}")
        found = peaks()
        self.assertEqual((found[mine], found[other]), ((20 * MIB, 20 * MIB), (0, 50 * MIB)))
        private = next(name for name in found if re.match(r"pool \d", name))
        self.assertEqual(found[private], (4 * MIB, 6 * MIB))
        row = next(line for line in drystone.report().splitlines() if other in line)
        self.assertEqual(re.split("  +", row.strip())[2:4], ["0 B", "50.00 MiB"])
        torch.cuda.reset_peak_memory_stats()
        found = peaks()
        self.assertEqual(found[private], (4 * MIB, 4 * MIB))
        self.assertEqual(found.get(other, (0, 0)), (0, 0))
        del kept, second, graph
        gc.collect()
        private = private.split(", ")[0]
        self.assertNotIn(private, drystone.report())
        self.assertIn("released pool, large", drystone.report())

    def test_remaps_and_driver_calls_are_counted(self):
        [before] = _figures.totals()
        parts = [self.empty(20 * MIB) for _ in range(10)]
        del parts[::2]
        kept = self.empty(60 * MIB)
        [after] = _figures.totals()
        self.assertGreater(after.stats["driver_calls"], before.stats["driver_calls"])
        self.assertGreaterEqual(
            after.stats["granule_remaps"] - before.stats["granule_remaps"], 30)
        text = drystone.report()
        self.assertIn(f"{after.stats['granule_remaps']} granules remapped", text)
        made = [after.stats[name] for name in ("with_room", "under_pressure")]
        self.assertGreater(sum(choices["remaps"] for choices in made), 0)
        self.assertGreater(sum(choices["growths"] for choices in made), 0)
        self.assertIn(f"{made[0]['growths']} growths, ", text)
        self.assertGreaterEqual(after.stats["remapped_granules"], 30)
        self.assertIn(f"{after.stats['remapped_granules']} away from home now", text)
        size = _figures.text_of_bytes(after.stats["alias_bytes"])
        self.assertIn(f"{after.stats['aliases']} aliases ({size})", text)
        self.assertIn(
            f'drystone_remapped_granules{{device="0"}} {after.stats["remapped_granules"]}\n',
            drystone.metrics())
        self.assertRegex(text, r"largest free block [\d.]+ \w+, idle granules")
        del parts, kept

    def test_what_is_pinned_stays_when_its_tensor_is_gone(self):
        tensor = self.empty(24 * MIB)
        address = tensor.data_ptr()
        with drystone.pin_mapping(tensor) as pin:
            self.assertIn("24.00 MiB pinned", drystone.report())
            del tensor
            torch.cuda.empty_cache()
            self.assertGreaterEqual(torch.cuda.memory_reserved(), 24 * MIB)
            with self.assertRaisesRegex(drystone.DrystoneError, "freed already|free already"):
                drystone.pin_mapping(address)
        torch.cuda.empty_cache()
        self.assertLess(torch.cuda.memory_reserved(), 24 * MIB)
        self.assertNotIn("pinned", drystone.report())
        pin.unpin()
        with self.assertRaisesRegex(drystone.DrystoneError, "is not an address of this allocator"):
            drystone.pin_mapping(64)

    def test_tensors_count_under_their_tag_until_they_are_freed(self):
        self.assertNotIn("Tags", drystone.report())
        cache, weights = self.empty(24 * MIB), self.empty(6 * MIB)
        drystone.tag(weights.data_ptr(), "weights é")
        drystone.tag(cache[MIB:], "kv")
        told = drystone.report()
        self.assertRegex(
            told, r"  kv +24\.00 MiB +24\.00 MiB\n  weights é +6\.00 MiB +6\.00 MiB\n  no tag +\d")
        drystone.tag(weights, None)
        del cache
        told = drystone.report()
        self.assertRegex(told, r"  kv +0 B +24\.00 MiB\n")
        self.assertRegex(told, r"  weights é +0 B +6\.00 MiB\n")
        for name in ("", "a\nb", "a\0b"):
            with self.assertRaises((drystone.DrystoneError, ValueError)):
                drystone.tag(weights, name)
        with self.assertRaisesRegex(drystone.DrystoneError, "is not an address of this allocator"):
            drystone.tag(64, "kv")

    def test_only_devices_in_use_are_told(self):
        kept = self.empty(MIB)
        self.assertNotIn("GPU 1", drystone.report())
        done = python("""
            import torch, drystone
            drystone.enable()
            print(drystone.report())
            kept = torch.ones(1, device="cuda:1")
            print([line.split(":")[0] for line in drystone.report().splitlines()
                   if line.startswith("GPU")])
        """)
        self.assertIn("No device is in use yet.", done.stdout, done.stderr)
        self.assertEqual(done.stdout.splitlines()[-1], "['GPU 1']")
        del kept

    def test_the_page_stands_alone_and_tells_the_same(self):
        kept = [self.empty(size) for size in (30 * MIB, 700, 5 * MIB)]
        del kept[0]
        path = self.folder / "report.html"
        path.write_text("old")
        text = drystone.report(path)
        page = Page(path.read_text())
        self.assertEqual((page.open, page.references), ([], []))
        for outside in ("http:", "https:", "src=", "<link", "@import", "url(", "fetch(", "{{"):
            self.assertNotIn(outside, path.read_text())
        [bar], [drawn] = page.parts("bar"), page.parts("map")
        self.assertEqual(sum(part["bytes"] for part in bar), 8 * GIB)
        live = sum(block[0] for segment in drawn["segments"] for block in segment[2]
                   if block[1] == 0)
        self.assertEqual(live, bar[0]["bytes"])
        words = " ".join(page.words())
        for line in text.splitlines():
            for cell in filter(None, re.split(r"  +", line)):
                self.assertIn(cell.removeprefix("GPU 0: "), words)
        self.assertEqual(os.listdir(self.folder), ["report.html"])

    def test_without_a_history_it_says_what_is_missing(self):
        text = drystone.report()
        self.assertIn("not known: nothing is recorded. Call torch.cuda", text)
        self.assertIn("not known: history, with its stacks, is not being recorded", text)

    def test_the_history_names_who_holds_live_blocks(self):
        kept = self.empty(MIB)
        with mock.patch.object(_replay, "history", history), \
                mock.patch.object(shutil, "which", return_value=None):
            text = drystone.report(self.folder / "page.html")
        self.assertRegex(text, r" 4\.00 MiB +2  /home/me/train\.py:42 <module>\n")
        self.assertIn("the drystone command is neither in", text)
        page = Page((self.folder / "page.html").read_text())
        self.assertEqual(page.open, [])
        self.assertIn("/home/me/train.py:42 <module>", page.words())
        del kept

    def test_history_is_taken_where_pytorch_records_it(self):
        kept = self.empty(MIB)
        self.assertIsNone(_replay.history())
        with mock.patch.object(torch.cuda.memory, "_snapshot", history):
            self.assertEqual(len(_replay.history()["segments"]), 2)
        with mock.patch.object(torch.cuda.memory, "_snapshot", side_effect=RuntimeError("none")):
            self.assertIsNone(_replay.history())
        del kept


@unittest.skipUnless(shutil.which("drystone"), "the drystone command is not on PATH")
class Room(OnDevice):
    def test_what_there_is_room_for(self):
        model = torch.nn.Linear(16384, 16384, bias=False, device="cuda")
        gone = self.empty(GIB)
        del gone
        text = drystone.report(batch=8).split("What there is room for\n")[1]
        # 1 GiB of parameters stays: of 8 GiB, with 4.5 % kept back, 6.66 are left for what was 1.
        self.assertIn("at most 2.00 GiB in use at one time, of 8.00 GiB", text)
        self.assertIn("1.00 GiB are parameters, gradients and optimizer state", text)
        self.assertIn("could be 6.66 times as large: a batch of 53 where 8 was the largest", text)
        torch.cuda.set_per_process_memory_fraction(0.5)
        self.assertIn("of 4.00 GiB that this process can have", drystone.report())
        torch.cuda.set_per_process_memory_fraction(1.0)
        with self.assertRaisesRegex(drystone.DrystoneError, "a batch of 0"):
            drystone.report(batch=0)
        del model

    def test_limits(self):
        for text, count in (("", 1 << 62), ("limit:1.5G", 3 << 29), ("limit:512", 512),
                            ("backend:vmm,limit:20MiB", 20 << 20), ("limit : 2GB", 2 * 10 ** 9),
                            ("limit_fraction:0.5", 1 << 62)):
            self.assertEqual(_room.limit_of(text), count, text)


class Replayed(OnDevice):
    def test_the_command_tells_what_pytorch_would_hold(self):
        kept = self.empty(MIB)
        path = self.folder / "mine.pickle"
        path.write_bytes(pickle.dumps(history()))
        text = drystone.report(self.folder / "page.html", recording=path)
        self.assertIn("mine: peak requested 4.00 MiB", text)
        # PyTorch takes 2 MiB for the small block and 20 MiB for the other.
        self.assertRegex(text, r"  PyTorch +22\.00 MiB +5\.5000 +\d+ +0\n")
        self.assertRegex(text, r"  PyTorch, expandable segments +22\.00 MiB ")
        self.assertRegex(text, r"  Drystone +18\.00 MiB ")
        self.assertRegex(text, r"  stream 1 +3\.00 MiB +1\n")
        self.assertRegex(text, r" 2  nn/linear\.py:7 forward, from me/train\.py:42 <module>\n")
        self.assertIn("PyTorch, expandable segments", (self.folder / "page.html").read_text())
        with mock.patch.object(_replay, "history", history):
            self.assertIn("history: peak requested 4.00 MiB", drystone.report())
        del kept

    def test_a_recording_that_is_none_is_one_line(self):
        path = self.folder / "mine.pickle"
        path.write_text("nothing")
        with self.assertRaisesRegex(drystone.DrystoneError, "mine.pickle") as raised:
            drystone.report(recording=path)
        self.assertEqual(len(str(raised.exception).splitlines()), 1)


class BadInput(OnDevice):
    def test_a_file_that_is_not_there_or_cannot_be_written(self):
        with self.assertRaisesRegex(drystone.DrystoneError, "there is no recording /no/such"):
            drystone.report(recording="/no/such.pickle")
        with self.assertRaisesRegex(drystone.DrystoneError, "cannot write /no/page.html: No such"):
            drystone.report("/no/page.html")

    def test_something_else_by_the_commands_name(self):
        for script, reason in (
                ("echo hello", "is not the drystone command"),
                ("""echo '{"schema": 9}'""", "form 9, this package knows 1"),
                ("echo broken >&2; exit 2", "compare: broken")):
            command = self.folder / "drystone"
            command.write_text(f"#!/bin/sh\n{script}\n")
            command.chmod(0o755)
            with mock.patch.object(shutil, "which", return_value=str(command)), \
                    self.assertRaisesRegex(drystone.DrystoneError, reason):
                drystone.report(recording=__file__)

    def test_where_drystone_serves_nothing(self):
        done = python("""
            import drystone
            for what in (drystone.report, drystone.metrics, drystone.monitor):
                try:
                    what()
                except drystone.DrystoneError as error:
                    print(error)
        """)
        lines = done.stdout.splitlines()
        self.assertEqual(len(lines), 3, done.stderr)
        for line in lines:
            self.assertIn("serves nothing in this process: call drystone.enable()", line)


class Compiled(unittest.TestCase):
    def test_a_history_that_is_being_recorded_is_told_and_replayed(self):
        done = python("""
            import torch, drystone
            drystone.enable()
            torch.cuda.memory._record_memory_history(stacks="python")
            def load():
                return torch.empty(30 << 20, dtype=torch.uint8, device="cuda")
            kept = load()
            gone = torch.empty(50 << 20, dtype=torch.uint8, device="cuda")
            del gone
            pool, side = torch.cuda.MemPool(), torch.cuda.Stream()
            with torch.cuda.use_mem_pool(pool), torch.cuda.stream(side):
                gone = torch.empty(9 << 20, dtype=torch.uint8, device="cuda")
                del gone
                more = torch.empty(3 << 20, dtype=torch.uint8, device="cuda")
            print(drystone.report())
        """)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertRegex(done.stdout, r" 30\.00 MiB +1  <string>:6 load\n")
        self.assertRegex(
            done.stdout, r"  pool \d+\.\d+, large, stream 0x\w+ .* 3\.00 MiB +9\.00 MiB +0 B")
        self.assertRegex(
            done.stdout, r"  default pool, large, default stream .* 30\.00 MiB +80\.00 MiB +0 B")
        if shutil.which("drystone"):
            self.assertIn("history: peak requested 80.00 MiB", done.stdout)
            self.assertRegex(done.stdout, r"  PyTorch +100\.00 MiB +1\.2500")


class Preloaded(unittest.TestCase):
    def test_the_same_where_the_library_is_preloaded(self):
        library = Path(os.environ["DRYSTONE_LIBRARY"]).with_name("libdrystone_preload.so")
        done = python("""
            import os, torch, drystone
            kept = torch.empty(40 << 20, dtype=torch.uint8, device="cuda")
            side = torch.cuda.Stream()
            with torch.cuda.stream(side):
                more = torch.empty(3 << 20, dtype=torch.uint8, device="cuda")
                gone = torch.empty(5 << 20, dtype=torch.uint8, device="cuda")
                del gone
            print(drystone.report())
            print(drystone.library_path() == os.environ["LD_PRELOAD"], drystone.is_enabled())
        """, LD_PRELOAD=str(library), DRYSTONE_LIBRARY="/no/such.so",
            DRYSTONE_CONF="prefer:memory",
            PYTORCH_CUDA_ALLOC_CONF="backend:cudaMallocAsync")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertRegex(done.stdout, r"^Drystone 0\.1\.0, preloaded, ")
        self.assertRegex(done.stdout, r"  requested +43\.00 MiB")
        self.assertRegex(done.stdout, r"  default pool, large, stream 0x\w+ +8\.00 MiB +3\.00 MiB +8\.00 MiB")
        self.assertEqual(done.stdout.splitlines()[-1], "True False")


class Words(unittest.TestCase):
    def test_sizes(self):
        for count, text in ((0, "0 B"), (1023, "1023 B"), (1024, "1.00 KiB"), (5 * MIB, "5.00 MiB"),
                            (3 * GIB // 2, "1.50 GiB"), (2 << 40, "2.00 TiB")):
            self.assertEqual(_figures.text_of_bytes(count), text)

    def test_the_place_of_a_stack(self):
        inside = {"filename": "/x/torch/nn/functional.py", "line": 1, "name": "linear"}
        self.assertEqual(_holders.place_of(STACK), "/home/me/train.py:42 <module>")
        self.assertEqual(_holders.place_of([inside]), "/x/torch/nn/functional.py:1 linear")
        self.assertIn("no Python stack", _holders.place_of([]))
        cpp = {"filename": "??", "line": 0, "name": "at::empty()"}
        self.assertEqual(_holders.place_of([cpp, *STACK]), "/home/me/train.py:42 <module>")

    def test_no_name_drives_the_terminal(self):
        hostile = "\x1b]0;title\x07\x1b[2J\r\n\0\x9b\u202eé漢"
        part = {"text": f"said of {hostile}",
                "table": {"heads": ["place"], "rows": [[hostile]], "words": [0]}}
        document = {"note": hostile, "sections": [{"title": hostile, "parts": [part]}]}
        told = _text.text(document)
        self.assertEqual(len(told.splitlines()), 6)
        self.assertTrue(all(one.isprintable() for one in told.replace("\n", "")), told)
        self.assertIn("é漢", told)


if __name__ == "__main__":
    sys.exit(unittest.main())
