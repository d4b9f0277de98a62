"""Whole training steps on one GPU: `yoke bench step` beside PyTorch, in the same run.

  python3 bench/gpu_compare_torch.py [--compile] [--models gpt2:16,gpt2:64,resnet50:256]

PyTorch's side: bf16 autocast (what its tutorials show), channels-last images, fused AdamW or SGD, cudnn.benchmark;
with --compile also torch.compile, for GPT-2 the faster of autocast and bf16 weights with fp32 masters. Prints medians and
ratios, and JSON on the last line.
"""
import argparse
import json
import os
import pathlib
import statistics
import subprocess
import time

import torch
import torch.nn as nn
import torch.nn.functional as F

YOKE = os.environ.get("YOKE_BIN", str(pathlib.Path(__file__).resolve().parent.parent / "build-cuda/yoke"))


class Gpt2Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.ln_1, self.ln_2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        b, t, d = x.shape
        q, k, v = (y.view(b, t, self.heads, d // self.heads).transpose(1, 2) for y in self.qkv(self.ln_1(x)).split(d, 2))
        x = x + self.proj(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(b, t, d))
        return x + self.down(F.gelu(self.up(self.ln_2(x)), approximate="tanh"))


class Gpt2(nn.Module):
    """124M parameters; the vocabulary padded to 50304, as everybody does by hand."""

    def __init__(self, vocabulary=50304, width=768, heads=12, layers=12, positions=1024):
        super().__init__()
        self.tokens, self.positions = nn.Embedding(vocabulary, width), nn.Embedding(positions, width)
        self.blocks = nn.Sequential(*(Gpt2Block(width, heads) for _ in range(layers)))
        self.norm = nn.LayerNorm(width)

    def forward(self, ids):
        x = self.tokens(ids) + self.positions.weight[: ids.shape[1]]
        return F.linear(self.norm(self.blocks(x)), self.tokens.weight)


class Masters:
    """An optimizer over fp32 copies of a bf16 model's weights."""

    def __init__(self, model):
        self.weights = list(model.parameters())
        self.masters = [w.detach().float() for w in self.weights]
        self.optimizer = torch.optim.AdamW(self.masters, lr=1e-4, fused=True)

    def zero_grad(self, set_to_none):
        for w in self.weights:
            w.grad = None

    @torch.no_grad()
    def step(self):
        for master in self.masters:
            master.grad = torch.empty_like(master) if master.grad is None else master.grad
        torch._foreach_copy_([m.grad for m in self.masters], [w.grad for w in self.weights])
        self.optimizer.step()
        torch._foreach_copy_(self.weights, self.masters)


def torch_side(name, batch, compiled, steps=20, masters=False):
    torch.backends.cudnn.benchmark = True
    torch.manual_seed(1)
    if name == "gpt2":
        model = Gpt2().cuda()
        ids = torch.randint(50257, (batch, 1025), device="cuda")
        inputs, target = ids[:, :-1].contiguous(), ids[:, 1:].contiguous()
        model = model.bfloat16() if masters else model
        optimizer = Masters(model) if masters else torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    else:
        import torchvision
        options = {"init_weights": False} if name == "inception_v3" else {}
        model = getattr(torchvision.models, name)(**options).cuda().to(memory_format=torch.channels_last)
        side = 299 if name == "inception_v3" else 224
        inputs = torch.randn(batch, 3, side, side, device="cuda").to(memory_format=torch.channels_last)
        target = torch.randint(1000, (batch,), device="cuda")
        optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9, fused=True)

    def forward(x):
        with torch.autocast("cuda", dtype=torch.bfloat16, enabled=not masters):
            out = model(x)
            if name == "inception_v3":
                return F.cross_entropy(out.logits, target) + 0.4 * F.cross_entropy(out.aux_logits, target)
            return F.cross_entropy(out.flatten(0, -2), target.flatten())

    run = torch.compile(forward) if compiled else forward

    def step():
        optimizer.zero_grad(set_to_none=True)
        run(inputs).backward()
        optimizer.step()
        torch.cuda.synchronize()

    for _ in range(5):
        step()
    times = []
    for _ in range(steps):
        begin = time.perf_counter()
        step()
        times.append(time.perf_counter() - begin)
    return batch / statistics.median(times)


def yoke_side(name, batch, optimizer):
    words = [YOKE, "bench", "step", "--model", name, "--batch", str(batch), "--precision", "bf16", "--device", "cuda",
             "--steps", "20", "--train.optimizer", optimizer, "--json", "-q"]
    out = subprocess.run(words, check=True, capture_output=True, text=True).stdout
    return json.loads(out)["results"][0]["samples_per_s"]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--models", default="gpt2:16,gpt2:64,resnet50:256,vgg16:128,alexnet:512,inception_v3:128")
    parser.add_argument("--compile", action="store_true")
    arguments = parser.parse_args()
    rows = []
    print(f"{'model':<14}{'batch':>6}{'yoke':>12}{'eager':>12}{'ratio':>8}" + (f"{'compiled':>12}{'ratio':>8}" if arguments.compile else ""))
    for item in arguments.models.split(","):
        name, batch = item.split(":")
        unit = 1024 if name == "gpt2" else 1
        ours = yoke_side(name, int(batch), "adamw" if name == "gpt2" else "sgd") * unit
        eager = torch_side(name, int(batch), compiled=False) * unit
        torch.cuda.empty_cache()
        row = {"model": name, "batch": int(batch), "yoke": ours, "eager": eager}
        line = f"{name:<14}{batch:>6}{ours:>12,.0f}{eager:>12,.0f}{ours / eager:>8.2f}"
        if arguments.compile:
            row["autocast"] = torch_side(name, int(batch), compiled=True) * unit
            torch._dynamo.reset()
            torch.cuda.empty_cache()
            row["masters"] = torch_side(name, int(batch), compiled=True, masters=True) * unit if name == "gpt2" else 0
            row["compiled"] = max(row["autocast"], row["masters"])
            line += f"{row['compiled']:>12,.0f}{ours / row['compiled']:>8.2f}"
            torch._dynamo.reset()
        torch.cuda.empty_cache()
        print(line, flush=True)
        rows.append(row)
    print(json.dumps(rows))


if __name__ == "__main__":
    main()
