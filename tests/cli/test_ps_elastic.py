"""Parameter servers that come and go while training continues: copies made anew, yoke ps top and leave, restarts."""
import json
import os
import signal
import subprocess

import pytest
from conftest import ROOT, YOKE
from running_job import Started, await_version

MLP = ROOT / "configs/mlp_tiny.toml"
WORKERS, SERVERS = 2, 4


def training(folder, *words, replicas=1):
    words = ["train", MLP, "--nproc", WORKERS, "--parallel.sync", "ps", "--ps.servers", SERVERS, "--ps.replicas", replicas, "--ps.range_bytes", "1KB",
             "--train.threads", 1, "--no-train.evaluate", "--train.momentum", 0.9, "--train.clip_norm", 0.5, "--out.dir", folder, "--json", *words]
    return [str(word) for word in words]


def end_as_undisturbed(yoke, run, folder):
    """Stops a job without an end, and compares it with one of as many steps from which no server went."""
    ended = run.stop()
    whole = yoke(*training(folder, "--steps", ended["steps"])).json
    assert ended["parameter_hash"] == whole["parameter_hash"]


def test_two_neighbours_are_killed_one_after_the_other(yoke, tmp_path):
    for first in (0, 2):
        folder = tmp_path / f"from-{first}"
        with Started(folder, training(folder, "--steps", 10**6)) as run:
            await_version(yoke, folder, at_least=10)
            os.kill(run.rank(WORKERS + first), signal.SIGKILL)
            run.await_words(f"has a copy of the parameters of server {first} now: 1 of 1 copies")
            os.kill(run.rank(WORKERS + first + 1), signal.SIGKILL)
            run.await_words(f"parameter server {first + 1} (rank {WORKERS + first + 1}) is lost")
            end_as_undisturbed(yoke, run, tmp_path / f"whole-{first}")
        assert json.loads((folder / "ps.json").read_text())["servers_lost"] == 2


def test_a_server_that_is_killed_while_it_makes_a_copy_ends_the_job_with_the_names(yoke, tmp_path):
    faults = f"rank={WORKERS + 1},at=ps.server.update,hit=40:kill; rank={WORKERS + 2},at=ps.copy,hit=2:kill"
    ended = yoke(*training(tmp_path, "--steps", 100000), env={"YOKE_FAULT": faults}, code=None)
    assert ended.code != 0
    assert "nobody holds the parameters of server 1" in ended.err


def test_a_job_is_watched_and_a_server_leaves(yoke, tmp_path):
    folder = tmp_path / "run"
    with Started(folder, training(folder, "--steps", 10**6)) as run:
        seen = await_version(yoke, folder)
        assert [server["id"] for server in seen["servers"]] == list(range(SERVERS))
        for key in ("id", "ranges", "bytes", "keys", "clock", "replicas", "lag"):
            assert key in seen["servers"][0]
        for key in ("id", "clock", "staleness", "state"):
            assert key in seen["workers"][0]
        assert [server["schedules"] for server in seen["servers"]] == [True, False, False, False]
        table = yoke("ps", "top", folder, "--once").out
        assert "worker" in table and "\033" not in table and all(len(line) <= 80 for line in table.splitlines())
        assert "server 9 is not in this job" in yoke("ps", "leave", folder, 9, code=2).err
        assert yoke("ps", "leave", folder, 0, "--json").json["server"] == 0
        assert "server 0 has ended already" in yoke("ps", "leave", folder, 0, code=2).err
        after = await_version(yoke, folder)
        assert [server["id"] for server in after["servers"]] == [1, 2, 3] and "has ended" in after["absent"][0]
        watching = subprocess.Popen([YOKE, "ps", "top", folder, "--interval", "0.1"], stdout=subprocess.PIPE, text=True)
        begin = watching.stdout.readline()
        end_as_undisturbed(yoke, run, tmp_path / "whole")
        rest, _ = watching.communicate(timeout=120)
        assert watching.returncode == 0 and (begin + rest).endswith("the job has ended\n")
        assert "parameter server 0 (rank 2) left" in run.said()
        assert "no job runs there" in yoke("ps", "top", folder, code=2).err


def test_a_server_without_copies_does_not_leave(yoke, tmp_path):
    folder = tmp_path / "run"
    with Started(folder, training(folder, "--steps", 10**6, replicas=0)):
        await_version(yoke, folder)
        assert "ps.replicas = 0" in yoke("ps", "leave", folder, 1, code=2).err
        assert yoke("ps", "top", folder, "--once", "--json").json["servers"][1]["replicas"] == 0


def test_without_copies_the_job_restarts_from_the_last_checkpoint(yoke, tmp_path):
    words = ["--steps", 100, "--checkpoint.every_steps", 20]
    whole = yoke(*training(tmp_path / "whole", *words, replicas=0)).json["parameter_hash"]
    fault = {"YOKE_FAULT": f"rank={WORKERS + 1},attempt=0,at=ps.server.update,hit=250:kill"}
    ended = yoke(*training(tmp_path / "run", *words, replicas=0), env=fault)
    summary = json.loads((tmp_path / "run/summary.json").read_text())
    assert summary["parameter_hash"] == whole and summary["steps"] == 100
    assert "Restarting all ranks (1 of 3)" in ended.err and "is lost at version" in ended.err
    stopped = yoke(*training(tmp_path / "stop", *words, "--ps.on_server_loss", "stop", replicas=0), env=fault, code=None)
    assert stopped.code == 137 and "The last checkpoint is" in stopped.err
    worker = {"YOKE_FAULT": "rank=0,attempt=0,at=ps.push,hit=50:kill"}
    assert yoke(*training(tmp_path / "worker", *words, "--ps.on_server_loss", "restart", replicas=0), env=worker, code=None).code == 137


def test_a_job_without_a_checkpoint_of_its_own_does_not_restart(yoke, tmp_path):
    fault = {"YOKE_FAULT": f"rank={WORKERS + 1},attempt=0,at=ps.server.update,hit=250:kill"}
    for number, words in enumerate([["--checkpoint.every_steps", 0], ["--checkpoint.every_steps", 10**6], ["--checkpoint.every_steps", 20, "--resume", "never"]]):
        ended = yoke(*training(tmp_path / str(number), *words, "--steps", 10**6, replicas=0), env=fault, code=None)
        assert ended.code == 137 and "parameter server 1 (rank 3)" in ended.err and "Restarting" not in ended.err, words


@pytest.mark.parametrize("words,says", [
    (["--ps.on_server_loss", "restart"], "ps.replicas"),
    (["--ps.on_server_loss", "never"], "auto, restart, stop"),
])
def test_mistakes(yoke, tmp_path, words, says):
    assert says in yoke(*training(tmp_path / "run", *words), code=2).err
