"""What a dry run is made of, part by part: no PyTorch, no device."""

import argparse
import json
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path
from types import SimpleNamespace

from drystone_sim import _beside, _find, _gpus, _launch, _notebook, _recording
from drystone_sim import _render, _report
from drystone_sim.__main__ import main
from drystone_sim._errors import SimError
from drystone_sim._gpus import GIB, MIB, Range


class Gpus(unittest.TestCase):
    def test_a_gpu_is_found_by_its_name_or_an_unmistakable_beginning(self):
        self.assertEqual(_gpus.find("A100-40GB").model, "NVIDIA A100-SXM4-40GB")
        self.assertEqual(_gpus.find("h200").nvml, 143771 * MIB)
        with self.assertRaisesRegex(SimError, "a100-40gb, a100-80gb: say which"):
            _gpus.find("a100")
        with self.assertRaisesRegex(SimError, "no size such as 24GiB"):
            _gpus.find("voodoo")
        with self.assertRaisesRegex(SimError, "near: rtx-4090"):
            _gpus.find("49090")
        with self.assertRaisesRegex(SimError, "^'' is no GPU"):
            _gpus.find("")
        for wrong in ("0GiB", "1MiB", "65TiB"):
            with self.assertRaisesRegex(SimError, f"from 2 MiB to 64 TiB, not {wrong}"):
                _gpus.find(wrong)

    def test_a_gpu_is_found_by_what_people_and_tools_call_it(self):
        for name in ("4090", "RTX 4090", "rtx4090", "NVIDIA GeForce RTX 4090"):
            self.assertEqual(_gpus.find(name).name, "rtx-4090", name)
        for name, found in (
                ("3080 Ti", "rtx-3080-ti"), ("4070", "rtx-4070"),
                ("4060ti 16GB", "rtx-4060-ti-16gb"), ("5090", "rtx-5090"),
                ("2080ti", "rtx-2080-ti"), ("A6000", "rtx-a6000"),
                ("RTX 6000 Ada", "rtx-6000-ada"), ("pro 6000", "rtx-pro-6000"), ("L40S", "l40s"),
                ("Tesla V100-SXM2-16GB", "v100-16gb"), ("P100-16GB", "p100-16gb"), ("t4", "t4"),
                ("Jetson AGX Orin 64GB", "jetson-agx-orin-64gb"), ("GB10", "gb10"), ("l4", "l4")):
            self.assertEqual(_gpus.find(name).name, found, name)
        with self.assertRaisesRegex(SimError, "may be rtx-3080-10gb, rtx-3080-12gb: say which"):
            _gpus.find("3080")

    def test_no_name_stands_for_two_gpus(self):
        names = [_gpus._plain(gpu.name) for gpu in _gpus.table()]
        self.assertEqual(len(names), len(set(names)))

    def test_memory_is_a_range_below_the_specification(self):
        for name, low, high in (
                ("rtx-4070", 12 * GIB - 650 * MIB, 12 * GIB - 80 * MIB),
                # With correction of errors, and without.
                ("rtx-a6000", 45 * GIB - 650 * MIB, 48 * GIB - 80 * MIB),
                ("jetson-agx-orin-64gb", 64 * GIB * 84 // 100, 64 * GIB * 97 // 100)):
            self.assertEqual(_gpus.find(name).cuda, Range(low, high), name)

    def test_any_size_is_a_device(self):
        for text, bytes in [("24GiB", 24 * GIB), ("24G", 24 * GIB), ("24GB", 24_000_000_000),
                            ("512 MiB", 512 * MIB), ("1.5g", 3 * GIB // 2)]:
            self.assertEqual(_gpus.find(text).cuda, Range(bytes, bytes), text)

    def test_every_row_has_a_source_and_cuda_tells_less_than_nvml(self):
        for gpu in _gpus.table():
            self.assertIn("https://", gpu.source, gpu.name)
            self.assertLessEqual(gpu.cuda.low, gpu.cuda.high)
            if gpu.nvml is not None:
                kept = gpu.nvml - gpu.cuda.high, gpu.nvml - gpu.cuda.low
                self.assertGreaterEqual(kept[0], _gpus.KEPT_MIB[0] * MIB, gpu.name)
                self.assertLessEqual(kept[1], _gpus.KEPT_MIB[1] * MIB, gpu.name)
            self.assertNotIn(",", gpu.model)
            self.assertRegex(gpu.compute, r"^\d+\.\d$")
            self.assertGreater(gpu.cuda.low, 3 * GIB, gpu.name)


    def test_the_smallest_gpu_is_one_that_pytorch_runs_on(self):
        calls = {"counted": {}, "convolution_bytes": [0, 0], "engine_bytes": 0, "functions": {}}

        def smallest(architectures, asked, bytes):
            told = {"calls": calls, "searches": False, "architectures": architectures}
            rank = SimpleNamespace(beside={}, process=SimpleNamespace(told=told))
            return _report.smallest_gpu(_gpus.find(asked), rank, bytes)

        self.assertEqual(smallest([61, 75], "4090", 6 * GIB), "p4")
        self.assertEqual(smallest([75, 120], "4090", 6 * GIB), "rtx-2060-super")
        self.assertEqual(smallest([], "gb10", 20 * GIB), "jetson-agx-xavier-32gb")
        self.assertEqual(smallest([], "4090", 1 << 40), "none of the table")


class Beside(unittest.TestCase):
    def beside(self, counted=(), functions=(), convolution_bytes=0, engine_bytes=0, searches=True):
        calls = {"counted": dict(counted), "convolution_bytes": [0, convolution_bytes],
                 "engine_bytes": engine_bytes,
                 "functions": {name: {"calls": count} for name, count in functions}}
        held = _beside.beside(_gpus.find("24GiB"), calls, searches)
        return {holder: (one.low // MIB, one.high // MIB) for holder, one in held.items()
                if holder != "CUDA context"}

    def test_only_what_was_called_is_counted(self):
        self.assertEqual(self.beside([("cudnnGetVersion", 3), ("ncclGetVersion", 1)]), {})
        self.assertEqual(self.beside([("cublasCreate_v2", 1)]), {"cuBLAS kernels": (20, 90)})

    def test_each_communicator_and_each_graph_takes_its_own(self):
        self.assertEqual(
            self.beside([("ncclCommInitRankConfig", 1), ("ncclCommSplit", 2), ("ncclSend", 9)]),
            {"NCCL": (450, 4800), "NCCL, point to point": (0, 3400)})
        self.assertEqual(self.beside(functions=[("cuGraphInstantiateWithFlags", 3)]),
                         {"graphs": (0, 72)})

    def test_a_system_shares_its_memory_with_its_gpu(self):
        calls = {"counted": {}, "convolution_bytes": [0, 0], "engine_bytes": 0, "functions": {}}
        held = _beside.beside(_gpus.find("gb10"), calls)
        self.assertEqual(held[_beside.SYSTEM].high, int(_gpus.find("gb10").cuda.low * 0.17))
        self.assertNotIn(_beside.SYSTEM, _beside.beside(_gpus.find("4090"), calls))

    def test_convolutions_may_have_two_workspaces(self):
        self.assertEqual(self.beside(convolution_bytes=5 * MIB),
                         {"workspaces of convolutions": (0, 10)})

    def test_cudnn_knows_the_engine_that_comes_first_but_not_the_fastest(self):
        for searches, most in ((True, 10), (False, 4)):
            self.assertEqual(
                self.beside(convolution_bytes=5 * MIB, engine_bytes=2 * MIB, searches=searches),
                {"workspaces of convolutions": (0, most)})


class Options(unittest.TestCase):
    def test_the_range_to_look_in(self):
        self.assertEqual(_find.parse("batch=1..4096"), _find.Option("batch", 1, 4096))
        for text in ("batch", "batch=0..4", "batch=9..4", "=1..2"):
            # argparse shows only the text of this kind.
            with self.assertRaisesRegex(argparse.ArgumentTypeError, "of the form batch=1..4096"):
                _find.parse(text)

    def test_what_is_wrong_is_one_line_and_code_2(self):
        self.assertEqual(main(["dry-run", "--gpu", "voodoo", "train.py"]), 2)
        with self.assertRaises(SystemExit) as ended:
            main(["dry-run", "--values", "twos", "train.py"])
        self.assertEqual(ended.exception.code, 2)


class Launchers(unittest.TestCase):
    def test_a_launcher_is_a_module_and_says_how_many_ranks(self):
        def parts(*given, module=False, ranks=None):
            command, count = _launch.command(given[0], given[1:], module, ranks)
            return command[1:], count
        self.assertEqual(parts("a.py", "--x"), (["a.py", "--x"], 1))
        self.assertEqual(parts("a", module=True), (["-m", "a"], 1))
        self.assertEqual(parts("a.py", ranks=2), (
            ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "a.py"], 2))
        for arguments in (["--nproc_per_node=4", "a.py"], ["--nproc-per-node", "4", "a.py"]):
            self.assertEqual(parts("torchrun", *arguments),
                             (["-m", "torch.distributed.run", *arguments], 4))
        self.assertEqual(parts("accelerate", "launch", "--num_processes", "8", "a.py")[1], 8)
        self.assertEqual(parts("accelerate", "launch", "a.py", ranks=2)[1], 2)


    def test_a_script_that_is_not_there_is_said_before_anything_runs(self):
        for program, hint in (("gone.py", "after -m"), ("python3", "without the interpreter")):
            with self.assertRaisesRegex(SimError, f"no script {program} here.*{hint}"):
                _launch.check(program, False)
        for program, is_module in (("torchrun", False), ("accelerate", False), ("gone", True),
                                   (__file__, False)):
            _launch.check(program, is_module)


class Notebooks(unittest.TestCase):
    def notebook(self, *sources, **more):
        cells = [{"cell_type": "markdown", "source": "# Words"}]
        cells += [{"cell_type": "code", "source": source.splitlines(keepends=True)}
                  for source in sources]
        path = Path(self.folder.name, "train.ipynb")
        path.write_text(json.dumps({"cells": cells, "nbformat": 4, "metadata": {}, **more}))
        return path

    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)

    def test_magics_are_left_out_and_lines_keep_their_numbers(self):
        path = self.notebook(
            "%matplotlib inline\nimport os\nif os.sep:\n    !pip install a \\\n      b\nx = 5",
            "%%bash\nls", "%%time\ny = x % 2", "files = !ls\ntorch.nn?\nz = ['''\n%s\n'''\n% 1,\n]")
        cells = _notebook.read(path)
        self.assertEqual([cell.number for cell in cells], [2, 3, 4, 5])
        self.assertEqual(cells[0].text, "pass\nimport os\nif os.sep:\n    pass\n\nx = 5")
        self.assertEqual([cell.text for cell in cells[1:3]], ["", "pass\ny = x % 2"])
        self.assertEqual(cells[3].text, "pass\npass\nz = ['''\n%s\n'''\n% 1,\n]")
        self.assertEqual(
            _notebook.left_out(cells),
            "left out, being IPython's or the shell's: `%matplotlib inline` (cell 2), "
            "`!pip install a \\` (cell 2), `%%bash` (cell 3) and 3 more")

    def test_cells_run_in_order_and_one_that_fails_is_named(self):
        path = self.notebook(
            "import sys, inspect\ndef f():\n    return 1", "print(f(), sys.argv[1:], __name__)",
            "display(inspect.getsource(f))", "null = None", "1 / 0")
        done = subprocess.run([sys.executable, _notebook.__file__, str(path), "--x"], text=True,
                              capture_output=True)
        self.assertEqual(done.stdout, "1 ['--x'] __main__\ndef f():\n    return 1\n")
        self.assertIn("train.ipynb/cell 6.py", done.stderr)
        self.assertIn("1 / 0", done.stderr)

    def test_what_is_no_notebook_of_python_is_refused_before_it_runs(self):
        path = self.notebook(metadata={"language_info": {"name": "julia"}})
        with self.assertRaisesRegex(SimError, "train.ipynb is a notebook of julia"):
            _launch.check(str(path), False)
        path.write_text("[]")
        with self.assertRaisesRegex(SimError, "train.ipynb is no notebook"):
            _launch.check(str(path), False)
        command, _ = _launch.command("a.ipynb", ["--x"], False, 1)
        self.assertEqual(command[1:], [_notebook.__file__, "a.ipynb", "--x"])


class Probes(unittest.TestCase):
    """The search, over programs whose need is a function of the value."""

    def find(self, need, low, high, room):
        runs = []

        def dry_run(request):
            value = int(request.command[-1])
            runs.append(value)
            held = SimpleNamespace(smallest=need(value), reserved=need(value))
            rank = SimpleNamespace(replayed=SimpleNamespace(held=[held]), beside={},
                                   course=SimpleNamespace(peak=need(value)))
            return SimpleNamespace(code=0, worst=rank, fits=lambda at: need(value) <= room)

        request = SimpleNamespace(command=["train.py"],
                                  gpu=SimpleNamespace(cuda=Range(room, room)))
        request.changed = lambda command: SimpleNamespace(**{**vars(request), "command": command})
        original, _find._dry_run.dry_run = _find._dry_run.dry_run, dry_run
        try:
            return _find.find(request, _find.Option("batch", low, high), 0), runs
        finally:
            _find._dry_run.dry_run = original

    def test_a_line_is_found_in_few_runs_and_proved(self):
        found, runs = self.find(lambda batch: 1000 + 70 * batch, 1, 4096, 24_000)
        self.assertIn("--batch 328 fits", found.text)
        self.assertIn("with 329 it does not", found.text)
        self.assertLessEqual(len(runs), 5)

    def test_steps_and_curves_are_found_too(self):
        for need in (lambda batch: 1000 + batch * batch,
                     lambda batch: 1000 + 512 * (batch // 8), lambda batch: 1000 + batch):
            best = max(batch for batch in range(1, 4097) if need(batch) <= 24_000)
            found, runs = self.find(need, 1, 4096, 24_000)
            self.assertIn(f"--batch {best} fits", found.text)
            self.assertLessEqual(len(runs), _find.PROBES_MAX)

    def test_the_ends_of_the_range(self):
        self.assertIn("the end of the range", self.find(lambda batch: batch, 1, 64, 100)[0].text)
        self.assertIn("does not fit", self.find(lambda batch: 200, 1, 64, 100)[0].text)

    def test_a_value_that_changes_nothing_is_told(self):
        found, _ = self.find(lambda batch: 50, 1, 64, 100)
        self.assertIn("all held the same: does the program use --batch?", found.text)
        for one_run_or_more in (self.find(lambda batch: 50, 5, 5, 100),
                                self.find(lambda batch: 50 + batch, 1, 4, 100)):
            self.assertNotIn("the same", one_run_or_more[0].text)

    def test_what_was_not_run_is_not_said_to_fail(self):
        room = 1 << 40  # It needs half of what is left, again and again.
        found, runs = self.find(lambda batch: room - (room >> min(batch, 41)), 1, 4096, room)
        self.assertEqual(len(runs), _find.PROBES_MAX)
        self.assertIn("larger ones up to 4096 were not run", found.text)


class Course(unittest.TestCase):
    """Who holds the peak: one step of a made-up program."""

    def follow(self):
        marks, events, now = [], [], 0

        def at(*mark):
            nonlocal now
            now += 10
            marks.append([now, *mark])

        def event(action, address, bytes=0, line=0):
            nonlocal now
            now += 10
            frames = [{"filename": "/x/torch/nn.py", "line": 1, "name": "f"},
                      {"filename": "train.py", "line": line, "name": "g"}]
            events.append({"action": action, "addr": address, "size": bytes, "time_us": now,
                           "frames": frames if line else []})

        event("alloc", 0, 100, line=1)           # a parameter
        at("enter", "block")
        at("parameters", [[0, 0]])
        event("alloc", 200, 50, line=2)          # kept for the backward pass
        event("alloc", 300, 30, line=2)          # gone before it
        event("free_requested", 300)
        at("leave")
        at("backward")
        event("alloc", 400, 100)                 # the gradient
        event("alloc", 600, 20)                  # on the way
        event("free_requested", 600)
        event("free_requested", 200)
        at("backward ends")
        at("gradients", [[0, 450]])              # within its block
        at("update")
        event("alloc", 700, 10, line=3)
        at("optimizer state", [[0, 700]])
        at("step")
        return _recording._Follower(0, marks).follow(events)

    def test_kinds_are_known_by_address_and_by_lifetime(self):
        course = self.follow()
        self.assertEqual(course.peak, 270)
        self.assertEqual((course.peak_phase.name, course.peak_phase.step), ("backward", 0))
        self.assertEqual(course.kinds, {
            "parameters": 100, "activations": 50, "gradients": 100, "temporary": 20})
        self.assertEqual(course.left, 210)

    def test_holders_name_the_line_outside_pytorch_and_the_layer(self):
        holders = self.follow().holders
        self.assertIn(("activations", "block", "train.py:2", 50, 1), holders)
        self.assertIn(("gradients", "", "", 100, 1), holders)

    def test_phases_follow_each_other(self):
        names = [(phase.name, phase.step) for phase in self.follow().phases]
        self.assertEqual(names, [("start", 0), ("forward", 0), ("backward", 0), ("between", 0),
                                 ("update", 0), ("forward", 1)])


class Rendering(unittest.TestCase):
    def test_sizes_and_ranges(self):
        self.assertEqual(_render.bytes_text(3 * GIB // 2), "1.50 GiB")
        self.assertEqual(_render.range_text(Range(MIB, 2 * MIB)), "1.00 MiB to 2.00 MiB")

    def test_nothing_is_written_that_a_terminal_obeys(self):
        tables = [_render.Table("layers", ["name"], [["\x1b[2Jé\r█\x9b1m"]])]
        for written in (_render.text("\x1b]0;title\x07", tables),
                        _render.page("\x1b]0;title\x07", tables)):
            self.assertFalse([letter for letter in written
                              if letter != "\n" and not letter.isprintable()])
            self.assertIn("[2Jé", written)

    def test_a_page_escapes_what_programs_are_called(self):
        page = _render.page("<script>", [_render.Table("a & b", ["x"], [["<i>"], [0.5]])])
        self.assertNotIn("<script>", page)
        self.assertIn("a &amp; b", page)
        self.assertIn("width:20.0em", page)
