"""Importing the package, and everything that can stand in the way of enabling it."""

import json
import os
import sys
import unittest

from support import python

# Of the processor's time: the machine may be busy.
IMPORT_MS_MAX = 20

ENABLE = """
    import sys, drystone
    {before}
    try:
        drystone.enable({options})
    except drystone.DrystoneError as error:
        print("refused:", error)
        {after}
"""


class Import(unittest.TestCase):
    def test_import_is_quick_and_imports_no_pytorch(self):
        code = """
            import time
            begin = time.process_time()
            import drystone
            end = time.process_time()
            import json, sys
            loaded = [name in sys.modules for name in ("torch", "ctypes")]
            print(json.dumps([(end - begin) * 1e3, *loaded]))
        """
        runs = [json.loads(python(code).stdout) for _ in range(5)]
        self.assertEqual([run[1:] for run in runs], [[False, False]] * 5)
        self.assertLess(min(run[0] for run in runs), IMPORT_MS_MAX)

    def test_waiting_for_pytorch_adds_little_to_a_start(self):
        code = """
            import json, sys, time
            begin = time.process_time()
            import drystone._hook
            drystone._hook.install()
            print(json.dumps([(time.process_time() - begin) * 1e3, "torch" in sys.modules]))
        """
        runs = [json.loads(python(code, DRYSTONE_ENABLE="1").stdout) for _ in range(5)]
        self.assertEqual([run[1] for run in runs], [False] * 5)
        self.assertLess(min(run[0] for run in runs), IMPORT_MS_MAX)


class BadInput(unittest.TestCase):
    """Each is one exception that says what to do, and nothing crashes afterwards."""

    def refusal(self, before="", options="", after="pass", **changes):
        done = python(ENABLE.format(before=before, options=options, after=after), **changes)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertTrue(done.stdout.startswith("refused: "), done.stdout)
        self.assertEqual(done.stderr, "")
        return done.stdout

    def test_twice(self):
        self.assertIn("call it once", self.refusal("drystone.enable()"))

    def test_after_cuda_is_in_use(self):
        before = "import torch; kept = torch.empty(1, device='cuda')"
        text = self.refusal(before, after="print(torch.cuda.memory_allocated())")
        self.assertIn("CUDA is in use already: call drystone.enable() right after", text)
        # PyTorch's own allocator goes on.
        self.assertTrue(text.endswith("\n512\n"), text)

    def test_after_another_allocator_was_used(self):
        before = f"""import torch
    other = torch.cuda.memory.CUDAPluggableAllocator(
        {os.environ["DRYSTONE_LIBRARY"]!r}, "drystone_malloc", "drystone_free")
    torch.cuda.memory.change_current_allocator(other)
    torch._C._cuda_init()"""
        self.assertIn("PyTorch keeps the allocator it has", self.refusal(before))

    def test_unknown_option_and_bad_value(self):
        text = self.refusal(options="limti='20GiB'")
        self.assertIn("limti", text)
        self.assertIn("limit (", text)
        self.assertIn("20GiX", self.refusal(options="limit='20GiX'"))
        self.assertIn("a NUL", self.refusal(options="limit='1GiB\\0'"))
        # Those of the environment are read as early.
        self.assertIn("limti", self.refusal(DRYSTONE_CONF="limti:20GiB"))
        # The same again, with what is right: nothing was settled.
        after = "drystone.enable(limit='1GiB'); print(drystone.is_enabled())"
        self.assertIn("True", self.refusal(options="limit='20GiX'", after=after))

    def test_no_gpu(self):
        text = self.refusal(CUDA_VISIBLE_DEVICES="")
        self.assertIn("there is no GPU", text)
        self.assertIn("CUDA_VISIBLE_DEVICES", text)

    def test_no_pytorch(self):
        text = self.refusal("sys.modules['torch'] = None")
        self.assertIn("install torch 2.6 or newer", text)

    def test_no_library(self):
        text = self.refusal(DRYSTONE_LIBRARY="/nowhere/libdrystone.so")
        self.assertIn("/nowhere/libdrystone.so", text)
        self.assertIn("DRYSTONE_LIBRARY", text)

    def test_pytorch_without_cuda(self):
        self.assertIn("CUDA build", self.refusal("import torch; torch.version.cuda = None"))

    def test_versions_of_pytorch(self):
        from drystone import DrystoneError
        from drystone._version import check_version
        for known in ("2.6.0", "2.6.0+cu124", "2.11.0+cu130", "2.15.1", "2.10.0a0+git1234"):
            check_version(known)
        for old in ("1.13.1", "2.5.1+cu121"):
            with self.assertRaisesRegex(DrystoneError, f"{old.split('+')[0]}.* too old"):
                check_version(old)
        with self.assertRaisesRegex(DrystoneError, "install a newer drystone"):
            check_version("2.16.0")


class Options(unittest.TestCase):
    def test_settings_of_pytorchs_allocator(self):
        from drystone import _settings

        def told(text, is_plug_in=False, **more):
            return _settings.told_of_environment(
                {"PYTORCH_CUDA_ALLOC_CONF": text, **more}, is_plug_in)

        for fine in ("", "expandable_segments:True", "backend:native",
                     "pinned_use_background_threads:1", "per_process_memory_fraction:0.5"):
            self.assertEqual(told(fine), [])
        [unchanged] = told("expandable_segments:False")
        self.assertIn("expandable_segments:False changes nothing", unchanged)
        self.assertEqual(told("throw_on_cudamalloc_oom:True"), [])
        [needless] = told("throw_on_cudamalloc_oom:True", is_plug_in=True)
        self.assertIn("throw_on_cudamalloc_oom is not needed", needless)
        [needless] = told("max_split_size_mb:40")
        self.assertIn("max_split_size_mb is not needed", needless)
        collects, rest = told(
            "garbage_collection_threshold:0.8,roundup_power2_divisions:[1:2,>:4],x:1")
        self.assertIn("garbage_collection_threshold is not needed", collects)
        self.assertTrue(rest.startswith("roundup_power2_divisions, x without effect"), rest)
        variable = {"PYTORCH_NO_CUDA_MEMORY_CACHING": "1"}
        self.assertEqual(told("", **variable), [])
        self.assertEqual(len(told("", is_plug_in=True, **variable)), 1)
        self.assertEqual(
            _settings.with_fraction("backend:vmm", "0.5"), "backend:vmm,limit_fraction:0.5")
        self.assertEqual(_settings.with_fraction("limit:1GiB", "0.5"), "limit:1GiB")
        self.assertEqual(_settings.with_fraction("", None), "")
        self.assertEqual(_settings.with_fraction("", "0.0"), "limit:1")

    def test_of_two_variables_the_older_one_counts(self):
        from drystone._settings import text_of_environment
        older, newer = "PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF"
        for found, environment in (
                ("", {}), ("a:1", {older: "a:1"}), ("b:1", {newer: "b:1"}),
                ("a:1", {older: "a:1", newer: "b:1"}), ("", {older: "", newer: "b:1"})):
            self.assertEqual(text_of_environment(environment), found)
        # As with PyTorch's own allocator.
        fraction = "per_process_memory_fraction:"
        for enable in ("", "import drystone; drystone.enable()"):
            for environment, expected in (
                    ({older: fraction + "0.25", newer: fraction + "0.5"}, "0.25"),
                    ({older: "", newer: fraction + "0.5"}, "1.0"),
                    ({older: None, newer: fraction + "0.5"}, "0.5")):
                done = python(f"""
                    import torch
                    {enable}
                    torch.empty(1, device="cuda")
                    print(torch.cuda.get_per_process_memory_fraction())
                """, **environment)
                self.assertEqual(done.stdout, f"{expected}\n", (enable, environment, done.stderr))

    def test_a_program_that_toggles_expandable_segments_around_a_sleep_goes_on(self):
        # As vLLM, verl and others do.
        for route in ("compiled", "plugin"):
            done = python(f"""
                import torch, drystone
                drystone.enable(route={route!r})
                def settings(text):
                    torch.cuda.memory._set_allocator_settings(text)
                weights = torch.arange(1 << 20).cuda()
                for _ in range(3):
                    settings("expandable_segments:False")
                    saved = weights.cpu()
                    del weights
                    torch.cuda.empty_cache()
                    assert torch.cuda.memory_reserved() == 0
                    settings("max_split_size_mb:40,expandable_segments:False")
                    settings("expandable_segments:True")
                    weights = saved.cuda()
                assert torch.equal(weights.cpu(), torch.arange(1 << 20))
            """, PYTORCH_ALLOC_CONF="expandable_segments:True,max_split_size_mb:128")
            self.assertEqual(done.returncode, 0, done.stderr)
            for once in ("expandable_segments:False changes nothing", "max_split_size_mb is not"):
                self.assertEqual(done.stderr.count(once), 1, done.stderr)

    def test_settings_that_pytorch_refuses_are_told(self):
        for text, reason in (("max_split_size_mb:abc", "sto"), ("expandable_segments:maybe", "True"),
                             ("garbage_collection_threshold:2", "threshold")):
            done = python("""
                import torch, drystone
                drystone.enable()
                kept = torch.empty(1, device="cuda")
                print(len(torch.cuda.memory_snapshot()))
                try:
                    torch.empty(1 << 42, dtype=torch.uint8, device="cuda")
                except torch.OutOfMemoryError:
                    pass
            """, PYTORCH_CUDA_ALLOC_CONF=text)
            self.assertEqual((done.returncode, done.stdout), (0, "1\n"), done.stderr)
            self.assertRegex(done.stderr, f"^drystone: settings .*PyTorch refuses {text}: .*{reason}")

    def test_settings_while_the_program_runs_are_told_once(self):
        done = python("""
            import torch, drystone
            drystone.enable()
            def settings(text):
                torch.cuda.memory._set_allocator_settings(text)
            # Before CUDA is used, too.
            settings("per_process_memory_fraction:0.5")
            assert not torch.cuda.is_initialized()
            for _ in range(3):
                settings("max_split_size_mb:40")
            kept = torch.empty(1, device="cuda")
            assert torch.cuda.get_per_process_memory_fraction() == 0.5
        """)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(done.stderr.count("max_split_size_mb is not needed"), 1, done.stderr)

    def test_a_limit_is_not_lifted_by_a_setting_while_the_program_runs(self):
        done = python("""
            import torch, drystone
            drystone.enable(limit="1GiB")
            kept = torch.empty(1, device="cuda")
            torch.cuda.memory._set_allocator_settings("per_process_memory_fraction:0.9")
            try:
                torch.empty(2 << 30, dtype=torch.uint8, device="cuda")
                raise SystemExit("no limit")
            except torch.OutOfMemoryError:
                pass
        """)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("per_process_memory_fraction without effect", done.stderr)

    def test_options_are_those_of_the_environment_variable(self):
        from drystone._enable import text_of
        self.assertEqual(
            text_of({"limit": "20GiB", "shareable": True, "granule": 2 << 20}),
            "limit:20GiB,shareable:true,granule:2097152")

    def test_an_option_takes_effect(self):
        done = python("""
            import torch, drystone
            drystone.enable(limit="1GiB")
            try:
                torch.empty(2 << 30, dtype=torch.uint8, device="cuda")
            except torch.OutOfMemoryError as error:
                print(error)
        """)
        self.assertIn("limit of 1.00 GiB stands in the way", done.stdout, done.stderr)

    def test_a_size_is_never_cut_off(self):
        from drystone import DrystoneError
        from drystone._growable import Growable
        # Nothing of it is asked of the library.
        cache = Growable.__new__(Growable)
        cache.address = 0
        for call in (cache.grow_to, cache.shrink_to, cache.commit_rest):
            for wrong in (-1, 1 << 64):
                with self.assertRaisesRegex(DrystoneError, f"{wrong} is no number of bytes"):
                    call(wrong)
            self.assertRaises(TypeError, call, 0.5)


if __name__ == "__main__":
    sys.exit(unittest.main())
