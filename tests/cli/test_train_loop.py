"""What the training loop does at the edges: small last batches, numbers that are not finite, epochs that are no whole steps."""
import json
import struct

import pytest

MLP = "configs/mlp_tiny.toml"
GPT2 = "configs/gpt2_tiny.toml"


def records(run):
    return [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]


def test_the_learning_rate_falls_at_its_epoch_where_steps_accumulate(yoke, tmp_path):
    # Five batches an epoch, two of which make a step: 2.5 steps.
    yoke("train", MLP, "--data.samples", 160, "--train.accumulate", 2, "--train.schedule", "step", "--train.decay_epochs", 2,
         "--train.epochs", 4, "--train.lr", 0.1, "--out.log_every", 1, "--no-train.evaluate", "--out.dir", tmp_path, "-q")
    rates = [record["lr"] for record in records(tmp_path)]
    assert rates == pytest.approx([0.1] * 5 + [0.01] * 5)


def test_speed_counts_the_samples_that_there_are(yoke, tmp_path):
    summary = yoke("train", MLP, "--data.batch_size", 1_000_000, "--data.drop_last", "false", "--steps", 3,
                   "--no-train.evaluate", "--out.dir", tmp_path, "-q", "--json").json
    assert summary["samples_per_s"] * summary["step_seconds"]["median"] == pytest.approx(1024)


@pytest.mark.parametrize("layout", [["--nproc", 2, "--parallel.pipeline", 2],
                                    ["--nproc", 2, "--parallel.pipeline", 2, "--pipeline.schedule", "2bw"],
                                    ["--nproc", 3]])
def test_a_last_batch_may_be_smaller_than_the_number_of_its_parts(yoke, tmp_path, layout):
    batch = 16 if "--parallel.pipeline" in layout else 5
    summary = yoke("train", MLP, *layout, "--data.samples", 16 * 3 - (2 if batch == 5 else -1), "--data.batch_size", batch,
                   "--data.drop_last", "false", "--train.epochs", 2, "--no-train.evaluate", "--out.dir", tmp_path,
                   "-q", "--json").json
    assert summary["steps"] == 8 and summary["epochs"] == 2


def test_accumulation_without_a_flush_is_refused_at_the_start(yoke, tmp_path):
    failed = yoke("train", MLP, "--nproc", 2, "--parallel.pipeline", 2, "--pipeline.schedule", "2bw", "--train.accumulate", 2,
                  "--out.dir", tmp_path, code=2)
    assert "train.accumulate = 2" in failed.err and "step:" not in failed.err


def spoil(path):
    """Writes NaN into one embedding of a file of weights."""
    data = bytearray(path.read_bytes())
    length = struct.unpack("<Q", data[:8])[0]
    at = 8 + length + json.loads(data[8:8 + length])["wte.weight"]["data_offsets"][0]
    data[at:at + 4] = struct.pack("<f", float("nan"))
    path.write_bytes(data)
    return path


@pytest.mark.parametrize("layout", [["--train.non_finite", "stop"], ["--train.non_finite", "skip"],
                                    ["--train.non_finite", "skip", "--nproc", 2, "--parallel.pipeline", 2]])
def test_a_nan_among_the_weights_is_never_saved(yoke, tmp_path, layout):
    words = [GPT2, "--no-train.evaluate", "--model.layers", 1, "--data.batch_size", 4, "--steps", 4, "--checkpoint.every_steps", 2]
    yoke("train", *words, "--out.dir", tmp_path / "first", "-q")
    yoke("ckpt", "export", tmp_path / "first", "-o", tmp_path / "w.safetensors")
    failed = yoke("train", *words, *layout, "--init", spoil(tmp_path / "w.safetensors"), "--out.dir", tmp_path / "run", code=2)
    assert "wte.weight" in failed.err and "not finite" in failed.err
    assert not list((tmp_path / "run").glob("checkpoints/step-*"))


@pytest.mark.parametrize("layout", [[], ["--nproc", 2, "--parallel.pipeline", 2], ["--nproc", 2]])
def test_fp16_that_diverges_ends_with_a_sentence_and_saves_nothing_bad(yoke, tmp_path, layout):
    words = ["train", MLP, *layout, "--train.precision", "fp16", "--train.lr", 1e3, "--steps", 300, "--checkpoint.every_steps", 1,
             "--no-train.evaluate", "--out.dir", tmp_path]
    for _ in range(2):  # the second one resumes
        failed = yoke(*words, code=2)
        assert "not finite" in failed.err or "overflowed fp16" in failed.err
        assert "train.lr" in failed.err and "converted" not in failed.err
    assert all(row["ok"] for row in yoke("ckpt", "verify", tmp_path, "--json").json["checkpoints"])


def test_a_damaged_file_of_convolution_choices_does_not_stop_a_run(yoke, tmp_path):
    choices = tmp_path / "cache" / "yoke" / "tuning.json"
    choices.parent.mkdir(parents=True)
    choices.write_text("{")
    result = yoke("train", "configs/lenet_fashion.toml", "--data.name", "synthetic", "--data.samples", 64, "--steps", 1,
                  "--no-train.evaluate", "--out.dir", tmp_path / "run", env={"XDG_CACHE_HOME": str(tmp_path / "cache")})
    assert "measured again" in result.err
    assert json.loads(choices.read_text())["version"] == 1


def test_bf16_on_a_cpu_comes_with_a_hint(yoke, tmp_path):
    result = yoke("train", MLP, "--train.precision", "bf16", "--steps", 1, "--no-train.evaluate", "--out.dir", tmp_path)
    assert "more memory than fp32" in result.err and "yoke bench step --model mlp" in result.err
    assert "bf16" not in yoke("train", MLP, "--steps", 1, "--no-train.evaluate", "--out.dir", tmp_path / "fp32").err


def test_several_runs_are_compared_on_one_page(yoke, tmp_path):
    for rate in (0.01, 0.05):
        yoke("train", MLP, "--train.lr", rate, "--steps", 40, "--out.log_every", 1, "--no-train.evaluate", "--out.dir", tmp_path / f"lr_{rate}", "-q")
    runs = [tmp_path / "lr_0.01", tmp_path / "lr_0.05"]
    result = yoke("report", *runs, "--target-loss", 2, "-o", tmp_path / "both.html", "--json").json
    slow, fast = result["runs"]
    assert [slow["name"], fast["name"]] == ["lr_0.01", "lr_0.05"] and result["target_loss"] == 2
    assert 0 < fast["steps_to_target"] < slow.get("steps_to_target", 41)
    for run, row in zip(runs, result["runs"]):
        losses = [record["loss"] for record in records(run)]
        assert row["final_loss"] == losses[-1]
    page = (tmp_path / "both.html").read_text()
    assert "lr_0.01" in page and page.count("<svg") >= 3
    assert "one" in yoke("report", runs[0], "--target-loss", 2, code=2).err
    assert "--baseline" in yoke("report", *runs, "--baseline", runs[0], code=2).err
