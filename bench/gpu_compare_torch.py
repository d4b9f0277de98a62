"""Whole training steps on one GPU: `yoke bench step` beside PyTorch, in the same run.

  python3 bench/gpu_compare_torch.py [--rows gpt2:16:bf16,resnet50:256:fp16,lenet:64:bf16:reduce-overhead]

A row is model:batch:precision[:mode]. Models: gpt2 (124M), gpt2-355m, gpt2-774m, gpt2-1558m, gpt2-tiny, lenet, and
torchvision's resnet50, vgg16, alexnet, inception_v3. Modes of the peer: default (torch.compile), eager, reduce-overhead
and max-autotune (torch.compile with CUDA graphs), graph (compiled, and the whole step captured as one CUDA graph, update
included; not fp16).

PyTorch's side: bf16 and fp16 by autocast (what its tutorials show; fp16 with GradScaler), for GPT-2 in bf16 the faster of
that and bf16 weights with fp32 masters; tf32 and fp32 by its switches; channels-last images, fused AdamW or SGD,
cudnn.benchmark. Each side runs in a process of its own. --jobs compiles that many peers at once beforehand, into
Inductor's cache: minutes less. Prints medians, ratios and peaks of memory, and JSON on the last line.
"""
import argparse
import concurrent.futures
import json
import os
import pathlib
import statistics
import subprocess
import sys
import time

YOKE = os.environ.get("YOKE_BIN", str(pathlib.Path(__file__).resolve().parent.parent / "build-cuda/yoke"))
DEFAULT_ROWS = "gpt2:16:bf16,gpt2:64:bf16,resnet50:256:bf16,vgg16:128:bf16,alexnet:512:bf16,inception_v3:128:bf16"

# layers, width, heads, vocabulary of the peer (padded, as everybody does by hand), positions
GPTS = {"gpt2": (12, 768, 12, 50304, 1024), "gpt2-355m": (24, 1024, 16, 50304, 1024),
        "gpt2-774m": (36, 1280, 20, 50304, 1024), "gpt2-1558m": (48, 1600, 25, 50304, 1024),
        "gpt2-tiny": (2, 64, 4, 256, 64)}
TINY = ["--model.layers", "2", "--model.heads", "4", "--model.width", "64", "--model.vocabulary", "256", "--model.positions", "64"]


def gpt(nn, functional, layers, width, heads, vocabulary, positions):
    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.ln_1, self.ln_2 = nn.LayerNorm(width), nn.LayerNorm(width)
            self.qkv, self.proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
            self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

        def forward(self, x):
            b, t, d = x.shape
            q, k, v = (y.view(b, t, heads, d // heads).transpose(1, 2) for y in self.qkv(self.ln_1(x)).split(d, 2))
            x = x + self.proj(functional.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(b, t, d))
            return x + self.down(functional.gelu(self.up(self.ln_2(x)), approximate="tanh"))

    class Gpt(nn.Module):
        def __init__(self):
            super().__init__()
            self.tokens, self.positions = nn.Embedding(vocabulary, width), nn.Embedding(positions, width)
            self.blocks = nn.Sequential(*(Block() for _ in range(layers)))
            self.norm = nn.LayerNorm(width)

        def forward(self, ids):
            x = self.tokens(ids) + self.positions.weight[: ids.shape[1]]
            return functional.linear(self.norm(self.blocks(x)), self.tokens.weight)

    return Gpt()


def lenet(nn):
    return nn.Sequential(nn.Conv2d(1, 6, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(6, 16, 5), nn.ReLU(),
                         nn.MaxPool2d(2), nn.Flatten(), nn.Linear(400, 120), nn.ReLU(), nn.Linear(120, 84), nn.ReLU(),
                         nn.Linear(84, 10))


class Masters:
    """AdamW over fp32 copies of a bf16 model's weights."""

    def __init__(self, torch, model, capturable):
        self.torch = torch
        self.weights = list(model.parameters())
        self.masters = [w.detach().float() for w in self.weights]
        self.optimizer = torch.optim.AdamW(self.masters, lr=1e-4, fused=True, capturable=capturable)

    def zero_grad(self, set_to_none):
        for w in self.weights:
            w.grad = None

    def step(self):
        with self.torch.no_grad():
            for master in self.masters:
                master.grad = self.torch.empty_like(master) if master.grad is None else master.grad
            self.torch._foreach_copy_([m.grad for m in self.masters], [w.grad for w in self.weights])
            self.optimizer.step()
            self.torch._foreach_copy_(self.weights, self.masters)


def peer_model(torch, name, batch):
    """Model, inputs, target."""
    if name in GPTS:
        layers, width, heads, vocabulary, positions = GPTS[name]
        with torch.device("cuda"):
            model = gpt(torch.nn, torch.nn.functional, layers, width, heads, vocabulary, positions)
        ids = torch.randint(min(vocabulary, 50257), (batch, positions + 1), device="cuda")
        return model, ids[:, :-1].contiguous(), ids[:, 1:].contiguous()
    channels, side, classes = (1, 28, 10) if name == "lenet" else (3, 299 if name == "inception_v3" else 224, 1000)
    if name == "lenet":
        model = lenet(torch.nn)
    else:
        import torchvision
        model = getattr(torchvision.models, name)(**({"init_weights": False} if name == "inception_v3" else {}))
    model = model.cuda().to(memory_format=torch.channels_last)
    inputs = torch.randn(batch, channels, side, side, device="cuda").to(memory_format=torch.channels_last)
    return model, inputs, torch.randint(classes, (batch,), device="cuda")


def captured(torch, step):
    """`step` as one CUDA graph."""
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(3):
            step()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step()
    return graph.replay


def run_peer(name, batch, precision, mode, masters, steps):
    """Prints samples/s and the peak of memory as JSON."""
    import torch
    functional = torch.nn.functional
    torch.backends.cudnn.benchmark = True
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = precision == "tf32"
    torch.manual_seed(1)
    model, inputs, target = peer_model(torch, name, batch)
    graphed = mode == "graph"
    if masters:
        model = model.bfloat16()
        optimizer = Masters(torch, model, graphed)
    elif name in GPTS:
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True, capturable=graphed)
    else:
        optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9, fused=True)
    scaler = torch.amp.GradScaler("cuda") if precision == "fp16" else None
    narrow = {"bf16": torch.bfloat16, "fp16": torch.float16}.get(precision)

    def forward(x):
        with torch.autocast("cuda", dtype=narrow or torch.bfloat16, enabled=narrow is not None and not masters):
            out = model(x)
            if name == "inception_v3":
                return functional.cross_entropy(out.logits, target) + 0.4 * functional.cross_entropy(out.aux_logits, target)
            return functional.cross_entropy(out.flatten(0, -2), target.flatten())

    compile_mode = {"default": None, "graph": None}.get(mode, mode)
    run = forward if mode == "eager" else torch.compile(forward, mode=compile_mode)

    def step():
        optimizer.zero_grad(set_to_none=True)
        loss = run(inputs)
        if scaler is None:
            loss.backward()
            optimizer.step()
        else:
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()

    for _ in range(min(steps, 5) + 1):
        step()
    if steps > 0 and graphed:
        step = captured(torch, step)
    torch.cuda.synchronize()
    times = []
    for _ in range(steps):
        begin = time.perf_counter()
        step()
        torch.cuda.synchronize()
        times.append(time.perf_counter() - begin)
    print(json.dumps({"samples_per_s": batch / statistics.median(times) if times else 0,
                      "memory": torch.cuda.max_memory_allocated()}))


class Row:
    def __init__(self, text):
        self.name, batch, self.precision, *rest = text.split(":")
        self.batch, self.mode = int(batch), rest[0] if rest else "default"
        self.unit = GPTS[self.name][4] if self.name in GPTS else 1  # tokens, or an image
        self.text = text

    def peers(self):
        """Words that start each peer of this row."""
        words = [sys.executable, __file__, "--peer", self.text]
        both = self.name in GPTS and self.precision == "bf16"
        small = GPTS.get(self.name, (0, 0))[1] <= 768
        return ([words] if small or not both else []) + ([words + ["--masters"]] if both else [])

    def ours(self, steps):
        model, options = self.name.split("-")[0], []
        if self.name == "gpt2-tiny":
            options = TINY
        elif model != self.name:
            options = ["--model.size", self.name.split("-")[1]]
        optimizer = ["--train.optimizer", "adamw"] if model == "gpt2" else ["--train.optimizer", "sgd", "--train.momentum", "0.9"]
        return [YOKE, "bench", "step", "--model", model, "--batch", str(self.batch), "--precision", self.precision, "--device",
                "cuda", "--steps", str(steps), *optimizer, *options, "--json", "-q"]


def answer(words):
    done = subprocess.run(words, capture_output=True, text=True)
    if done.returncode != 0:
        print(f"{' '.join(words)}: {done.stderr.strip()[-600:]}", file=sys.stderr, flush=True)
        return None
    return json.loads(done.stdout.splitlines()[-1] if "--peer" in words else done.stdout)


def measure(row, steps):
    result = {"row": row.text}
    ours = answer(row.ours(steps))
    if ours:
        result["yoke"] = ours["results"][0]["samples_per_s"] * row.unit
        result["yoke_memory"] = ours["results"][0]["peak_memory_bytes"]
    for words in row.peers():
        peer = answer(words + ["--steps", str(steps)])
        if peer:
            result["masters" if "--masters" in words else "peer"] = {**peer, "samples_per_s": peer["samples_per_s"] * row.unit}
    peers = [result[key] for key in ("peer", "masters") if key in result]
    if ours and peers:
        best = max(peers, key=lambda peer: peer["samples_per_s"])
        result["best"], result["ratio"] = best["samples_per_s"], result["yoke"] / best["samples_per_s"]
        result["memory_ratio"] = result["yoke_memory"] / best["memory"]
    return result


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--rows", default=DEFAULT_ROWS)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--jobs", type=int, default=0)
    parser.add_argument("--compile-only", action="store_true")
    parser.add_argument("--peer")
    parser.add_argument("--masters", action="store_true")
    arguments = parser.parse_args()
    if arguments.peer:
        row = Row(arguments.peer)
        return run_peer(row.name, row.batch, row.precision, row.mode, arguments.masters, arguments.steps)
    rows = [Row(text) for text in arguments.rows.split(",")]
    if arguments.jobs > 0:
        with concurrent.futures.ThreadPoolExecutor(arguments.jobs) as pool:
            list(pool.map(lambda words: answer(words + ["--steps", "0"]), [words for row in rows for words in row.peers()]))
    if arguments.compile_only:
        return None
    print(f"{'model:batch:precision':<34}{'yoke':>12}{'peer':>12}{'ratio':>8}{'yoke GB':>10}{'ratio':>8}")
    results = []
    for row in rows:
        result = measure(row, arguments.steps)
        results.append(result)
        print(f"{row.text:<34}{result.get('yoke', 0):>12,.0f}{result.get('best', 0):>12,.0f}{result.get('ratio', 0):>8.3f}"
              f"{result.get('yoke_memory', 0) / 1e9:>10.2f}{result.get('memory_ratio', 0):>8.2f}", flush=True)
    print(json.dumps(results))
    return None


if __name__ == "__main__":
    main()
