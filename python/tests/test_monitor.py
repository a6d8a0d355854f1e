"""The monitor: log, file and endpoint; its end; and what Prometheus reads."""

import contextlib
import logging
import os
import re
import socket
import sys
import tempfile
import textwrap
import threading
import time
import unittest
import urllib.error
import urllib.request
from pathlib import Path
from unittest import mock

import torch

import drystone
from drystone import _monitor
from support import MIB, answer, python

drystone.enable(route="plugin")

SAMPLE = re.compile(r'(drystone_[a-z_]+)\{device="(\d+)"\} (\d+)')
GROWS = ("allocations_total", "allocated_bytes_total", "driver_calls_total",
         "granule_remaps_total", "cross_stream_reuses_total", "out_of_memory_total",
         "device_looks_total", "moves_total", "moved_bytes_total",
         "given_bytes_total", "taken_bytes_total", "idle_bytes_total",
         *(f"{choice}_{pressure}_total" for pressure in ("with_room", "under_pressure")
           for choice in ("growths", "remaps", "waits")))


def samples(text):
    """Every sample of an exposition, whose every line is checked."""
    found, kinds = {}, {}
    for line in text.splitlines():
        if line.startswith("# TYPE "):
            _, _, name, kind = line.split()
            kinds[name] = kind
        elif not line.startswith("# HELP "):
            name, device, value = SAMPLE.fullmatch(line).groups()
            assert (name.endswith("_total")) == (kinds[name] == "counter"), name
            found[name.removeprefix("drystone_"), int(device)] = int(value)
    return found


def until(true, seconds=20.0):
    end = time.monotonic() + seconds
    while not true():
        if time.monotonic() > end:
            raise AssertionError("it never was so")
        time.sleep(0.01)


def threads():
    return [thread.name for thread in threading.enumerate() if "drystone" in thread.name]


class Metrics(unittest.TestCase):
    def test_figures_are_those_of_pytorchs_statistics(self):
        kept, gone = torch.empty(6 * MIB, device="cuda"), torch.empty(9 * MIB, device="cuda")
        del gone
        text = drystone.metrics()
        found, stats = samples(text), torch.cuda.memory_stats()
        for name in ("requested", "allocated", "active", "reserved"):
            for ours, theirs in (("bytes", "current"), ("peak_bytes", "peak")):
                self.assertEqual(
                    found[f"{name}_{ours}", 0], stats[f"{name}_bytes.all.{theirs}"])
        self.assertEqual(found["live_blocks", 0], stats["allocation.all.current"])
        self.assertEqual(found["device_bytes", 0], torch.cuda.mem_get_info()[1])
        self.assertEqual({name for name, _ in found if name.endswith("_total")}, set(GROWS))
        self.assertTrue(text.endswith("\n"))
        self.assertEqual(len(re.findall("^# HELP ", text, re.M)), len(found))
        del kept

    def test_a_program_is_watched_without_a_call_of_its_own(self):
        with tempfile.TemporaryDirectory() as folder:
            done = python("""
                import os, pathlib, time, torch, drystone
                drystone.enable(route="plugin")
                tensor = torch.empty(3 << 20, dtype=torch.uint8, device="cuda")
                name = os.environ["DRYSTONE_METRICS"].replace("%p", str(os.getpid()))
                while "allocated_bytes{device=\\"0\\"} 3145728" not in pathlib.Path(name).read_text():
                    time.sleep(0.1)
            """, DRYSTONE_METRICS=f"{folder}/%p.prom")
            self.assertEqual((done.returncode, done.stderr), (0, ""))
            self.assertEqual(os.listdir(folder), [], "it goes with its process")
            done = python("""
                import torch, drystone
                drystone.enable(route="plugin")
            """, DRYSTONE_METRICS=f"{folder}/none/there")
            self.assertEqual(done.returncode, 0)
            self.assertIn("no metrics are written: cannot write", done.stderr)

    def test_refusals_are_counted_on_the_compiled_route(self):
        found = answer(sys.executable, "-B", "-c", textwrap.dedent("""
            import json, torch, drystone
            drystone.enable(route="compiled")
            try:
                torch.empty(1 << 40, dtype=torch.uint8, device="cuda")
            except torch.OutOfMemoryError:
                pass
            name = "drystone_out_of_memory_total{"
            print(json.dumps([x for x in drystone.metrics().splitlines() if x.startswith(name)]))
        """))
        self.assertEqual(found, ['drystone_out_of_memory_total{device="0"} 1'])

    def test_what_only_grows_grows(self):
        before = samples(drystone.metrics())
        with self.assertRaises(torch.OutOfMemoryError):
            torch.empty(1 << 40, dtype=torch.uint8, device="cuda")
        kept = torch.empty(300 * MIB, device="cuda")
        after = samples(drystone.metrics())
        for name in ("allocations", "driver_calls", "out_of_memory", "growths_with_room",
                     "device_looks"):
            self.assertGreater(after[f"{name}_total", 0], before.get((f"{name}_total", 0), 0))
        del kept
        torch.cuda.empty_cache()


class Monitoring(unittest.TestCase):
    def setUp(self):
        self.kept = torch.empty(5 * MIB, device="cuda")
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)

    def test_a_line_per_device_again_and_again(self):
        with self.assertLogs("drystone", logging.INFO) as logs, \
                drystone.monitor(0.01, logger="drystone"):
            until(lambda: len(logs.output) >= 3)
        self.assertRegex(
            logs.output[0],
            r"^INFO:drystone:GPU 0: [\d.]+ MiB in use of [\d.]+ MiB reserved \(peak [\d.]+ \w+\), "
            r"largest free [\d.]+ \w+, \d+ new driver calls$")
        self.assertIn(" 0 new driver calls", logs.output[2])
        self.assertEqual(threads(), [])

    def test_a_logger_of_ones_own(self):
        with self.assertLogs("mine", logging.INFO) as logs:
            running = drystone.monitor(1000, logger=logging.getLogger("mine"))
            until(lambda: logs.output)
            running.stop()
            running.stop()
        self.assertEqual(threads(), [])

    def test_the_file_is_always_whole(self):
        path = self.folder / "drystone.prom"
        with drystone.monitor(0.001, file=path):
            full = len(samples(path.read_text()))
            for _ in range(100):
                self.assertEqual(len(samples(path.read_text())), full)
        self.assertEqual(os.listdir(self.folder), ["drystone.prom"])

    def test_the_endpoint(self):
        with drystone.monitor(1000, port=0) as running:
            there = f"http://127.0.0.1:{running.port}"
            with urllib.request.urlopen(f"{there}/metrics", timeout=10) as answer:
                self.assertTrue(answer.headers["Content-Type"].startswith("text/plain; version="))
                found = samples(answer.read().decode())
            self.assertEqual(found["reserved_bytes", 0], torch.cuda.memory_reserved())
            with self.assertRaisesRegex(urllib.error.HTTPError, "404"):
                urllib.request.urlopen(f"{there}/", timeout=10)
            self.assertEqual(len(threads()), 2)
        self.assertIsNone(running.port)
        self.assertEqual(threads(), [])
        with self.assertRaises(urllib.error.URLError):
            urllib.request.urlopen(f"{there}/metrics", timeout=10)

    def test_peers_that_say_nothing_keep_no_more_than_so_many_threads(self):
        # The time that a peer has does not close them.
        with mock.patch.object(_monitor, "REQUEST_S", 60.0), \
                drystone.monitor(1000, port=0) as monitor:
            silent = [socket.create_connection(("127.0.0.1", monitor.port)) for _ in range(20)]
            try:
                deadline = time.monotonic() + 10
                # Those beyond are closed at once.
                for one in silent[_monitor.REQUESTS_MAX:]:
                    one.settimeout(max(deadline - time.monotonic(), 0.1))
                    self.assertEqual(one.recv(1), b"")
                named = [one for one in threading.enumerate() if "process_request" in one.name]
                self.assertLessEqual(len(named), _monitor.REQUESTS_MAX)
            finally:
                for one in silent:
                    one.close()

    def test_peers_that_say_a_byte_now_and_then_do_not_keep_others_out_for_long(self):
        with mock.patch.object(_monitor, "REQUEST_S", 1.0), \
                drystone.monitor(1000, port=0) as running:
            slow = [socket.create_connection(("127.0.0.1", running.port))
                    for _ in range(_monitor.REQUESTS_MAX)]
            is_over = threading.Event()

            def dribble():
                while not is_over.wait(0.2):
                    for one in slow:
                        with contextlib.suppress(OSError):
                            one.send(b"G")
            thread = threading.Thread(target=dribble)
            thread.start()
            there = f"http://127.0.0.1:{running.port}/metrics"

            def is_served():
                try:
                    return urllib.request.urlopen(there, timeout=5).read()
                except OSError:
                    return b""
            try:
                until(is_served, 10)
            finally:
                is_over.set()
                thread.join()
                for one in slow:
                    one.close()

    def test_a_thread_that_cannot_be_started_takes_nobodys_place(self):
        with drystone.monitor(1000, port=0) as running:
            there = f"http://127.0.0.1:{running.port}/metrics"
            with mock.patch.object(threading.Thread, "start", side_effect=RuntimeError("none left")):
                for _ in range(2 * _monitor.REQUESTS_MAX):
                    with socket.create_connection(("127.0.0.1", running.port)) as one:
                        one.settimeout(10)
                        self.assertEqual(one.recv(1), b"")
            self.assertIn(b"drystone_reserved_bytes", urllib.request.urlopen(there).read())

    def test_nothing_is_written_through_a_link(self):
        path, other = self.folder / "drystone.prom", self.folder / "other"
        other.write_text("of somebody")
        os.symlink(other, f"{path}.{os.getpid()}.part")
        with drystone.monitor(1000, file=path):
            self.assertTrue(samples(path.read_text()))
        self.assertEqual(other.read_text(), "of somebody")
        self.assertFalse(path.is_symlink())

    def test_what_fails_later_is_a_line_in_the_log(self):
        path = self.folder / "there/drystone.prom"
        path.parent.mkdir()
        with self.assertLogs("drystone", logging.WARNING) as logs, \
                drystone.monitor(0.01, file=path):
            os.rename(path.parent, self.folder / "moved")
            until(lambda: logs.output)
        self.assertRegex(logs.output[0], "cannot be monitored: cannot write .*/drystone.prom: No")

    def test_so_is_what_nobody_expected(self):
        path = self.folder / "drystone.prom"
        texts = iter(["first\n", "of a broken name \udc80\n"])
        with self.assertLogs("drystone", logging.WARNING) as logs, \
                mock.patch.object(_monitor._metrics, "metrics", lambda: next(texts)), \
                drystone.monitor(0.01, file=path):
            until(lambda: len(logs.output) > 1)
        self.assertRegex(logs.output[0], "cannot be monitored: cannot write .*/drystone.prom: ")
        self.assertRegex(logs.output[1], "cannot be monitored: ")
        self.assertEqual([path], list(self.folder.iterdir()))

    def test_bad_input_starts_nothing(self):
        with socket.create_server(("127.0.0.1", 0)) as taken:
            port = taken.getsockname()[1]
            for options, reason in (
                    ({"interval_s": 0}, "an interval of 0 s: it must be above 0"),
                    ({"interval_s": float("nan")}, "must be above 0"),
                    ({"interval_s": 1e30}, "must be above 0"),
                    ({"file": os.devnull}, "cannot write /dev/null: .*no regular file"),
                    ({"file": "/no/such/folder/x.prom"}, "cannot write /no/such/folder/x.prom"),
                    ({"port": port}, f"cannot serve metrics at 127.0.0.1:{port}: .*in use"),
                    ({"port": 1 << 20}, "cannot serve metrics at 127.0.0.1:1048576")):
                with self.assertRaisesRegex(drystone.DrystoneError, reason) as raised:
                    drystone.monitor(**options)
                self.assertEqual(len(str(raised.exception).splitlines()), 1)
        self.assertEqual(threads(), [])


class End(unittest.TestCase):
    def test_the_program_ends_quietly_while_it_runs(self):
        done = python("""
            import logging, torch, drystone
            logging.basicConfig(level=logging.WARNING)
            drystone.enable(route="plugin")
            running = drystone.monitor(0.001, port=0)
            kept = torch.ones(1000, device="cuda")
        """)
        self.assertEqual((done.returncode, done.stdout, done.stderr), (0, "", ""))

    def test_a_forked_child_does_not_keep_the_port(self):
        done = python("""
            import os, signal, torch, drystone
            drystone.enable(route="plugin")
            with drystone.monitor(1000, port=0) as running:
                port = running.port
                child = os.fork()
                if child == 0:
                    signal.pause()
            drystone.monitor(1000, port=port).stop()
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
        """)
        self.assertEqual((done.returncode, done.stderr), (0, ""))

    def test_a_forked_child_ends_and_the_parent_goes_on(self):
        done = python("""
            import os, sys, torch, drystone, urllib.request
            drystone.enable(route="plugin")
            kept = torch.ones(1000, device="cuda")
            running = drystone.monitor(0.01, port=0)
            child = os.fork()
            if child == 0:
                sys.exit(3)
            _, status = os.waitpid(child, 0)
            there = f"http://127.0.0.1:{running.port}/metrics"
            found = urllib.request.urlopen(there, timeout=10).read()
            print(os.waitstatus_to_exitcode(status), b"drystone_reserved_bytes{" in found)
        """)
        self.assertEqual((done.returncode, done.stdout), (0, "3 True\n"), done.stderr)


if __name__ == "__main__":
    sys.exit(unittest.main())
