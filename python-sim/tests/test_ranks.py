"""Programs of many ranks, each a process with a device of its own, as their launchers start them.

Needs PyTorch, the libraries in `DRYSTONE_SIM_LIBRARIES` and the `drystone` command on PATH; `cargo
xtask python` has them. Without, it skips.
"""

import importlib.util
import json
import os
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

MIB = 1 << 20
BEGIN = """
import os, torch, torch.distributed as dist
from torch import nn
rank, world = int(os.environ["LOCAL_RANK"]), int(os.environ["WORLD_SIZE"])
torch.cuda.set_device(rank)
dist.init_process_group("nccl")
"""
TRAIN = """
optimizer = torch.optim.AdamW(model.parameters(), foreach=False)
for _ in range(10):
    model(torch.zeros(8, 512, device="cuda")).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
"""
PROGRAMS = {
    "data": BEGIN + """
from torch.nn.parallel import DistributedDataParallel
model = DistributedDataParallel(nn.Linear(512, 512, device="cuda"), device_ids=[rank])
""" + TRAIN,
    "sharded": BEGIN + """
from torch.distributed.fsdp import fully_shard
model = nn.Sequential(*(nn.Linear(512, 512) for _ in range(4))).cuda()
for layer in model:
    fully_shard(layer)
fully_shard(model)
""" + TRAIN,
    "tensor": BEGIN + """
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
model = parallelize_module(
    nn.Sequential(nn.Linear(512, 2048), nn.ReLU(), nn.Linear(2048, 512)).cuda(),
    init_device_mesh("cuda", (world,)), {"0": ColwiseParallel(), "2": RowwiseParallel()})
""" + TRAIN,
    "pipeline": BEGIN + """
from torch.distributed.pipelining import PipelineStage, Schedule1F1B
model = nn.Sequential(*(nn.Linear(512, 512) for _ in range(rank + 1))).cuda()
stage = PipelineStage(model, rank, world, torch.device("cuda", rank))
schedule = Schedule1F1B(stage, n_microbatches=4, loss_fn=nn.functional.mse_loss)
optimizer = torch.optim.AdamW(model.parameters())
for _ in range(10):
    given = torch.zeros(32, 512, device="cuda")
    if rank == 0:
        schedule.step(given)
    elif rank == world - 1:
        schedule.step(target=given)
    else:
        schedule.step()
    optimizer.step()
    optimizer.zero_grad()
""",
    "objects": BEGIN + """
held = torch.zeros(512, device="cuda")
everyone = [None] * world
dist.all_gather_object(everyone, {"rank": rank})
assert everyone == [{"rank": one} for one in range(world)], everyone
for turn in range(2):
    told = [f"by {rank} in {turn}"]
    dist.broadcast_object_list(told, src=1)
    assert told == [f"by 1 in {turn}"], told
mine = [None]
dist.scatter_object_list(mine, ["a", "b"] if rank == 0 else None, src=0)
assert mine == ["ab"[rank]], mine
gathered = [None] * world if rank == 1 else None
dist.gather_object(rank * 10, gathered, dst=1)
assert rank == 0 or gathered == [0, 10], gathered
if rank == 0:
    dist.send_object_list([1, "two"], dst=1)
else:
    received = [None, None]
    assert dist.recv_object_list(received, src=0) == 0
    assert received == [1, "two"], received
""",
}


@unittest.skipUnless(importlib.util.find_spec("torch") and "DRYSTONE_SIM_LIBRARIES" in os.environ,
                     "needs PyTorch and the simulated libraries")
class Ranks(unittest.TestCase):
    def ranks(self, program, *options, launcher=()):
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder, f"{program}.py")
            file.write_text(PROGRAMS[program])
            done = subprocess.run(
                [sys.executable, "-m", "drystone_sim", "dry-run", "--json", *options, *launcher,
                 str(file)], text=True, capture_output=True)
        self.assertEqual(done.returncode, 0, done.stderr[-2000:])
        ranks = json.loads(done.stdout)["ranks"]
        self.assertEqual([rank["rank"] for rank in ranks], [0, 1])
        return ranks

    def test_data_parallel_has_all_weights_on_each_rank(self):
        for rank in self.ranks("data", "--ranks", "2"):
            self.assertGreaterEqual(rank["kinds_bytes"]["optimizer state"], 2 * MIB)
            self.assertIn("NCCL", rank["beside_bytes"])

    def test_sharded_ranks_have_half_of_the_optimizer_state(self):
        weights = 4 * (512 * 512 + 512) * 4
        for rank in self.ranks("sharded", "--ranks", "2"):
            self.assertEqual(rank["kinds_bytes"]["optimizer state"], weights)

    def test_tensor_parallel_splits_layers(self):
        shard = (512 * 1024 + 1024 + 1024 * 512 + 512) * 4
        for rank in self.ranks("tensor", "--ranks", "2"):
            self.assertEqual(rank["kinds_bytes"]["parameters"], shard)

    def test_stages_of_a_pipeline_tell_each_other_their_shapes(self):
        first, second = self.ranks("pipeline", "--ranks", "2")
        self.assertEqual((first["steps"], second["steps"]), (3, 3))
        self.assertEqual(second["kinds_bytes"]["parameters"],
                         2 * first["kinds_bytes"]["parameters"])

    def test_objects_arrive_as_they_were_sent(self):
        self.ranks("objects", "--ranks", "2")

    def test_recordings_of_all_ranks_are_tables(self):
        with tempfile.TemporaryDirectory() as folder:
            ranks = self.ranks("data", "--ranks", "2", "--record", folder)
            left = sorted(file.name for file in Path(folder).iterdir())
            self.assertEqual(left, ["rank-0.parquet", "rank-0.pickle", "rank-1.parquet",
                                    "rank-1.pickle"])
            if importlib.util.find_spec("duckdb") is None:
                self.skipTest("DuckDB is not installed: the tables are not read")
            import duckdb
            peaks = duckdb.sql(f"""
                SELECT parse_filename(filename, true) AS rank, max(requested_bytes) AS peak_bytes
                FROM read_parquet('{folder}/rank-*.parquet', filename = true)
                GROUP BY rank ORDER BY rank""").fetchall()
            self.assertEqual(peaks, [(f"rank-{at}", rank["peak_requested_bytes"])
                                     for at, rank in enumerate(ranks)])

    def test_a_launcher_in_front_of_the_program_is_understood(self):
        self.ranks("data", launcher=("torchrun", "--nproc-per-node", "2", "--standalone"))
