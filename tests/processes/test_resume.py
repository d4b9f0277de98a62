"""Stop a run in any way and start the same command again: the result is bit-identical to an undisturbed run."""
import json
import os
import pathlib
import signal
import subprocess
import time

import pytest
from conftest import ROOT, YOKE

RECIPES = {
    "mlp": ["configs/mlp_tiny.toml", "--steps", "400", "--train.schedule", "cosine", "--train.warmup_steps", "20"],
    "gpt2 with dropout and adamw": ["configs/gpt2_tiny.toml", "--steps", "60", "--model.dropout", "0.1",
                                    "--train.optimizer", "adamw", "--train.clip_norm", "1"],
    "lenet over epochs, accumulating": ["configs/lenet_fashion.toml", "--data.name", "synthetic", "--data.samples", "640",
                                        "--steps", "60", "--train.accumulate", "2", "--train.optimizer", "adagrad"],
    "gpt2 with dropout on two ranks": ["configs/gpt2_tiny.toml", "--nproc", "2", "--train.threads", "1", "--steps", "60",
                                       "--model.dropout", "0.1", "--data.batch_size", "8"],
    "mlp with spread state on two ranks": ["configs/mlp_tiny.toml", "--nproc", "2", "--train.threads", "1", "--steps", "200",
                                           "--train.optimizer", "adamw", "--parallel.zero", "2"],
    "mlp in fp16 with a loss scale": ["configs/mlp_tiny.toml", "--steps", "120", "--train.precision", "fp16"],
}


def start(words, run, cache):
    environment = {**os.environ, "XDG_CACHE_HOME": str(cache)}
    return subprocess.Popen([str(YOKE), "train", *words, "--out.dir", str(run), "--checkpoint.every_steps", "7",
                             "--out.log_every", "1", "--json", "-q"],
                            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment, cwd=ROOT)


def finish(process, code=0):
    out, err = process.communicate(timeout=240)
    assert process.returncode == code, err
    return out


def wait_for_steps(run, process, steps):
    """Until `steps` steps stand in metrics.jsonl, or the process is done."""
    deadline = time.monotonic() + 120
    path = run / "metrics.jsonl"
    while time.monotonic() < deadline and process.poll() is None:
        if path.exists() and path.read_text().count("\n") >= steps:
            return True
        time.sleep(0.005)
    return process.poll() is None


@pytest.mark.parametrize("name", RECIPES)
def test_killed_and_started_again_is_bit_identical(name, tmp_path, cache_folder):
    words = RECIPES[name]
    whole = json.loads(finish(start(words, tmp_path / "whole", cache_folder)))
    run = tmp_path / "killed"
    kills = 0
    for after in (3, 10, 16, 31):
        process = start(words, run, cache_folder)
        if wait_for_steps(run, process, after):
            process.send_signal(signal.SIGKILL)
            kills += 1
        process.communicate(timeout=240)
    resumed = json.loads(finish(start(words, run, cache_folder)))
    assert kills > 0
    assert resumed["steps"] == whole["steps"]
    assert resumed["parameter_hash"] == whole["parameter_hash"]
    assert resumed["final_loss"] == whole["final_loss"]
    steps = [json.loads(line)["step"] for line in (run / "metrics.jsonl").read_text().splitlines()]
    assert steps == list(range(1, whole["steps"] + 1))
    losses = lambda folder: [json.loads(line)["loss"] for line in (folder / "metrics.jsonl").read_text().splitlines()]
    assert losses(run) == losses(tmp_path / "whole")


def ranks_of(process):
    """Process ids of the ranks that a launcher has started, by rank."""
    ranks = {}
    for task in pathlib.Path(f"/proc/{process.pid}/task").iterdir():
        for pid in (task / "children").read_text().split():
            if os.readlink(f"/proc/{pid}/exe").endswith("yoke-torch"):
                words = pathlib.Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
                ranks[next(int(w[5:]) for w in words if w.startswith(b"RANK="))] = int(pid)
    return ranks


@pytest.mark.parametrize("option", [[], ["--parallel.zero", "2"], ["--ddp.hook", "int8"], ["--parallel.backend", "tcp"]])
def test_a_rank_killed_while_it_trains_ends_the_job_by_name_and_loses_nothing(option, tmp_path, cache_folder):
    words = ["configs/gpt2_tiny.toml", "--nproc", "2", "--train.threads", "1", "--steps", "100000", *option]
    run = tmp_path / "run"
    process = start(words, run, cache_folder)
    try:
        assert wait_for_steps(run, process, 20)
        ranks = ranks_of(process)
        assert sorted(ranks) == [0, 1]
        os.kill(ranks[1], signal.SIGKILL)
        out, err = process.communicate(timeout=60)
    finally:
        process.kill()
    assert process.returncode == 137, err
    assert "rank 1" in err and "SIGKILL" in err
    saved = max(int(p.name.split("-")[1]) for p in (run / "checkpoints").glob("step-*[0-9]"))
    verdict = subprocess.run([str(YOKE), "ckpt", "verify", str(run), "--json"], capture_output=True, text=True, timeout=60)
    good = [row["step"] for row in json.loads(verdict.stdout)["checkpoints"] if row["ok"]]
    assert saved in good and saved >= 14


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_asked_to_stop_it_saves_and_goes_on(number, tmp_path, cache_folder):
    words = RECIPES["mlp"]
    whole = json.loads(finish(start(words, tmp_path / "whole", cache_folder)))
    run = tmp_path / "stopped"
    process = start(words, run, cache_folder)
    assert wait_for_steps(run, process, 12)
    process.send_signal(number)
    finish(process, code=128 + number)
    saved = max(int(p.name.split("-")[1]) for p in (run / "checkpoints").glob("step-*"))
    assert saved == len((run / "metrics.jsonl").read_text().splitlines())
    resumed = json.loads(finish(start(words, run, cache_folder)))
    assert resumed["resumed_from"] == saved
    assert resumed["parameter_hash"] == whole["parameter_hash"]


def test_a_finished_run_is_not_trained_again(tmp_path, cache_folder):
    words = RECIPES["mlp"]
    first = json.loads(finish(start(words, tmp_path / "run", cache_folder)))
    second = json.loads(finish(start(words, tmp_path / "run", cache_folder)))
    assert second["parameter_hash"] == first["parameter_hash"]
    assert second["resumed_from"] == 400 and second["steps"] == 400


def test_a_flipped_bit_falls_back_to_the_checkpoint_before(tmp_path, cache_folder):
    words = RECIPES["mlp"]
    run = tmp_path / "run"
    whole = json.loads(finish(start(words, run, cache_folder)))
    newest = run / "checkpoints/step-400"
    weights = next(newest.glob("model*.safetensors"))
    data = bytearray(weights.read_bytes())
    data[-5] ^= 0x10
    weights.write_bytes(data)
    process = start(words, run, cache_folder)
    out, err = process.communicate(timeout=240)
    assert process.returncode == 0
    assert "step-400" in err
    assert json.loads(out)["parameter_hash"] == whole["parameter_hash"]
    assert json.loads(out)["resumed_from"] == 399
