"""A small synchronous job. Where one rank is late, how often, and how gradients travel are arguments.

A user's code: nothing here knows about TraceML.
"""

import argparse
import contextlib
import os
import random
import signal
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

parser = argparse.ArgumentParser()
parser.add_argument("--late", default="none")
parser.add_argument("--rank", type=int, default=1)
parser.add_argument("--ms", type=float, default=50)
parser.add_argument("--every", type=int, default=1)
parser.add_argument("--in-turn", action="store_true")
parser.add_argument("--steps", type=int, default=30)
parser.add_argument("--kind", default="ddp")
parser.add_argument("--accumulate", type=int, default=1)
parser.add_argument("--uneven", action="store_true")
parser.add_argument("--uneven-work", action="store_true")
parser.add_argument("--signal", type=int)
parser.add_argument("--out")
args = parser.parse_args()

torch.set_num_threads(1)
torch.manual_seed(0)
dist.init_process_group("gloo")
RANK, WORLD = dist.get_rank(), dist.get_world_size()
step = 0


def be_late(where):
    """Sleep, if it is this rank's turn in this step and place."""
    turn = step % WORLD if args.in_turn else args.rank
    if args.late == where and turn == RANK and step % args.every == args.every - 1:
        time.sleep(args.ms / 1000)


def work():
    """Take 2.9 ms or 3.4 ms, by rank, give or take a fifth."""
    if args.uneven_work:
        time.sleep((3.4 if args.rank == RANK else 2.9) / 1000 * random.uniform(0.8, 1.2))


class Late(torch.autograd.Function):
    """The identity, with a delay in its backward."""

    @staticmethod
    def forward(ctx, x):
        return x.view_as(x)

    @staticmethod
    def backward(ctx, gradient):
        be_late("backward")
        return gradient


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second, self.head = nn.Linear(64, 128), nn.Linear(128, 128), nn.Linear(128, 10)
        self.norm = nn.BatchNorm1d(128) if args.kind == "buffers" else nn.Identity()

    def forward(self, x):
        be_late("forward")
        work()
        x = torch.relu(self.norm(self.first(x)))
        return self.head(Late.apply(torch.relu(self.second(x))))


class Sgd(torch.optim.SGD):
    """SGD that may be late itself."""

    def step(self, closure=None):
        be_late("optimizer")
        return super().step(closure)


class Items(torch.utils.data.Dataset):
    def __len__(self):
        more = 20 if args.uneven and RANK == 0 else 0
        return (args.steps * args.accumulate + more) * 8

    def __getitem__(self, index):
        if index % 8 == 0:
            be_late("data")
        torch.manual_seed(index)
        return torch.randn(64), index % 10


def parallel(model):
    if args.kind == "fsdp":
        mesh = init_device_mesh("cpu", (WORLD,))
        for layer in (model.first, model.second, model.head):
            fully_shard(layer, mesh=mesh)
        return fully_shard(model, mesh=mesh)
    return model if args.kind == "by-hand" else DistributedDataParallel(model)


def reduce_by_hand(model):
    for parameter in model.parameters():
        dist.all_reduce(parameter.grad)
        parameter.grad /= WORLD


model = parallel(Net())
optimizer = Sgd(model.parameters(), lr=1e-2)
joined = model.join() if args.uneven else contextlib.nullcontext()
losses = []
with joined:
    for i, (x, y) in enumerate(torch.utils.data.DataLoader(Items(), batch_size=8), 1):
        last = i % args.accumulate == 0
        with contextlib.nullcontext() if last or args.kind != "ddp" else model.no_sync():
            be_late("copy")
            loss = nn.functional.cross_entropy(model(x), y)
            loss.backward()
        losses.append(loss.item())
        if not last:
            continue
        if args.kind == "by-hand":
            reduce_by_hand(model)
        optimizer.step()
        optimizer.zero_grad()
        be_late("after")
        step += 1
        if args.signal is not None and args.rank == RANK and step == args.steps:
            if args.out:
                open(f"{args.out}-died", "w").close()
            os.kill(os.getpid(), signal.Signals(args.signal))
if args.out:
    state = [p.full_tensor() if hasattr(p, "full_tensor") else p for p in model.parameters()]
    torch.save({"losses": losses, "state": [p.detach() for p in state]}, f"{args.out}-{RANK}.pt")
dist.barrier()
dist.destroy_process_group()
