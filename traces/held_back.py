"""Programs that the policy was not made on: recorded once it stood, to see what it does on others.

Seven of the ten have several streams, two of these graphs. No constant of Drystone is to be chosen
on them: what is learned here belongs into a program of `single.py` or `streams.py`.
"""

from __future__ import annotations

import random

from parts import DEVICE, HELD_BACK, Step, llama, recorded, tokens, training

import torch
from torch import nn

MIB = 1 << 20


def ahead_of(side: torch.cuda.Stream, make: object) -> torch.Tensor:
    """What `make` returns, made on a stream beside the current one, which then waits for it."""
    here = torch.cuda.current_stream()
    with torch.cuda.stream(side):
        made = make()
    here.wait_stream(side)
    made.record_stream(here)
    return made


class DiTBlock(nn.Module):
    """Attention and a wide layer, shifted and scaled by what the step is conditioned on."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.condition = nn.Linear(width, 6 * width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.wide = nn.Sequential(
            nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x: torch.Tensor, told: torch.Tensor) -> torch.Tensor:
        parts = self.condition(nn.functional.silu(told))[:, None].split(x.shape[-1], -1)
        given = nn.functional.layer_norm(x, x.shape[-1:]) * (1 + parts[0]) + parts[1]
        q, k, v = self.qkv(given).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        seen = nn.functional.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(-2)
        x = x + parts[2] * self.out(seen)
        given = nn.functional.layer_norm(x, x.shape[-1:]) * (1 + parts[3]) + parts[4]
        return x + parts[5] * self.wide(given)


@recorded(6, "a diffusion transformer of 24 blocks makes images of many shapes, eight steps each "
              "with guidance; a decoder turns them to pixels on a stream of its own, bfloat16",
          HELD_BACK)
def diffusion_transformer_shapes() -> Step:
    choose, decoding = random.Random(41), torch.cuda.Stream()
    with torch.device(DEVICE):
        blocks = nn.ModuleList(DiTBlock(1536, 24) for _ in range(24)).bfloat16()
        into, out_of = nn.Linear(64, 1536).bfloat16(), nn.Linear(1536, 64).bfloat16()
        widths = [16, 512, 512, 256, 128]
        decoder = nn.Sequential(*(one for before, after in zip(widths, widths[1:]) for one in (
            nn.Conv2d(before, after, 3, padding=1), nn.GroupNorm(32, after), nn.SiLU(),
            nn.Upsample(scale_factor=2)))).bfloat16()

    def step() -> None:
        height, width = (8 * choose.randrange(6, 17) for _ in range(2))
        images = choose.randrange(1, 5)
        with torch.inference_mode():
            latent = torch.empty(images, height * width // 4, 64, dtype=torch.bfloat16,
                                 device=DEVICE)
            for _ in range(8):
                both, told = torch.cat([latent, latent]), torch.empty(
                    2 * images, 1536, dtype=torch.bfloat16, device=DEVICE)
                x = into(both)
                for block in blocks:
                    x = block(x, told)
                asked, free = out_of(x).split(images)
                latent = latent - 0.1 * (free + 4.0 * (asked - free))
            decoding.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(decoding):
                grid = latent.view(images, 16, height, width)
                for one in grid.split(1):
                    (decoder(one).float().clamp(0, 1) * 255).byte()
            latent.record_stream(decoding)
        if choose.random() < 0.3:
            torch.cuda.synchronize()
    return step


@recorded(4, "RL after training: a Llama of 6 layers decodes by graphs of six batch sizes beside a "
             "cache, frees it, empties the cache, and trains on what it wrote, random lengths",
          HELD_BACK)
def rollout_sleeps_then_trains() -> Step:
    choose = random.Random(42)
    model = llama(6, hidden_size=3072, intermediate_size=8192, num_attention_heads=24,
                  vocab_size=64000)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-6)
    graphs: dict[int, tuple[torch.cuda.CUDAGraph, torch.Tensor, torch.Tensor]] = {}

    def decode(given: torch.Tensor) -> torch.Tensor:
        return model(input_ids=given, use_cache=False, logits_to_keep=1).logits.float().softmax(-1)

    def capture() -> None:
        pool = None
        for batch in (64, 48, 32, 16, 8, 4):
            given, graph = tokens(batch, 4), torch.cuda.CUDAGraph()
            decode(given)
            with torch.cuda.graph(graph, pool=pool):
                out = decode(given)
            pool = graph.pool()
            graphs[batch] = graph, given, out

    def rollout() -> None:
        blocks = [torch.empty(choose.randrange(96, 161) * MIB, dtype=torch.uint8, device=DEVICE)
                  for _ in range(24)]
        if not graphs:
            capture()
        for _ in range(4):
            decode(tokens(choose.randrange(4, 17), choose.randrange(64, 700)))
            for _ in range(8):
                graphs[choose.choice(list(graphs))][0].replay()
        del blocks
        torch.cuda.synchronize()
        torch.cuda.empty_cache()

    def train() -> None:
        with torch.no_grad():
            for _ in range(3):
                model(input_ids=tokens(8, choose.randrange(128, 1024)), use_cache=False,
                      logits_to_keep=64).logits.float().log_softmax(-1)
        for _ in range(3):
            given = tokens(choose.randrange(2, 5), choose.randrange(128, 1024))
            model(input_ids=given, labels=given, use_cache=False).loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        torch.cuda.synchronize()
        torch.cuda.empty_cache()

    def step() -> None:
        with torch.inference_mode():
            rollout()
        train()
    return step


class LowRank(nn.Module):
    """A frozen layer with a trained addition of low rank."""

    def __init__(self, whole: nn.Linear, rank: int) -> None:
        super().__init__()
        self.whole = whole.requires_grad_(False)
        self.down = nn.Linear(whole.in_features, rank, bias=False)
        self.up = nn.Linear(rank, whole.out_features, bias=False)
        self.drop = nn.Dropout(0.05)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.whole(x) + self.up(self.down(self.drop(x)))


@recorded(3, "low-rank fine-tuning of a Llama of 5 layers on packed texts, accumulated over four "
             "batches that a loader copies in on a stream of its own, losses in parts", HELD_BACK)
def low_rank_on_packed_texts() -> Step:
    choose, copying = random.Random(43), torch.cuda.Stream()
    model = llama(5, vocab_size=64000).requires_grad_(False)
    with torch.device(DEVICE):
        for layer in model.model.layers:
            for name in ("q_proj", "k_proj", "v_proj", "o_proj"):
                setattr(layer.self_attn, name, LowRank(getattr(layer.self_attn, name), 16))
    trained = [weight for weight in model.parameters() if weight.requires_grad]
    optimizer = torch.optim.AdamW(trained, lr=1e-4)

    def batch() -> torch.Tensor:
        texts, room = [], 4096
        while room > 256:
            length = min(room, int(choose.lognormvariate(6.2, 0.8)) + 16)
            texts.append(ahead_of(copying, lambda: tokens(1, length)))
            room -= length
        return torch.cat(texts, 1)

    def step() -> None:
        for _ in range(4):
            given = batch()
            with torch.autocast(DEVICE, torch.bfloat16):
                hidden = model.model(input_ids=given, use_cache=False).last_hidden_state
                for part, said in zip(hidden.split(1024, 1), given.split(1024, 1)):
                    logits = model.lm_head(part).float()
                    loss = nn.functional.cross_entropy(logits.flatten(0, 1), said.flatten())
                    loss.backward(retain_graph=True)
            del hidden, part, logits, loss
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
    return step


@recorded(10, "an encoder and a decoder of 6 layers, width 768, trained on speech in six buckets "
              "of lengths, as many as fit into 240 s, evaluated after each fourth", HELD_BACK)
def speech_in_buckets() -> Step:
    choose = random.Random(44)
    with torch.device(DEVICE):
        layer = dict(d_model=768, nhead=12, dim_feedforward=3072, batch_first=True, dropout=0.1)
        encoder = nn.TransformerEncoder(nn.TransformerEncoderLayer(**layer), 6)
        decoder = nn.TransformerDecoder(nn.TransformerDecoderLayer(**layer), 6)
        heard = nn.Sequential(nn.Conv1d(80, 768, 3, padding=1), nn.GELU(),
                              nn.Conv1d(768, 768, 3, stride=2, padding=1), nn.GELU())
        words, guess = nn.Embedding(51865, 768), nn.Linear(768, 51865)

    def run(seconds: int) -> torch.Tensor:
        batch, said = 240 // seconds, tokens(240 // seconds, choose.randrange(2, 5) * seconds + 4)
        sound = heard(torch.randn(batch, 80, 100 * seconds, device=DEVICE)).transpose(1, 2)
        mask = nn.Transformer.generate_square_subsequent_mask(said.shape[1], device=DEVICE)
        out = guess(decoder(words(said), encoder(sound), tgt_mask=mask)).float()
        return nn.functional.cross_entropy(out.flatten(0, 1), said.flatten())

    everything = nn.ModuleList([encoder, decoder, heard, words, guess])
    train = training(everything, lambda: run(choose.choice((5, 8, 12, 15, 20, 30))))
    steps = 0

    def step() -> None:
        nonlocal steps
        train()
        steps += 1
        if steps % 4 == 0:
            everything.eval()
            with torch.no_grad(), torch.autocast(DEVICE, torch.bfloat16):
                for _ in range(4):
                    run(choose.choice((8, 15, 30)))
            everything.train()
    return step


@recorded(24, "a graph network of eight layers on molecules joined into batches, edges and nodes "
              "of random number, messages of every edge, AdamW", HELD_BACK)
def molecules_graph_network() -> Step:
    choose = random.Random(45)

    def wide(width: int) -> nn.Module:
        return nn.Sequential(nn.Linear(width, 512), nn.SiLU(), nn.Linear(512, 512))

    with torch.device(DEVICE):
        messages = nn.ModuleList(wide(3 * 256 + 16) for _ in range(8))
        updates = nn.ModuleList(nn.Linear(256 + 512, 256) for _ in range(8))
        atoms, guess = nn.Embedding(100, 256), nn.Linear(256, 1)
        kinds = nn.Linear(16, 256)

    def loss() -> torch.Tensor:
        nodes = sum(choose.randrange(8, 90) for _ in range(192))
        edges = int(nodes * choose.uniform(6, 14))
        at = torch.zeros(nodes, dtype=torch.long, device=DEVICE)
        ends = torch.zeros(2, edges, dtype=torch.long, device=DEVICE)
        near = torch.rand(edges, 16, device=DEVICE)
        x, kind = atoms(at), kinds(near)
        for message, update in zip(messages, updates):
            said = message(torch.cat([x[ends[0]], x[ends[1]], kind, near], 1)).float()
            heard = torch.zeros(nodes, 512, device=DEVICE).index_add(0, ends[1], said)
            x = x + update(torch.cat([x, heard], 1))
        return guess(x).float().square().mean()
    return training(nn.ModuleList([messages, updates, atoms, guess, kinds]), loss)


@recorded(8, "a detector on ResNet-50 trained on pairs of images of random shape, 40 to 900 boxes "
             "each, their crops in four levels, losses of as many as match", HELD_BACK)
def detector_with_many_boxes() -> Step:
    from torchvision.models import resnet50
    choose = random.Random(46)
    with torch.device(DEVICE):
        net = resnet50()
        first = nn.Sequential(net.conv1, net.bn1, net.relu, net.maxpool, net.layer1)
        stages = nn.ModuleList([first, net.layer2, net.layer3, net.layer4])
        sides = nn.ModuleList(nn.Conv2d(size, 256, 1) for size in (256, 512, 1024, 2048))
        propose = nn.Conv2d(256, 15, 3, padding=1)
        head = nn.Sequential(nn.Linear(256 * 49, 1024), nn.ReLU(), nn.Linear(1024, 91 * 5))

    def loss() -> torch.Tensor:
        height, width = (32 * choose.randrange(15, 34) for _ in range(2))
        x, levels, total = torch.randn(2, 3, height, width, device=DEVICE), [], 0.0
        for stage, side in zip(stages, sides):
            x = stage(x)
            levels.append(side(x))
        for level in levels:
            total = total + propose(level).float().sigmoid().mean()
        crops = []
        for level in levels:
            for image in level.split(1):
                boxes = choose.randrange(10, 225)
                at = torch.rand(boxes, 7, 7, 2, device=DEVICE)
                many = image.expand(boxes, -1, -1, -1).float()
                crops.append(nn.functional.grid_sample(many, at, align_corners=False))
        out = head(torch.cat(crops).flatten(1)).float()
        matched = out[:choose.randrange(1, len(out))]
        return total + matched.square().mean() + out.logsumexp(1).mean()
    return training(nn.ModuleList([stages, sides, propose, head]), loss)


class Shards:
    """Weights of which a rank of eight keeps an eighth, gathered one layer ahead of its use."""

    def __init__(self, layers: nn.ModuleList) -> None:
        self.gathering, self.reducing = torch.cuda.Stream(), torch.cuda.Stream()
        self.layers, self.shapes = layers, [[w.shape for w in one.parameters()] for one in layers]
        self.own = [torch.zeros(sum(w.numel() for w in one.parameters()) // 8, device=DEVICE)
                    for one in layers]
        self.first, self.second = ([torch.zeros_like(one) for one in self.own] for _ in range(2))
        self.reduced: list[torch.Tensor | None] = [None] * len(layers)
        for one in layers:
            for weight in one.parameters():
                weight.data = torch.empty(0, dtype=torch.bfloat16, device=DEVICE)

    def gather(self, number: int) -> list[torch.Tensor]:
        with torch.cuda.stream(self.gathering):
            low = self.own[number].bfloat16()
            whole = torch.empty(8 * len(low) + 8, dtype=torch.bfloat16, device=DEVICE)
            sizes = [shape.numel() for shape in self.shapes[number]]
            parts = whole[:sum(sizes)].split(sizes)
            return [part.view(shape) for part, shape in zip(parts, self.shapes[number])]

    def use(self, number: int, gathered: list[torch.Tensor]) -> None:
        here = torch.cuda.current_stream()
        here.wait_stream(self.gathering)
        for weight, come in zip(self.layers[number].parameters(), gathered):
            weight.data = come
            come.record_stream(here)

    def let_go(self, number: int) -> None:
        for weight in self.layers[number].parameters():
            weight.data = torch.empty(0, dtype=torch.bfloat16, device=DEVICE)

    def reduce(self, number: int, grads: list[torch.Tensor]) -> None:
        self.reducing.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self.reducing):
            flat = torch.cat([grad.flatten() for grad in grads])
            whole = nn.functional.pad(flat, (0, -len(flat) % 8))
            share = torch.empty(len(whole) // 8, dtype=whole.dtype, device=DEVICE).float()
            self.reduced[number] = share[:len(self.own[number])]
        for grad in grads:
            grad.record_stream(self.reducing)

    def step(self) -> None:
        torch.cuda.current_stream().wait_stream(self.reducing)
        for own, first, second, grad in zip(self.own, self.first, self.second, self.reduced):
            first.lerp_(grad, 0.1)
            second.mul_(0.99).addcmul_(grad, grad, value=0.01)
            own.addcdiv_(first, second.sqrt().add_(1e-8), value=-1e-4)
        self.reduced = [None] * len(self.own)


@recorded(6, "a rank of eight trains 16 layers of width 3072 whose weights it gathers one layer "
             "ahead on a stream and reduces on another, each layer computed again, random lengths",
          HELD_BACK)
def shards_gathered_ahead() -> Step:
    choose = random.Random(47)
    whole = llama(16, hidden_size=3072, intermediate_size=8192, num_attention_heads=24,
                  vocab_size=1000)
    layers, rotary = whole.model.layers, whole.model.rotary_emb
    shards = Shards(layers)

    def step() -> None:
        batch, length = choose.randrange(1, 4), choose.randrange(512, 3073)
        x = torch.zeros(batch, length, 3072, dtype=torch.bfloat16, device=DEVICE)
        places, kept = rotary(x, torch.arange(length, device=DEVICE)[None]), []
        ahead = shards.gather(0)
        with torch.no_grad():
            for number, layer in enumerate(layers):
                shards.use(number, ahead)
                ahead = shards.gather(number + 1) if number + 1 < len(layers) else None
                kept.append(x)
                x = layer(x, position_embeddings=places)
                shards.let_go(number)
        grad, ahead = torch.zeros_like(x), shards.gather(len(layers) - 1)
        for number in reversed(range(len(layers))):
            shards.use(number, ahead)
            ahead = shards.gather(number - 1) if number else None
            given = kept.pop().detach().requires_grad_()
            layers[number](given, position_embeddings=places).backward(grad)
            grads = [weight.grad for weight in layers[number].parameters()]
            for weight in layers[number].parameters():
                weight.grad = None
            shards.reduce(number, grads)
            grad = given.grad
            del grads
            shards.let_go(number)
        shards.step()
    return step


@recorded(4, "an engine serves by a Llama of 6 layers and a draft of 3 that writes by graphs, its "
             "cache grows by groups of pages, swapped in and out on a stream", HELD_BACK)
def draft_and_growing_pages() -> Step:
    choose, swapping = random.Random(48), torch.cuda.Stream()
    large = llama(6, hidden_size=3072, intermediate_size=8192, num_attention_heads=24,
                  vocab_size=64000).eval()
    draft = llama(3, hidden_size=1024, intermediate_size=4096, num_attention_heads=16,
                  vocab_size=64000).eval()
    requests: list[list[torch.Tensor]] = []
    graphs: list[tuple[torch.cuda.CUDAGraph, torch.Tensor, torch.Tensor]] = []

    def pages() -> torch.Tensor:
        # 64 tokens of keys and values.
        return torch.empty(12 * 2 * 8 * 64 * 64 * 2, dtype=torch.uint8, device=DEVICE)

    def capture() -> None:
        pool, side = torch.cuda.graph_pool_handle(), torch.cuda.Stream()
        for batch in (32, 16, 8, 4, 2, 1):
            given, graph = tokens(batch, 1), torch.cuda.CUDAGraph()
            draft(input_ids=given, use_cache=False)
            with torch.cuda.graph(graph, pool=pool, stream=side):
                out = draft(input_ids=given, use_cache=False).logits.float().softmax(-1)
            graphs.append((graph, given, out))

    def come() -> None:
        length = choose.randrange(32, 1200)
        large(input_ids=tokens(1, length), use_cache=False, logits_to_keep=1)
        draft(input_ids=tokens(1, length), use_cache=False, logits_to_keep=1)
        requests.append([pages() for _ in range(length // 64 + 1)])

    def swap_out() -> None:
        request = requests[choose.randrange(len(requests))]
        swapping.wait_stream(torch.cuda.current_stream())
        for number in range(len(request)):
            request[number].record_stream(swapping)
        with torch.cuda.stream(swapping):
            request[:] = [pages() for _ in request]
        torch.cuda.current_stream().wait_stream(swapping)

    def step() -> None:
        with torch.inference_mode():
            if not graphs:
                capture()
            for _ in range(5):
                while len(requests) < 24 and choose.random() < 0.6:
                    come()
                if not requests:
                    continue
                choose.choice(graphs)[0].replay()
                guessed = sum(choose.randrange(2, 7) for _ in requests)
                large(input_ids=tokens(1, guessed), use_cache=False).logits.float().softmax(-1)
                for request in requests:
                    if choose.random() < 0.2:
                        request.append(pages())
                requests[:] = [one for one in requests if choose.random() > 0.1]
                if requests and choose.random() < 0.1:
                    swap_out()
                    torch.cuda.synchronize()
    return step


@recorded(20, "a recommender of 26 tables, 1 to 400 MiB each, batches of 8192 with many values for "
              "some, which two streams bring and spread, sparse updates", HELD_BACK)
def recommender_of_26_tables() -> Step:
    choose = random.Random(49)
    copying, spreading = torch.cuda.Stream(), torch.cuda.Stream()
    rows = [int(2 ** choose.uniform(11, 19.6)) for _ in range(26)]
    with torch.device(DEVICE):
        tables = [torch.zeros(count, 128) for count in rows]
        states = [torch.zeros(count) for count in rows]
        dense = nn.Sequential(nn.Linear(13, 512), nn.ReLU(), nn.Linear(512, 128), nn.ReLU())
        over = nn.Sequential(nn.Linear(27 * 13 + 128, 1024), nn.ReLU(), nn.Linear(1024, 1))
    optimizer = torch.optim.Adagrad([*dense.parameters(), *over.parameters()])
    upper = torch.triu_indices(27, 27, 1, device=DEVICE)
    brought: list[list[torch.Tensor]] = []

    def bring() -> list[torch.Tensor]:
        with torch.cuda.stream(copying):
            many = [int(8192 * choose.uniform(1, 12)) if number % 4 == 0 else 8192
                    for number in range(26)]
            given = [torch.zeros(count, dtype=torch.long, device=DEVICE) for count in many]
        spreading.wait_stream(copying)
        with torch.cuda.stream(spreading):
            spread = [one % count for one, count in zip(given, rows)]
            for one in given:
                one.record_stream(spreading)
        return spread

    def step() -> None:
        here = torch.cuda.current_stream()
        if not brought:
            brought.append(bring())
        here.wait_stream(spreading)
        spread = brought.pop()
        brought.append(bring())
        for one in spread:
            one.record_stream(here)
        looked = [table[one].requires_grad_() for table, one in zip(tables, spread)]
        pooled = [one[:8192] + one.sum(0) for one in looked]
        below = dense(torch.randn(8192, 13, device=DEVICE))
        all_ = torch.stack([below, *pooled], 1)
        crossed = (all_ @ all_.transpose(1, 2))[:, upper[0], upper[1]]
        out = over(torch.cat([below, crossed], 1)).squeeze(1)
        nn.functional.binary_cross_entropy_with_logits(out, torch.zeros_like(out)).backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        for table, state, one, given in zip(tables, states, spread, looked):
            state.index_add_(0, one, given.grad.square().mean(1))
            table.index_add_(0, one, given.grad * state[one].add(1e-8).rsqrt()[:, None] * -0.01)
    return step


@recorded(4, "a Llama of 8 layers trains in microbatches of random size whose inputs to layers go "
             "to the host and come back on two streams, each layer computed again; a copy of its "
             "weights is evaluated beside on a stream of its own", HELD_BACK)
def evaluated_beside_training() -> Step:
    choose = random.Random(50)
    outward, inward, beside = (torch.cuda.Stream() for _ in range(3))
    model = llama(8, hidden_size=2048, intermediate_size=8192, vocab_size=64000)
    copy = llama(8, hidden_size=2048, intermediate_size=8192, vocab_size=64000).eval()
    layers, rotary = model.model.layers, model.model.rotary_emb
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)

    def evaluate() -> None:
        beside.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(beside), torch.inference_mode():
            for mine, theirs in zip(copy.parameters(), model.parameters()):
                mine.lerp_(theirs, 0.01)
            for _ in range(3):
                given = tokens(choose.randrange(1, 9), choose.randrange(128, 1024))
                copy(input_ids=given, use_cache=False).logits.float().log_softmax(-1)

    def microbatch() -> None:
        here, given = torch.cuda.current_stream(), tokens(
            choose.randrange(1, 7), choose.randrange(256, 1537))
        x = model.model.embed_tokens(given)
        places, sent = rotary(x, torch.arange(given.shape[1], device=DEVICE)[None]), []
        first = x
        with torch.no_grad():
            for layer in layers:
                outward.wait_stream(here)
                x.record_stream(outward)
                sent.append(x.shape)
                x = layer(x, position_embeddings=places)
        x = x.detach().requires_grad_()
        logits = model.lm_head(model.model.norm(x)).float()
        nn.functional.cross_entropy(logits.flatten(0, 1), given.flatten()).backward()
        grad = x.grad
        del logits, x
        for layer, shape in zip(reversed(layers), reversed(sent)):
            back = ahead_of(inward, lambda: torch.empty(
                shape, dtype=torch.bfloat16, device=DEVICE)).requires_grad_()
            layer(back, position_embeddings=places).backward(grad)
            grad = back.grad
        first.backward(grad)

    def step() -> None:
        for _ in range(4):
            microbatch()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        evaluate()
    return step
