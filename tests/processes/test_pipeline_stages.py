"""Stages that die, and pipelines that go on from a checkpoint."""
import json
import os
import signal
import subprocess
import time

import pytest
from conftest import ROOT, YOKE

COMMON = ["--train.threads", "1", "--out.log_every", "1", "--json", "-q"]
RECIPES = {
    "1f1b with dropout": ["configs/gpt2_tiny.toml", "--nproc", "2", "--parallel.pipeline", "2", "--steps", "80", "--model.dropout", "0.1"],
    "pipedream on four stages": ["configs/mlp_tiny.toml", "--nproc", "4", "--parallel.pipeline", "4", "--steps", "80",
                                 "--model.sizes", "32,48,40,24,10", "--pipeline.schedule", "pipedream"],
}


def start(words, run, cache):
    environment = {**os.environ, "XDG_CACHE_HOME": str(cache)}
    return subprocess.Popen([str(YOKE), "train", *words, *COMMON, "--out.dir", str(run), "--checkpoint.every_steps", "7"],
                            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment, cwd=ROOT)


def logged(run):
    path = run / "metrics.jsonl"
    return path.read_text().splitlines() if path.exists() else []


def committed(run, step):
    """Checkpoints are written in the background: the step being over says little. Older ones are removed when newer ones are safe."""
    return any(int(mark.parent.name.split("-")[1]) >= step for mark in run.glob("checkpoints/step-*[0-9]/COMMITTED"))


def wait_until(process, there):
    """Whether the process still ran when it was `there`."""
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline and process.poll() is None and not there():
        time.sleep(0.005)
    return process.poll() is None


def ranks_of(launcher):
    """Process ids of the launcher's children, by rank."""
    found = {}
    for entry in os.listdir("/proc"):
        if not entry.isdigit():
            continue
        try:
            parent = int(open(f"/proc/{entry}/stat").read().rsplit(")", 1)[1].split()[1])
            environment = open(f"/proc/{entry}/environ", "rb").read().split(b"\0")
        except (OSError, IndexError):
            continue
        if parent == launcher:
            for word in environment:
                if word.startswith(b"RANK="):
                    found[int(word[5:])] = int(entry)
    return found


@pytest.mark.parametrize("name", RECIPES)
def test_killed_and_started_again_is_bit_identical(name, tmp_path, cache_folder):
    whole = start(RECIPES[name], tmp_path / "whole", cache_folder)
    out, err = whole.communicate(timeout=240)
    assert whole.returncode == 0, err
    run = tmp_path / "killed"
    process = start(RECIPES[name], run, cache_folder)
    assert wait_until(process, lambda: len(logged(run)) >= 16 and committed(run, 14))
    process.send_signal(signal.SIGKILL)
    process.communicate(timeout=240)
    again = start(RECIPES[name], run, cache_folder)
    resumed, err = again.communicate(timeout=240)
    assert again.returncode == 0, err
    assert json.loads(resumed)["resumed_from"] >= 14
    assert json.loads(resumed)["parameter_hash"] == json.loads(out)["parameter_hash"]
    losses = lambda folder: [json.loads(line)["loss"] for line in logged(folder)]
    assert losses(run) == losses(tmp_path / "whole")


def test_a_killed_stage_ends_the_job_and_is_named(tmp_path, cache_folder):
    words = ["configs/gpt2_tiny.toml", "--nproc", "3", "--parallel.pipeline", "3", "--steps", "100000"]
    run = tmp_path / "run"
    process = start(words, run, cache_folder)
    assert wait_until(process, lambda: len(logged(run)) >= 5)
    victim = ranks_of(process.pid)[1]
    begin = time.monotonic()
    os.kill(victim, signal.SIGKILL)
    _, err = process.communicate(timeout=60)
    assert time.monotonic() - begin < 30
    assert process.returncode == 128 + signal.SIGKILL, err
    assert "pipeline stage 1 (rank 1)" in err
    assert "stage 1" in err or "stage 0>1" in err or "stage 1>0" in err or "stage 1>2" in err, err
