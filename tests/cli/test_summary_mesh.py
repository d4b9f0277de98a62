"""summary.json says how ranks lay on the mesh, what each held and what it sent along each axis."""
import json

import pytest
from conftest import ROOT

GPT = ROOT / "configs/gpt2_tiny.toml"
STEPS = 4


def train(yoke, tmp_path, *words):
    return yoke("train", GPT, "--steps", STEPS, "--data.batch_size", 8, "--no-train.evaluate", "--checkpoint.every_steps", 0, "--train.threads", 1,
                "--out.dir", tmp_path / "run", "--json", "-q", *words).json


def test_one_device_sends_nothing(yoke, tmp_path):
    summary = train(yoke, tmp_path)
    assert summary["mesh"] == {"pipeline": 1, "data": 1, "tensor": 1} and "communication" not in summary
    (memory,) = summary["memory"]
    assert memory["parameters"] == 4 * summary["parameters"] == memory["gradients"]
    assert 2 * memory["parameters"] <= memory["optimizer"] < 2.1 * memory["parameters"]  # AdamW's two moments
    assert sum(memory.values()) == pytest.approx(summary["peak_memory_bytes"][0], rel=0.01)


@pytest.mark.parametrize("zero, parts", [(0, (1, 1, 1)), (1, (1, 1, 2)), (2, (1, 2, 2)), (3, (2, 2, 2))])
def test_zero_holds_less(yoke, tmp_path, zero, parts):
    summary = train(yoke, tmp_path, "--nproc", 2, "--parallel.zero", zero)
    assert summary["mesh"] == {"pipeline": 1, "data": 2, "tensor": 1}
    whole = 4 * summary["parameters"]
    for memory in summary["memory"]:
        for key, part, times in zip(["parameters", "gradients", "optimizer"], parts, [1, 1, 2]):
            assert memory[key] == pytest.approx(times * whole / part, rel=0.02), (key, memory)
    sent = summary["communication"]
    assert sent["tensor"] == sent["pipeline"] == [0, 0] and len(sent["data"]) == 2
    if zero == 0:  # an all-reduce on two ranks: each sends as much as the gradients are
        assert sent["data"][0] == pytest.approx(whole, rel=0.05)


def test_stages_gather_for_every_micro_batch(yoke, tmp_path):
    """ZeRO 3 in a pipeline: a replica holds its share of the stage, and moves the stage three times for each micro-batch (forward,
    backward, gradients). The last stage goes backward at once, with what it has gathered."""
    words = ["--nproc", 4, "--parallel.pipeline", 2, "--parallel.backend", "tcp"]
    whole, *sharded = (train(yoke, tmp_path / f"{zero} {m}", *words, "--parallel.zero", zero, "--pipeline.microbatches", m)
                       for zero, m in ((0, 2), (3, 2), (3, 4)))
    for m, run in zip((2, 4), sharded):
        for rank, (memory, before) in enumerate(zip(run["memory"], whole["memory"])):
            for key in ("parameters", "gradients", "optimizer"):
                assert memory[key] == pytest.approx(before[key] / 2, rel=0.02), (rank, key)
            once = before["parameters"] / 2  # to the other of two replicas
            sent = run["communication"]["data"][rank] / (m * once)
            assert sent == pytest.approx(2, rel=0.02) if rank >= 2 else 2 < sent <= 3, (rank, m, sent)


@pytest.mark.parametrize("words", [["--nproc", 2], ["--nproc", 4, "--parallel.pipeline", 2], ["--nproc", 4, "--parallel.tensor", 2]],
                         ids=["whole", "stages", "slices"])
def test_sharding_the_optimizer_sends_the_same_bytes(yoke, tmp_path, words):
    """Reduce-scatter and all-gather move what an all-reduce does (over shm parameters are in common: half of it)."""
    plain, sharded = (train(yoke, tmp_path / str(zero), *words, "--parallel.backend", "tcp", "--parallel.zero", zero)["communication"]["data"]
                      for zero in (0, 1))
    # The embedding is summed over both stages that hold it (pipeline axis), and travels once more with the shards.
    tied = 4 * 256 * 64 if "--parallel.pipeline" in words else 0
    assert sharded == pytest.approx([one + tied for one in plain], rel=0.05)


@pytest.mark.parametrize("words", [["--parallel.pipeline", 2], ["--parallel.tensor", 2]], ids=["stages", "slices"])
def test_a_hook_halves_what_replicas_send(yoke, tmp_path, words):
    plain, narrow = (train(yoke, tmp_path / hook, "--nproc", 4, *words, "--parallel.backend", "tcp", "--ddp.hook", hook)["communication"]
                     for hook in ("none", "fp16"))
    assert narrow["data"] == pytest.approx([one / 2 for one in plain["data"]], rel=0.05) and min(plain["data"]) > 0
    assert narrow["tensor"] == plain["tensor"]  # groups of two: no choice of algorithms by measured links


@pytest.mark.parametrize("words", [["--nproc", 2], ["--nproc", 4, "--parallel.pipeline", 2]], ids=["whole", "stages"])
def test_a_hook_halves_gradients_of_a_sharded_optimizer(yoke, tmp_path, words):
    """Gradients are half of what travels, the other half are parameters."""
    plain, narrow = (train(yoke, tmp_path / hook, *words, "--parallel.backend", "tcp", "--parallel.zero", 1, "--ddp.hook", hook)["communication"]["data"]
                     for hook in ("none", "bf16"))
    assert narrow == pytest.approx([one * 0.75 for one in plain], rel=0.05)


@pytest.mark.parametrize("precision", ["bf16", "fp16"])
def test_mixed_precision_gathers_narrow_copies(yoke, tmp_path, precision):
    words = ["--nproc", 2, "--parallel.backend", "tcp"]
    plain = train(yoke, tmp_path / "plain", *words, "--parallel.zero", 3)
    narrow = train(yoke, tmp_path / "narrow", *words, "--parallel.zero", 3, "--train.precision", precision)
    whole = train(yoke, tmp_path / "whole", *words, "--train.precision", precision)
    # Vectors (biases, norms) stay as they are.
    assert narrow["communication"]["data"] == pytest.approx([one / 2 for one in plain["communication"]["data"]], rel=0.1)
    assert narrow["final_loss"] == pytest.approx(whole["final_loss"], rel=1e-3)
    assert [one["parameters"] for one in narrow["memory"]] == [one["parameters"] for one in plain["memory"]]  # shards are fp32


def test_three_axes(yoke, tmp_path):
    summary = train(yoke, tmp_path, "--nproc", 8, "--parallel.pipeline", 2, "--parallel.tensor", 2, "--parallel.zero", 1)
    assert summary["mesh"] == {"pipeline": 2, "data": 2, "tensor": 2}
    assert len(summary["memory"]) == 8 and all(len(sent) == 8 and min(sent) > 0 for sent in summary["communication"].values())
    # A quarter each, but for what is replicated along the tensor axis and the embedding that both stages hold.
    assert sum(memory["parameters"] for memory in summary["memory"]) < 0.6 * 8 * 4 * summary["parameters"]
    assert json.loads((tmp_path / "run/summary.json").read_text())["memory"] == summary["memory"]


def test_env_shows_the_mesh(yoke):
    mesh = yoke("env", "--json").json["mesh"]
    assert mesh["axes"] == [{"name": name, "size": 1} for name in ("pipeline", "data", "tensor")] and len(mesh["ranks"]) == 1
