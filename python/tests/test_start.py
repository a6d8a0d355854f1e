"""Programs that run with Drystone without a change, in every interpreter they start."""

import json
import mmap
import os
import shutil
import sys
import tempfile
import textwrap
import unittest
from pathlib import Path
from unittest import mock

import drystone
from drystone._hook import environment
from support import answer, python, run

BACKEND = "torch.cuda.get_allocator_backend()"
SCRIPT = """
    import json, sys, torch
    x = torch.ones(1000, device="cuda")
    print(json.dumps([torch.cuda.get_allocator_backend(), sys.argv, __name__, sys.path[0]]))
"""


class Started(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)

    def write(self, name, code):
        path = self.folder / name
        path.write_text(textwrap.dedent(code))
        return str(path)

    def drystone(self, *arguments, **changes):
        return answer(sys.executable, "-B", "-m", "drystone", *arguments, **changes)

    def test_a_script_runs_as_it_does_by_itself(self):
        script = self.write("train.py", SCRIPT)
        command = [script, "--conf", "x", "-m"]
        self.assertEqual(answer(sys.executable, "-B", *command)[1:],
                         [command, "__main__", str(self.folder)])
        self.assertEqual(self.drystone(*command),
                         ["drystone", command, "__main__", str(self.folder)])

    def test_what_the_interpreter_and_the_program_were_told(self):
        script = self.write("told.py", """
            import json, sys
            told = [sys.stdout.write_through, sys.flags.inspect, sys.flags.optimize, sys._xoptions]
            print(json.dumps([sys.argv[1:], *told]))
        """)
        told = answer(sys.executable, "-B", "-u", "-O", "-Xpycache_prefix=x", "-m", "drystone",
                      script, "--", "-x", "--")
        self.assertEqual(told, [["--", "-x", "--"], True, 0, 1, {"pycache_prefix": "x"}])

    def test_a_module(self):
        self.write("training.py", SCRIPT)
        path = os.pathsep.join([str(self.folder), os.environ.get("PYTHONPATH", "")])
        self.assertEqual(self.drystone("-m", "training", "1", PYTHONPATH=path)[0], "drystone")
        code = f"import json, sys, torch; print(json.dumps([sys.argv, {BACKEND}]))"
        self.assertEqual(self.drystone("-c", code, "-m"), [["-c", "-m"], "drystone"])

    def test_a_program_that_looks_for_pytorch_before_it_imports_it(self):
        script = self.write("looks.py", f"""
            import importlib.util, json
            found = importlib.util.find_spec("torch")
            assert found.loader.is_package("torch") and found.origin.endswith("__init__.py")
            import torch
            print(json.dumps([{BACKEND}, type(torch.__spec__.loader).__name__]))
        """)
        self.assertEqual(self.drystone(script), ["drystone", "SourceFileLoader"])

    def test_any_command_and_its_options(self):
        script = self.write("limited.py", """
            import json, torch
            try:
                torch.empty(2 << 30, dtype=torch.uint8, device="cuda")
            except torch.OutOfMemoryError as error:
                print(json.dumps(str(error)))
        """)
        run_it = "import drystone.__main__ as m; m.run()"
        text = answer(sys.executable, "-c", run_it, "--conf", "limit:1GiB",
                      "env", "A=b", sys.executable, script)
        self.assertIn("limit of 1.00 GiB", text)

    def test_a_variable_switches_it_off_where_the_command_stays(self):
        code = "import json, os; print(json.dumps([os.environ.get('PYTHONPATH'), 'drystone']))"
        start = "import drystone.__main__ as m; m.run()"
        off = answer(sys.executable, "-c", start, sys.executable, "-c", code, DRYSTONE_ENABLE="0")
        on = answer(sys.executable, "-c", start, sys.executable, "-c", code)
        self.assertIn("_start", on[0])
        self.assertNotIn("_start", off[0] or "")

    def test_a_wrong_option_is_told_before_anything_runs(self):
        done = run(sys.executable, "-m", "drystone", "--conf", "limti:1", "nothing.py")
        self.assertEqual(done.returncode, 1)
        self.assertIn("limti", done.stderr)
        self.assertEqual(len(done.stderr.splitlines()), 1, done.stderr)

    def test_spawned_processes(self):
        script = self.write("spawning.py", f"""
            import json, torch, torch.multiprocessing as mp
            def work(queue):
                kept = torch.ones(3, device="cuda")
                queue.put({BACKEND})
            if __name__ == "__main__":
                context = mp.get_context("spawn")
                queue = context.SimpleQueue()
                child = context.Process(target=work, args=(queue,))
                child.start(); there = queue.get(); child.join()
                print(json.dumps([{BACKEND}, there, child.exitcode]))
        """)
        self.assertEqual(self.drystone(script), ["drystone", "drystone", 0])

    def test_forks_and_workers(self):
        script = self.write("forking.py", f"""
            import json, torch, torch.multiprocessing as mp
            from torch.utils.data import DataLoader, TensorDataset
            def work(queue):
                queue.put([{BACKEND}, torch.ones(5, device="cuda").numel()])
            if __name__ == "__main__":
                context = mp.get_context("fork")
                queue = context.SimpleQueue()
                child = context.Process(target=work, args=(queue,))
                child.start(); child.join()
                early = None if child.exitcode else queue.get()
                data = TensorDataset(torch.arange(64.0))
                total = 0
                for (batch,) in DataLoader(data, 8, num_workers=2, pin_memory=True):
                    total += len(batch.to("cuda", non_blocking=True))
                peak = torch.cuda.max_memory_allocated()
                print(json.dumps([early, child.exitcode, total, peak > 0]))
        """)
        self.assertEqual(self.drystone(script), [["drystone", 5], 0, 64, True])

    def test_torchrun(self):
        script = self.write("rank.py", f"""
            import json, os, torch
            rank = int(os.environ["LOCAL_RANK"])
            torch.cuda.set_device(rank)
            kept = torch.ones(1 << 20, device="cuda")
            with open(f"rank{{rank}}.json", "w") as file:
                json.dump([{BACKEND}, torch.cuda.memory_allocated(rank)], file)
        """)
        done = run(sys.executable, "-B", "-m", "drystone", "-m", "torch.distributed.run",
                   "--standalone", "--nproc-per-node", "2", script, folder=self.folder)
        self.assertEqual(done.returncode, 0, done.stderr)
        for rank in range(2):
            text = (self.folder / f"rank{rank}.json").read_text()
            self.assertEqual(json.loads(text), ["drystone", 4 << 20])

    def test_the_start_file_that_was_there_still_runs(self):
        self.write("sitecustomize.py", "import sys; sys.was_here = True")
        script = self.write("asks.py", "import json, sys; print(json.dumps(sys.was_here))")
        path = os.pathsep.join([str(self.folder), os.environ.get("PYTHONPATH", "")])
        self.assertEqual(self.drystone(script, PYTHONPATH=path), True)

    def test_two_packages_on_the_way_are_one(self):
        self.write("sitecustomize.py", "import sys; sys.was_here = True")
        copied = self.folder / "copied" / "drystone"
        shutil.copytree(Path(drystone.__file__).parent, copied)
        script = self.write(
            "asks.py", f"import json, sys, torch; print(json.dumps([{BACKEND}, sys.was_here]))")
        first = environment({"PYTHONPATH": str(self.folder)}, None)
        changed = {**first, "PYTHONPATH": f"{copied / '_start'}:{first['PYTHONPATH']}"}
        done = run(sys.executable, "-B", script, **changed)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertEqual(json.loads(done.stdout), ["drystone", True])

    def test_a_finder_that_hands_on_may_ask_this_one(self):
        script = self.write("asks.py", f"""
            import json, sys
            class HandsOn:
                def find_spec(self, name, path=None, target=None):
                    others = (one for one in sys.meta_path if one is not self)
                    found = (one.find_spec(name, path, target) for one in others)
                    return next((spec for spec in found if spec), None)
            sys.meta_path[:0] = [HandsOn()]
            import torch
            print(json.dumps({BACKEND}))
        """)
        self.assertEqual(self.drystone(script), "drystone")

    def test_nobody_need_hear_why_it_is_not_enabled(self):
        script = self.write("cpu.py", "import torch; print(torch.cuda.get_allocator_backend())")
        for closed in (">&-", ">/dev/full"):
            command = f"exec {sys.executable} -B -m drystone {script} 2{closed}"
            done = run("sh", "-c", command, DRYSTONE_LIBRARY="/nowhere.so")
            self.assertEqual((done.returncode, done.stdout), (0, "native\n"), done.stderr)

    def test_a_process_without_gpu_runs(self):
        script = self.write("cpu.py", "import torch; print(int(torch.ones(3).sum()))")
        done = run(sys.executable, "-m", "drystone", script, CUDA_VISIBLE_DEVICES="")
        self.assertEqual((done.returncode, done.stdout, done.stderr), (0, "3\n", ""))

    def test_what_stands_in_the_way_is_told_and_the_program_runs(self):
        script = self.write("cpu.py", "import torch; print(torch.cuda.get_allocator_backend())")
        done = run(sys.executable, "-m", "drystone", script, DRYSTONE_LIBRARY="/nowhere.so")
        self.assertEqual((done.returncode, done.stdout), (0, "native\n"), done.stderr)
        self.assertRegex(done.stderr, "^drystone: not enabled in process .*/nowhere.so")
        done = run(sys.executable, "-m", "drystone", script, DRYSTONE_CONF="limti:1GiB")
        self.assertEqual((done.returncode, done.stdout), (0, "native\n"), done.stderr)
        self.assertRegex(done.stderr, "^drystone: not enabled in process .*limti")
        done = run(sys.executable, "-m", "drystone", "--conf", "limti:1GiB", script)
        self.assertEqual((done.returncode, done.stdout), (1, ""))
        self.assertRegex(done.stderr, "^drystone: --conf: .*limti")

    def test_a_failure_in_the_package_is_a_line_and_the_program_runs(self):
        script = self.write("cpu.py", "import torch; print(torch.cuda.get_allocator_backend())")
        broken = self.folder / "_start"
        broken.mkdir()
        (self.folder / "__init__.py").write_text("raise ValueError('broken')")
        start = Path(drystone.__file__).with_name("_start") / "sitecustomize.py"
        (broken / "sitecustomize.py").write_text(start.read_text())
        done = run(sys.executable, script, PYTHONPATH=str(broken), DRYSTONE_ENABLE="1")
        self.assertEqual((done.returncode, done.stdout), (0, "native\n"), done.stderr)
        self.assertRegex(done.stderr, r"^drystone: not enabled in process \d+: broken\n$")

    def test_a_folder_of_its_name_does_not_shadow_the_package(self):
        (self.folder / "drystone").mkdir()
        script = self.write("asks.py", f"import json, torch; print(json.dumps({BACKEND}))")
        changed = environment({"PYTHONPATH": str(self.folder)}, None)
        self.assertEqual(answer(sys.executable, "-B", script, **changed), "drystone")

    def test_an_interpreter_too_old_says_so_where_there_is_pytorch(self):
        start = Path(drystone.__file__).with_name("_start") / "sitecustomize.py"
        done = python(f"""
            import runpy, sys
            sys.version_info = (3, 9)
            runpy.run_path({str(start)!r})
        """)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("Python 3.9 is too old, it needs 3.10", done.stderr)

    def test_an_isolated_interpreter_says_that_it_takes_no_part(self):
        script = self.write("cpu.py", "print(1)")
        path = f"import sys; sys.path[:0] = {sys.path!r}; sys.argv[1:] = [{script!r}]"
        code = f"{path}; import drystone.__main__ as m; m.main()"
        done = run(sys.executable, "-I", "-c", code)
        self.assertEqual((done.returncode, done.stdout), (0, "1\n"), done.stderr)
        self.assertIn("drystone: not enabled: with -I, -E and -S", done.stderr)

    def test_the_folders_that_were_there_stay(self):
        def after(path):
            given = {} if path is None else {"PYTHONPATH": path}
            return environment(given, None)["PYTHONPATH"].split(os.pathsep)[1:]

        self.assertEqual([after(None), after(""), after("a::b")], [[], [], ["a", "", "b"]])

    def test_without_a_compiler_it_is_a_plug_in_and_a_line_says_so(self):
        script = self.write("asks.py", f"import torch; print({BACKEND})")
        there = dict(CXX="/nowhere/c++", DRYSTONE_CACHE=str(self.folder / "cache"))
        done = run(sys.executable, "-m", "drystone", script, **there)
        self.assertEqual((done.returncode, done.stdout), (0, "pluggable\n"), done.stderr)
        self.assertEqual(len(done.stderr.splitlines()), 1, done.stderr)
        self.assertRegex(done.stderr, "^drystone: enabled as a plug-in .*there is no C.* compiler")
        done = run(sys.executable, "-m", "drystone", "--route", "compiled", script, **there)
        self.assertEqual((done.returncode, done.stdout), (0, "native\n"), done.stderr)
        done = run(sys.executable, "-m", "drystone", "--route", "plugin", script, **there)
        self.assertEqual((done.stdout, done.stderr), ("pluggable\n", ""))

    def test_what_was_set_for_pytorchs_allocator_is_named(self):
        script = self.write("asks.py", f"import torch; print({BACKEND})")
        conf = ("expandable_segments:True,max_split_size_mb:128,pinned_use_background_threads:True,"
                "roundup_power2_divisions:[256:1,>:4],backend:native")
        done = run(sys.executable, "-m", "drystone", script, PYTORCH_CUDA_ALLOC_CONF=conf)
        self.assertEqual((done.returncode, done.stdout), (0, "drystone\n"), done.stderr)
        [line] = done.stderr.splitlines()
        self.assertIn("max_split_size_mb is not needed", line)
        self.assertIn("; roundup_power2_divisions without effect", line)

    def test_a_fraction_that_was_set_for_pytorchs_allocator_limits_this_one(self):
        program = """
            import torch
            print(torch.cuda.get_per_process_memory_fraction())
            try:
                torch.empty(3 << 30, dtype=torch.uint8, device="cuda")
            except torch.OutOfMemoryError as error:
                print("limit of 2.00 GiB" in str(error))
        """
        for route in ("1", "plugin"):
            done = python(
                f"import drystone._hook; drystone._hook.install()\n{textwrap.dedent(program)}",
                DRYSTONE_ENABLE=route,
                PYTORCH_CUDA_ALLOC_CONF="per_process_memory_fraction:0.25")
            self.assertEqual(done.stdout.split(), ["0.25", "True"], done.stderr)

    def test_a_mapped_file_may_have_any_name(self):
        from drystone._native import _runtimes
        place = os.fsencode(self.folder) + b"/\xe9libstdc++.so.6"
        with open(place, "wb+") as file:
            file.write(b"x")
            file.flush()
            with mmap.mmap(file.fileno(), 1):
                os.fsencode(_runtimes())

    def test_a_compiler_that_cannot_start_is_blamed(self):
        from drystone import _native
        broken = self.folder / "c++"
        broken.write_bytes(b"\x7fELF of another machine")
        broken.chmod(0o755)
        with self.assertRaisesRegex(drystone.DrystoneError, "c\\+\\+ cannot be started .*CXX"):
            _native._compile(self.folder / "made.so", [str(broken)], self.folder)

    def test_another_library_is_named(self):
        done = run(sys.executable, "-c", "from drystone import _library; _library.library()",
                   DRYSTONE_LIBRARY="libc.so.6")
        self.assertRegex(done.stderr.splitlines()[-1],
                         "DrystoneError: libc.so.6 is another library, .*from one release")

    def test_places_to_keep_what_is_compiled(self):
        from drystone._native import folder
        home = self.folder / "home"
        with mock.patch.dict(os.environ, HOME=str(home), TMPDIR=str(self.folder)):
            for variable in ("DRYSTONE_CACHE", "XDG_CACHE_HOME"):
                os.environ.pop(variable, None)
            tempfile.tempdir = None
            self.addCleanup(setattr, tempfile, "tempdir", None)
            # A home that is not there, as a service's user has one, is made by nobody.
            temporary = self.folder / f"drystone-{os.getuid()}"
            self.assertEqual((folder(), home.exists()), (temporary, False))
            home.mkdir()
            self.assertEqual(folder(), home / ".cache/drystone")
            # A home that cannot be one.
            os.environ["HOME"] = "/proc/nowhere"
            found = folder()
            self.assertEqual(found, temporary)
            self.assertEqual(found.stat().st_mode & 0o777, 0o700)
            os.chmod(found, 0o777)
            with self.assertRaisesRegex(drystone.DrystoneError, "changed by other users: chmod"):
                folder()

    def test_a_folder_that_a_group_may_write_is_the_users_if_the_group_is(self):
        from drystone import _native
        place = self.folder / "kept.there"
        place.mkdir()
        os.chmod(place, 0o775)
        (self.folder / "link").symlink_to(place)
        group = mock.Mock(gr_name="somebody", gr_mem=[])
        user = mock.Mock(pw_name="somebody", pw_gid=place.stat().st_gid)
        with mock.patch.object(_native.grp, "getgrgid", return_value=group), \
                mock.patch.object(_native.pwd, "getpwuid", return_value=user):
            # Also where the way there has a link, and whatever the folder is called.
            for named in (place, self.folder / "link"):
                with mock.patch.dict(os.environ, DRYSTONE_CACHE=str(named)):
                    self.assertEqual(_native.folder(), named)
            group.gr_mem = ["somebody", "else"]
            with mock.patch.dict(os.environ, DRYSTONE_CACHE=str(place)), \
                    self.assertRaisesRegex(drystone.DrystoneError, f"chmod go-w {place}"):
                _native.folder()


class End(unittest.TestCase):
    def test_exit_with_tensors_alive(self):
        done = python("""
            import torch, drystone, threading
            drystone.enable()
            kept = [torch.ones(n, device="cuda") for n in (1, 1000, 1 << 22)]
            side = torch.cuda.Stream()
            with torch.cuda.stream(side):
                kept.append(torch.ones(5000, device="cuda"))
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                out = kept[1] * 2
            import sys; sys.kept = kept  # Outlives this module.
        """)
        self.assertEqual((done.returncode, done.stdout, done.stderr), (0, "", ""))

    def test_a_child_forked_after_the_first_use_is_refused_and_the_parent_goes_on(self):
        done = python("""
            import os, torch, drystone
            drystone.enable()
            kept = torch.ones(4, device="cuda")
            child = os.fork()
            if child == 0:
                try:
                    torch.ones(4, device="cuda")
                except RuntimeError as error:
                    os._exit(7)
                os._exit(0)
            _, status = os.waitpid(child, 0)
            print(os.waitstatus_to_exitcode(status), torch.ones(9, device="cuda").numel())
        """)
        self.assertEqual(done.stdout, "7 9\n", done.stderr)


if __name__ == "__main__":
    sys.exit(unittest.main())
