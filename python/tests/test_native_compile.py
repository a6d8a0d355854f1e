"""Trees of CUDA graphs: what torch.compile records, puts back, records again and lets go.

No kernel runs, so results mean nothing; addresses, live blocks and what is held do. PyTorch's own
asserts are on: whatever it does with the pool, it compares the live blocks with those it expects.
"""

import gc
import importlib.util
import sys
import sysconfig
import unittest
from pathlib import Path
from unittest import mock

import torch
import torch._inductor.config as config
from torch import nn
from torch._inductor import cudagraph_trees

from native_device import OnDevice
from support import segments_of

# Triton compiles C for Python beside what it compiles for the device.
HAS_HEADERS = (Path(sysconfig.get_path("include")) / "Python.h").exists()
HAS_TRITON = importlib.util.find_spec("triton") is not None and HAS_HEADERS
ASSERTS = ("fast_path_cudagraph_asserts", "slow_path_cudagraph_asserts")
SIZE = 256


def trunk(x):
    return (x * 2).sin() + 2


def left(x):
    return (x * 3).cos() + 3


def right(x):
    return (x * 4).exp() + 4


class Trees(OnDevice):
    """With `backend="cudagraphs"`, which needs no compiler."""

    how = {"backend": "cudagraphs"}

    def setUp(self):
        super().setUp()
        asserts = config.patch({f"triton.{name}": True for name in ASSERTS})
        asserts.__enter__()
        self.addCleanup(asserts.__exit__, None, None, None)
        self.put_back = self.count("_cuda_setCheckpointPoolState")
        self.compared = self.count("_cuda_checkPoolLiveAllocations")
        self.x = torch.ones(SIZE, SIZE, device="cuda")

    def tearDown(self):
        torch._dynamo.reset()
        del self.x
        gc.collect()
        torch.cuda.synchronize()
        torch._C._cuda_clearCublasWorkspaces()
        self.assertEqual(torch.cuda.memory_allocated(), 0)
        torch.cuda.empty_cache()
        self.assertEqual(torch.cuda.memory_reserved(), 0)
        super().tearDown()

    def count(self, name):
        """Counts the calls of a function of `torch._C`."""
        patch = mock.patch.object(torch._C, name, wraps=getattr(torch._C, name))
        self.addCleanup(patch.stop)
        return patch.start()

    def compile(self, function):
        return torch.compile(function, **self.how)

    def step(self, *functions):
        """Calls each with what the one before gave, as one step; gives all results."""
        torch.compiler.cudagraph_mark_step_begin()
        results = [self.x]
        with torch.no_grad():
            for function in functions:
                results.append(function(results[-1]))
        torch.cuda.synchronize()
        return results[1:]

    def steps(self, *functions, times):
        """The first step warms up, the second records, and others replay."""
        for _ in range(times):
            results = self.step(*functions)
        return results

    def manager(self):
        return cudagraph_trees.get_container(0).tree_manager

    def live(self):
        """Addresses of the live blocks of the trees' pool."""
        return {block["address"] for segment in segments_of(self.manager().cuda_graphs_thread_pool)
                for block in segment["blocks"] if block["state"] == "active_allocated"}

    def test_a_graph_is_replayed_in_the_same_memory(self):
        compiled = self.compile(trunk)
        [recorded] = self.steps(compiled, times=2)
        address, held = recorded.data_ptr(), torch.cuda.memory_reserved()
        self.assertEqual(self.live(), {address})
        del recorded
        self.assertEqual(self.live(), set())
        for _ in range(3):
            self.assertEqual(self.step(compiled)[0].data_ptr(), address)
        self.assertEqual(torch.cuda.memory_reserved(), held)
        self.assertTrue(self.compared.called)

    def test_a_branch_begins_where_the_tree_was(self):
        a, b, c = map(self.compile, (trunk, left, right))
        on_the_left = [one.data_ptr() for one in self.steps(a, b, times=3)]
        self.assertEqual(self.put_back.call_count, 0)
        # Both the warm-up and the recording begin at the end of a graph that was replayed.
        results = self.steps(a, c, times=2)
        self.assertEqual(self.put_back.call_count, 2)
        on_the_right = [one.data_ptr() for one in results]
        self.assertEqual(self.live(), set(on_the_right))
        self.assertEqual(on_the_right[0], on_the_left[0])
        [[root]] = self.manager().roots.values()
        self.assertEqual([len(children) for children in root.children.values()], [1, 1])
        del results
        held = torch.cuda.memory_reserved()
        self.assertEqual([one.data_ptr() for one in self.step(a, b)], on_the_left)
        self.assertEqual([one.data_ptr() for one in self.step(a, c)], on_the_right)
        self.assertEqual(torch.cuda.memory_reserved(), held)

    def test_memory_of_a_result_that_is_gone_serves_the_next_graph(self):
        a, b = self.compile(trunk), self.compile(left)
        for _ in range(2):
            torch.compiler.cudagraph_mark_step_begin()
            with torch.no_grad():
                before = a(self.x).data_ptr()
                result = b(self.x)
        self.assertEqual(result.data_ptr(), before)
        self.assertEqual(self.live(), {before})

    def test_a_result_of_an_earlier_step_is_refused(self):
        compiled = self.compile(trunk)
        [kept] = self.steps(compiled, times=2)
        self.step(compiled)
        with self.assertRaisesRegex(RuntimeError, "overwritten by a subsequent run"):
            kept + 1

    def test_another_shape_is_another_graph_in_the_same_pool(self):
        compiled = self.compile(trunk)
        self.steps(compiled, times=3)
        self.x = torch.ones(SIZE // 2, SIZE, device="cuda")
        [result] = self.steps(compiled, times=2)
        self.assertEqual(result.shape, (SIZE // 2, SIZE))
        self.assertEqual(self.live(), {result.data_ptr()})
        self.assertEqual(sum(map(len, self.manager().roots.values())), 2)

    def test_training_takes_the_same_memory_in_every_step(self):
        model = nn.Sequential(nn.Linear(SIZE, 1024), nn.GELU(), nn.Linear(1024, SIZE)).cuda()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
        compiled, held = self.compile(model), []
        for _ in range(8):
            torch.compiler.cudagraph_mark_step_begin()
            compiled(self.x).sum().backward()
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
            torch.cuda.synchronize()
            held.append((torch.cuda.memory_allocated(), torch.cuda.memory_reserved()))
        self.assertEqual(len(set(held[4:])), 1, held)
        self.assertTrue(self.manager().roots)


@unittest.skipUnless(HAS_TRITON, "needs triton and Python's headers")
class ReduceOverhead(Trees):
    """With what inductor compiles by Triton."""

    how = {"mode": "reduce-overhead"}

    def test_other_parameters_are_recorded_again(self):
        layer = nn.Linear(SIZE, SIZE, device="cuda")
        compiled = self.compile(layer)
        self.steps(compiled, times=3)
        layer.weight.data = torch.zeros_like(layer.weight)
        [result] = self.steps(compiled, times=1)
        self.assertEqual(self.live(), {result.data_ptr()})
        [graphs] = self.manager().roots.values()
        self.assertEqual(len(graphs), 2)


if __name__ == "__main__":
    sys.exit(unittest.main())
