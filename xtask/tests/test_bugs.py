"""Tests of `xtask/bugs.py`: a worse figure is an error, an equal one is not; the pages and the
programs name each other."""

import re
import sys
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "xtask"))
import bugs  # noqa: E402
from bugs import ENDS, FAILS, Page, Row  # noqa: E402

TEXT = """Text.

| program | at best | a | b | c | d | e | f |
| --- | --- |
| `one` | 1.00 GiB | 2.00 GiB | 3.00 GiB | no pools | 1.50 GiB | 1.50 GiB | process ends |
| `other` | is | no | row |
"""
HEAD = "| at best, or within 5 per cent of it |"


def row(*came_to, right="1.00 GiB"):
    return Row("one", right, came_to)


class Figures(unittest.TestCase):
    def test_less_is_better_but_of_tokens_and_what_cannot_be_compared_is_worse(self):
        for before, after, expected in [
            ("52.00 GiB", "52.00 GiB", None),
            ("52.00 GiB", "52.01 GiB", "worse"),
            ("52.00 GiB", "9.00 GiB", "better"),
            ("0 refused", "1 refused", "worse"),
            ("17k tokens", "9k tokens", "worse"),
            ("9k tokens", "17k tokens", "better"),
            ("goes on", ENDS, "worse"),
            (ENDS, "goes on", "better"),
            (ENDS, ENDS, None),
            ("pass 9", "fail 1", "worse"),
            ("pass 9", ENDS, "worse"),
            ("pass 9", FAILS, "worse"),
            ("fail 1", "pass 9", "better"),
            (ENDS, "pass 9", "better"),
            (FAILS, "pass 9", "better"),
            ("fail 1", "fail 9", None),
            ("pass 9", "pass 10", "worse"),
            ("pass 9", "pass 8", "better"),
            ("1.00 GiB", "0 refused", "worse"),
            ("1.00 GiB", "3 violations", "worse"),
        ]:
            self.assertEqual(bugs.change(before, after), expected, f"{before}, then {after}")

    def test_what_does_not_run_is_not_counted_and_what_is_near_the_best_is(self):
        for best, figure, expected in [
            ("1.00 GiB", "1.05 GiB", True),
            ("1.00 GiB", "1.06 GiB", False),
            ("0 refused", "1 refused", False),
            ("20k tokens", "17k tokens", False),
            ("goes on", "goes on", True),
            ("goes on", ENDS, False),
            ("1.00 GiB", "no pools", None),
            ("8", "pass 9", True),
            ("8", "fail 8", False),
            ("8", FAILS, False),
        ]:
            self.assertEqual(bugs.is_at_best(best, figure), expected, (best, figure))
        text = Page(f"{TEXT}{HEAD} ? |\n").text()
        counted = " 0 of 1 | 0 of 1 | 0 of 0 | 0 of 1 | 0 of 1 | 0 of 1 |\n"
        self.assertTrue(text.endswith(HEAD + counted), text)


class Pages(unittest.TestCase):
    def test_worse_is_an_error_and_better_is_one_of_the_others_alone(self):
        before, = Page(TEXT).rows()
        allocators = bugs.STUDIES["bugs"][1]

        def errors(native, compiled, last):
            now = row(native, "3.00 GiB", "no pools", compiled, "1.50 GiB", last)
            return [is_error for is_error, _ in bugs.differences(allocators, before, now)]

        self.assertEqual(errors("2.00 GiB", "1.50 GiB", ENDS), [])
        self.assertEqual(errors("2.00 GiB", "1.51 GiB", ENDS), [True])
        self.assertEqual(errors("2.00 GiB", "1.00 GiB", "1.00 GiB"), [False, False])
        self.assertEqual(errors("1.99 GiB", "1.50 GiB", ENDS), [True])
        other = before._replace(right="2.00 GiB")
        self.assertEqual([one[0] for one in bugs.differences(allocators, before, other)], [True])

    def test_writing_changes_figures_and_nothing_else(self):
        page = Page(TEXT)
        self.assertEqual((len(page.rows()), page.text()), (1, TEXT))
        page.put(row("2.00 GiB", "3.00 GiB", "no pools", "1.00 GiB", "1.00 GiB", ENDS))
        self.assertEqual(page.text(), TEXT.replace("1.50", "1.00"))
        self.assertRaises(SystemExit, Page, TEXT * 2)

    def test_each_program_has_a_row_a_device_and_its_report_on_the_page(self):
        for folder, (name, allocators) in bugs.STUDIES.items():
            text = (ROOT / name).read_text()
            page = Page(text)
            self.assertEqual(page.text(), text, f"counts wrongly: cargo xtask {folder} --write")
            programs = {file.stem: file for file in (ROOT / folder).glob("*.py")}
            programs.pop("common", None)
            self.assertEqual(set(programs), {row.name for row in page.rows()})
            self.assertEqual({len(row.came_to) for row in page.rows()}, {len(allocators)})
            for file in programs.values():
                program = file.read_text()
                self.assertIn(":", bugs.setting(program, "Device"), file)
                link = re.search("^https://.*$", program, re.MULTILINE)
                self.assertIn(f"({link[0]})", text, file)
