"""What is compiled for native=True, how programs start with it, and what can stand in the way."""

import os
import sys
import tempfile
import textwrap
import unittest
from pathlib import Path

from support import answer, python

SCRIPT = """
    import json, torch
    x = torch.ones(1000, device="cuda")
    print(json.dumps([torch.cuda.get_allocator_backend(), torch.cuda.memory_allocated()]))
"""
ATTEMPTS = """
    import json, os, torch, drystone
    found = {}
    def attempt(name):
        try:
            drystone.enable(native=True)
            found[name] = "enabled"
        except drystone.DrystoneError as error:
            found[name] = str(error)
    def compiler(text):
        with open("c++", "w") as file:
            file.write("#!/bin/sh\\n" + text)
        os.chmod("c++", 0o755)
        os.environ["CXX"] = os.path.abspath("c++")
    version, cache = torch.__version__, os.environ["DRYSTONE_CACHE"]
    for other in ("2.10.0+cu128", "2.12.0"):
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
    os.environ["DRYSTONE_CACHE"] = "/proc/nowhere"
    attempt("no folder")
    del os.environ["CXX"]
    os.environ["DRYSTONE_CACHE"] = cache
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
        for version in ("2.10.0+cu128", "2.12.0"):
            self.check(version, f"knows the C++ of PyTorch 2.11, and this is {version}",
                       "leave native=True out")

    def test_the_compiler(self):
        self.check("no compiler", "needs a C++ compiler", "/nowhere/c++", "name it in CXX")
        self.check("failing compiler", "x.h:3: error: no such thing", "leave native=True out")
        self.assertEqual(self.found["kept"], [])
        self.check("useless compiler", "cannot be loaded", "remove")

    def test_the_folder(self):
        self.check("no folder", "DRYSTONE_CACHE", "/proc/nowhere")

    def test_nothing_was_changed_until_all_was_well(self):
        self.assertEqual(self.found["at last"], "enabled")
        self.check("twice", "call it once")

    def test_after_cuda_is_in_use(self):
        done = python("""
            import drystone, torch
            kept = torch.empty(1, device="cuda")
            try:
                drystone.enable(native=True)
            except drystone.DrystoneError as error:
                print(error, torch.cuda.get_allocator_backend())
        """)
        self.assertIn("CUDA is in use already", done.stdout, done.stderr)
        self.assertTrue(done.stdout.endswith("native\n"), done.stdout)


class Programs(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.script = os.path.join(folder.name, "train.py")
        Path(self.script).write_text(textwrap.dedent(SCRIPT))

    def test_without_a_change(self):
        found = answer(sys.executable, "-B", "-m", "drystone", "--native", "--conf", "limit:1GiB",
                       self.script)
        self.assertEqual(found, ["drystone", 4096])

    def test_exit_and_forks_are_quiet(self):
        done = python("""
            import os, sys, threading, torch, drystone
            drystone.enable(native=True)
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

    def test_it_is_compiled_once_for_all_processes(self):
        with tempfile.TemporaryDirectory() as folder:
            code = "import torch, drystone; drystone.enable(native=True)"
            many = f"""
                import subprocess, sys
                all = [subprocess.Popen([sys.executable, "-B", "-c", {code!r}]) for _ in range(2)]
                sys.exit(max(one.wait() for one in all))
            """
            compiler, log = Path(folder) / "c++", Path(folder) / "log"
            compiler.write_text(f"#!/bin/sh\necho >> {log}; exec c++ -O0 \"$@\" -O0\n")
            compiler.chmod(0o755)
            done = python(many, DRYSTONE_CACHE=f"{folder}/cache", CXX=str(compiler))
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertEqual(log.read_text(), "\n")
            names = sorted(path.suffix for path in (Path(folder) / "cache").iterdir())
            self.assertEqual(names, [".lock", ".so"])


if __name__ == "__main__":
    sys.exit(unittest.main())
