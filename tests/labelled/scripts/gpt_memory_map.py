# label: COMPUTE_BOUND
# check: run.updates == 61
# check: run.microbatches == 122
# A small language-model trainer: batches are cut from a memory map, gradients accumulate, every so many
# iterations it evaluates and saves, and whether it is one of several is read from the environment.
import math
import os
import tempfile

import numpy as np
import torch
from torch import nn
from torch.nn import functional

out_dir = tempfile.mkdtemp()
context, batch_size, accumulate = 64, 8, 2
eval_every, eval_batches, iterations = 30, 4, 60
vocabulary, width, heads, layers = 96, 96, 4, 3

distributed = int(os.environ.get("RANK", "-1")) != -1
if distributed:
    torch.distributed.init_process_group("nccl")
torch.manual_seed(1337)
torch.set_num_threads(1)

tokens = np.random.default_rng(0).integers(0, vocabulary, 200_000).astype(np.uint16)
for split, part in (("train", tokens[:180_000]), ("val", tokens[180_000:])):
    part.tofile(os.path.join(out_dir, f"{split}.bin"))


def get_batch(split):
    data = np.memmap(os.path.join(out_dir, f"{split}.bin"), dtype=np.uint16, mode="r")
    starts = torch.randint(len(data) - context, (batch_size,))
    x = torch.stack([torch.from_numpy(data[i : i + context].astype(np.int64)) for i in starts])
    y = torch.stack([torch.from_numpy(data[i + 1 : i + 1 + context].astype(np.int64)) for i in starts])
    return x, y


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.before, self.qkv, self.out = (
            nn.LayerNorm(width),
            nn.Linear(width, 3 * width),
            nn.Linear(width, width),
        )
        self.mlp = nn.Sequential(
            nn.LayerNorm(width), nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)
        )

    def forward(self, x):
        shape = (*x.shape[:2], heads, width // heads)
        q, k, v = (part.view(shape).transpose(1, 2) for part in self.qkv(self.before(x)).split(width, dim=2))
        mixed = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).reshape(x.shape))
        return x + self.mlp(x)


class Gpt(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.place = nn.Embedding(vocabulary, width), nn.Embedding(context, width)
        self.blocks, self.norm = nn.ModuleList(Block() for _ in range(layers)), nn.LayerNorm(width)
        self.head = nn.Linear(width, vocabulary, bias=False)

    def forward(self, x, y=None):
        h = self.embed(x) + self.place(torch.arange(x.shape[1]))
        for block in self.blocks:
            h = block(h)
        logits = self.head(self.norm(h))
        loss = None if y is None else functional.cross_entropy(logits.flatten(0, 1), y.flatten())
        return logits, loss


model = Gpt()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, betas=(0.9, 0.95))
scaler = torch.amp.GradScaler("cpu", enabled=False)


@torch.no_grad()
def estimate_loss():
    model.eval()
    means = {}
    for split in ("train", "val"):
        losses = torch.zeros(eval_batches)
        for k in range(eval_batches):
            losses[k] = model(*get_batch(split))[1].item()
        means[split] = losses.mean()
    model.train()
    return means


best = math.inf
iteration = 0
x, y = get_batch("train")
while True:
    for group in optimizer.param_groups:
        group["lr"] = 1e-3 * min(1.0, (iteration + 1) / 10)
    if iteration % eval_every == 0:
        losses = estimate_loss()
        if losses["val"] < best and iteration > 0:
            best = losses["val"]
            checkpoint = {
                "model": model.state_dict(),
                "optimizer": optimizer.state_dict(),
                "iteration": iteration,
            }
            torch.save(checkpoint, os.path.join(out_dir, "ckpt.pt"))
    for _ in range(accumulate):
        _, loss = model(x, y)
        loss = loss / accumulate
        x, y = get_batch("train")
        scaler.scale(loss).backward()
    scaler.unscale_(optimizer)
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    scaler.step(optimizer)
    scaler.update()
    optimizer.zero_grad(set_to_none=True)
    if iteration % 10 == 0:
        print(f"iteration {iteration}: loss {loss.item() * accumulate:.3f}")
    iteration += 1
    if iteration > iterations:
        break
