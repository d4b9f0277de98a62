#!/usr/bin/env python3
"""200 training steps here and in PyTorch on a GPU:
tests/gpu/losses.py build-cuda/yoke [--only gpt2,resnet50,vgg16,lenet,alexnet,inception_v3]

The same initial weights, the same batches in the same order, the same optimizer; no dropout. GPT-2 reads this
repository's text byte by byte; the image networks learn scikit-learn's handwritten digits, written as CIFAR-10 records
(LeNet: as MNIST files); AlexNet and Inception-v3, which need larger images, learn yoke's synthetic ones, which
yoke_write_images of the same build writes for PyTorch. PyTorch trains eagerly in fp32, and by autocast in bf16 and fp16 (GradScaler): how far apart those
end is the noise that our kernels' precisions are measured against.

Prints the mean loss of the last 20 steps of every run, and ends with exit code 1 where ours is further from PyTorch's fp32
than 0.02 plus twice the distance of its autocast. Not run by ctest: it needs a GPU, a build with -DYOKE_CUDA=ON,
torchvision, transformers and scikit-learn. About six minutes on an H200.
"""
import argparse
import json
import pathlib
import statistics
import struct
import subprocess
import sys
import tempfile

import numpy
import torch
import torchvision
import transformers
from safetensors.torch import load_file
from sklearn.datasets import load_digits

STEPS, LAST = 200, 20
REPOSITORY = pathlib.Path(__file__).resolve().parent.parent.parent
GPT = {"layers": 6, "heads": 8, "width": 512, "vocabulary": 256, "positions": 256}
IMAGES = {"alexnet": (64, 512), "inception_v3": (299, 128)}  # side and number of synthetic images
NARROW = {"bf16": torch.bfloat16, "fp16": torch.float16}


def write_text(folder):
    files = sorted(REPOSITORY.glob("docs/**/*.md")) + sorted(REPOSITORY.glob("src/yoke/**/*.cpp"))
    text = b"".join(file.read_bytes() for file in files)
    tokens = numpy.frombuffer(text, dtype=numpy.uint8).astype(numpy.uint16)
    tokens.tofile(folder / "train.bin")
    return torch.from_numpy(tokens.astype(numpy.int64))


def write_digits(folder, side, channels):
    """The files that yoke reads, and the same as normalised tensors."""
    digits = load_digits()
    images = torch.from_numpy(digits.images).float()[:, None] * (255 / 16)
    images = torch.nn.functional.interpolate(images, size=(side, side), mode="bilinear").round().to(torch.uint8)
    images = images.expand(-1, channels, -1, -1).contiguous()
    labels = torch.from_numpy(digits.target).to(torch.uint8)
    if channels == 3:
        records = torch.cat([labels[:, None], images.flatten(1)], dim=1)
        (folder / "data_batch_1.bin").write_bytes(records.numpy().tobytes())
        mean, deviation = torch.tensor([0.4914, 0.4822, 0.4465]), torch.tensor([0.2470, 0.2435, 0.2616])
    else:
        for name in ("train", "t10k"):
            (folder / f"{name}-images-idx3-ubyte").write_bytes(
                struct.pack(">IIII", 0x803, len(images), side, side) + images.numpy().tobytes())
            (folder / f"{name}-labels-idx1-ubyte").write_bytes(struct.pack(">II", 0x801, len(labels)) + labels.numpy().tobytes())
        mean, deviation = torch.tensor([0.1307]), torch.tensor([0.3081])
    pixels = (images.float() / 255 - mean[:, None, None]) / deviation[:, None, None]
    return pixels, labels.long()


def write_synthetic(yoke, folder, side, count):
    """As tensors: yoke makes them itself, with the same seed."""
    file = folder / "images"
    program = pathlib.Path(yoke).parent / "yoke_write_images"
    subprocess.run([program, "10", str(side), str(count), "1", file], check=True)
    pixels = torch.from_numpy(numpy.fromfile(file, dtype=numpy.float32, count=count * 3 * side * side))
    labels = torch.from_numpy(numpy.fromfile(file, dtype=numpy.int64, offset=pixels.nbytes))
    file.unlink()
    return pixels.view(count, 3, side, side), labels


class Task:
    """A network, its data and its optimizer, for both sides."""

    def __init__(self, name, folder, yoke):
        self.name, self.folder, self.yoke = name, folder, yoke
        self.text = name == "gpt2"
        if self.text:
            self.batch, self.tokens = 16, write_text(folder)
            self.keys = [word for key, value in GPT.items() for word in (f"--model.{key}", str(value))]
            self.keys += ["--model.dropout", "0"]
            self.data = ["--data.name", "tokens", "--data.dir", str(folder)]
            self.optimizer = ["--train.optimizer", "adamw", "--train.lr", "0.0003", "--train.weight_decay", "0.01"]
        elif name in IMAGES:
            side, count = IMAGES[name]
            self.batch, self.lr = 32, 0.001
            self.pixels, self.labels = write_synthetic(yoke, folder, side, count)
            self.keys = ["--model.image_size", str(side), "--model.classes", "10", "--model.dropout", "0"]
            self.data = ["--data.name", "synthetic", "--data.samples", str(count), "--train.seed", "1"]
            self.optimizer = ["--train.optimizer", "sgd", "--train.momentum", "0.9", "--train.lr", str(self.lr)]
        else:
            side, channels = (28, 1) if name == "lenet" else (32, 3)
            self.batch = 64
            self.pixels, self.labels = write_digits(folder, side, channels)
            self.keys = [] if name == "lenet" else ["--model.image_size", "32", "--model.classes", "10"]
            self.keys += ["--model.dropout", "0"] if name == "vgg16" else []
            self.data = ["--data.name", "mnist" if name == "lenet" else "cifar10", "--data.dir", str(folder), "--data.limit",
                         str(len(self.labels))]
            # Larger steps of the deep networks end anywhere: PyTorch's own precisions are then as far apart.
            self.lr = 0.01 if name == "lenet" else 0.001
            self.optimizer = ["--train.optimizer", "sgd", "--train.momentum", "0.9", "--train.lr", str(self.lr)]
        self.weights = folder / "weights.safetensors"
        subprocess.run([yoke, "model", "export", name, "-o", self.weights, "--seed", "5", *self.keys], check=True,
                       capture_output=True)

    def batches(self):
        length = GPT["positions"]
        samples = (len(self.tokens) - 1) // length if self.text else len(self.labels)
        per_epoch = samples // self.batch
        for step in range(STEPS):
            first = step % per_epoch * self.batch
            if self.text:
                rows = torch.stack([self.tokens[i * length:i * length + length + 1] for i in range(first, first + self.batch)])
                yield rows[:, :-1].cuda(), rows[:, 1:].cuda()
            else:
                part = slice(first, first + self.batch)
                yield self.pixels[part].cuda(), self.labels[part].cuda()

    def model(self):
        weights = load_file(self.weights)
        if self.text:
            config = transformers.GPT2Config(n_layer=GPT["layers"], n_head=GPT["heads"], n_embd=GPT["width"],
                                             vocab_size=GPT["vocabulary"], n_positions=GPT["positions"], resid_pdrop=0,
                                             embd_pdrop=0, attn_pdrop=0)
            model = transformers.GPT2LMHeadModel(config)
            model.transformer.load_state_dict(weights, strict=True)
            model.tie_weights()
            return model.cuda()
        if self.name == "lenet":
            nn = torch.nn
            model = nn.Sequential(nn.Conv2d(1, 6, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(6, 16, 5), nn.ReLU(),
                                  nn.MaxPool2d(2), nn.Flatten(), nn.Linear(400, 120), nn.ReLU(), nn.Linear(120, 84), nn.ReLU(),
                                  nn.Linear(84, 10))
            names = ["conv1", "conv2", "fc1", "fc2", "fc3"]
            layers = [layer for layer in model if hasattr(layer, "weight")]
            for name, layer in zip(names, layers):
                layer.weight.data, layer.bias.data = weights[f"{name}.weight"], weights[f"{name}.bias"]
            return model.cuda()
        options = {"dropout": 0.0} if self.name in ("vgg16", "alexnet", "inception_v3") else {}
        if self.name == "inception_v3":
            options["init_weights"] = False
        model = getattr(torchvision.models, self.name)(num_classes=10, **options)
        model.load_state_dict(weights, strict=True)
        return model.cuda().to(memory_format=torch.channels_last)

    def torch_losses(self, precision):
        torch.manual_seed(1)
        model = self.model().train()
        if self.text:
            optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, weight_decay=0.01, fused=True)
        else:
            optimizer = torch.optim.SGD(model.parameters(), lr=self.lr, momentum=0.9, fused=True)
        scaler = torch.amp.GradScaler("cuda", enabled=precision == "fp16")
        losses = []
        for inputs, target in self.batches():
            optimizer.zero_grad()
            with torch.autocast("cuda", dtype=NARROW.get(precision, torch.bfloat16), enabled=precision in NARROW):
                out = model(inputs)
                parts = [(out.logits, 1.0)] if self.text else [(out, 1.0)]
                if self.name == "inception_v3":
                    parts = [(out.logits, 1.0), (out.aux_logits, 0.4)]
                loss = sum(weight * torch.nn.functional.cross_entropy(logits.flatten(0, -2), target.flatten())
                           for logits, weight in parts)
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
            losses.append(loss.detach())
        return [loss.item() for loss in losses]

    def yoke_losses(self, precision, accumulate=1):
        run = self.folder / f"run_{precision}_{accumulate}"
        config = self.folder / "run.toml"
        config.write_text(f'[model]\nname = "{self.name}"\n')
        words = [self.yoke, "train", str(config), *self.keys, *self.data, *self.optimizer, "--train.schedule", "constant",
                 "--data.batch_size", str(self.batch // accumulate), "--train.accumulate", str(accumulate), "--no-data.shuffle",
                 "--init", str(self.weights), "--steps", str(STEPS), "--train.precision", precision, "--device", "cuda",
                 "--no-train.evaluate", "--no-out.report", "--out.log_every", "1", "--out.dir", str(run), "--resume", "never",
                 "--checkpoint.every_steps", "0", "-q"]
        done = subprocess.run(words, capture_output=True, text=True)
        if done.returncode != 0:
            sys.exit(f"{' '.join(words)}\n{done.stderr[-2000:]}")
        records = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
        return [record["loss"] for record in records if "loss" in record]


def end_of(losses):
    return statistics.fmean(losses[-LAST:])


def compare(task):
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    reference = task.torch_losses("fp32")
    peers = {precision: task.torch_losses(precision) for precision in ("bf16", "fp16")}
    wrong = 0
    print(f"{task.name}: first loss {reference[0]:.4f}, after {STEPS} steps in PyTorch: fp32 {end_of(reference):.4f}, bf16 "
          f"{end_of(peers['bf16']):.4f}, fp16 {end_of(peers['fp16']):.4f}")
    for precision, accumulate in (("fp32", 1), ("tf32", 1), ("bf16", 1), ("fp16", 1), ("bf16", 2), ("fp16", 2)):
        if accumulate > 1 and task.name in ("resnet50", "inception_v3"):
            continue  # batch norm sees half the batch: other numbers
        ours = task.yoke_losses(precision, accumulate)
        assert len(ours) == STEPS, (len(ours), precision)
        apart = [abs(end_of(losses) - end_of(reference)) for losses in peers.values()]
        noise = max((one for one in apart if numpy.isfinite(one)), default=0)  # a peer may diverge in fp16
        away = abs(end_of(ours) - end_of(reference))
        right = abs(ours[0] - reference[0]) < 0.02 * reference[0] and away <= 0.02 + 2 * noise
        wrong += not right
        print(f"  yoke {precision}{f', {accumulate} micro-batches' if accumulate > 1 else '':<18} {end_of(ours):.4f}, away "
              f"{away:.4f} (noise {noise:.4f}) {'ok' if right else 'WRONG'}", flush=True)
    return wrong


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("yoke")
    parser.add_argument("--only", default="gpt2,resnet50,vgg16,lenet,alexnet,inception_v3")
    arguments = parser.parse_args()
    wrong = 0
    for name in arguments.only.split(","):
        with tempfile.TemporaryDirectory() as folder:
            wrong += compare(Task(name, pathlib.Path(folder), str(pathlib.Path(arguments.yoke).resolve())))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
