"""Dry runs of small programs, from the command to the report, on the simulated libraries.

Needs PyTorch, the libraries in `DRYSTONE_SIM_LIBRARIES` and the `drystone` command on PATH; `cargo
xtask python` has them. Without, it skips.
"""

import importlib.util
import json
import os
import signal
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

MIB = 1 << 20
TRAIN = """
import sys, torch
from torch import nn
batch = int(sys.argv[sys.argv.index("--batch") + 1]) if "--batch" in sys.argv else 8
model = nn.Sequential(nn.Linear(1024, 1024), nn.ReLU(), nn.Linear(1024, 1024)).cuda()
optimizer = torch.optim.Adam(model.parameters(), foreach=False)
for step in range(1000):
    given = torch.randn(batch, 1024, device="cuda")
    loss = model(given).square().mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    if loss.item() > 0.5:
        print("unlikely")
    assert step < 50, "nobody stopped it"
"""
CONVOLVE = """
import torch
torch.backends.cudnn.benchmark = True
model = torch.nn.Conv2d(3, 64, 3, padding=1).cuda()
optimizer = torch.optim.SGD(model.parameters())
for _ in range(10):
    model(torch.empty(64, 3, 224, 224, device="cuda")).sum().backward()
    optimizer.step()
"""
# Has 512 MiB at first, and in the end 1,040, beside what engines ask for.
GREEDY = """
import sys, torch
torch.backends.cudnn.benchmark = sys.argv[1] == "search"
model = torch.nn.Conv2d(16, 16, 3, padding=1).cuda()
images = torch.empty(64, 16, 256, 256, device="cuda")
for _ in range(3):
    made = model(images)
    made.sum().backward()
    most = torch.cuda.max_memory_reserved() >> 20
kept = torch.empty(400 << 20, dtype=torch.uint8, device="cuda")
model(images[:32]).sum().backward()
print(most)
"""
# Goes on from a checkpoint, whose counts of steps are then on the device.
RESUMES = """
import io, os, torch
os.environ["CUDA_VISIBLE_DEVICES"] = "3"
model = torch.nn.Linear(64, 64).cuda()
optimizer = torch.optim.AdamW(model.parameters())
for step in range(3):
    model(torch.ones(8, 64, device="cuda")).sum().backward()
    optimizer.step()
    kept = io.BytesIO()
    torch.save(optimizer.state_dict(), kept)
    kept.seek(0)
    optimizer.load_state_dict(torch.load(kept, map_location="cuda"))
"""
INFER = """
import torch, drystone_sim
model = torch.nn.Linear(512, 512).cuda()
for step in range(100):
    with torch.inference_mode():
        model(torch.zeros(64, 512, device="cuda"))
    drystone_sim.step()
"""
# Masks in an index and `unique`, which PyTorch asks `nonzero` for or finds itself, and a size that
# the values alone tell.
SIZED = """
import sys, torch, drystone_sim
given = torch.zeros(1 << 20, device="cuda", requires_grad=True)
for _ in range(10):
    kept = given[given > 0]
    kept.sum().backward()
    different, counts = torch.unique(given.detach().view(-1, 4), dim=0, return_counts=True)
    held = different + 1, counts + 1
    if "repeats" in sys.argv:
        torch.repeat_interleave(torch.zeros(4, dtype=torch.long, device="cuda"))
    if "refuses" in sys.argv:
        assert not len(kept)
    drystone_sim.step()
"""
RANKS = """
import os, torch, torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
rank = int(os.environ["LOCAL_RANK"])
torch.cuda.set_device(rank)
dist.init_process_group("nccl")
model = DistributedDataParallel(torch.nn.Linear(1024, 1024, device="cuda"), device_ids=[rank])
optimizer = torch.optim.SGD(model.parameters())
for _ in range(10):
    model(torch.zeros(8 * (rank + 1), 1024, device="cuda")).sum().backward()
    optimizer.step()
"""
# Two processes on one device, each with 300 MiB.
SHARES = """
import sys, torch, torch.multiprocessing as mp
def work(rank):
    torch.empty(300 << 20, dtype=torch.uint8, device="cuda:0")
if __name__ == "__main__":
    mp.spawn(work, nprocs=2)
"""
# Halves its batch until it fits; asks first what is left.
TRIES = """
import torch
free, total = torch.cuda.mem_get_info()
print("told", total - free)
batch = 1 << 20
while True:
    try:
        kept = torch.empty(batch, 4096, device="cuda")
        break
    except torch.cuda.OutOfMemoryError:
        batch //= 2
print("took", batch)
"""


@unittest.skipUnless(importlib.util.find_spec("torch") and "DRYSTONE_SIM_LIBRARIES" in os.environ,
                     "needs PyTorch and the simulated libraries")
class DryRun(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        for name, text in (("train", TRAIN), ("convolve", CONVOLVE),
                           ("infer", INFER), ("sized", SIZED), ("ranks", RANKS), ("shares", SHARES),
                           ("tries", TRIES), ("resumes", RESUMES)):
            Path(cls.folder.name, f"{name}.py").write_text(text)

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def run_it(self, *arguments, code=0):
        done = subprocess.run(
            [sys.executable, "-m", "drystone_sim", *arguments], cwd=self.folder.name, text=True,
            capture_output=True)
        self.assertEqual(done.returncode, code, done.stderr[-2000:])
        self.said = done.stderr
        return done.stdout

    def dry_run(self, *arguments, code=0):
        return json.loads(self.run_it("dry-run", "--json", *arguments, code=code))

    def test_training_is_told_by_kind_and_by_allocator(self):
        found = self.dry_run("--gpu", "24GiB", "train.py")
        rank, = found["ranks"]
        weights = 2 * (1024 * 1024 + 1024) * 4
        kinds = rank["kinds_bytes"]
        self.assertEqual(kinds["parameters"], weights)
        # In Adam's step all gradients are there, and two values for each weight; its step counts
        # stay on the host.
        self.assertEqual(kinds["optimizer state"], 2 * weights)
        self.assertEqual(kinds["gradients"], weights)
        self.assertGreater(kinds["workspaces"], 0)
        self.assertEqual(rank["steps"], 3)
        self.assertEqual([one["allocator"] for one in rank["allocators"]],
                         ["native", "expandable", "Drystone"])
        for one in rank["allocators"]:
            self.assertEqual((one["fits"], one["out_of_memory_events"]), ("yes", 0))
            self.assertGreaterEqual(one["peak_reserved_bytes"], rank["peak_requested_bytes"])
        self.assertIn("item", [value["what"] for value in rank["values_read"]])
        self.assertIn("CUDA context", rank["beside_bytes"])

    def test_a_notebook_is_told_as_its_cells_would_be(self):
        head, steps = TRAIN.split("for step", 1)
        cells = ["%matplotlib inline\n!nvidia-smi", head, "for step" + steps]
        cells = [{"cell_type": "code", "source": text, "outputs": [], "metadata": {},
                  "execution_count": None} for text in cells]
        Path(self.folder.name, "train.ipynb").write_text(
            json.dumps({"cells": cells, "nbformat": 4, "metadata": {}}))
        as_script = self.dry_run("--gpu", "4090", "train.py", "--batch", "16")
        as_cells = self.dry_run("--gpu", "4090", "train.ipynb", "--batch", "16")
        self.assertIn("left out, being IPython's or the shell's: `%matplotlib inline`", self.said)
        for told in ("peak_requested_bytes", "kinds_bytes", "steps"):
            self.assertEqual(as_script["ranks"][0][told], as_cells["ranks"][0][told])
        lines = [holder["line"] for holder in as_cells["ranks"][0]["holders"]]
        self.assertIn("train.ipynb/cell 2.py:5", lines)

    def test_what_the_native_allocator_is_said_to_hold_is_what_pytorch_held(self):
        told = self.dry_run("train.py")["ranks"][0]
        native = told["allocators"][0]
        self.assertEqual(native["peak_reserved_bytes"], told["pytorch"]["peak_reserved_bytes"])
        self.assertEqual(native["peak_allocated_bytes"], told["pytorch"]["peak_allocated_bytes"])

    def test_what_does_not_fit_is_told_with_what_it_needs(self):
        found = self.dry_run("--gpu", "800MiB", "train.py", "--batch", "65536", code=1)
        native = found["ranks"][0]["allocators"][0]
        self.assertEqual(native["fits"], "no")
        self.assertLess(native["margin_bytes"], 0)

    def test_what_convolutions_may_work_in_is_a_range_of_its_own(self):
        rank, = self.dry_run("convolve.py")["ranks"]
        # The matrix of an explicit product: a row for each output, a column for each weight of a
        # filter, of three channels; or of sixty-four, in the search of the input's gradient.
        self.assertTrue(rank["searches_engines"])
        matrix = 64 * 224 * 224 * 3 * 9 * 4
        transposed = 64 * 224 * 224 * (3 + 64) * 4 + 64 * 3 * 9 * 4
        self.assertEqual(rank["beside_bytes"]["workspaces of convolutions"],
                         [0, 2 * max(matrix, transposed)])

    def test_sizes_that_depend_on_values_are_bounds(self):
        found = self.dry_run("--gpu", "24GiB", "sized.py")
        low, high = found["sizes"]["peak_requested_bytes"]
        self.assertEqual(found["ranks"][0]["peak_requested_bytes"], high)
        self.assertEqual(found["ranks"][0]["allocators"][0]["fits"], "yes")
        # Of each element that is kept its number and its value; and what follows of it.
        self.assertGreaterEqual(high - low, (8 + 4) * MIB)
        for values, bound in (("zeros", high), ("ones", high)):
            alone = self.dry_run("--gpu", "24GiB", "--values", values, "sized.py")
            self.assertEqual(alone["ranks"][0]["peak_requested_bytes"], bound, values)
        share = self.dry_run("--gpu", "24GiB", "--values", "random:1", "sized.py")
        self.assertTrue(low < share["ranks"][0]["peak_requested_bytes"] < high)
        self.assertIsNone(share["sizes"])

    def test_a_size_without_a_most_leaves_the_answer_open(self):
        for how in ("repeats", "refuses"):
            found = self.dry_run("--gpu", "24GiB", "sized.py", how, code=1)
            self.assertEqual(found["ranks"][0]["allocators"][0]["fits"], "perhaps")
            self.assertIsNone(found["sizes"]["peak_requested_bytes"][1])
        self.assertIn("ended with code 1", found["sizes"]["why_open"])

    def test_engines_that_ask_for_more_than_there_is_end_no_program(self):
        for how in ("search", "heuristics"):
            # One engine asks for a third of the device: there is room at first, and then none.
            text = self.run_it("run", "--gpu", "1500MiB", "--conf", "engine:500MiB",
                               sys.executable, "-c", GREEDY, how)
            self.assertGreaterEqual(int(text), 1000, how)

    def test_a_context_takes_its_memory_of_a_device_with_a_name(self):
        ask = "import torch; free, total = torch.cuda.mem_get_info(); print(total - free >> 20)"
        for device, took in (
                (("--gpu", "rtx-3090"), 256),
                (("--gpu", "rtx-3090", "--conf", "context:100MiB"), 100),
                (("--gpu", "rtx-3090", "--conf", "context:0"), 0),
                (("--gpu", "24GiB"), 0)):
            self.assertEqual(int(self.run_it("run", *device, sys.executable, "-c", ask)), took,
                             device)

    def test_limited_memory_ends_where_the_context_left_it(self):
        Path(self.folder.name, "limited.py").write_text(
            "import torch\n"
            "free, total = torch.cuda.mem_get_info()\n"
            "assert total - free == 256 << 20, (free, total)\n"
            "kept = torch.empty(free - (64 << 20), dtype=torch.uint8, device='cuda')\n"
            "try:\n"
            "    torch.empty(128 << 20, dtype=torch.uint8, device='cuda')\n"
            "    raise SystemExit('there was more')\n"
            "except torch.OutOfMemoryError:\n"
            "    pass\n")
        self.dry_run("--gpu", "rtx-3090", "--limited", "limited.py")

    def test_programs_that_end_or_record_in_their_own_way_are_recorded(self):
        for name, last in (
                ("leaves", "os._exit(0)"),
                ("forgets", "os.environ.clear()"),
                ("records", "torch.cuda.memory._record_memory_history(enabled=None)")):
            Path(self.folder.name, f"{name}.py").write_text(
                "import os, torch\n"
                "torch.cuda.memory._record_memory_history(max_entries=2)\n"
                "kept = [torch.ones(1 << 20, device='cuda') for _ in range(8)]\n"
                f"{last}\n")
            [rank] = self.dry_run("--gpu", "24GiB", f"{name}.py")["ranks"]
            self.assertEqual(rank["peak_requested_bytes"], 32 * MIB, name)

    def test_a_program_is_told_all_that_is_meant_for_it(self):
        Path(self.folder.name, "told.py").write_text(
            "import sys, torch\n"
            "kept = torch.ones(1, device='cuda')\n"
            "assert sys.argv[1:] == ['--', '-x', '--'], sys.argv\n")
        self.dry_run("told.py", "--", "-x", "--")

    def test_the_largest_batch_is_found_and_was_run(self):
        found = self.dry_run("--gpu", "2GiB", "--find", "batch=1..100000", "train.py")
        self.assertRegex(found["found"], r"--batch \d+ fits: \d+ runs, with \d+ it does not")
        self.assertRegex(self.said, r"(?s)drystone: --batch 1 fits\n.*--batch \d+ does not fit\n")
        left = found["ranks"][0]["allocators"][0]["margin_bytes"]
        self.assertGreaterEqual(left, 0)
        self.assertLess(left, 64 * MIB)

    def test_a_program_tells_its_own_steps_and_the_page_is_written(self):
        page = Path(self.folder.name, "page.html")
        text = self.run_it("dry-run", "--steps", "5", "--html", str(page), "infer.py")
        self.assertIn("5 steps", text)
        self.assertIn("Does it fit?", page.read_text())

    def test_each_rank_is_a_process_with_its_own_row(self):
        found = self.dry_run("--ranks", "2", "ranks.py")
        self.assertEqual([rank["rank"] for rank in found["ranks"]], [0, 1])
        peaks = [rank["peak_requested_bytes"] for rank in found["ranks"]]
        self.assertLess(peaks[0], peaks[1])
        self.assertIn("NCCL", found["ranks"][0]["beside_bytes"])

    def test_a_program_without_cuda_is_an_error_in_one_line(self):
        Path(self.folder.name, "none.py").write_text("print(1)")
        done = subprocess.run(
            [sys.executable, "-m", "drystone_sim", "dry-run", "none.py"], cwd=self.folder.name,
            text=True, capture_output=True)
        self.assertEqual(done.returncode, 2)
        self.assertIn("no use of CUDA", done.stderr.splitlines()[-1])

    def test_what_a_program_says_of_its_own_end_is_not_hidden(self):
        Path(self.folder.name, "wants.py").write_text(
            "import argparse; p = argparse.ArgumentParser(); p.add_argument('--data', required=1);"
            "p.parse_args()")
        for option, begins in (((), "drystone: the"), (("--find", "data=1..2"), "drystone: with")):
            done = subprocess.run(
                [sys.executable, "-m", "drystone_sim", "dry-run", *option, "wants.py", "--x"],
                cwd=self.folder.name, text=True, capture_output=True)
            self.assertEqual(done.returncode, 2)
            last = done.stderr.splitlines()[-1]
            self.assertTrue(last.startswith(begins), last)
            self.assertIn("ended with code 2 before it asked for any memory", last)

    def test_a_program_goes_on_from_a_checkpoint_on_the_device_that_it_names(self):
        found = self.dry_run("--gpu", "8GiB", "resumes.py")
        self.assertEqual([rank["steps"] for rank in found["ranks"]], [3])
        self.assertEqual(found["ranks"][0]["allocators"][0]["fits"], "yes")

    def test_a_program_from_which_devices_are_hidden_is_told_why(self):
        done = subprocess.run(
            [sys.executable, "-m", "drystone_sim", "dry-run", "train.py"], text=True,
            cwd=self.folder.name, capture_output=True,
            env={**os.environ, "CUDA_VISIBLE_DEVICES": "GPU-8932f937"})
        self.assertEqual(done.returncode, 2)
        self.assertIn("CUDA_VISIBLE_DEVICES is 'GPU-8932f937' here", done.stderr.splitlines()[-1])

    def test_processes_on_one_device_leave_each_other_the_rest(self):
        found = self.dry_run("--gpu", "2GiB", "shares.py")
        self.assertEqual([rank["allocators"][0]["fits"] for rank in found["ranks"]], ["yes"] * 2)
        low, high = found["ranks"][0]["beside_bytes"]["other processes on it"]
        self.assertEqual(low, 0)
        self.assertGreaterEqual(high, 300 * MIB)
        # Either fits alone; whether both are there at once is not known.
        found = self.dry_run("--gpu", "1300MiB", "shares.py", code=1)
        self.assertEqual([rank["allocators"][0]["fits"] for rank in found["ranks"]],
                         ["perhaps"] * 2)

    def test_a_program_that_tries_with_less_meets_the_end_of_memory_if_asked(self):
        done = subprocess.run(
            [sys.executable, "-m", "drystone_sim", "dry-run", "--gpu", "8GiB", "tries.py"],
            cwd=self.folder.name, text=True, capture_output=True)
        self.assertEqual(done.returncode, 1, done.stderr)
        self.assertIn("--limited", done.stdout)
        self.assertIn("mem_get_info", done.stdout)
        # The largest context that there may be.
        self.assertIn(f"told {600 * MIB}", done.stderr)
        self.assertIn(f"took {1 << 20}", done.stderr)
        found = self.dry_run("--gpu", "8GiB", "--limited", "tries.py")
        self.assertEqual(found["ranks"][0]["allocators"][0]["fits"], "yes")
        self.assertEqual(found["ranks"][0]["peak_requested_bytes"], 4 << 30)

    def test_whoever_ends_the_command_ends_the_program_and_nothing_is_left(self):
        Path(self.folder.name, "waits.py").write_text(
            "import time\n"
            "try:\n    print('waits', flush=True)\n    time.sleep(60)\n"
            "finally:\n    print('cleans up', flush=True)")
        for number, target, is_told in ((signal.SIGINT, os.killpg, True),
                                        (signal.SIGTERM, os.kill, False)):
            with tempfile.TemporaryDirectory() as left:
                running = subprocess.Popen(
                    [sys.executable, "-m", "drystone_sim", "dry-run", "waits.py"],
                    cwd=self.folder.name, text=True, stderr=subprocess.PIPE,
                    start_new_session=True, env={**os.environ, "TMPDIR": left},
                    # Whoever runs tests in the background may have it ignored, and so it stays.
                    preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler))
                self.assertEqual(running.stderr.readline(), "waits\n")
                target(running.pid, number)
                # Ends where the program ends, which holds the same pipe.
                told = running.communicate(timeout=30)[1]
                self.assertEqual(running.returncode, 2, told)
                self.assertEqual(told.splitlines()[-1], "drystone: interrupted")
                # What is told to the terminal's programs reaches it, and it ends by itself.
                self.assertEqual("cleans up" in told, is_told)
                self.assertEqual(os.listdir(left), [])

    def test_a_program_that_fails_is_no_answer(self):
        Path(self.folder.name, "fails.py").write_text(
            "import torch; torch.empty(1, device='cuda'); raise RuntimeError('why')")
        done = subprocess.run(
            [sys.executable, "-m", "drystone_sim", "dry-run", "fails.py"], cwd=self.folder.name,
            text=True, capture_output=True)
        self.assertEqual(done.returncode, 2)
        self.assertIn("ended with code 1", done.stderr.splitlines()[-1])

    def test_run_puts_the_simulated_driver_in_front(self):
        program = "import torch; print(torch.cuda.get_device_name(), torch.cuda.mem_get_info()[1])"
        text = self.run_it("run", "--gpu", "a100-40gb", sys.executable, "-c", program)
        self.assertEqual(text.split(), ["NVIDIA", "A100-SXM4-40GB", "42405855232"])
