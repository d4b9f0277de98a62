#!/usr/bin/env python3
"""One CPU training step of ours against PyTorch, eager or compiled, in the same run.

Both sides run forward, loss, backward and SGD with momentum 0.9 in fp32 on synthetic batches, each round in a fresh
process, in turn, so that whatever else the machine does hits both. The ratio of the medians is printed as a table
(stderr) and as JSON (stdout): above 1, ours is faster.

  bench/compare_torch.py                                # all nets, one thread and two
  bench/compare_torch.py --models lenet --threads 1 --rounds 9
  bench/compare_torch.py --compile                      # PyTorch with torch.compile: forward and loss
"""
import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

VOCABULARY, WIDTH, HEADS, LAYERS, POSITIONS = 8192, 256, 8, 6, 128
GPT_OPTIONS = ["--model.layers", LAYERS, "--model.heads", HEADS, "--model.width", WIDTH,
               "--model.vocabulary", VOCABULARY, "--model.positions", POSITIONS]
# name here: (our model, our options, batch, steps a round, the ratio we promise)
NETS = {
    "lenet": ("lenet", [], 64, 60, 1.3),
    "vgg": ("vgg_small", [], 16, 10, 1.15),
    "gpt": ("gpt2", GPT_OPTIONS, 4, 6, 1.15),
    "resnet50": ("resnet50", ["--model.image_size", 64], 8, 5, 1.1),
}


def lenet(nn):
    return nn.Sequential(
        nn.Conv2d(1, 6, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(6, 16, 5), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(),
        nn.Linear(400, 120), nn.ReLU(), nn.Linear(120, 84), nn.ReLU(), nn.Linear(84, 10))


def vgg(nn):
    layers, previous = [], 3
    for width in (32, 64, 128, 256):
        for _ in range(2):
            layers += [nn.Conv2d(previous, width, 3, padding=1), nn.ReLU()]
            previous = width
        layers.append(nn.MaxPool2d(2))
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(1024, 3200), nn.ReLU(),
                         nn.Linear(3200, 3200), nn.ReLU(), nn.Linear(3200, 10))


def gpt(nn):
    functional = nn.functional

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.ln1, self.ln2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
            self.qkv, self.proj = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
            self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

        def forward(self, x):
            b, t, d = x.shape
            q, k, v = (y.view(b, t, HEADS, d // HEADS).transpose(1, 2)
                       for y in self.qkv(self.ln1(x)).split(d, dim=2))
            a = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
            x = x + self.proj(a.transpose(1, 2).reshape(b, t, d))
            return x + self.down(functional.gelu(self.up(self.ln2(x)), approximate="tanh"))

    class Gpt(nn.Module):
        def __init__(self):
            super().__init__()
            self.token, self.position = nn.Embedding(VOCABULARY, WIDTH), nn.Embedding(POSITIONS, WIDTH)
            self.blocks = nn.Sequential(*(Block() for _ in range(LAYERS)))
            self.norm = nn.LayerNorm(WIDTH)

        def forward(self, ids):
            x = self.token(ids) + self.position.weight[: ids.shape[1]]
            return functional.linear(self.norm(self.blocks(x)), self.token.weight)

    return Gpt()


def batch_of(torch, name, size):
    if name == "gpt":
        ids = torch.randint(VOCABULARY, (size, POSITIONS + 1))
        return ids[:, :-1].contiguous(), ids[:, 1:].contiguous()
    shape, classes = {"lenet": ((1, 28, 28), 10), "vgg": ((3, 32, 32), 10),
                      "resnet50": ((3, 64, 64), 1000)}[name]
    return torch.randn(size, *shape), torch.randint(classes, (size,))


def run_peer(name, threads, steps, compiled):
    """In a process of its own: prints the seconds of every step."""
    import torch
    torch.set_num_threads(threads)
    torch.manual_seed(0)
    if name == "resnet50":
        import torchvision
        net = torchvision.models.resnet50()
    else:
        net = {"lenet": lenet, "vgg": vgg, "gpt": gpt}[name](torch.nn)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01, momentum=0.9)
    x, y = batch_of(torch, name, NETS[name][2])

    def loss_of(inputs, target):
        return torch.nn.functional.cross_entropy(net(inputs).flatten(0, -2), target.flatten())

    run = torch.compile(loss_of) if compiled else loss_of
    seconds = []
    for _ in range(steps + 5):
        begin = time.perf_counter()
        run(x, y).backward()
        optimizer.step()
        optimizer.zero_grad()
        seconds.append(time.perf_counter() - begin)
    print(json.dumps({"seconds": seconds[5:], "torch": torch.__version__}))


def answer_of(command):
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{' '.join(map(str, command))}\nfailed with {done.returncode}:\n{done.stderr[-2000:]}")
    return json.loads(done.stdout)


def peer_seconds(name, threads, steps, compiled):
    return statistics.median(answer_of([sys.executable, __file__, "--peer", name, "--threads", threads,
                                        "--steps", steps, *(["--compile"] if compiled else [])])["seconds"])


def our_seconds(binary, name, threads, steps):
    model, options, batch, _, _ = NETS[name]
    answer = answer_of([binary, "bench", "step", "--model", model, "--batch", batch, "--precision", "fp32",
                        "--device", "cpu", "--threads", threads, "--steps", steps, "--json", *options])
    return answer["results"][0]["step_seconds"]["median"]


def compare(binary, name, threads, rounds, steps, compiled):
    ours, theirs = [], []
    our_seconds(binary, name, threads, 1)  # measures convolution paths where they are not known yet
    for turn in range(rounds):
        ours.append(our_seconds(binary, name, threads, steps))
        theirs.append(peer_seconds(name, threads, steps, compiled))
        print(f"  {name}, {threads} threads, round {turn + 1}: ours {1e3 * ours[-1]:.2f} ms, "
              f"PyTorch {1e3 * theirs[-1]:.2f} ms", file=sys.stderr)
    pairs = sorted(b / a for a, b in zip(ours, theirs))
    return {"model": name, "threads": threads, "batch": NETS[name][2], "rounds": rounds,
            "ours_seconds": statistics.median(ours), "torch_seconds": statistics.median(theirs),
            "ratio": statistics.median(theirs) / statistics.median(ours),
            "ratio_of_least": min(theirs) / min(ours), "ratios": pairs, "target": NETS[name][4]}


def print_table(results):
    print(f"{'net':<10}{'threads':>8}{'ours ms':>10}{'torch ms':>10}{'ratio':>8}{'of least':>10}{'target':>8}",
          file=sys.stderr)
    for r in results:
        print(f"{r['model']:<10}{r['threads']:>8}{1e3 * r['ours_seconds']:>10.2f}{1e3 * r['torch_seconds']:>10.2f}"
              f"{r['ratio']:>8.2f}{r['ratio_of_least']:>10.2f}{r['target']:>8.2f}", file=sys.stderr)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", default=",".join(NETS), help="comma-separated: " + ", ".join(NETS))
    parser.add_argument("--threads", default="1,2")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=0, help="steps a round (default: as many as make about a second)")
    parser.add_argument("--compile", action="store_true", help="compile PyTorch's side (torch.compile)")
    parser.add_argument("--peer", choices=NETS, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.peer:
        return run_peer(args.peer, int(args.threads), args.steps, args.compile)
    unknown = [name for name in args.models.split(",") if name not in NETS]
    if unknown:
        parser.error(f"--models {','.join(unknown)}: there are {', '.join(NETS)}")
    binary = os.environ.get("YOKE_BIN") or Path(__file__).resolve().parent.parent / "build" / "yoke"
    results = [compare(binary, name, threads, args.rounds, args.steps or NETS[name][3], args.compile)
               for name in args.models.split(",") for threads in map(int, args.threads.split(","))]
    print_table(results)
    print(json.dumps({"results": results}, indent=1))


if __name__ == "__main__":
    main()
