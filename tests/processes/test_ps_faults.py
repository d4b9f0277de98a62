"""Workers and servers that are killed in the middle of a run."""
import json
import os
import pathlib
import signal
import subprocess
import time

import pytest
from conftest import ROOT, YOKE
from launching import clean_environment, wait_until

MLP = ROOT / "configs/mlp_tiny.toml"


class Training:
    """A `yoke train` in the background."""

    def __init__(self, folder, *words):
        self.folder, self.log = folder, folder / "job.err"
        with open(self.log, "w") as err:
            self.process = subprocess.Popen([str(YOKE), "train", str(MLP), "--parallel.sync", "ps", "--out.dir", str(folder / "run"), "--out.log_every", "10",
                                             "--train.threads", "1", "--slowdown.law", "exp:5ms", "--json", *map(str, words)], stdout=subprocess.PIPE, stderr=err,
                                            env=clean_environment(), cwd=ROOT, start_new_session=True, text=True)

    def rank(self, number):
        """The process id of a rank: the launcher's child that has this rank in its environment."""
        for entry in pathlib.Path("/proc").iterdir():
            try:
                if not entry.name.isdigit() or int((entry / "stat").read_text().rsplit(")", 1)[1].split()[1]) != self.process.pid:
                    continue
                if f"YOKE_RANK={number}".encode() in (entry / "environ").read_bytes().split(b"\0"):
                    return int(entry.name)
            except OSError:
                pass
        raise AssertionError(f"no rank {number}")

    def steps(self):
        file = self.folder / "run/metrics.jsonl"
        return json.loads(file.read_text().splitlines()[-1])["step"] if file.exists() and file.read_text() else 0

    def wait_for_step(self, step):
        wait_until(lambda: self.steps() >= step or self.process.poll() is not None, 120, self.log.read_text)
        assert self.process.poll() is None, self.log.read_text()

    def end(self):
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait(30)


@pytest.mark.parametrize("rule", ["sync", "k_sync", "async", "k_batch_async"])
def test_a_killed_worker_is_done_without(tmp_path, rule):
    job = Training(tmp_path, "--nproc", 3, "--ps.servers", 2, "--ps.policy", rule, "--ps.k", 2, "--steps", 400)
    try:
        job.wait_for_step(50)
        killed = time.monotonic()
        os.kill(job.rank(2), signal.SIGKILL)
        at = job.steps()
        wait_until(lambda: job.steps() > at + 20 or job.process.poll() is not None, 60, job.log.read_text)
        assert time.monotonic() - killed < 20
        out, _ = job.process.communicate(timeout=180)
        assert job.process.returncode == 0, job.log.read_text()
        assert json.loads(out)["steps"] == 400
        assert "worker 2 is lost" in job.log.read_text()
        assert json.loads((tmp_path / "run/ps.json").read_text())["workers"][2]["lost"]
    finally:
        job.end()


def test_a_killed_worker_ends_the_job_where_that_is_wanted(tmp_path):
    job = Training(tmp_path, "--nproc", 2, "--steps", 100000, "--ps.on_worker_loss", "stop")
    try:
        job.wait_for_step(30)
        os.kill(job.rank(1), signal.SIGKILL)
        assert job.process.wait(30) == 128 + signal.SIGKILL
        assert "rank 1" in job.log.read_text()
    finally:
        job.end()


def test_a_killed_server_is_named_with_the_last_checkpoint(tmp_path):
    job = Training(tmp_path, "--nproc", 2, "--ps.servers", 2, "--steps", 100000, "--checkpoint.every_steps", 20)
    try:
        job.wait_for_step(60)
        os.kill(job.rank(3), signal.SIGKILL)
        assert job.process.wait(30) == 128 + signal.SIGKILL
        log = job.log.read_text()
        assert "rank 3" in log and "killed by signal 9" in log
        assert "The last checkpoint is" in log and "step-" in log
    finally:
        job.end()


def test_a_stopped_run_is_saved_and_goes_on(tmp_path):
    job = Training(tmp_path, "--nproc", 2, "--steps", 100000, "--ps.policy", "async", "--checkpoint.every_steps", 1000000)
    try:
        job.wait_for_step(30)
        os.kill(job.process.pid, signal.SIGTERM)
        assert job.process.wait(30) == 128 + signal.SIGTERM
        saved = [int(p.name.split("-")[1]) for p in (tmp_path / "run/checkpoints").glob("step-*")]
        assert len(saved) == 1 and saved[0] >= 30
    finally:
        job.end()
