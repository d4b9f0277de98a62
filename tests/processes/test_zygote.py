"""Ranks of `yoke train --nproc N` are forked from one process that has loaded LibTorch."""
import json
import os
import pathlib
import shutil
import signal

import pytest
from conftest import ROOT, YOKE
from launching import TrainingJob, alive, wait_until

MLP = ROOT / "configs/mlp_tiny.toml"


class Training(TrainingJob):
    def __init__(self, folder, *words, **options):
        super().__init__(folder, MLP, "--no-train.evaluate", *words, **options)

    def zygotes(self):
        return [pid for pid, environment in self.children().items() if environment.get("YOKE_ZYGOTE") == "serve" and "YOKE_RANK" not in environment]

    def summary(self):
        out, _ = self.process.communicate(timeout=180)
        assert self.process.returncode == 0, self.log.read_text()
        return json.loads(out)


@pytest.fixture
def training(tmp_path):
    started = []

    def start(*words, **options):
        folder = tmp_path / str(len(started))
        folder.mkdir()
        started.append(Training(folder, *words, **options))
        return started[-1]

    yield start
    for job in started:
        job.end()


def test_ranks_are_the_launchers_own_children(training):
    job = training("--nproc", 3, "--steps", 1000000)
    job.wait_for_step(20)
    (zygote,) = job.zygotes()
    ranks, environments = job.ranks(), job.children()
    assert sorted(ranks) == [0, 1, 2]
    for rank, pid in ranks.items():
        assert os.getpgid(pid) == pid
        assert environments[pid]["LOCAL_RANK"] == environments[pid]["YOKE_LOCAL_RANK"] == str(rank) and environments[pid]["WORLD_SIZE"] == "3"
        assert environments[pid].get("YOKE_JOB_KEY", "") == ""
        command = pathlib.Path(f"/proc/{pid}/cmdline").read_text().split("\0")
        assert command[1:3] == ["train", str(MLP)] and "--nproc" not in command
        assert pathlib.Path(f"/proc/{pid}/comm").read_text() == "yoke-torch\n"
    assert pathlib.Path(f"/proc/{zygote}/comm").read_text() == "yoke-zygote\n"
    assert "YOKE_JOB_KEY" not in environments[zygote]
    os.kill(job.process.pid, signal.SIGTERM)
    assert job.process.wait(60) == 128 + signal.SIGTERM
    assert not alive(zygote) and not any(map(alive, ranks.values()))


def test_nobody_outlives_a_killed_launcher(training):
    job = training("--nproc", 2, "--steps", 1000000)
    job.wait_for_step(20)
    everybody = job.zygotes() + list(job.ranks().values())
    assert len(everybody) == 3
    os.kill(job.process.pid, signal.SIGKILL)
    wait_until(lambda: not any(map(alive, everybody)), 5, lambda: str(everybody))


def test_a_crashed_rank_is_named(training):
    job = training("--nproc", 2, "--steps", 1000000)
    job.wait_for_step(20)
    os.kill(job.ranks()[1], signal.SIGSEGV)
    assert job.process.wait(60) == 128 + signal.SIGSEGV
    assert "rank 1" in job.log.read_text() and "SIGSEGV" in job.log.read_text()


def test_the_same_numbers_as_ranks_that_load_for_themselves(training):
    one, other = training("--nproc", 2, "--steps", 300), training("--nproc", 2, "--steps", 300, env={"YOKE_ZYGOTE": "off"})
    other.wait_for_step(10)
    assert other.zygotes() == []
    assert one.summary()["parameter_hash"] == other.summary()["parameter_hash"]


def test_ranks_start_without_a_zygote_that_is_gone(training):
    job = training("--nproc", 3, "--parallel.sync", "ps", "--ps.on_worker_loss", "restart", "--slowdown.law", "exp:5ms", "--steps", 600)
    job.wait_for_step(50)
    (zygote,) = job.zygotes()
    killed = job.ranks()[2]
    os.kill(zygote, signal.SIGKILL)
    os.kill(killed, signal.SIGKILL)
    wait_until(lambda: job.ranks().get(2, killed) != killed or job.process.poll() is not None, 60, job.log.read_text)
    assert job.summary()["steps"] == 600
    assert job.zygotes() == []


def test_ranks_start_without_a_zygote_that_cannot_be_loaded(training, tmp_path):
    shutil.copy(YOKE, tmp_path / "yoke")
    program = tmp_path / "yoke-torch"
    program.write_text(f'#!/bin/sh\n[ "$YOKE_ZYGOTE" = serve ] && exit 1\nexec {YOKE.parent}/yoke-torch "$@"\n')
    program.chmod(0o755)
    assert training("--nproc", 2, "--steps", 20, yoke=tmp_path / "yoke").summary()["steps"] == 20
