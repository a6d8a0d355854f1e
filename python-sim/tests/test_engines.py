"""The stub of cuDNN asks a real one what engines work in: here a library with its functions.

Needs PyTorch, the libraries in `DRYSTONE_SIM_LIBRARIES`, the `drystone` command and a C compiler.
Without, it skips.
"""

import importlib.util
import json
import os
import shutil
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

MIB = 1 << 20
# One engine, which asks for 7 MiB. It takes no handle, and a device of 108 multiprocessors alone.
LIBRARY = r"""
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
enum { HANDLE = 0, BOOLEAN = 2, INT64 = 3, INT32 = 23 };
enum { RESULTS = 202, ENGINE = 300, WORKSPACE = 402, TEXT = 2702 };
int cudnnBackendCreateDescriptor(int kind, void** made) {
  *made = malloc(1);
  return 0;
}
int cudnnBackendDestroyDescriptor(void* descriptor) {
  free(descriptor);
  return 0;
}
int cudnnBackendFinalize(void* descriptor) { return 0; }
int cudnnBackendSetAttribute(void* descriptor, int name, int type, int64_t count, void* values) {
  if (name == TEXT && !strstr(values, "\"multiProcessorCount\":108")) return 2000;
  return type == HANDLE ? 2000 : 0;
}
int cudnnBackendGetAttribute(void* descriptor, int name, int type, int64_t wanted, int64_t* count,
                             void* values) {
  int64_t ignored;
  if (!count) count = &ignored;
  *count = name == RESULTS || name == ENGINE;
  if (wanted < 1 || !values) return 0;
  if (type == INT64) *(int64_t*)values = name == WORKSPACE ? 7 << 20 : 0;
  if (type == INT32) *(int32_t*)values = 0;
  if (type == BOOLEAN) *(char*)values = 0;
  *count |= type == INT64 || type == INT32 || type == BOOLEAN;
  return 0;
}
"""
PROGRAM = """
import sys, torch
torch.backends.cudnn.benchmark = "search" in sys.argv
model = torch.nn.Conv2d(16, 16, 3, padding=1).cuda()
optimizer = torch.optim.SGD(model.parameters())
for _ in range(4):
    model(torch.empty(8, 16, 64, 64, device="cuda")).sum().backward()
    optimizer.step()
"""


@unittest.skipUnless(importlib.util.find_spec("torch") and "DRYSTONE_SIM_LIBRARIES" in os.environ
                     and shutil.which("cc"),
                     "needs PyTorch, the simulated libraries and a C compiler")
class Engines(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        source = Path(cls.folder.name, "library.c")
        source.write_text(LIBRARY)
        subprocess.run(["cc", "-w", "-shared", "-fPIC", source, "-o",
                        source.with_name("libcudnn_graph.so.9")], check=True)
        Path(cls.folder.name, "convolve.py").write_text(PROGRAM)

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def dry_run(self, gpu, *arguments):
        done = subprocess.run(
            [sys.executable, "-m", "drystone_sim", "dry-run", "--json", "--gpu", gpu,
             "convolve.py", *arguments], cwd=self.folder.name, text=True, capture_output=True,
            env={**os.environ, "DRYSTONE_CUDNN": self.folder.name})
        self.assertEqual(done.returncode, 0, done.stderr[-2000:])
        return json.loads(done.stdout)["ranks"][0]

    def test_the_engine_that_comes_first_is_known(self):
        rank = self.dry_run("a100-40gb")
        self.assertEqual(rank["engine_bytes"], 7 * MIB)
        self.assertEqual(rank["beside_bytes"]["workspaces of convolutions"], [0, 2 * 7 * MIB])

    def test_of_a_search_is_known_what_it_shows(self):
        rank = self.dry_run("a100-40gb", "search")
        self.assertTrue(rank["searches_engines"])
        self.assertEqual(rank["engine_bytes"], 7 * MIB)
        self.assertNotEqual(rank["beside_bytes"]["workspaces of convolutions"], [0, 2 * 7 * MIB])

    def test_a_library_that_takes_no_description_is_not_asked(self):
        rank = self.dry_run("h100-80gb")
        self.assertEqual(rank["engine_bytes"], 0)
        self.assertGreater(rank["beside_bytes"]["workspaces of convolutions"][1], 0)
