# from: https://github.com/huggingface/transformers/issues/14428
# label: INPUT_BOUND
# check: primary.evidence["producing"] != "waiting"
# Sentences are cut into tokens in collate_fn, in Python, on the training thread.
import random
import re

import torch
from torch import nn

torch.set_num_threads(1)
random.seed(0)
words = ["".join(random.choices("etaoinshrdlu", k=random.randint(2, 12))) for _ in range(5000)]
known = {word: i for i, word in enumerate(words)}
sentences = [" ".join(random.choices(words, k=200)) for _ in range(400)]


def collate(batch):
    ids = [[known.get(w, 0) for w in re.findall(r"\w+|\S", text.lower().strip())] for text in batch]
    return torch.tensor(ids), torch.tensor([len(text) % 2 for text in batch])


model = nn.Sequential(nn.EmbeddingBag(5000, 64), nn.Linear(64, 2))
optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
for _ in range(12):
    for x, y in torch.utils.data.DataLoader(sentences, batch_size=32, collate_fn=collate):
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()
