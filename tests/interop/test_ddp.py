"""Data parallel training here and with PyTorch's own DistributedDataParallel: the same losses, step by step."""
import json
import os
import pathlib
import subprocess
import sys

import numpy
from conftest import ROOT
from ports import free_port

GPT2 = {"layers": 2, "heads": 4, "width": 32, "vocabulary": 97, "positions": 24}
STEPS, BATCH, LENGTH = 20, 4, 24


def torch_ddp(weights, tokens):
    """PyTorch's losses, from two processes over gloo."""
    port = free_port()
    script = pathlib.Path(__file__).with_name("torch_ddp_gpt2.py")
    words = [sys.executable, str(script), str(weights), str(tokens), str(STEPS), str(BATCH), str(LENGTH), json.dumps(GPT2)]
    ranks = []
    for rank in range(2):
        environment = {**os.environ, "RANK": str(rank), "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1",
                       "MASTER_PORT": str(port), "GLOO_SOCKET_IFNAME": "lo"}
        ranks.append(subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment))
    outputs = []
    try:
        for process in ranks:
            out, err = process.communicate(timeout=240)
            assert process.returncode == 0, err
            outputs.append(out)
    finally:
        for process in ranks:
            if process.poll() is None:
                process.kill()
    return json.loads(outputs[0].splitlines()[-1])


def test_the_loss_curve_is_pytorch_ddps(tmp_path, yoke):
    generator = numpy.random.default_rng(5)
    tokens = tmp_path / "train.bin"
    # A text with something to learn: each token depends on the one before.
    text = numpy.zeros(STEPS * BATCH * 2 * LENGTH + 100, dtype=numpy.uint16)
    for i in range(1, len(text)):
        text[i] = (text[i - 1] * 5 + generator.integers(0, 3)) % 97
    text.tofile(tokens)
    text[: 10 * LENGTH].tofile(tmp_path / "val.bin")
    weights = tmp_path / "start.safetensors"
    sizes = [word for key, value in GPT2.items() for word in (f"--model.{key}", value)]
    yoke("model", "export", "gpt2", "-o", weights, "--seed", 3, *sizes)
    yoke("train", ROOT / "configs/gpt2_tiny.toml", "--nproc", 2, *sizes, "--model.dropout", 0, "--init", weights,
         "--data.name", "tokens", "--data.dir", tmp_path, "--data.shuffle", "false", "--data.batch_size", BATCH,
         "--train.optimizer", "sgd", "--train.lr", 0.1, "--train.momentum", 0.9, "--train.schedule", "constant",
         "--train.warmup_steps", 0, "--train.clip_norm", 0, "--train.weight_decay", 0, "--train.evaluate", "false",
         "--train.threads", 1, "--steps", STEPS, "--out.dir", tmp_path / "run", "--out.log_every", 1)
    lines = (tmp_path / "run/metrics.jsonl").read_text().splitlines()
    ours = [json.loads(line)["loss"] for line in lines]
    theirs = torch_ddp(weights, tokens)
    assert len(ours) == len(theirs) == STEPS
    assert max(abs(a - b) for a, b in zip(ours, theirs)) < 1e-5
    assert theirs[-1] < theirs[0] - 0.3  # it did learn
