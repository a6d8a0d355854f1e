"""PyTorch with its own allocator, on two devices of 8 GiB that keep what is copied to them."""

import gc
import os
import unittest

import torch
from torch import nn

import simulated
from simulated import GIB, MIB


def give_back():
    """Leaves PyTorch nothing that it could still give back."""
    gc.collect()
    torch.cuda.synchronize()
    torch._C._cuda_clearCublasWorkspaces()
    torch.cuda.empty_cache()


class OnDevice(unittest.TestCase):
    """Begins with an empty device, and ends without a violation."""

    def setUp(self):
        give_back()
        self.assertEqual(torch.cuda.memory_reserved(), 0)
        torch.cuda.reset_peak_memory_stats()
        torch.cuda.reset_accumulated_memory_stats()
        self.violations = simulated.violation_count()

    def tearDown(self):
        self.assertEqual(simulated.violation_count(), self.violations, simulated.violations())


class Devices(OnDevice):
    def test_properties_are_those_configured(self):
        self.assertEqual(torch.cuda.device_count(), 2)
        self.assertEqual(torch.cuda.get_device_capability(), (9, 0))
        properties = torch.cuda.get_device_properties(1)
        self.assertEqual(properties.total_memory, 8 * GIB)
        self.assertEqual(properties.multi_processor_count, 132)
        self.assertEqual(properties.warp_size, 32)
        self.assertEqual(properties.max_threads_per_multi_processor, 2048)
        self.assertIn("simulated", torch.cuda.get_device_name().lower())

    def test_the_monitor_sees_what_pytorch_holds(self):
        import pynvml
        pynvml.nvmlInit()
        self.addCleanup(pynvml.nvmlShutdown)
        self.assertEqual(pynvml.nvmlDeviceGetCount(), 2)
        device = pynvml.nvmlDeviceGetHandleByIndex(0)
        before = pynvml.nvmlDeviceGetMemoryInfo(device).used
        block = torch.empty(64 * MIB, dtype=torch.uint8, device="cuda")
        info = pynvml.nvmlDeviceGetMemoryInfo(device)
        self.assertEqual(info.used - before, 64 * MIB)
        self.assertEqual((info.total, info.used + info.free), (8 * GIB, 8 * GIB))
        second = pynvml.nvmlDeviceGetMemoryInfo(device, version=pynvml.nvmlMemory_v2)
        self.assertEqual(second.used, info.used)
        self.assertEqual(torch.cuda.mem_get_info(), (info.free, info.total))
        processes = pynvml.nvmlDeviceGetComputeRunningProcesses(device)
        self.assertEqual([(p.pid, p.usedGpuMemory) for p in processes], [(os.getpid(), info.used)])
        uuid = pynvml.nvmlDeviceGetUUID(device)
        self.assertEqual(uuid, f"GPU-{torch.cuda.get_device_properties(0).uuid}")
        same = pynvml.nvmlDeviceGetHandleByUUID(uuid)
        self.assertEqual(pynvml.nvmlDeviceGetIndex(same), 0)
        bus = pynvml.nvmlDeviceGetPciInfo(pynvml.nvmlDeviceGetHandleByIndex(1)).busId
        self.assertEqual(pynvml.nvmlDeviceGetIndex(pynvml.nvmlDeviceGetHandleByPciBusId(bus)), 1)
        with self.assertRaisesRegex(pynvml.NVMLError, "Invalid Argument"):
            pynvml.nvmlDeviceGetHandleByIndex(2)
        del block

    def test_devices_have_memory_of_their_own_and_copy_to_each_other(self):
        first, second = simulated.physical_bytes(0), simulated.physical_bytes(1)
        there = torch.arange(1 << 20).to("cuda:1")
        self.assertEqual(torch.cuda.memory_allocated(0), 0)
        self.assertEqual(torch.cuda.memory_allocated(1), 8 * MIB)
        self.assertEqual(simulated.physical_bytes(0), first)
        self.assertGreater(simulated.physical_bytes(1), second)
        here = there.to("cuda:0")
        self.assertTrue(torch.equal(here.cpu(), torch.arange(1 << 20)))
        with torch.cuda.device(1):
            self.assertEqual(torch.empty(1, device="cuda").device.index, 1)
        self.assertTrue(torch.cuda.can_device_access_peer(0, 1))


class Memory(OnDevice):
    def test_what_is_reserved_is_what_the_device_holds(self):
        held = simulated.physical_bytes()
        block = torch.empty(1 << 20, device="cuda")
        self.assertEqual(torch.cuda.memory_allocated(), 4 * MIB)
        self.assertEqual(torch.cuda.memory_reserved(), 20 * MIB)
        self.assertEqual(simulated.physical_bytes() - held, 20 * MIB)
        statistics = torch.cuda.memory_stats()
        self.assertEqual(statistics["active_bytes.all.current"], 4 * MIB)
        self.assertEqual(statistics["segment.large_pool.current"], 1)
        self.assertEqual(statistics["num_device_alloc"], 1)
        del block
        self.assertEqual(torch.cuda.memory_allocated(), 0)
        self.assertEqual(simulated.physical_bytes() - held, 20 * MIB)
        torch.cuda.empty_cache()
        self.assertEqual(simulated.physical_bytes(), held)
        self.assertIn("GPU reserved memory", torch.cuda.memory_summary())

    def test_running_out_tells_figures_and_leaves_all_usable(self):
        kept = torch.empty(5 * GIB, dtype=torch.uint8, device="cuda")
        with self.assertRaises(torch.OutOfMemoryError) as raised:
            torch.empty(6 * GIB, dtype=torch.uint8, device="cuda")
        message = str(raised.exception)
        self.assertRegex(message, r"Tried to allocate 6\.00 GiB\. GPU 0 has a total capacity of 8")
        self.assertRegex(message, r"this process has 5\.\d\d GiB memory in use")
        self.assertEqual(torch.cuda.memory_stats()["num_ooms"], 1)
        del kept
        # The cached 5 GiB have to be given back first.
        block = torch.empty(6 * GIB, dtype=torch.uint8, device="cuda")
        self.assertEqual(torch.cuda.memory_stats()["num_alloc_retries"], 2)
        self.assertEqual(torch.cuda.memory_reserved(), 6 * GIB)
        del block

    def test_a_fraction_limits_this_process(self):
        torch.cuda.set_per_process_memory_fraction(0.25)
        self.addCleanup(torch.cuda.set_per_process_memory_fraction, 1.0)
        with self.assertRaisesRegex(torch.OutOfMemoryError, "2.00 GiB allowed"):
            torch.empty(3 * GIB, dtype=torch.uint8, device="cuda")

    def test_a_snapshot_lists_every_segment_and_event(self):
        torch.cuda.memory._record_memory_history(max_entries=1000)
        self.addCleanup(torch.cuda.memory._record_memory_history, enabled=None)
        block = torch.empty(3 * MIB, dtype=torch.uint8, device="cuda")
        del block
        snapshot = torch.cuda.memory._snapshot()
        total = sum(segment["total_size"] for segment in snapshot["segments"])
        self.assertEqual(total, torch.cuda.memory_reserved())
        actions = [event["action"] for event in snapshot["device_traces"][0]]
        self.assertEqual(
            actions, ["segment_alloc", "alloc", "free_requested", "free_completed"])

    def test_a_pool_of_the_programs_own(self):
        pool = torch.cuda.MemPool()
        with torch.cuda.use_mem_pool(pool):
            block = torch.empty(4 * MIB, dtype=torch.uint8, device="cuda")
        self.assertEqual([s["total_size"] for s in pool.snapshot()], [20 * MIB])
        outside = torch.empty(4 * MIB, dtype=torch.uint8, device="cuda")
        self.assertEqual(len(pool.snapshot()), 1)
        del block, outside, pool
        give_back()
        self.assertEqual(torch.cuda.memory_reserved(), 0)


class Copies(OnDevice):
    def test_what_is_copied_in_comes_back(self):
        host = torch.arange(100_000)
        device = host.cuda()
        self.assertTrue(torch.equal(device.cpu(), host))
        clone = device.clone()
        part = clone[1000:2000].cpu()
        self.assertTrue(torch.equal(part, host[1000:2000]))
        clone[:1000].copy_(device[5000:6000])
        self.assertTrue(torch.equal(clone[:1000].cpu(), host[5000:6000]))

    def test_pinned_memory_is_the_drivers(self):
        pinned = torch.arange(1 << 20).pin_memory()
        self.assertTrue(pinned.is_pinned())
        self.assertFalse(torch.arange(3).is_pinned())
        device = pinned.to("cuda", non_blocking=True)
        back = torch.empty(1 << 20, dtype=torch.int64, pin_memory=True)
        back.copy_(device, non_blocking=True)
        torch.cuda.synchronize()
        self.assertTrue(torch.equal(back, pinned))
        self.assertGreaterEqual(torch.cuda.host_memory_stats()["allocated_bytes.current"], 16 * MIB)


class Streams(OnDevice):
    def test_time_passes_on_the_device(self):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        stream = torch.cuda.current_stream()
        start.record()
        simulated.launch(stream, 5_000_000)
        end.record()
        self.assertFalse(end.query())
        end.synchronize()
        self.assertTrue(end.query())
        self.assertAlmostEqual(start.elapsed_time(end), 5.0, delta=0.1)

    def test_a_recorded_stream_keeps_a_block_until_it_is_done(self):
        side = torch.cuda.Stream()
        block = torch.empty(16 * MIB, dtype=torch.uint8, device="cuda")
        address = block.data_ptr()
        side.wait_stream(torch.cuda.current_stream())
        simulated.launch(side, 50_000_000)
        block.record_stream(side)
        del block
        early = torch.empty(16 * MIB, dtype=torch.uint8, device="cuda")
        self.assertNotEqual(early.data_ptr(), address)
        side.synchronize()
        late = [torch.empty(16 * MIB, dtype=torch.uint8, device="cuda") for _ in range(2)]
        self.assertIn(address, [block.data_ptr() for block in late])

    def test_the_oracle_sees_a_use_after_the_end(self):
        address, stream = torch.cuda.caching_allocator_alloc(MIB), torch.cuda.current_stream()
        simulated.check("alloc", address, MIB, stream)
        simulated.check("use", address, stream)
        self.assertEqual(simulated.violation_count(), self.violations)
        simulated.check("free", address)
        torch.cuda.caching_allocator_delete(address)
        simulated.check("use", address, stream)
        self.violations += 1
        self.assertEqual(simulated.violation_count(), self.violations)

    def test_streams_have_priorities_and_wait_for_each_other(self):
        high = torch.cuda.Stream(priority=-1)
        self.assertEqual(high.priority, -1)
        simulated.launch(high, 1_000_000)
        torch.cuda.current_stream().wait_stream(high)
        event = torch.cuda.current_stream().record_event()
        self.assertFalse(event.query())
        event.synchronize()
        self.assertTrue(high.query())


class Graphs(OnDevice):
    def capture(self, pool=None):
        model = nn.Sequential(*[nn.Linear(512, 512) for _ in range(4)]).cuda()
        rows = torch.randn(64, 512, device="cuda")
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            model(rows).sum().backward()
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=pool):
            result = model(rows)
            result.sum().backward()
        return graph, result

    def test_a_graph_has_a_pool_of_its_own_and_replays(self):
        graph, result = self.capture()
        pools = {s["segment_pool_id"] for s in torch.cuda.memory_snapshot()}
        self.assertIn(graph.pool(), pools)
        reserved = torch.cuda.memory_reserved()
        launches = simulated.calls_of("cuGraphLaunch")
        for _ in range(3):
            graph.replay()
        torch.cuda.synchronize()
        self.assertEqual(simulated.calls_of("cuGraphLaunch") - launches, 3)
        self.assertEqual(torch.cuda.memory_reserved(), reserved)
        other, also = self.capture(pool=graph.pool())
        self.assertEqual(other.pool(), graph.pool())
        del graph, other, result, also
        give_back()
        self.assertEqual(torch.cuda.memory_snapshot(), [])


class Network(nn.Module):
    def __init__(self):
        super().__init__()
        self.convolution = nn.Conv2d(3, 16, 3, padding=1)
        self.norm = nn.BatchNorm2d(16)
        self.into = nn.Linear(16, 64)
        self.attention = nn.MultiheadAttention(64, 4, batch_first=True)
        self.out = nn.Linear(64, 10)

    def forward(self, images):
        image = torch.relu(self.norm(self.convolution(images)))
        tokens = self.into(image.flatten(2).transpose(1, 2))
        mixed, _ = self.attention(tokens, tokens, tokens, need_weights=False)
        return self.out(mixed.mean(1))


class Training(OnDevice):
    def train(self, dtype, steps):
        model = Network().cuda()
        optimizer = torch.optim.AdamW(model.parameters())
        peaks = []
        for _ in range(steps):
            torch.cuda.reset_peak_memory_stats()
            images = torch.randn(8, 3, 32, 32).cuda()
            labels = torch.randint(10, (8,)).cuda()
            with torch.autocast("cuda", dtype=dtype, enabled=dtype != torch.float32):
                loss = nn.functional.cross_entropy(model(images), labels)
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            peaks.append(torch.cuda.max_memory_allocated())
        return peaks

    def test_a_model_trains_without_a_violation_in_the_same_memory_each_step(self):
        names = ("cudaLaunchKernel", "cudnnBackendExecute")
        # In each of five steps the convolution forward and its weights' gradient; the images need
        # none. In bfloat16 cuDNN does the attention too, and its gradients.
        for dtype, expected in ((torch.float32, 10), (torch.bfloat16, 20)):
            with self.subTest(dtype=dtype):
                launches, plans = (simulated.counted(name) for name in names)
                peaks = self.train(dtype, 5)
                self.assertEqual(len(set(peaks[2:])), 1, peaks)
                self.assertGreater(peaks[-1], 4 * MIB)
                self.assertGreater(simulated.counted(names[0]), launches)
                self.assertEqual(simulated.counted(names[1]) - plans, expected)


def use_the_device(_):
    return torch.ones(4, device="cuda").cpu().sum().item()


class Processes(OnDevice):
    def test_b59_a_forked_child_is_refused_and_the_parent_goes_on(self):
        torch.ones(1, device="cuda")
        reader, writer = os.pipe()
        child = os.fork()
        if child == 0:
            try:
                torch.ones(1, device="cuda")
                message = "worked"
            except RuntimeError as error:
                message = str(error)
            os.write(writer, message.encode())
            os._exit(0)
        os.close(writer)
        message = os.read(reader, 4096).decode()
        os.close(reader)
        os.waitpid(child, 0)
        self.assertIn("Cannot re-initialize CUDA in forked subprocess", message)
        self.assertEqual(torch.ones(3).cuda().cpu().tolist(), [1, 1, 1])

    def test_a_spawned_child_has_devices_of_its_own(self):
        block = torch.empty(7 * GIB, dtype=torch.uint8, device="cuda")
        context = torch.multiprocessing.get_context("spawn")
        with context.Pool(1) as pool:
            self.assertEqual(pool.map(use_the_device, [0]), [0])
        del block
