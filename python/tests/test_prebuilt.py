"""Which compiled file of a wheel is for a PyTorch: the very one, or none."""

import json
import platform
import sys
import tempfile
import unittest
from pathlib import Path
from unittest import mock

from drystone import DrystoneError, _native, _prebuilt

HEADERS = ["c10/Allocator.h", "torch/version.h"]


class Prebuilt(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)
        for name in HEADERS:
            (self.folder / name).parent.mkdir(parents=True, exist_ok=True)
            (self.folder / name).write_text("class Allocator { virtual void* allocate(); };\n")
        patch = mock.patch.object(_prebuilt, "FOLDER", self.folder)
        patch.start()
        self.addCleanup(patch.stop)
        self.write_index()

    def write_index(self, **changes):
        release = {
            "digest": _prebuilt.digest_of(self.folder, HEADERS), "headers": HEADERS,
            "files": {"1": "new.so"}}
        index = {"machine": platform.machine(), "source": "this", "releases": {"2.11.0": release}}
        (self.folder / _prebuilt.INDEX).write_text(json.dumps({**index, **changes}))

    def find(self, version="2.11.0+cu130", is_new_abi=True, source="this"):
        return _prebuilt.find(version, self.folder, is_new_abi, source)

    def refused(self, words, **how):
        with self.assertRaisesRegex(DrystoneError, words):
            self.find(**how)

    def test_any_cuda_build_of_the_release_has_its_file(self):
        for version in ("2.11.0", "2.11.0+cu130", "2.11.0+cu126"):
            self.assertEqual(self.find(version), self.folder / "new.so")

    def test_headers_that_differ_in_a_letter_are_refused(self):
        header = self.folder / HEADERS[0]
        header.write_text(header.read_text().replace("virtual void*", "virtual char*"))
        self.refused("2.11.0.* has other headers than the release of that number")

    def test_text_that_moves_between_headers_is_a_difference(self):
        first, second = (self.folder / name for name in HEADERS)
        text = first.read_text()
        first.write_text(text[:10])
        second.write_text(text[10:] + second.read_text())
        self.refused("other headers")

    def test_headers_that_are_not_there_are_named(self):
        (self.folder / HEADERS[1]).unlink()
        self.refused("headers are not all there .*version.h")

    def test_what_nothing_was_compiled_for(self):
        for version in ("2.11.1", "2.12.0a0+git1234", "main"):
            self.refused(f"nothing compiled for PyTorch {version.split('+')[0]}", version=version)
        self.refused("C[+][+] ABI 0", is_new_abi=False)
        self.refused("brings nothing", source="changed")
        self.write_index(machine="another")
        self.refused(platform.machine())

    def test_a_build_without_any(self):
        (self.folder / _prebuilt.INDEX).unlink()
        self.refused("nothing is compiled in this build of drystone")

    def test_an_index_that_was_cut_short(self):
        (self.folder / _prebuilt.INDEX).write_text('{"machine": ')
        self.refused("index.json cannot be read")

    def test_the_source_is_the_same_wherever_its_header_lies(self):
        packaged = _native.SOURCE / "drystone.h"
        header = _native._header()
        self.assertNotEqual(header, packaged)
        found = _native.source_digest(header)
        with mock.patch.object(_native, "SOURCE", self.folder / "_cpp"):
            for path in Path(_native.__file__).with_name("_cpp").rglob("*.*"):
                to = self.folder / "_cpp" / path.relative_to(packaged.parent)
                to.parent.mkdir(parents=True, exist_ok=True)
                to.write_bytes(path.read_bytes())
            copy = self.folder / "_cpp/drystone.h"
            copy.write_bytes(header.read_bytes())
            self.assertEqual(_native.source_digest(copy), found)
            copy.write_text("// changed\n")
            self.assertNotEqual(_native.source_digest(copy), found)


if __name__ == "__main__":
    sys.exit(unittest.main())
