"""examples/slurm.sbatch and slurm_elastic.sbatch with Slurm's variables: a stand-in for srun starts the ranks, one for scontrol notes what it is asked."""
import json
import os
import signal
import socket
import subprocess
import sys

import pytest
from conftest import ROOT, YOKE
from launching import clean_environment, wait_until

SRUN = f'''#!{sys.executable}
"""As srun: numbers the tasks, hands signals on, and ends with the highest code."""
import os, signal, subprocess, sys
words = [word for word in sys.argv[1:] if not word.startswith("--kill-on-bad-exit")]
tasks = []
for rank in range(2):
    env = dict(os.environ, SLURM_PROCID=str(rank), SLURM_LOCALID=str(rank), SLURM_NODEID="0", SLURM_STEP_ID="0", SLURM_STEP_NUM_TASKS="2",
               SLURM_STEP_TASKS_PER_NODE="2", SLURM_STEP_NODELIST="localhost", SLURM_JOB_NODELIST="localhost")
    if "ONE_TASK_PER_NODE" in os.environ:
        env.update(SLURM_NODEID=str(rank), SLURM_LOCALID="0", SLURM_STEP_TASKS_PER_NODE="1(x2)")
    tasks.append(subprocess.Popen(words, env=env))
signal.signal(signal.SIGUSR1, lambda *_: [task.send_signal(signal.SIGUSR1) for task in tasks])
open(os.environ["SRUN_PID"], "w").write(str(os.getpid()))
codes = [task.wait() for task in tasks]
sys.exit(max(code if code >= 0 else 128 - code for code in codes))
'''
SCONTROL = '#!/bin/sh\necho "$@" >> "$SCONTROL_LOG"\n'


@pytest.fixture
def batch(tmp_path):
    """start(): the script as slurmd would run it."""
    folder = tmp_path / "bin"
    folder.mkdir()
    for name, text in (("srun", SRUN), ("scontrol", SCONTROL), ("yoke", f'#!/bin/sh\nexec {YOKE} "$@"\n')):
        (folder / name).write_text(text)
        (folder / name).chmod(0o755)
    processes = []

    def start(*words, script="examples/slurm.sbatch", **more):
        env = clean_environment(PATH=f"{folder}:{os.environ['PATH']}", SLURM_JOB_ID=f"{os.getpid()}", SLURM_NTASKS=2, SLURM_CPUS_PER_TASK=1,
                                OUT_DIR=tmp_path / "run", SRUN_PID=tmp_path / "srun.pid", SCONTROL_LOG=tmp_path / "scontrol.log",
                                YOKE_SECRET_FILE=tmp_path / "secret", **more)
        processes.append(subprocess.Popen(["bash", script, "configs/mlp_tiny.toml", *map(str, words)], cwd=ROOT, env=env,
                                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True))
        return processes[-1]

    yield start
    for process in processes:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait(30)


def last_step(folder):
    file = folder / "run/metrics.jsonl"
    lines = file.read_text().splitlines() if file.exists() else []
    return json.loads(lines[-1])["step"] if lines else 0


def test_a_job_whose_time_is_up_saves_and_is_queued_again(batch, tmp_path):
    job = batch("--steps", 100000, "--out.log_every", 10, "--checkpoint.every_steps", 1000000, "--no-train.evaluate")
    wait_until(lambda: last_step(tmp_path) >= 30 or job.poll() is not None, 120)
    os.kill(int((tmp_path / "srun.pid").read_text()), signal.SIGUSR1)
    out, _ = job.communicate(timeout=60)
    assert job.returncode == 0, out
    assert (tmp_path / "scontrol.log").read_text() == f"requeue {os.getpid()}\n"
    saved = [int(path.name.split("-")[1]) for path in (tmp_path / "run/checkpoints").glob("step-*[0-9]")]
    assert len(saved) == 1 and saved[0] >= 30, out
    # What Slurm starts again goes on from there, ends well, and is not queued a second time.
    again = batch("--steps", saved[0] + 20, "--out.log_every", 10, "--no-train.evaluate")
    out, _ = again.communicate(timeout=120)
    assert again.returncode == 0, out
    assert f"step {saved[0]} of {saved[0] + 20}" in out
    assert (tmp_path / "scontrol.log").read_text().count("requeue") == 1


def test_a_job_that_fails_is_not_queued_again(batch, tmp_path):
    job = batch("--train.lr", "x")
    out, _ = job.communicate(timeout=60)
    assert job.returncode == 2 and not (tmp_path / "scontrol.log").exists(), out


def test_an_elastic_job_whose_time_is_up_saves_and_is_queued_again(batch, tmp_path):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    elastic = {"script": "examples/slurm_elastic.sbatch", "SLURM_NNODES": 2, "SLURM_JOB_NODELIST": "localhost", "ONE_TASK_PER_NODE": 1, "RANKS": 1,
               "RDZV_HOST": "127.0.0.1", "RDZV_PORT": port}
    job = batch("--steps", 100000, "--out.log_every", 10, "--checkpoint.every_steps", 1000000, "--no-train.evaluate", **elastic)
    wait_until(lambda: last_step(tmp_path) >= 30 or job.poll() is not None, 120)
    os.kill(int((tmp_path / "srun.pid").read_text()), signal.SIGUSR1)
    out, _ = job.communicate(timeout=60)
    assert job.returncode == 0, out
    assert (tmp_path / "scontrol.log").read_text() == f"requeue {os.getpid()}\n", out
    saved = [int(path.name.split("-")[1]) for path in (tmp_path / "run/checkpoints").glob("step-*[0-9]")]
    assert len(saved) == 1 and saved[0] >= 30, out
    again = batch("--steps", saved[0] + 20, "--out.log_every", 10, "--no-train.evaluate", **elastic)
    out, _ = again.communicate(timeout=120)
    assert again.returncode == 0 and f"step {saved[0]} of {saved[0] + 20}" in out, out
    assert json.loads((tmp_path / "run/summary.json").read_text())["world_size"] == 2
