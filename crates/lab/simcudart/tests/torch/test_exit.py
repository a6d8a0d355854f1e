"""What a program leaves behind: statistics at exit, and an end without a word."""

import json
import os
import subprocess
import sys
import tempfile
import unittest

PROGRAM = """
import torch
from torch import nn
model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 1)).cuda()
optimizer = torch.optim.AdamW(model.parameters(), fused=True)
for _ in range(3):
    optimizer.zero_grad()
    model(torch.randn(8, 64, device="cuda")).sum().backward()
    optimizer.step()
torch.cuda.synchronize()
"""


class Exit(unittest.TestCase):
    def run_program(self, program, conf):
        environment = dict(os.environ, SIMCUDA_CONF=conf)
        return subprocess.run([sys.executable, "-c", program], env=environment,
                              capture_output=True, text=True, timeout=120)

    def test_statistics_tell_calls_kernels_and_libraries(self):
        with tempfile.TemporaryDirectory() as folder:
            file = os.path.join(folder, "statistics.json")
            run = self.run_program(PROGRAM, f"strict:true,oracle:true,stats:{file}")
            self.assertEqual((run.returncode, run.stdout, run.stderr), (0, "", ""))
            with open(file) as text:
                statistics = json.load(text)
        device = statistics["devices"][0]
        self.assertEqual(device["violations"], 0)
        self.assertGreaterEqual(device["peak_physical_bytes"], 2 << 20)
        counted = statistics["counted"]
        launches = sum(
            count for name, count in counted.items() if name.startswith("cudaLaunch"))
        # Two layers forward, and the gradients of both weights and of one input, three times.
        products = sum(count for name, count in counted.items()
                       if name in ("cublasSgemm_v2", "cublasLtMatmul"))
        self.assertEqual(products, 15)
        self.assertEqual(device["kernels"], launches + products)
        self.assertEqual(statistics["functions"]["cuCtxSynchronize"]["calls"], 1)

    def test_a_small_device_runs_out_where_a_large_one_does_not(self):
        program = "import torch; torch.empty(3 << 30, dtype=torch.uint8, device='cuda')"
        run = self.run_program(program, "memory:2GiB")
        self.assertIn("GPU 0 has a total capacity of 2.00 GiB", run.stderr)
        self.assertEqual(self.run_program(program, "memory:4GiB").returncode, 0)

    def test_operations_ask_libraries_for_sizes(self):
        program = """
import torch
def on_device(*values):
    return torch.ones(*values, device="cuda")
square = on_device(16, 16)
on_device(1000).sort()
on_device(1000, 1000).topk(5)
on_device(1000).cumsum(0)
on_device(10).nonzero()
torch.unique(on_device(10))
torch.randperm(1000, device="cuda")
torch.fft.fft(on_device(64))
torch.multinomial(on_device(10), 2)
torch.linalg.cholesky_ex(square)
torch.linalg.qr(square)
torch.linalg.eigh(square)
torch.linalg.svd(square)
torch.linalg.solve_ex(square, square)
sparse = square.to_sparse_csr()
sparse @ square
torch.nn.functional.ctc_loss(
    on_device(50, 4, 20).log_softmax(2), torch.ones(4, 10, dtype=torch.int), [50] * 4, [10] * 4)
for kind in (torch.nn.LSTM, torch.nn.GRU, torch.nn.RNN):
    network = kind(32, 64, 2, batch_first=True, bidirectional=True).cuda()
    network(on_device(4, 10, 32))[0].sum().backward()
torch.nn.LSTM(32, 64, proj_size=16).cuda()(on_device(10, 4, 32))[0].sum().backward()
with torch.profiler.profile():
    square @ square
assert torch.cuda.max_memory_allocated() < 64 << 20, torch.cuda.max_memory_allocated()
"""
        run = self.run_program(program, "strict:true,oracle:true")
        self.assertEqual(run.returncode, 0, run.stderr)

    def test_a_wait_in_a_capture_is_refused(self):
        program = """
import torch
block = torch.ones(4, device="cuda")
with torch.cuda.graph(torch.cuda.CUDAGraph()):
    block.add_(1)
    torch.cuda.synchronize()
"""
        run = self.run_program(program, "")
        self.assertEqual(run.returncode, 1)
        self.assertIn("operation not permitted when stream is capturing", run.stderr)

    def test_a_lost_device_is_told_to_the_program(self):
        program = """
import ctypes, torch
torch.ones(1, device="cuda")
ctypes.CDLL("libcuda.so.1").simcuda_lose_context(0)
torch.cuda.synchronize()
"""
        run = self.run_program(program, "")
        self.assertEqual(run.returncode, 1)
        self.assertRegex(run.stderr, "CUDA error: (an illegal memory access|unspecified launch)")
