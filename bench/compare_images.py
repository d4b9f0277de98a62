#!/usr/bin/env python3
"""Pictures decoded and augmented per second, beside torchvision's DataLoader with as many workers, in one run.

Both sides read the same folder of JPEG files and give batches of 64 float pictures, 3x224x224, normalised, after a random
resized crop and a flip (or resize and centre crop: --test). Rounds alternate, each in a fresh process; the peer's workers are
processes, ours threads. A DataLoader has one process more, which collects; it does the same work for both kinds of peer:
  pil: ImageFolder with torchvision.transforms on PIL pictures, as in PyTorch's imagenet example
  io:  torchvision.io.decode_image and torchvision.transforms.v2 on uint8 tensors
Medians of the rounds as a table (stderr) and as JSON (stdout); a ratio above 1: ours is faster.

  ninja -C build bench_image_loading
  .deps/venv/bin/python bench/compare_images.py                    # makes 512 pictures of 500x375 itself
  .deps/venv/bin/python bench/compare_images.py --folder IMAGENET --workers 1,2,4
"""
import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BATCH = 64


def make_pictures(folder, count):
    """Noise of many sizes, so that files are as large as photographs: about 110 kB at 500x375."""
    import numpy
    from PIL import Image
    random = numpy.random.default_rng(1)
    for i in range(count):
        width, height = (500, 375) if i % 4 else (375, 500)
        total = numpy.zeros((height, width, 3))
        for octave, strength in ((4, 60), (16, 40), (64, 25), (256, 14)):
            small = random.normal(0, strength, (octave, octave, 3))
            scaled = [Image.fromarray(small[:, :, c].astype("float32")).resize((width, height), Image.BICUBIC) for c in range(3)]
            total += numpy.stack([numpy.asarray(one) for one in scaled], 2)
        name = folder / "train" / f"class{i % 8}" / f"{i:05}.jpg"
        name.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray((total + 128).clip(0, 255).astype("uint8")).save(name, quality=92)


def ours(folder, workers, batches, test):
    program = [ROOT / "build/bench_image_loading", folder, workers, batches, "none" if test else "imagenet"]
    return float(subprocess.run([str(word) for word in program], check=True, capture_output=True, text=True).stdout)


def peer_dataset(kind, folder, test):
    from torchvision import datasets, io, transforms
    from torchvision.transforms import v2
    import torch
    mean, deviation = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
    if kind == "pil":
        shape = [transforms.Resize(256), transforms.CenterCrop(224)] if test else [transforms.RandomResizedCrop(224), transforms.RandomHorizontalFlip()]
        return datasets.ImageFolder(folder / "train", transforms.Compose([*shape, transforms.ToTensor(), transforms.Normalize(mean, deviation)]))
    shape = [v2.Resize(256, antialias=True), v2.CenterCrop(224)] if test else [v2.RandomResizedCrop(224, antialias=True), v2.RandomHorizontalFlip()]
    return datasets.ImageFolder(folder / "train", v2.Compose([*shape, v2.ToDtype(torch.float32, scale=True), v2.Normalize(mean, deviation)]),
                                loader=lambda path: io.decode_image(path, mode=io.ImageReadMode.RGB))


def peer_round(kind, folder, workers, batches, test):
    """In a process of its own: prints pictures per second."""
    import torch
    torch.set_num_threads(1)
    loader = torch.utils.data.DataLoader(peer_dataset(kind, folder, test), BATCH, shuffle=True, num_workers=workers, drop_last=True,
                                         persistent_workers=workers > 0)

    def forever():
        while True:
            yield from loader

    stream = forever()
    for _ in range(max(1, workers)):
        next(stream)
    start = time.perf_counter()
    for _ in range(batches):
        next(stream)
    print(batches * BATCH / (time.perf_counter() - start))


def peer(kind, folder, workers, batches, test):
    words = [sys.executable, __file__, "--peer", kind, "--folder", folder, "--workers", workers, "--batches", batches] + (["--test"] if test else [])
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    return float(subprocess.run([str(word) for word in words], check=True, capture_output=True, text=True, env=environment).stdout)


def compare(folder, options):
    results = []
    for workers in (int(word) for word in options.workers.split(",")):
        rounds = {"yoke": [], "pil": [], "io": []}
        for _ in range(options.rounds):
            rounds["yoke"].append(ours(folder, workers, options.batches, options.test))
            for kind in ("pil", "io"):
                rounds[kind].append(peer(kind, folder, workers, options.batches, options.test))
        medians = {name: statistics.median(values) for name, values in rounds.items()}
        results.append({"workers": workers, "test": options.test, **{f"{name}_pictures_per_s": round(value, 1) for name, value in medians.items()},
                        "ratio_pil": round(medians["yoke"] / medians["pil"], 2), "ratio_io": round(medians["yoke"] / medians["io"], 2)})
        print(f"workers {workers}: Yoke {medians['yoke']:.0f}/s, PIL {medians['pil']:.0f}/s (ratio {results[-1]['ratio_pil']}), "
              f"torchvision.io {medians['io']:.0f}/s (ratio {results[-1]['ratio_io']})", file=sys.stderr)
    return results


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, help="has train/ with class folders; without it pictures are made")
    parser.add_argument("--pictures", type=int, default=512)
    parser.add_argument("--workers", default="1,2")
    parser.add_argument("--batches", type=int, default=16)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--test", action="store_true", help="resize and centre crop instead of random crops")
    parser.add_argument("--peer", choices=["pil", "io"], help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.peer:
        return peer_round(options.peer, options.folder, int(options.workers), options.batches, options.test)
    if not (ROOT / "build/bench_image_loading").exists():
        sys.exit("build/bench_image_loading is missing: ninja -C build bench_image_loading")
    with tempfile.TemporaryDirectory() as made:
        folder = options.folder or Path(made)
        if options.folder is None:
            make_pictures(folder, options.pictures)
        print(json.dumps({"results": compare(folder, options)}))


if __name__ == "__main__":
    main()
