"""Programs of several streams, of graphs, and of hosts that wait.

Most are after public reports of memory that an allocator strands, which the notes name.
"""

from __future__ import annotations

import random

from parts import DEVICE, Step, llama, recorded, tokens, training

import torch
from torch import nn

GIB = 1 << 30


@recorded(30, "inference of four models in half precision, each on a stream of its own, with "
              "batches of 1..64 that a fifth stream copies in")
def four_streams_inference() -> Step:
    from torchvision import models
    choose = random.Random(11)
    with torch.device(DEVICE):
        nets = [make().half().eval() for make in (
            models.resnet50, models.vit_b_16, models.efficientnet_b4, models.convnext_small)]
    streams, copies = [torch.cuda.Stream() for _ in nets], torch.cuda.Stream()

    def step() -> None:
        for net, stream in zip(nets, streams):
            with torch.cuda.stream(copies):
                images = torch.empty(choose.randrange(1, 65), 3, 224, 224, device=DEVICE).half()
            stream.wait_stream(copies)
            images.record_stream(stream)
            with torch.cuda.stream(stream), torch.inference_mode():
                net(images)
        if choose.random() < 0.5:
            torch.cuda.synchronize()
    return step


@recorded(4, "rank 0 of 16 trains a Llama of width 3072 and 12 layers with FSDP2, batches of 2 of "
             "random length 256..3072, mixed precision, AdamW")
def fsdp2_llama_varying_length() -> Step:
    import torch.distributed as dist
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
    from torch.testing._internal.distributed.fake_pg import FakeStore
    dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=16)
    choose = random.Random(21)
    model = llama(12, hidden_size=3072, intermediate_size=8192, num_attention_heads=24)
    policy = MixedPrecisionPolicy(torch.bfloat16, torch.float32)
    for layer in model.model.layers:
        fully_shard(layer, mp_policy=policy)
    fully_shard(model, mp_policy=policy)

    def loss() -> torch.Tensor:
        given = tokens(2, choose.randrange(256, 3073))
        return model(input_ids=given, labels=given, use_cache=False).loss
    return training(model, loss)


@recorded(6, "a Llama of width 2048 is wrapped for mixed precision on a stream that is used once, "
             "and trained on another, random length 256..2048 (Megatron-LM#6885)")
def wrapped_on_a_stream_used_once() -> Step:
    choose, model = random.Random(22), llama(12, hidden_size=2048, intermediate_size=8192)
    once = torch.cuda.Stream()
    once.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(once):
        # Buckets of gradients, and a full copy of each weight on the way to its master.
        weights = list(model.parameters())
        whole = [weight.detach().float() for weight in weights]
        flat = torch.cat([one.flatten() for one in whole])
        masters = [one.clone() for one in flat.split([one.numel() for one in whole])]
        del whole, flat
    torch.cuda.current_stream().wait_stream(once)
    optimizer = torch.optim.AdamW(masters, lr=1e-4)

    def step() -> None:
        given = tokens(4, choose.randrange(256, 2049))
        model(input_ids=given, labels=given, use_cache=False).loss.backward()
        for master, weight in zip(masters, weights):
            master.grad = weight.grad.float().flatten()
            weight.grad = None
        nn.utils.clip_grad_norm_(masters, 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        for master, weight in zip(masters, weights):
            weight.data.copy_(master.view_as(weight))
    return step


@recorded(8, "ResNet-50 training, each epoch with a prefetching stream of its own, batches of 96 "
             "and a shorter last one, evaluation at another resolution (timm#2781)")
def prefetch_stream_each_epoch() -> Step:
    from torchvision.models import resnet50
    with torch.device(DEVICE):
        model = resnet50()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)

    def batches(sizes: list[int], pixels: int) -> object:
        stream, ahead = torch.cuda.Stream(), None
        for size in [*sizes, 0]:
            following = None
            if size:
                with torch.cuda.stream(stream):
                    images = torch.empty(size, 3, pixels, pixels, dtype=torch.uint8, device=DEVICE)
                    following = images.float().sub_(127.0).div_(58.0)
            if ahead is not None:
                yield ahead
            torch.cuda.current_stream().wait_stream(stream)
            ahead = following

    def epoch() -> None:
        model.train()
        for images in batches([96, 96, 96, 41], 224):
            labels = torch.zeros(len(images), dtype=torch.long, device=DEVICE)
            with torch.autocast(DEVICE, torch.bfloat16):
                loss = nn.functional.cross_entropy(model(images), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            torch.cuda.synchronize()
        model.eval()
        with torch.inference_mode():
            for images in batches([192, 30], 288):
                model(images)
    return epoch


@recorded(12, "a Llama of width 2048 generates, and takes new weights in buckets on two fresh "
              "streams, the host waiting before and after (vllm#52950)")
def weights_synchronised_on_fresh_streams() -> Step:
    choose = random.Random(23)
    model = llama(16, hidden_size=2048, intermediate_size=8192).eval()
    weights = list(model.parameters())

    def generate() -> None:
        batch, length = choose.randrange(8, 33), choose.randrange(100, 900)
        cache = torch.empty(16, 2, batch, 8, length + 64, 64, dtype=torch.bfloat16, device=DEVICE)
        with torch.inference_mode():
            for size in (length, 1, 1, 1):
                model(input_ids=tokens(batch, size), use_cache=False, logits_to_keep=1)
        del cache

    def synchronise() -> None:
        streams = [torch.cuda.Stream(), torch.cuda.Stream()]
        bucket, bytes_ = [], 0
        for weight in weights:
            bucket.append(weight)
            bytes_ += weight.nbytes
            if bytes_ < GIB // 2 and weight is not weights[-1]:
                continue
            with torch.cuda.stream(streams[0]):
                flat = torch.empty(bytes_, dtype=torch.uint8, device=DEVICE)
            with torch.cuda.stream(streams[1]):
                parts = flat.split([one.nbytes for one in bucket])
                fresh = [part.clone().view(torch.bfloat16) for part in parts]
                for one, new in zip(bucket, fresh):
                    one.data.copy_(new.view_as(one))
            for stream in streams:
                stream.synchronize()
            del flat, parts, fresh
            bucket, bytes_ = [], 0

    def step() -> None:
        generate()
        torch.cuda.synchronize()
        synchronise()
        torch.cuda.synchronize()
    return step


@recorded(4, "a Llama of width 2048 is captured at 19 batch sizes, largest first, each on a side "
             "stream of its own, all in one pool, then serves prompts (sglang#33220)")
def graphs_of_many_sizes() -> Step:
    choose = random.Random(24)
    model, pool = llama(12, hidden_size=2048, intermediate_size=8192).eval(), None
    graphs: dict[int, tuple[torch.cuda.CUDAGraph, torch.Tensor, torch.Tensor]] = {}

    def run(given: torch.Tensor) -> torch.Tensor:
        return model(input_ids=given, use_cache=False, logits_to_keep=1).logits

    def capture() -> None:
        nonlocal pool
        for batch in sorted([1, 2, 4, *range(8, 129, 8)], reverse=True):
            given, graph = tokens(batch, 16), torch.cuda.CUDAGraph()
            with torch.inference_mode():
                run(given)
                with torch.cuda.graph(graph, pool=pool, stream=torch.cuda.Stream()):
                    out = run(given)
            pool = graph.pool()
            graphs[batch] = graph, given, out

    def step() -> None:
        if not graphs:
            return capture()
        with torch.inference_mode():
            for _ in range(6):
                run(tokens(choose.randrange(1, 9), choose.randrange(100, 1500))).argmax(-1)
                for _ in range(8):
                    graphs[choose.choice(list(graphs))][0].replay()
                torch.cuda.synchronize()
        return None
    return step


@recorded(4, "one of four pipeline stages, 8 layers of a Llama of width 4096, one forward one "
             "backward over 8 microbatches, what comes and goes on two streams of its own")
def pipeline_stage() -> Step:
    choose, layers = random.Random(25), llama(8).model.layers
    rotary = llama(1).model.rotary_emb
    into, out_of = torch.cuda.Stream(), torch.cuda.Stream()
    optimizer = torch.optim.SGD(layers.parameters(), lr=1e-4)

    def come(length: int) -> torch.Tensor:
        with torch.cuda.stream(into):
            given = torch.empty(1, length, 4096, dtype=torch.bfloat16, device=DEVICE)
        torch.cuda.current_stream().wait_stream(into)
        given.record_stream(torch.cuda.current_stream())
        return given

    def go(sent: torch.Tensor) -> None:
        out_of.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(out_of):
            sent.clone()
        sent.record_stream(out_of)

    def forward(length: int) -> tuple[torch.Tensor, torch.Tensor]:
        given = come(length).requires_grad_()
        places = torch.arange(length, device=DEVICE)[None]
        out, places = given, rotary(given, places)
        for layer in layers:
            out = layer(out, position_embeddings=places)
        go(out.detach())
        return given, out

    def backward(given: torch.Tensor, out: torch.Tensor) -> None:
        out.backward(come(out.shape[1]))
        go(given.grad)

    def step() -> None:
        lengths = [choose.randrange(512, 4097) for _ in range(8)]
        ahead: list[tuple[torch.Tensor, torch.Tensor]] = []
        for length in lengths:
            ahead.append(forward(length))
            if len(ahead) == 4:
                backward(*ahead.pop(0))
        while ahead:
            backward(*ahead.pop(0))
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        torch.cuda.synchronize()
    return step


class Exchange(torch.autograd.Function):
    """Tokens to the ranks of their experts, and back: so many come as are sent here."""

    stream: torch.cuda.Stream

    @staticmethod
    def forward(context: object, sent: torch.Tensor, come: int) -> torch.Tensor:
        context.rows = len(sent)
        return exchange(Exchange.stream, sent, come)

    @staticmethod
    def backward(context: object, grad: torch.Tensor) -> tuple[torch.Tensor, None]:
        return exchange(Exchange.stream, grad, context.rows), None


def exchange(stream: torch.cuda.Stream, sent: torch.Tensor, come: int) -> torch.Tensor:
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        come_in = torch.empty(come, sent.shape[1], dtype=sent.dtype, device=DEVICE)
    sent.record_stream(stream)
    torch.cuda.current_stream().wait_stream(stream)
    come_in.record_stream(torch.cuda.current_stream())
    return come_in


class Experts(nn.Module):
    """The experts of one rank of eight, with the exchange before and after them."""

    def __init__(self, width: int, wide: int, choose: random.Random) -> None:
        super().__init__()
        self.choose, self.norm = choose, nn.LayerNorm(width)
        self.router = nn.Linear(width, 64)
        self.experts = nn.ModuleList(
            nn.Sequential(nn.Linear(width, wide), nn.SiLU(), nn.Linear(wide, width))
            for _ in range(8))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        shape, flat = x.shape, self.norm(x).flatten(0, 1)
        weight = self.router(flat).softmax(-1).topk(2).values
        shares = [self.choose.uniform(0.4, 1.6) for _ in range(8)]
        rows = [int(len(flat) * 2 * share / 8) + 1 for share in shares]
        given = Exchange.apply(flat.repeat_interleave(2, 0), sum(rows))
        done = [expert(one) for expert, one in zip(self.experts, given.split(rows))]
        back = Exchange.apply(torch.cat(done), 2 * len(flat))
        return x + (back.view(len(flat), 2, -1) * weight[..., None]).sum(1).view(shape)


@recorded(6, "a rank of eight trains 8 layers of 64 experts each, tokens exchanged on a stream of "
             "its own, so many as are sent, batches of 4 of random length 512..2048, AdamW")
def experts_exchange_tokens() -> Step:
    choose, Exchange.stream = random.Random(26), torch.cuda.Stream()
    with torch.device(DEVICE):
        words, guess = nn.Embedding(32000, 2048), nn.Linear(2048, 32000)
        layers = nn.Sequential(*(Experts(2048, 1408, choose) for _ in range(8)))

    def loss() -> torch.Tensor:
        given = tokens(4, choose.randrange(512, 2049))
        out = guess(layers(words(given))).float()
        return nn.functional.cross_entropy(out.flatten(0, 1), given.flatten())
    return training(nn.ModuleList([words, layers, guess]), loss)


@recorded(5, "an engine runs a Llama of 24 layers whose weights it copies in on two streams, layer "
             "by layer, two ahead, and swaps blocks of caches on a third")
def engine_with_copy_streams() -> Step:
    choose = random.Random(27)
    whole = llama(1)
    layer, rotary = whole.model.layers[0].eval(), whole.model.rotary_emb
    weights = [(weight, weight.shape) for weight in layer.parameters()]
    copies = [torch.cuda.Stream(), torch.cuda.Stream()]
    swaps, caches = torch.cuda.Stream(), []

    def fetch(number: int) -> list[torch.Tensor]:
        with torch.cuda.stream(copies[number % 2]):
            return [torch.empty(shape, dtype=torch.bfloat16, device=DEVICE) for _, shape in weights]

    def run(batch: int, length: int) -> None:
        here = torch.cuda.current_stream()
        out = torch.empty(batch, length, 4096, dtype=torch.bfloat16, device=DEVICE)
        places = rotary(out, torch.arange(length, device=DEVICE)[None])
        ahead = [fetch(0), fetch(1)]
        for number in range(24):
            fetched = ahead.pop(0)
            here.wait_stream(copies[number % 2])
            for (weight, _), come in zip(weights, fetched):
                weight.data = come
                come.record_stream(here)
            if number + 2 < 24:
                ahead.append(fetch(number + 2))
            out = layer(out, position_embeddings=places)
            del fetched, come

    def step() -> None:
        batch = choose.randrange(1, 9)
        with torch.inference_mode():
            for length in (choose.randrange(64, 2048), 1, 1, 1):
                run(batch, length)
            with torch.cuda.stream(swaps):
                size = choose.randrange(8, 129) << 20
                caches.append(torch.empty(size, dtype=torch.uint8, device=DEVICE))
                if len(caches) > 6:
                    caches.pop(choose.randrange(len(caches)))
        torch.cuda.synchronize()
    return step
