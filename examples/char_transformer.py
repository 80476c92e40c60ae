"""Train a character-level transformer on Python's own help texts, without any ``DataLoader``.

An ordinary script: nothing in it knows about TraceML. Batches are sliced out of one long tensor, as
many language-model trainers do::

    traceml run examples/char_transformer.py
"""

from __future__ import annotations

import argparse
from pydoc_data.topics import topics

import torch
from torch import Tensor, nn
from torch.nn import functional


class Block(nn.Module):
    """Causal self-attention and a two-layer perceptron, each behind a layer norm and a skip."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm_attention = nn.LayerNorm(width)
        self.qkv = nn.Linear(width, 3 * width)
        self.project = nn.Linear(width, width)
        self.mlp = nn.Sequential(
            nn.LayerNorm(width), nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)
        )

    def forward(self, x: Tensor) -> Tensor:
        batch, length, width = x.shape
        qkv = self.qkv(self.norm_attention(x))
        q, k, v = qkv.view(batch, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        mixed = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.project(mixed.transpose(1, 2).reshape(batch, length, width))
        return x + self.mlp(x)


class CharTransformer(nn.Module):
    """A decoder over characters."""

    def __init__(self, vocabulary: int, context: int, width: int, layers: int) -> None:
        super().__init__()
        self.context = context
        self.tokens = nn.Embedding(vocabulary, width)
        self.positions = nn.Parameter(torch.randn(context, width))
        self.blocks = nn.Sequential(*(Block(width, heads=4) for _ in range(layers)))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, vocabulary)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.tokens(tokens) + self.positions[: tokens.shape[1]]
        return self.head(self.norm(self.blocks(x)))


def take_batch(text: Tensor, size: int, context: int) -> tuple[Tensor, Tensor]:
    starts = torch.randint(len(text) - context - 1, (size,)).tolist()
    inputs = torch.stack([text[s : s + context] for s in starts])
    targets = torch.stack([text[s + 1 : s + context + 1] for s in starts])
    return inputs, targets


def loss_of(model: nn.Module, batch: tuple[Tensor, Tensor]) -> Tensor:
    inputs, targets = batch
    return functional.cross_entropy(model(inputs).flatten(0, 1), targets.flatten())


@torch.no_grad()
def write(model: CharTransformer, start: Tensor, length: int) -> Tensor:
    tokens = start
    for _ in range(length):
        odds = model(tokens[None, -model.context :])[0, -1].softmax(-1)
        tokens = torch.cat([tokens, torch.multinomial(odds, 1)])
    return tokens


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--batch-size", type=int, default=16)
    parser.add_argument("--context", type=int, default=64)
    parser.add_argument("--lr", type=float, default=3e-3)
    args = parser.parse_args()

    torch.manual_seed(0)
    corpus = "\n".join(topics[name] for name in sorted(topics))
    letters = sorted(set(corpus))
    code = {letter: i for i, letter in enumerate(letters)}
    text = torch.tensor([code[letter] for letter in corpus])
    train, held_out = text[: len(text) * 9 // 10], text[len(text) * 9 // 10 :]

    model = CharTransformer(len(letters), args.context, width=96, layers=3)
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr)
    for step in range(1, args.steps + 1):
        loss = loss_of(model, take_batch(train, args.batch_size, args.context))
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        if step % 100 == 0:
            model.eval()
            with torch.no_grad():
                held = sum(
                    loss_of(model, take_batch(held_out, args.batch_size, args.context)).item()
                    for _ in range(5)
                )
            model.train()
            print(f"step {step:4d}  loss {loss.item():.3f}  held-out loss {held / 5:.3f}")
    sample = write(model.eval(), train[: args.context], 80)
    print("sample: " + "".join(letters[i] for i in sample[args.context :].tolist()).replace("\n", " "))


if __name__ == "__main__":
    main()
