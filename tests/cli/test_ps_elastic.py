"""Parameter servers that come and go while training continues: copies made anew, yoke ps top and leave, restarts."""
import json
import subprocess
import time

import pytest
from conftest import ROOT, YOKE

MLP = ROOT / "configs/mlp_tiny.toml"
WORKERS, SERVERS = 2, 4


def training(folder, *words, replicas=1):
    words = ["train", MLP, "--nproc", WORKERS, "--parallel.sync", "ps", "--ps.servers", SERVERS, "--ps.replicas", replicas, "--ps.range_bytes", "1KB",
             "--train.threads", 1, "--no-train.evaluate", "--train.momentum", 0.9, "--train.clip_norm", 0.5, "--out.dir", folder, "--json", *words]
    return [str(word) for word in words]


def test_two_neighbours_are_killed_one_after_the_other(yoke, tmp_path):
    whole = yoke(*training(tmp_path / "whole", "--steps", 200)).json["parameter_hash"]
    for first in (0, 2):
        kills = [(first, 40), (first + 1, 600)]
        faults = "; ".join(f"rank={WORKERS + server},at=ps.server.update,hit={hit}:kill" for server, hit in kills)
        ended = yoke(*training(tmp_path / f"from-{first}", "--steps", 200), env={"YOKE_FAULT": faults})
        assert ended.json["parameter_hash"] == whole, first
        assert json.loads((tmp_path / f"from-{first}/ps.json").read_text())["servers_lost"] == 2
        assert f"has a copy of the parameters of server {first} now: 1 of 1 copies" in ended.err


def test_a_server_that_is_killed_while_it_makes_a_copy_ends_the_job_with_the_names(yoke, tmp_path):
    faults = f"rank={WORKERS + 1},at=ps.server.update,hit=40:kill; rank={WORKERS + 2},at=ps.copy,hit=2:kill"
    ended = yoke(*training(tmp_path, "--steps", 100000), env={"YOKE_FAULT": faults}, code=None)
    assert ended.code != 0
    assert "nobody holds the parameters of server 1" in ended.err


class Job:
    """A job in the background."""

    def __init__(self, folder, *words, **options):
        self.folder = folder
        self.log = open(f"{folder}.log", "w+")
        self.process = subprocess.Popen([YOKE, *training(folder, *words, **options)], stdout=subprocess.PIPE, stderr=self.log, text=True)

    def version(self, yoke, at_least=1):
        """The state of the job, once it has that version."""
        limit = time.monotonic() + 60
        while time.monotonic() < limit and self.process.poll() is None:
            if (self.folder / "job.json").exists():
                seen = yoke("ps", "top", self.folder, "--once", "--json", code=None)
                if seen.code == 0 and seen.json.get("version", 0) >= at_least:
                    return seen.json
            time.sleep(0.05)
        raise AssertionError(f"version {at_least} was not reached: {self.said()}")

    def said(self):
        self.log.flush()
        return open(self.log.name).read()

    def end(self):
        out, _ = self.process.communicate(timeout=120)
        return json.loads(out) if self.process.returncode == 0 else None

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.process.terminate()
        self.process.wait(timeout=60)
        self.log.close()


def test_a_job_is_watched_and_a_server_leaves(yoke, tmp_path):
    whole = yoke(*training(tmp_path / "whole", "--steps", 3000)).json["parameter_hash"]
    with Job(tmp_path / "run", "--steps", 3000) as job:
        seen = job.version(yoke)
        assert [server["id"] for server in seen["servers"]] == list(range(SERVERS))
        for key in ("id", "ranges", "bytes", "keys", "clock", "replicas", "lag"):
            assert key in seen["servers"][0]
        for key in ("id", "clock", "staleness", "state"):
            assert key in seen["workers"][0]
        assert [server["schedules"] for server in seen["servers"]] == [True, False, False, False]
        table = yoke("ps", "top", job.folder, "--once").out
        assert "worker" in table and "\033" not in table and all(len(line) <= 80 for line in table.splitlines())
        assert "server 9 is not in this job" in yoke("ps", "leave", job.folder, 9, code=2).err
        assert yoke("ps", "leave", job.folder, 0, "--json").json["server"] == 0
        assert "server 0 has ended already" in yoke("ps", "leave", job.folder, 0, code=2).err
        after = job.version(yoke)
        assert [server["id"] for server in after["servers"]] == [1, 2, 3] and "has ended" in after["absent"][0]
        watched = subprocess.run([YOKE, "ps", "top", job.folder, "--interval", "0.1"], capture_output=True, text=True, timeout=120)
        assert watched.returncode == 0 and watched.stdout.endswith("the job has ended\n")
        assert job.end()["parameter_hash"] == whole
        assert "parameter server 0 (rank 2) left" in job.said()
        assert "no job runs there" in yoke("ps", "top", job.folder, code=2).err


def test_a_server_without_copies_does_not_leave(yoke, tmp_path):
    with Job(tmp_path / "run", "--steps", 100000, replicas=0) as job:
        job.version(yoke)
        assert "ps.replicas = 0" in yoke("ps", "leave", job.folder, 1, code=2).err
        assert yoke("ps", "top", job.folder, "--once", "--json").json["servers"][1]["replicas"] == 0


def test_without_copies_the_job_restarts_from_the_last_checkpoint(yoke, tmp_path):
    words = ["--steps", 100, "--checkpoint.every_steps", 20]
    whole = yoke(*training(tmp_path / "whole", *words, replicas=0)).json["parameter_hash"]
    fault = {"YOKE_FAULT": f"rank={WORKERS + 1},attempt=0,at=ps.server.update,hit=250:kill"}
    ended = yoke(*training(tmp_path / "run", *words, "--ps.on_server_loss", "restart", replicas=0), env=fault)
    summary = json.loads((tmp_path / "run/summary.json").read_text())
    assert summary["parameter_hash"] == whole and summary["steps"] == 100
    assert "Restarting all ranks (1 of 3)" in ended.err and "is lost at version" in ended.err
    stopped = yoke(*training(tmp_path / "stop", *words, replicas=0), env=fault, code=None)
    assert stopped.code == 137
    worker = {"YOKE_FAULT": "rank=0,attempt=0,at=ps.push,hit=50:kill"}
    assert yoke(*training(tmp_path / "worker", *words, "--ps.on_server_loss", "restart", replicas=0), env=worker, code=None).code == 137


@pytest.mark.parametrize("words,says", [
    (["--ps.on_server_loss", "restart"], "ps.replicas"),
    (["--ps.on_server_loss", "never"], "stop, restart"),
])
def test_mistakes(yoke, tmp_path, words, says):
    assert says in yoke(*training(tmp_path / "run", *words), code=2).err
