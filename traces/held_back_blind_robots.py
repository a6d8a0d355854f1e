"""A program of robots that learn by graphs, of a kind that none before is of.

A companion of `held_back_blind_graphs.py`. Its graphs hold whole updates, optimizer and all.
"""

from __future__ import annotations

import random
from collections.abc import Callable

from held_back_newest import noise
from parts import DEVICE, HELD_BACK, Step, recorded, tokens

import torch
from torch import nn

ROBOTS, TICKS, JOINTS, FELT, HEIGHTS = 4096, 24, 12, 48, 187
Tensors = list[torch.Tensor]


def floats(*shape: int) -> torch.Tensor:
    return noise(*shape, dtype=torch.float32)


def layers(*widths: int) -> nn.Sequential:
    parts: list[nn.Module] = []
    for before, after in zip(widths, widths[1:]):
        parts += [nn.Linear(before, after), nn.ELU()]
    return nn.Sequential(*parts[:-1])


class Sighted(nn.Module):
    """What a robot without a map acts on: pictures of depth, what it feels, and its memory."""

    def __init__(self) -> None:
        super().__init__()
        self.eyes = nn.Sequential(
            nn.Conv2d(1, 32, 5, 2), nn.ELU(), nn.Conv2d(32, 64, 3, 2), nn.ELU(),
            nn.Conv2d(64, 64, 3, 2), nn.ELU(), nn.Flatten(), nn.Linear(64 * 6 * 9, 256), nn.ELU())
        self.memory = nn.GRU(256 + FELT, 512)
        self.act = layers(512, 256, 128, JOINTS)

    def forward(
        self, depth: torch.Tensor, felt: torch.Tensor, state: torch.Tensor,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        seen = self.eyes(depth.flatten(0, 1)).unflatten(0, depth.shape[:2])
        out, state = self.memory(torch.cat([seen, felt], -1), state)
        return self.act(out), state


class Graphed:
    """A function of tensors of one shape, whatever it does: run three times, then a graph."""

    def __init__(self, function: Callable[..., Tensors], first: Callable[[], None] | None = None):
        self.function, self.first, self.count = function, first, 0
        self.given: Tensors = []
        self.made: Tensors = []
        self.graph, self.warming = torch.cuda.CUDAGraph(), torch.cuda.Stream()

    def __call__(self, *given: torch.Tensor) -> Tensors:
        self.count += 1
        if self.count <= 3:
            here = torch.cuda.current_stream()
            self.warming.wait_stream(here)
            with torch.cuda.stream(self.warming):
                made = self.function(*given)
            here.wait_stream(self.warming)
            for one in (*given, *made):
                one.record_stream(here)
            return made
        if self.count == 4:
            self.given = [one.clone() for one in given]
            if self.first is not None:
                self.first()
            with torch.cuda.graph(self.graph):
                self.made = self.function(*self.given)
        for mine, one in zip(self.given, given):
            mine.copy_(one)
        self.graph.replay()
        return [one.clone() for one in self.made]


class World:
    """The robots' bodies, moved by what they touch, which is more at some times than at others."""

    def __init__(self, choose: random.Random, robots: int) -> None:
        self.choose, self.robots = choose, robots
        self.bodies, self.ground = floats(robots, 17, 13), floats(1600, 1600)

    def tick(self, actions: torch.Tensor) -> Tensors:
        """Four small steps; what the robots feel, the reward, and who has fallen."""
        for _ in range(4):
            touches = int(self.robots * self.choose.lognormvariate(1.2, 0.35))
            which = tokens(2, touches)
            ends = self.bodies.flatten(0, 1)[which[0]], self.bodies.flatten(0, 1)[which[1]]
            apart = ends[0][:, :3] - ends[1][:, :3]
            deep = apart.norm(dim=1, keepdim=True)
            turns, pushed = apart / (deep + 1e-3), floats(touches, 3, 6)
            matrix = pushed @ pushed.mT + turns[:, :, None] * turns[:, None]
            pushes = torch.zeros(touches, 3, device=DEVICE)
            for _ in range(3):
                pushes = pushes - 0.5 * (matrix @ pushes[..., None])[..., 0]
                pushes = pushes.clamp(min=0)
            moved = torch.zeros(self.robots * 17, 3, device=DEVICE)
            moved.index_add_(0, which[0], pushes)
            self.bodies[..., 7:10] += moved.view(self.robots, 17, 3)
        felt = torch.cat([self.bodies.flatten(1)[:, :FELT - JOINTS], actions], 1)
        reward = torch.stack([felt[:, at:at + 4].square().sum(1).exp() for at in range(9)]).sum(0)
        fallen = self.choose.randrange(self.robots // 20)
        if fallen:
            self.bodies[tokens(1, fallen)[0]] = floats(fallen, 17, 13)
        return [felt, reward, reward < 0]

    def heights(self) -> torch.Tensor:
        """Of the ground around each robot."""
        places = self.bodies[:, 0, None, :2] + floats(HEIGHTS, 2)
        cells = (places * 10).long().clamp(0, 1599)
        return self.ground[cells[..., 0], cells[..., 1]] - self.bodies[:, 0, None, 2]

    def depth(self) -> torch.Tensor:
        """Rays go over the ground, some robots at a time; what they hit, as cameras tell it."""
        pictures = []
        for some in self.bodies[:, 0, :3].split(1024):
            rays, far = floats(len(some), 58 * 87, 3), floats(len(some), 58 * 87)
            for _ in range(2):
                cells = ((some[:, None] + rays * far[..., None])[..., :2] * 10).long()
                cells.clamp_(0, 1599)
                far = far + 0.5 * self.ground[cells[..., 0], cells[..., 1]]
            pictures.append(far.view(-1, 1, 58, 87).bfloat16())
        return torch.cat(pictures)


class Knowing:
    """Learns from rewards, with a map: one graph acts, another is a whole update."""

    def __init__(self, world: World) -> None:
        self.world = world
        with torch.device(DEVICE):
            self.actor = layers(FELT + HEIGHTS, 512, 256, 128, JOINTS)
            self.critic = layers(FELT + HEIGHTS, 512, 256, 128, 1)
        self.weights = [*self.actor.parameters(), *self.critic.parameters()]
        self.adam = torch.optim.Adam(self.weights, capturable=True)
        self.adam.param_groups[0]["lr"] = torch.tensor(1e-3, device=DEVICE)
        self.act, self.update = Graphed(self.acted), Graphed(self.updated, self.adam.zero_grad)
        self.felt = floats(world.robots, FELT)

    @torch.no_grad()
    def acted(self, seen: torch.Tensor) -> Tensors:
        mean = self.actor(seen)
        action = mean + torch.randn_like(mean)
        return [action, (action - mean).square().sum(-1), self.critic(seen)[:, 0], mean]

    def updated(self, seen: torch.Tensor, *told: torch.Tensor) -> Tensors:
        actions, before, gains, returns = told
        self.adam.zero_grad()
        likely = (actions - self.actor(seen)).square().sum(-1)
        ratio = (likely - before).exp()
        gained = torch.min(ratio * gains, ratio.clamp(0.8, 1.2) * gains).mean()
        missed = (self.critic(seen)[:, 0] - returns).square().mean()
        (missed - gained).backward()
        nn.utils.clip_grad_norm_(self.weights, 1.0)
        self.adam.step()
        return [(likely - before).detach().mean()]

    @torch.no_grad()
    def play(self) -> list[Tensors]:
        kept = []
        for _ in range(TICKS):
            seen = torch.cat([self.felt, self.world.heights()], 1)
            action, likely, worth, _ = self.act(seen)
            self.felt, reward, fell = self.world.tick(action)
            kept.append([seen, action, likely, worth, reward, fell])
        return kept

    def step(self) -> None:
        kept, gains, last = self.play(), [], torch.zeros(ROBOTS, device=DEVICE)
        for _, _, _, worth, reward, fell in reversed(kept):
            last = reward - worth + 0.95 * last * ~fell
            gains.append(last)
        seen, actions, likely, worth = (torch.cat([one[at] for one in kept]) for at in range(4))
        gained = torch.cat(gains[::-1])
        returns = gained + worth
        gained = (gained - gained.mean()) / (gained.std() + 1e-8)
        for _ in range(4):
            for some in torch.randperm(len(seen), device=DEVICE).split(len(seen) // 4):
                moved = self.update(*(one[some] for one in (
                    seen, actions, likely, gained, returns)))[0]
                if moved.item() > 0.02:
                    self.adam.param_groups[0]["lr"].div_(1.5)


class Learning:
    """Learns from one that knows, by pictures: gradients go through all ticks, in one graph."""

    def __init__(self, world: World, teacher: Knowing) -> None:
        self.world, self.teacher = world, teacher
        with torch.device(DEVICE):
            self.student = Sighted()
        self.weights = list(self.student.parameters())
        self.adam = torch.optim.AdamW(self.weights, capturable=True)
        self.act, self.update = Graphed(self.acted), Graphed(self.updated, self.adam.zero_grad)
        self.state = torch.zeros(1, world.robots, 512, device=DEVICE)

    @torch.no_grad()
    def acted(self, depth: torch.Tensor, felt: torch.Tensor, state: torch.Tensor) -> Tensors:
        with torch.autocast(DEVICE, torch.bfloat16, cache_enabled=False):
            actions, state = self.student(depth[None], felt[None], state)
        return [actions[0].float(), state.float()]

    def updated(
        self, depth: torch.Tensor, felt: torch.Tensor, state: torch.Tensor, right: torch.Tensor,
    ) -> Tensors:
        self.adam.zero_grad()
        with torch.autocast(DEVICE, torch.bfloat16, cache_enabled=False):
            actions, _ = self.student(depth, felt, state)
        loss = nn.functional.huber_loss(actions.float(), right)
        loss.backward()
        nn.utils.clip_grad_norm_(self.weights, 1.0)
        self.adam.step()
        return [loss.detach()]

    def step(self) -> None:
        kept, begun = [], self.state
        with torch.no_grad():
            for _ in range(TICKS):
                seen = torch.cat([self.teacher.felt, self.world.heights()], 1)
                depth, felt = self.world.depth(), self.teacher.felt
                right = self.teacher.act(seen)[3]
                actions, self.state = self.act(depth, felt, self.state)
                self.teacher.felt = self.world.tick(actions)[0]
                kept.append([depth, felt, right])
        depth, felt, right = (torch.stack(one) for one in zip(*kept))
        for some in torch.randperm(ROBOTS, device=DEVICE).split(512):
            self.update(depth[:, some], felt[:, some], begun[:, some], right[:, some])


@recorded(7, "4,096 robots learn to walk: first with a map, from rewards, then from pictures of "
             "depth what the first knows; acting and each whole update with its optimizer are "
             "graphs; shown on a stream by some other number of robots in between", HELD_BACK)
def robots_learn_by_graphs() -> Step:
    choose, leaving, number = random.Random(103), torch.cuda.Stream(), 0
    world = World(choose, ROBOTS)
    teacher, students = Knowing(world), []

    @torch.no_grad()
    def show(frames: int) -> None:
        """Frames of a film, drawn from what some robots see, leave as they are made."""
        other, here = World(choose, choose.randrange(50, 400)), torch.cuda.current_stream()
        felt, state = floats(other.robots, FELT), torch.zeros(1, other.robots, 512, device=DEVICE)
        for _ in range(frames):
            if students:
                action, state = students[0].acted(other.depth(), felt, state)
            else:
                action = teacher.actor(torch.cat([felt, other.heights()], 1))
            felt = other.tick(action)[0]
            frame = (floats(3, 480, 640).clamp(0, 1) * 255).byte()
            leaving.wait_stream(here)
            with torch.cuda.stream(leaving):
                frame.to("cpu", non_blocking=True)
            frame.record_stream(leaving)

    def step() -> None:
        nonlocal number
        number += 1
        if number == 5:
            students.append(Learning(world, teacher))
        for _ in range(2 if number < 5 else 1):
            (students[0] if students else teacher).step()
        if number % 3 == 0:
            show(choose.randrange(10, 30))
    return step
