"""Elastic jobs as users type them: ranks are killed, stopped, asked to leave and return."""
import json
import os
import pathlib
import random
import re
import shutil
import signal
import subprocess
import threading
import time

import pytest
from conftest import ROOT, YOKE
from ports import free_port
from running_job import Started

MLP = ROOT / "configs/mlp_tiny.toml"
BATCH = 24
COMMON = ["train", MLP, "--train.threads", 1, "--json", "-q", "--elastic", "--data.batch_size", BATCH, "--train.evaluate", "false"]


def records(folder):
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


def kill(rank, step, hit=1):
    return f"rank={rank},step={step},hit={hit},at=comm.collective.begin:kill"


def elastic(yoke, folder, *words, ranks=3, faults=(), code=0, quiet=True, **more):
    env = {"YOKE_FAULT": "; ".join(faults)} if faults else {}
    common = [word for word in COMMON if quiet or word != "-q"]
    return yoke(*common, "--nproc", ranks, "--out.dir", folder, "--out.log_every", 1, *words, code=code, env=env, **more)


def test_the_record_of_a_finished_step_outlives_the_rank_that_was_to_write_it(yoke, tmp_path):
    elastic(yoke, tmp_path / "run", "--steps", 12, faults=["rank=0,step=5,at=metrics.record:kill"])
    assert [row["step"] for row in records(tmp_path / "run")] == list(range(1, 13))


@pytest.mark.parametrize("backend", ["shm", "tcp"])
@pytest.mark.parametrize("victim", [0, 1, 2])
def test_any_rank_may_be_killed(yoke, tmp_path, backend, victim):
    run = elastic(yoke, tmp_path / "run", "--steps", 20, "--parallel.backend", backend, faults=[kill(victim, 8)])
    summary = json.loads((tmp_path / "run/summary.json").read_text())
    assert summary["steps"] == 20 and summary["world_size"] == 2
    assert summary["elastic"]["epochs"] == 2 and summary["elastic"]["losses"] == 1
    assert summary["elastic"]["repeated"] <= 1  # 0: a survivor had finished the step that the new first rank had not
    assert [row["step"] for row in records(tmp_path / "run")] == list(range(1, 21))
    assert f"rank {victim}" in run.err and "signal 9" in run.err
    assert f"rank {victim} on" in summary["elastic"]["changes"][0]["cause"]


def test_data_are_read_once_for_all_epochs(tmp_path):
    data = pathlib.Path(shutil.copytree("/usr/share/datasets/fashion-mnist", tmp_path / "data"))
    words = ["train", ROOT / "configs/lenet_fashion.toml", "--elastic", "--nproc", 3, "--data.dir", data, "--out.dir", tmp_path / "run", "--train.threads", 1,
             "--train.epochs", 1000, "--out.log_every", 1, "--checkpoint.every_steps", 0]
    with Started(tmp_path / "run", words) as job:
        job.await_words("step: 1/")
        shutil.rmtree(data)
        os.kill(job.rank(1), signal.SIGKILL)
        job.await_words("finished")
        summary = job.stop()
    assert summary["world_size"] == 2 and summary["elastic"]["losses"] == 1


def test_two_may_be_killed_at_once_and_a_third_later(yoke, tmp_path):
    elastic(yoke, tmp_path / "run", "--steps", 30, ranks=5, faults=[kill(0, 8), kill(3, 8), kill(2, 15)])
    summary = json.loads((tmp_path / "run/summary.json").read_text())
    assert summary["steps"] == 30 and summary["world_size"] == 2
    assert summary["elastic"]["losses"] == 3 and summary["elastic"]["epochs"] in (3, 4)
    assert [row["step"] for row in records(tmp_path / "run")] == list(range(1, 31))


@pytest.mark.parametrize("backend", ["shm", "tcp"])
def test_the_result_is_that_of_a_checkpoint_and_a_resume(yoke, tmp_path, backend):
    common = ["--parallel.backend", backend, "--train.deterministic"]
    elastic(yoke, tmp_path / "killed", *common, "--steps", 20, faults=[kill(1, 8)])
    killed = json.loads((tmp_path / "killed/summary.json").read_text())
    plain = ["train", MLP, "--train.threads", 1, "--json", "-q", "--train.evaluate", "false", "--out.log_every", 1, "--out.dir", tmp_path / "resumed",
             "--checkpoint.every_steps", 7, *common]
    yoke(*plain, "--nproc", 3, "--data.batch_size", BATCH, "--steps", 7)
    resumed = yoke(*plain, "--nproc", 2, "--data.batch_size", BATCH * 3 // 2, "--steps", 20).json
    assert killed["parameter_hash"] == resumed["parameter_hash"]
    ours, theirs = records(tmp_path / "killed"), records(tmp_path / "resumed")
    assert [row["loss"] for row in ours] == [row["loss"] for row in theirs]
    assert [row["samples"] for row in ours] == [row["samples"] for row in theirs]


def test_statistics_of_the_step_that_is_repeated_are_put_back(yoke, tmp_path):
    model = ["--model.name", "resnet50", "--model.image_size", 32, "--model.classes", 4, "--data.name", "synthetic", "--data.samples", 64,
             "--train.threads", 1, "--train.deterministic", "--train.evaluate", "false", "--out.log_every", 1, "--json", "-q", "--train.lr", 0.01]
    recipe = tmp_path / "empty.toml"
    recipe.write_text("")
    yoke("train", recipe, *model, "--nproc", 3, "--elastic", "--data.batch_size", 4, "--steps", 3, "--out.dir", tmp_path / "killed",
         env={"YOKE_FAULT": kill(1, 2)})
    plain = ["train", recipe, *model, "--out.dir", tmp_path / "resumed", "--checkpoint.every_steps", 1]
    yoke(*plain, "--nproc", 3, "--data.batch_size", 4, "--steps", 1)
    resumed = yoke(*plain, "--nproc", 2, "--data.batch_size", 6, "--steps", 3).json
    killed = json.loads((tmp_path / "killed/summary.json").read_text())
    assert killed["elastic"]["losses"] == 1
    assert killed["parameter_hash"] == resumed["parameter_hash"]  # of parameters and buffers


def test_a_machine_may_be_lost(tmp_path):
    (tmp_path / "key").write_bytes(os.urandom(32))
    (tmp_path / "key").chmod(0o600)
    environment = {k: v for k, v in os.environ.items() if not k.startswith("YOKE_")}
    environment["YOKE_FAULT"] = f"{kill(3, 9)}; {kill(2, 20)}"
    port = free_port()
    words = [str(YOKE), "run", "--nnodes", "1:2", "--nproc", "2", "--rdzv-endpoint", f"127.0.0.1:{port}", "--secret-file", tmp_path / "key"]
    program = [str(YOKE), "train", MLP, "--steps", 40, "--train.threads", 1, "--parallel.backend", "tcp", "--train.evaluate", "false",
               "--out.dir", tmp_path / "run"]
    nodes = [subprocess.Popen([*map(str, words), "--node-rank", str(node), *map(str, program)], stderr=subprocess.PIPE, stdout=subprocess.DEVNULL,
                              text=True, env=environment, cwd=ROOT) for node in (0, 1)]
    errors = [node.communicate(timeout=120)[1] for node in nodes]
    assert nodes[0].returncode == 0, errors[0]
    assert nodes[1].returncode == 137  # none of its ranks was left
    summary = json.loads((tmp_path / "run/summary.json").read_text())
    assert summary["steps"] == 40 and summary["world_size"] == 2 and summary["elastic"]["losses"] == 2


def test_every_sample_is_used_once_an_epoch(yoke, tmp_path):
    elastic(yoke, tmp_path / "run", "--train.epochs", 2, "--data.samples", 1000, "--data.drop_last", "false", ranks=4, faults=[kill(2, 5), kill(0, 13)])
    rows = records(tmp_path / "run")
    assert rows[-1]["samples"] == 2000 and rows[-1]["epoch"] == pytest.approx(2)
    # The global batch stays 4 x 24; the last of an epoch has the rest.
    sizes = [b["samples"] - a for a, b in zip([0] + [row["samples"] for row in rows], rows)]
    assert sizes == ([96] * 10 + [40]) * 2


def test_with_a_batch_per_rank_the_learning_rate_follows(yoke, tmp_path):
    elastic(yoke, tmp_path / "run", "--steps", 12, "--elastic.batch", "per_rank", "--train.lr", 0.06, faults=[kill(1, 6)])
    rows = records(tmp_path / "run")
    sizes = [b["samples"] - a for a, b in zip([0] + [row["samples"] for row in rows], rows)]
    assert sizes == [72] * 5 + [48] * 7
    assert [row["lr"] for row in rows] == pytest.approx([0.06] * 5 + [0.04] * 7)


def test_too_few_are_an_error_that_says_so(yoke, tmp_path):
    failed = elastic(yoke, tmp_path / "run", "--steps", 100000, "--elastic.min", 3, faults=[kill(1, 8)], code=137, timeout=60)
    assert "2 of at least 3 ranks are left (elastic.min)" in failed.err


@pytest.mark.parametrize("words,said", [
    (["--parallel.pipeline", 2, "--pipeline.schedule", "pipedream"], "pipeline.schedule"),
    (["--parallel.pipeline", 2, "--pipeline.schedule", "2bw"], "pipeline.schedule"),
    (["--parallel.pipeline", 2, "--parallel.plan", "auto"], "parallel.plan"),
    (["--parallel.pipeline", 2, "--parallel.data", 1, "--parallel.tensor", 2], "parallel.tensor"),
    (["--parallel.tensor", 2], "parallel.tensor"),
    (["--parallel.sync", "ps"], 'parallel.sync = "ps"'),
    (["--parallel.sync", "average"], 'parallel.sync = "average"'),
    (["--parallel.sync", "threads"], 'parallel.sync = "threads"'),
    (["--parallel.split", "2:1"], "parallel.split"),
    (["--parallel.backend", "mpi"], "parallel.backend"),
    (["--train.optimizer", "lbfgs"], "lbfgs"),
])
def test_what_cannot_be_elastic_is_refused(yoke, tmp_path, words, said):
    failed = yoke("train", MLP, "--nproc", 2, "--elastic", "--out.dir", tmp_path / "run", *words, code=2)
    assert "elastic.enabled = true cannot be combined" in failed.err and said in failed.err
    assert not (tmp_path / "run").exists()


def test_more_ranks_than_there_are_cannot_be_the_fewest(yoke, tmp_path):
    failed = yoke("train", MLP, "--nproc", 2, "--elastic", "--elastic.min", 3, "--out.dir", tmp_path / "run", code=2)
    assert "elastic.min = 3 with 2 ranks" in failed.err and not (tmp_path / "run").exists()


class Job:
    """A running `yoke train --elastic`, its log, and the processes of its ranks."""

    def __init__(self, folder, *words, ranks=3, run=()):
        environment = {k: v for k, v in os.environ.items() if not k.startswith("YOKE_")}
        words = [str(word) for word in (*COMMON, "--out.dir", folder, "--steps", 10**7, *words)]
        words.remove("-q")
        command = [str(YOKE), "run", "--nproc", str(ranks), *run, str(YOKE), *words] if run else [str(YOKE), *words, "--nproc", str(ranks)]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment, cwd=ROOT)
        self.log = []
        self.reader = threading.Thread(target=lambda: [self.log.append(line) for line in self.process.stderr], daemon=True)
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

    def wait_for(self, pattern, seconds=60, count=1):
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            if len(re.findall(pattern, "".join(self.log))) >= count:
                return
            assert self.process.poll() is None, "".join(self.log)
            time.sleep(0.02)
        raise AssertionError(f"no '{pattern}' in\n" + "".join(self.log))

    def wait_for_all_ranks(self, ranks, times=0):
        """Until that many continue once more than `times`, and have finished a step: in the next epoch, or the one after it."""
        full = rf"epoch (\d+): {ranks} ranks continue"
        self.wait_for(full, count=times + 1)
        self.wait_for(rf"epoch {re.findall(full, ''.join(self.log))[-1]}: step \d+ finished")

    def wait_for_step(self, folder, step, seconds=60):
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            assert self.process.poll() is None, "".join(self.log)
            if (folder / "metrics.jsonl").exists():
                lines = (folder / "metrics.jsonl").read_text().splitlines()
                if lines and lines[-1].endswith("}") and json.loads(lines[-1])["step"] >= step:
                    return json.loads(lines[-1])["step"]
            time.sleep(0.02)
        raise AssertionError("".join(self.log))

    def pid_of(self, rank):
        found = []
        for entry in os.listdir("/proc"):
            if not entry.isdigit():
                continue
            try:
                variables = open(f"/proc/{entry}/environ", "rb").read().split(b"\0")
                parent = int(open(f"/proc/{entry}/stat").read().rsplit(")", 1)[1].split()[1])
            except (OSError, IndexError):
                continue
            if parent == self.process.pid and f"YOKE_RANK={rank}".encode() in variables:
                found.append(int(entry))
        return max(found)

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        code = self.process.wait(60)
        self.reader.join(10)
        return code


def test_a_rank_that_is_asked_to_leave_does_so_without_an_error(tmp_path):
    with Job(tmp_path / "run", run=["--elastic"]) as job:
        job.wait_for_step(tmp_path / "run", 20)
        os.kill(job.pid_of(0), signal.SIGTERM)
        job.wait_for(r"epoch 1: step \d+ finished")
        assert job.stop() == 143
    log = "".join(job.log)
    assert "leaves after step" in log and "error" not in log
    elastic = json.loads((tmp_path / "run/summary.json").read_text())["elastic"]
    assert elastic["losses"] == 0 and elastic["epochs"] == 2 and elastic["repeated"] == 0


@pytest.mark.parametrize("backend", ["shm", "tcp"])
def test_a_killed_rank_returns_with_the_state_of_a_peer(tmp_path, backend):
    with Job(tmp_path / "run", "--parallel.backend", backend, "--checkpoint.every_steps", 0, "--elastic.restarts", 1) as job:
        job.wait_for_step(tmp_path / "run", 20)
        os.kill(job.pid_of(1), signal.SIGKILL)
        job.wait_for_all_ranks(3)
        assert job.stop() == 143
    assert re.search(r"epoch [12]: 3 ranks continue after step \d+;.* rank \d sends its state", "".join(job.log))
    elastic = json.loads((tmp_path / "run/summary.json").read_text())["elastic"]
    assert elastic["losses"] == 1 and elastic["joins"] == 1 and elastic["epochs"] in (2, 3)
    assert not list((tmp_path / "run/checkpoints").glob("*")) if (tmp_path / "run/checkpoints").exists() else True


def test_a_stopped_rank_is_evicted(tmp_path):
    with Job(tmp_path / "run") as job:
        job.wait_for_step(tmp_path / "run", 20)
        os.kill(job.pid_of(1), signal.SIGSTOP)
        job.wait_for(r"epoch 1: step \d+ finished", seconds=30)
        assert job.stop() == 143
    assert "no heartbeat" in "".join(job.log) or "SIGSTOP" in "".join(job.log)


def test_a_short_soak(tmp_path):
    draw = random.Random(7)
    with Job(tmp_path / "run", "--elastic.restarts", 100, "--out.log_every", 25, ranks=4) as job:
        job.wait_for_step(tmp_path / "run", 25)
        for _ in range(6):
            times = len(re.findall(r"epoch \d+: 4 ranks continue", "".join(job.log)))
            os.kill(job.pid_of(draw.randrange(4)), signal.SIGKILL)
            job.wait_for_all_ranks(4, times)
        assert job.stop() == 143
    steps = [row["step"] for row in records(tmp_path / "run")]
    assert steps == sorted(set(steps))
    elastic = json.loads((tmp_path / "run/summary.json").read_text())["elastic"]
    assert elastic["losses"] == 6 and elastic["joins"] == 6 and elastic["repeated"] <= 6


def summary_of(folder):
    return json.loads((folder / "summary.json").read_text())


ADAM = ["--train.optimizer", "adamw", "--train.lr", 0.002]


@pytest.mark.parametrize("zero", [1, 2, 3])
@pytest.mark.parametrize("ranks,kills", [(2, [(1, 9)]), (3, [(0, 7)]), (4, [(2, 6), (1, 13)])])
def test_shards_of_killed_ranks_are_rebuilt_from_their_neighbours(yoke, tmp_path, zero, ranks, kills):
    draw = random.Random(f"{zero} {ranks}")
    faults = [kill(rank, step, draw.randrange(1, 5)) for rank, step in kills]
    common = [*ADAM, "--steps", 20, "--parallel.zero", zero]
    run = elastic(yoke, tmp_path / "killed", *common, ranks=ranks, faults=faults, quiet=False)
    elastic(yoke, tmp_path / "plain", *common, ranks=ranks)
    elastic(yoke, tmp_path / "ddp", *ADAM, "--steps", 20, ranks=ranks, faults=faults)
    killed, ours = summary_of(tmp_path / "killed"), records(tmp_path / "killed")
    assert killed["steps"] == 20 and killed["world_size"] == ranks - len(kills)
    assert killed["elastic"]["losses"] == len(kills) and killed["elastic"]["repeated"] <= len(kills)
    assert [row["step"] for row in ours] == list(range(1, 21))
    assert re.search("rebuilt from (the copy of a neighbour|copies of neighbours)", run.err)
    for other in ("plain", "ddp"):
        assert [row["loss"] for row in ours] == pytest.approx([row["loss"] for row in records(tmp_path / other)], rel=1e-3)


@pytest.mark.parametrize("zero", [1, 3])
@pytest.mark.parametrize("victim", [0, 1, 2])
def test_a_rank_may_die_while_it_copies_its_shard(yoke, tmp_path, zero, victim):
    run = elastic(yoke, tmp_path / "run", *ADAM, "--steps", 15, "--parallel.zero", zero,
                  quiet=False, faults=[f"rank={victim},step=6,at=elastic.copy:kill"])
    elastic(yoke, tmp_path / "plain", *ADAM, "--steps", 15, "--parallel.zero", zero)
    assert re.search(r"continue after step [56];", run.err) and summary_of(tmp_path / "run")["elastic"]["repeated"] <= 1
    assert [row["loss"] for row in records(tmp_path / "run")] == pytest.approx([row["loss"] for row in records(tmp_path / "plain")], rel=1e-3)


@pytest.mark.parametrize("zero", [2, 3])
def test_a_rank_may_die_while_shards_are_rebuilt(yoke, tmp_path, zero):
    elastic(yoke, tmp_path / "run", *ADAM, "--steps", 15, "--parallel.zero", zero, ranks=4,
            faults=[kill(1, 6), "rank=3,at=elastic.rebuild:kill"])
    elastic(yoke, tmp_path / "plain", *ADAM, "--steps", 15, "--parallel.zero", zero, ranks=4)
    summary = summary_of(tmp_path / "run")
    assert summary["elastic"]["losses"] == 2 and summary["elastic"]["epochs"] == 3 and summary["world_size"] == 2
    assert [row["loss"] for row in records(tmp_path / "run")] == pytest.approx([row["loss"] for row in records(tmp_path / "plain")], rel=1e-3)


def test_two_neighbours_that_die_cost_the_steps_since_the_checkpoint(yoke, tmp_path):
    words = [*ADAM, "--steps", 60, "--parallel.zero", 1]
    run = elastic(yoke, tmp_path / "run", *words, "--checkpoint.every_steps", 20, "--slowdown.law", "exp:5ms", ranks=4, quiet=False,
                  faults=[kill(1, 57), "rank=2,at=elastic.rebuild:kill"])
    elastic(yoke, tmp_path / "plain", *words, ranks=4)
    summary = summary_of(tmp_path / "run")
    back = re.search(r"nobody has the shards? of ranks? \d.*all ranks go back to \S*step-(20|40); (\d+) steps are repeated", run.err)
    assert back and summary["steps"] == 60 and summary["elastic"]["repeated"] >= int(back[2]), run.err
    assert [row["step"] for row in records(tmp_path / "run")] == list(range(1, 61))
    assert [row["loss"] for row in records(tmp_path / "run")] == pytest.approx([row["loss"] for row in records(tmp_path / "plain")], rel=1e-3)


def test_a_lost_shard_without_a_checkpoint_is_an_error_that_says_so(yoke, tmp_path):
    failed = elastic(yoke, tmp_path / "run", "--steps", 100000, "--parallel.zero", 2, "--elastic.replicas", 0, "--checkpoint.every_steps", 0,
                     faults=[kill(1, 7)], code=5, timeout=60)
    # A rank that was still in its update when the death was noticed has no shard of a finished step either.
    assert re.search(r"nobody has the shards? of ranks? [\d, ]*1[\d, ]* \(elastic.replicas = 0\)", failed.err), failed.err
    assert "has no checkpoint of this run" in failed.err


def test_checkpoints_of_another_run_are_not_returned_to(yoke, tmp_path):
    words = ["--parallel.zero", 1, "--checkpoint.every_steps", 2]
    elastic(yoke, tmp_path / "run", "--steps", 4, *words)
    failed = elastic(yoke, tmp_path / "run", "--steps", 100000, "--parallel.zero", 1, "--elastic.replicas", 0, "--checkpoint.every_steps", 0,
                     "--resume", "never", faults=[kill(1, 9)], code=5, timeout=60)
    assert "has no checkpoint of this run" in failed.err


@pytest.mark.parametrize("replicas", [0, 1])
def test_ranks_that_leave_hand_their_shards_over(tmp_path, replicas):
    with Job(tmp_path / "run", "--parallel.zero", 2, "--elastic.replicas", replicas, "--checkpoint.every_steps", 0, run=["--elastic"]) as job:
        job.wait_for_step(tmp_path / "run", 20)
        os.kill(job.pid_of(1), signal.SIGTERM)
        job.wait_for(r"epoch 1: step \d+ finished")
        assert job.stop() == 143
    assert "error" not in "".join(job.log)
    assert summary_of(tmp_path / "run")["elastic"]["repeated"] == 0


@pytest.mark.parametrize("zero", [1, 3])
def test_a_killed_rank_returns_and_gets_a_shard(tmp_path, zero):
    with Job(tmp_path / "run", "--parallel.zero", zero, "--checkpoint.every_steps", 0, "--elastic.restarts", 1) as job:
        job.wait_for_step(tmp_path / "run", 20)
        os.kill(job.pid_of(1), signal.SIGKILL)
        job.wait_for_all_ranks(3)
        assert job.stop() == 143
    changes = summary_of(tmp_path / "run")["elastic"]
    assert changes["losses"] == 1 and changes["joins"] == 1 and changes["copied_bytes"] > 0
