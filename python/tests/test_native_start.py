"""The compiled route in programs of its own: what stands in the way, and how they end."""

import sys
import tempfile
import textwrap
import unittest
from pathlib import Path

from support import answer, python

ATTEMPTS = """
    import json, os, tempfile, threading, torch, drystone
    from drystone import _native
    found = {}
    def attempt(name):
        try:
            drystone.enable(route="compiled")
            found[name] = "enabled"
        except drystone.DrystoneError as error:
            found[name] = str(error)
    def compiler(text):
        with open("c++", "w") as file:
            file.write("#!/bin/sh\\n" + text)
        os.chmod("c++", 0o755)
        os.environ["CXX"] = os.path.abspath("c++")
    version, cache = torch.__version__, os.environ["DRYSTONE_CACHE"]
    for other in ("2.5.1+cu124", "2.16.0"):
        torch.__version__ = other
        attempt(other)
    torch.__version__ = version
    os.environ.update(CXX="/nowhere/c++", DRYSTONE_CACHE=os.path.abspath("cache"))
    attempt("no compiler")
    compiler("echo 'x.h:3: error: no such thing' >&2; exit 1")
    attempt("failing compiler")
    found["kept"] = [name for name in os.listdir("cache") if name.endswith(".so")]
    compiler("while [ $1 != -o ]; do shift; done; echo nothing > $2")
    attempt("useless compiler")
    compiler("echo >> log; exec c++ \\"$@\\" -O0")
    os.environ["DRYSTONE_CACHE"] = os.path.abspath("fresh")
    threads = [threading.Thread(target=_native.library, args=(torch,)) for _ in range(3)]
    for thread in threads: thread.start()
    for thread in threads: thread.join()
    found["compiled"] = [open("log").read(), sorted(name[-3:] for name in os.listdir("fresh"))]
    os.environ["DRYSTONE_CACHE"] = "/proc/nowhere"
    attempt("no folder")
    os.environ["DRYSTONE_CACHE"] = os.path.abspath("fresh")
    [made] = [name for name in os.listdir("fresh") if name.endswith(".so")]
    os.chmod("fresh/" + made, 0o777)
    attempt("anybody's file")
    os.rename("fresh/" + made, "elsewhere.so")
    os.chmod("elsewhere.so", 0o755)
    os.symlink(os.path.abspath("elsewhere.so"), "fresh/" + made)
    attempt("a link")
    os.remove("fresh/" + made)
    lock = "fresh/" + made[:-2] + "lock"
    os.remove(lock)
    os.symlink(os.path.abspath("target"), lock)
    attempt("a link to lock")
    found["target"] = os.path.exists("target")
    os.chmod("fresh", 0o777)
    attempt("anybody's folder")
    del os.environ["CXX"], os.environ["DRYSTONE_CACHE"]
    usual, linked = tempfile.gettempdir, _native.LINKED
    def none(): raise FileNotFoundError("no usable temporary directory")
    tempfile.gettempdir = none
    os.environ["XDG_CACHE_HOME"] = os.path.abspath("home")
    found["no temporary folder"] = os.path.relpath(_native.folder())
    os.environ["XDG_CACHE_HOME"] = "/proc/nowhere"
    attempt("no folder at all")
    tempfile.gettempdir = usual
    os.environ["DRYSTONE_CACHE"] = cache
    _native.LINKED = ("libnone.so",)
    attempt("no PyTorch library")
    _native.LINKED = linked
    attempt("at last")
    attempt("twice")
    print(json.dumps(found))
"""


class Refusals(unittest.TestCase):
    """Each is one exception that says what to do, and changes nothing."""

    @classmethod
    def setUpClass(cls):
        with tempfile.TemporaryDirectory() as folder:
            code = textwrap.dedent(ATTEMPTS)
            cls.found = answer(sys.executable, "-B", "-c", code, folder=Path(folder))

    def check(self, attempt, *words):
        for word in words:
            self.assertIn(word, self.found[attempt])

    def test_another_version_of_pytorch(self):
        self.check("2.5.1+cu124", "2.5.1+cu124 is too old: drystone needs 2.6 or newer")
        self.check("2.16.0", "2.16.0 is newer than what this drystone knows, 2.15")

    def test_the_compiler(self):
        self.check("no compiler", "there is no C++ compiler", "/nowhere/c++", "name it in CXX")
        self.check("failing compiler", "x.h:3: error: no such thing", "use another by CXX")
        self.assertEqual(self.found["kept"], [])
        self.check("useless compiler", "cannot be loaded", "remove")

    def test_the_folder(self):
        self.check("no folder", "DRYSTONE_CACHE", "/proc/nowhere")
        self.assertEqual(self.found["no temporary folder"], "home/drystone")
        self.check("no folder at all", "no usable temporary directory", "DRYSTONE_CACHE")

    def test_what_cannot_be_read(self):
        self.check("no PyTorch library", "libnone.so", "install PyTorch anew")

    def test_what_others_can_change_is_not_loaded(self):
        for attempt in ("anybody's file", "anybody's folder"):
            self.check(attempt, "can be changed by other users", "DRYSTONE_CACHE")
        self.check("anybody's folder", "chmod go-w")
        self.check("a link", "is a symbolic link", "DRYSTONE_CACHE")
        self.check("a link to lock", "symbolic links", "DRYSTONE_CACHE")
        self.assertFalse(self.found["target"])

    def test_nothing_was_changed_until_all_was_well(self):
        self.assertEqual(self.found["at last"], "enabled")
        self.check("twice", "call it once")

    def test_it_is_compiled_once_however_many_start(self):
        self.assertEqual(self.found["compiled"], ["\n", [".so", "ock"]])


class Plain(unittest.TestCase):
    """With backend="malloc": memory goes back to serve others, and other processes can have it."""

    @classmethod
    def setUpClass(cls):
        cls.found = answer(sys.executable, "-B", "-c", textwrap.dedent("""
            import json, torch, drystone
            drystone.enable(backend="malloc")
            torch.cuda.memory._record_memory_history(context=None)
            block = torch.empty(5 << 30, dtype=torch.uint8, device="cuda")
            del block
            block = torch.empty(6 << 30, dtype=torch.uint8, device="cuda")
            small = torch.empty(3000, dtype=torch.uint8, device="cuda")
            figures = torch.cuda.memory_stats()
            entries = torch.cuda.memory._snapshot()["device_traces"][0]
            sent = small.untyped_storage()._share_cuda_()
            try:
                torch.empty(6 << 30, dtype=torch.uint8, device="cuda")
            except torch.OutOfMemoryError:
                after = torch.cuda.memory_stats()
            print(json.dumps({
                "figures": [[of[key] for key in ("num_alloc_retries", "num_ooms")]
                            for of in (figures, after)],
                "entries": [(one["action"], one["size"] >> 20) for one in entries],
                "sent": [sent[0], len(sent[1]), sent[2]],
            }), flush=True)
            import os
            os._exit(0)
        """))

    def test_a_request_that_took_a_trim_is_a_retry_and_so_is_each_that_was_refused(self):
        self.assertEqual(self.found["figures"], [[1, 0], [2, 1]])

    def test_segments_are_allocated_and_freed(self):
        five, six = 5 << 10, 6 << 10
        self.assertEqual(self.found["entries"], [list(one) for one in (
            ("segment_alloc", five), ("alloc", five), ("free_requested", five),
            ("free_completed", five), ("segment_free", five), ("segment_alloc", six),
            ("alloc", six), ("segment_alloc", 2), ("alloc", 0))])

    def test_a_tensor_is_sent_by_the_handle_of_its_segment(self):
        self.assertEqual(self.found["sent"], [0, 64, 3000])


class Ends(unittest.TestCase):
    def test_exit_and_forks_are_quiet(self):
        done = python("""
            import os, sys, threading, torch, drystone
            drystone.enable()
            keep = [torch.ones(1000, device="cuda") for _ in range(10)]
            torch.cuda.memory._record_memory_history()
            child = os.fork()
            if child == 0:
                del keep
                sys.exit(7)
            print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                out = keep[0] * 2
            class Late:
                def __del__(self):
                    del self.kept
            late = Late()
            late.kept = torch.ones(5, device="cuda")
        """)
        self.assertEqual((done.returncode, done.stdout, done.stderr), (0, "7\n", ""))


if __name__ == "__main__":
    sys.exit(unittest.main())
