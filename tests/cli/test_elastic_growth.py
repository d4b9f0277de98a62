"""Ranks that were never there join a running elastic job: `yoke run --join`."""
import json
import os
import re
import signal
import subprocess
import threading
import time

import pytest
from conftest import ROOT, YOKE
from ports import free_port

MLP = ROOT / "configs/mlp_tiny.toml"


@pytest.fixture
def port():
    return free_port()


@pytest.fixture
def key(tmp_path):
    (tmp_path / "key").write_bytes(os.urandom(32))
    (tmp_path / "key").chmod(0o600)
    return tmp_path / "key"


class Launcher:
    """`yoke run FLAGS yoke train …` and its log."""

    def __init__(self, port, key, folder, *flags, words=(), fault=None):
        environment = {k: v for k, v in os.environ.items() if not k.startswith("YOKE_")} | ({"YOKE_FAULT": fault} if fault else {})
        command = [YOKE, "run", *flags, "--rdzv-endpoint", f"127.0.0.1:{port}", "--secret-file", key, YOKE, "train", MLP, "--out.dir", folder, "--train.threads", 1,
                   "--train.evaluate", "false", "--checkpoint.every_steps", 0, "--data.batch_size", 24, "--slowdown.law", "exp:3ms", *words]
        self.process = subprocess.Popen(list(map(str, command)), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, env=environment, cwd=ROOT)
        self.lines = []
        self.reader = threading.Thread(target=lambda: [self.lines.append(line) for line in self.process.stderr], daemon=True)
        self.reader.start()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGINT)
            try:
                self.process.wait(30)
            except subprocess.TimeoutExpired:
                self.process.kill()

    @property
    def log(self):
        return "".join(self.lines)

    def wait_for(self, pattern, seconds=60):
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            if found := re.search(pattern, self.log):
                return found
            assert self.process.poll() is None, self.log
            time.sleep(0.02)
        raise AssertionError(f"no '{pattern}' in\n{self.log}")

    def end(self, seconds=60):
        code = self.process.wait(seconds)
        self.reader.join(10)
        return code


def records(folder):
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


def wait_for_step(launcher, folder, step):
    end = time.monotonic() + 60
    while time.monotonic() < end:
        assert launcher.process.poll() is None, launcher.log
        if (folder / "metrics.jsonl").exists():
            lines = (folder / "metrics.jsonl").read_text().splitlines()
            if lines and lines[-1].endswith("}") and json.loads(lines[-1])["step"] >= step:
                return
        time.sleep(0.02)
    raise AssertionError(launcher.log)


@pytest.mark.parametrize("zero", [0, 1, 3])
@pytest.mark.parametrize("first,more", [(1, 2), (2, 1)])
def test_ranks_join_a_running_job(tmp_path, port, key, zero, first, more):
    steps = 3000  # many times as long as it takes to join
    words = ["--steps", steps, "--parallel.zero", zero, "--out.log_every", 1]
    with Launcher(port, key, tmp_path / "run", "--elastic", "--nproc", first, words=words) as job:
        wait_for_step(job, tmp_path / "run", 20)
        with Launcher(port, key, tmp_path / "other", "--join", "--nproc", more, words=words) as other:
            job.wait_for(rf"epoch \d+: {first + more} ranks continue after step \d+")
            assert job.end() == 0, job.log
            assert other.end() == 0, other.log
    summary = json.loads((tmp_path / "run/summary.json").read_text())
    assert summary["world_size"] == first + more and summary["elastic"]["joins"] == more
    assert summary["elastic"]["losses"] == 0 and summary["elastic"]["repeated"] == 0
    rows = records(tmp_path / "run")
    assert [row["step"] for row in rows] == list(range(1, steps + 1))
    sizes = {b["samples"] - a["samples"] for a, b in zip(rows, rows[1:])}
    assert sizes == {24 * first}  # the global batch is that of the start
    assert not (tmp_path / "other").exists()
    assert re.search(rf"joining the job at 127.0.0.1:{port} with {more} rank", other.log)


def test_a_new_rank_trains_before_it_has_the_state(tmp_path, port, key):
    with Launcher(port, key, tmp_path / "run", "--elastic", "--nproc", 2, words=["--steps", 10**7]) as job:
        wait_for_step(job, tmp_path / "run", 10)
        with Launcher(port, key, tmp_path / "run", "--join", words=["--steps", 10**7]) as other:
            job.wait_for(r"epoch 1: 3 ranks continue after step \d+; rank 0 sends its state meanwhile")
            job.wait_for(r"epoch 1: rank 2 has the state after step \d+")
            assert other.process.poll() is None
            job.process.send_signal(signal.SIGTERM)  # its ranks leave, and the new one has all that it needs
            assert job.end() == 0, job.log
            other.process.send_signal(signal.SIGTERM)
            assert other.end() == 128 + signal.SIGTERM, other.log


@pytest.mark.parametrize("who", ["joining", "sending"])
def test_a_death_while_the_state_is_sent_does_no_harm(tmp_path, port, key, who):
    """Nobody has lost a step, and the others continue: with the rank that joins where the sender dies."""
    fault = "at=elastic.state:kill"
    words = ["--steps", 10**7, "--out.log_every", 1, "--model.sizes", "[32, 1000, 1000, 10]"]
    with Launcher(port, key, tmp_path / "run", "--elastic", "--nproc", 2, words=words, fault=f"rank=0,{fault}" if who == "sending" else None) as job:
        wait_for_step(job, tmp_path / "run", 10)
        with Launcher(port, key, tmp_path / "run", "--join", words=words, fault=fault if who == "joining" else None) as other:
            if who == "joining":
                job.wait_for(r"epoch 2: 2 ranks continue after step \d+[^|]*epoch 2: step \d+ finished")
            else:
                job.wait_for(r"epoch 2: 2 ranks continue after step \d+; rank 0 sends its state meanwhile")
                job.wait_for(r"epoch 2: rank 1 has the state after step \d+")
            for launcher in (job, other):  # one after the other; whoever is last writes the last records
                if launcher.process.poll() is None:
                    launcher.process.send_signal(signal.SIGTERM)
                launcher.end()
    rows = records(tmp_path / "run")
    assert [row["step"] for row in rows] == list(range(1, len(rows) + 1))


def test_machines_join_one_after_the_other(tmp_path, port, key):
    words = ["--steps", 10**7, "--parallel.zero", 1]
    with Launcher(port, key, tmp_path / "run", "--elastic", "--nproc", 1, words=words) as job:
        wait_for_step(job, tmp_path / "run", 10)
        with Launcher(port, key, tmp_path / "run", "--join", words=words) as second:
            job.wait_for(r"epoch \d+: 2 ranks continue")
            with Launcher(port, key, tmp_path / "run", "--join", words=words):
                job.wait_for(r"epoch \d+: 3 ranks continue")
                second.process.send_signal(signal.SIGTERM)  # its rank leaves
                job.wait_for(r"epoch \d+: 2 ranks continue[^|]*epoch \d+: step \d+ finished[^|]*epoch \d+: 2 ranks continue")
                job.process.send_signal(signal.SIGINT)


def test_another_configuration_is_not_taken_in(tmp_path, port, key):
    with Launcher(port, key, tmp_path / "run", "--elastic", "--nproc", 2, words=["--steps", 10**7]) as job:
        wait_for_step(job, tmp_path / "run", 10)
        with Launcher(port, key, tmp_path / "run", "--join", words=["--steps", 10**7, "--train.lr", 0.7]) as other:
            assert other.end() == 2
        assert "this rank cannot join: its configuration is not that of the running job: train.lr" in other.log
        job.wait_for(r"epoch \d+: 2 ranks continue after step \d+[^|]*epoch \d+: step \d+ finished")


def test_nobody_there_is_an_error(tmp_path, port, key):
    with Launcher(port, key, tmp_path / "run", "--join", "--join-timeout", 1) as alone:
        assert alone.end() == 4
    assert f"--join: no elastic job at 127.0.0.1:{port}" in alone.log


def test_a_job_that_is_not_elastic_takes_nobody_in(tmp_path, port, key):
    with Launcher(port, key, tmp_path / "run", "--nproc", 2, words=["--steps", 10**7]) as job:
        wait_for_step(job, tmp_path / "run", 5)
        with Launcher(port, key, tmp_path / "run", "--join", "--join-timeout", 1) as other:
            assert other.end() == 4
        assert "this job is not elastic" in other.log and job.process.poll() is None


def test_a_wrong_key_is_refused(tmp_path, port, key):
    with Launcher(port, key, tmp_path / "run", "--elastic", "--nproc", 2, words=["--steps", 10**7]) as job:
        wait_for_step(job, tmp_path / "run", 5)
        (tmp_path / "wrong").write_bytes(os.urandom(32))
        (tmp_path / "wrong").chmod(0o600)
        with Launcher(port, tmp_path / "wrong", tmp_path / "run", "--join") as other:
            assert other.end() != 0
        assert job.process.poll() is None


@pytest.mark.parametrize("flags,said", [
    (["--join", "--nnodes", "2"], "--join cannot be combined with --nnodes"),
    (["--join", "--rdzv-endpoint", ""], "--join needs --rdzv-endpoint"),
])
def test_flags_that_do_not_fit_are_refused(yoke, flags, said):
    endpoint = [] if "--rdzv-endpoint" in flags else ["--rdzv-endpoint", "127.0.0.1:1"]
    assert said in yoke("run", *flags, *endpoint, "true", code=2).err


def test_joining_without_a_key_is_refused(yoke):
    assert "--join needs --secret-file" in yoke("run", "--join", "--rdzv-endpoint", "127.0.0.1:1", "true", code=2).err
