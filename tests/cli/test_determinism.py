"""train.deterministic: the same bits in every run and after a resume; and what is said where they differ."""
import json

import pytest

LENET = ["train", "configs/lenet_fashion.toml", "--data.name", "synthetic", "--data.samples", "512", "--steps", "8",
         "--train.threads", "1", "--no-train.evaluate", "--no-out.report"]


def train(yoke, out, cache, *words):
    return yoke(*LENET, "--out.dir", out, "--json", *words, env={"XDG_CACHE_HOME": str(cache)})


def test_measured_choices_of_other_runs_do_not_change_bits(yoke, tmp_path):
    first = train(yoke, tmp_path / "a", tmp_path / "none yet", "--train.deterministic").json
    train(yoke, tmp_path / "b", tmp_path / "cache")
    tuning = tmp_path / "cache/yoke/tuning.json"
    choices = json.loads(tuning.read_text())
    choices["choices"] = {key: "channels_last" for key in choices["choices"]}
    tuning.write_text(json.dumps(choices))
    other = train(yoke, tmp_path / "c", tmp_path / "cache").json
    again = train(yoke, tmp_path / "d", tmp_path / "cache", "--train.deterministic").json
    assert again["parameter_hash"] == first["parameter_hash"]
    assert other["parameter_hash"] != first["parameter_hash"]  # else this shows nothing


def test_a_resume_says_whether_it_is_bit_identical(yoke, tmp_path):
    words = ["train", "configs/mlp_tiny.toml", "--out.dir", tmp_path, "--checkpoint.every_steps", "10", "--train.threads", "1",
             "--no-train.evaluate"]
    yoke(*words, "--steps", "10")
    same = yoke(*words, "--steps", "20")
    assert "; bit-identical to an uninterrupted run" in same.err
    threads = yoke(*words, "--steps", "30", "--train.threads", "2")
    assert "not bit-identical: threads 2 (was 1)" in threads.err
    ranks = yoke(*words, "--steps", "40", "--nproc", "2")
    assert "not bit-identical: 2 ranks instead of 1" in ranks.err


@pytest.mark.parametrize("words, part", [
    (["--parallel.sync", "ps", "--ps.policy", "async"], "ps.policy = \"async\" applies gradients as they arrive"),
    (["--parallel.split", "speed"], "parallel.split"),
    (["--parallel.plan", "auto"], "parallel.plan"),
    (["--ddp.hook", "topk:0.1"], "error feedback"),
])
def test_what_cannot_repeat_is_refused_with_its_reason(yoke, words, part):
    result = yoke("train", "configs/mlp_tiny.toml", "--nproc", "2", "--train.deterministic", *words, code=2)
    assert "train.deterministic = true" in result.err and part in result.err
