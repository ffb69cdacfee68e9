# SPDX-License-Identifier: Apache-2.0
"""A transformer that learns to write the GPL, character by character, on several processes.

    gradsyncctl run -n 2 -- python client/examples/torch/characters.py
    gradsyncctl run -n 2 -- python client/examples/torch/characters.py --ddp      PyTorch's own, over Gloo

PYTHONPATH=client/python where the package is not installed.
"""
import pathlib

import torch
from torch import nn
from torch.nn import functional

from progress import Progress, begin, parser

TEXT = pathlib.Path("/usr/share/common-licenses/GPL-3")
WIDTH, LENGTH = 128, 64


class Writer(nn.Module):
    """Reads characters and says which one comes next."""

    def __init__(self, characters):
        super().__init__()
        self.embedding = nn.Embedding(characters, WIDTH)
        self.places = nn.Parameter(torch.zeros(LENGTH, WIDTH))
        self.layers = nn.ModuleList(
            nn.TransformerEncoderLayer(WIDTH, 4, 4 * WIDTH, dropout=0., batch_first=True) for _ in range(3))
        self.register_buffer("mask", nn.Transformer.generate_square_subsequent_mask(LENGTH), persistent=False)

    def forward(self, x):
        length = x.shape[1]
        x = self.embedding(x) + self.places[:length]
        for layer in self.layers:
            x = layer(x, src_mask=self.mask[:length, :length], is_causal=True)
        return functional.linear(x, self.embedding.weight)


def write(model, known, index, count=120):
    """Goes on from a few words; the likeliest character each time."""
    text = "This program is "
    with torch.no_grad():
        for _ in range(count):
            x = torch.tensor([[index[c] for c in text[-LENGTH:]]])
            text += known[int(model(x)[0, -1].argmax())]
    return text


def main():
    made = parser(__doc__)
    made.set_defaults(batch=8)
    made.add_argument("--steps", type=int, default=400, help="(%(default)s)")
    made.add_argument("--text", type=pathlib.Path, default=TEXT, help="what to learn (%(default)s)")
    options = made.parse_args()
    wrap, rank, world = begin(options.ddp)
    text = options.text.read_text()
    known = sorted(set(text))
    index = {character: i for i, character in enumerate(known)}
    data = torch.tensor([index[character] for character in text])

    model = wrap(Writer(len(known)))
    opt = torch.optim.AdamW(model.parameters(), lr=3e-3)

    progress = Progress(options.steps, rank == 0)
    for step in range(1, options.steps + 1):
        made = torch.Generator().manual_seed(step * world + rank)
        begins = torch.randint(0, len(data) - LENGTH - 1, (options.batch,), generator=made).tolist()
        x = torch.stack([data[at:at + LENGTH] for at in begins])
        y = torch.stack([data[at + 1:at + LENGTH + 1] for at in begins])
        opt.zero_grad()
        loss = functional.cross_entropy(model(x).flatten(0, 1), y.flatten())
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.)
        opt.step()
        progress.step(step, loss.item())
    if rank == 0:
        print(write(model.module, known, index), flush=True)


if __name__ == "__main__":
    main()
