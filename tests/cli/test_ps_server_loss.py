"""Parameter servers with copies of their ranges on other servers (ps.replicas), and servers that are killed."""
import json

import pytest
from conftest import ROOT

MLP = ROOT / "configs/mlp_tiny.toml"
WORKERS, SERVERS = 2, 3
RULES = ["sync", "k_sync", "k_batch_sync", "async", "k_async", "k_batch_async", "bounded_delay", "ssp"]


def training(folder, *words, replicas=1):
    return ["train", MLP, "--nproc", WORKERS, "--parallel.sync", "ps", "--ps.servers", SERVERS, "--ps.replicas", replicas, "--ps.range_bytes", "1KB",
            "--train.threads", 1, "--no-train.evaluate", "--out.dir", folder, "--json", *words]


def killing(server, point, hit):
    return {"YOKE_FAULT": f"rank={WORKERS + server},at={point},hit={hit}:kill"}


def test_a_synchronous_run_without_a_server_ends_with_the_same_bits(yoke, tmp_path):
    words = ["--steps", 60, "--train.clip_norm", 0.5, "--train.momentum", 0.9]
    whole = yoke(*training(tmp_path / "whole", *words, replicas=0)).json["parameter_hash"]
    for server, point in [(0, "ps.replicate"), (0, "ps.replicated"), (1, "ps.server.update"), (2, "ps.replicated")]:
        folder = tmp_path / f"{server}-{point}"
        ended = yoke(*training(folder, *words), env=killing(server, point, 40))
        assert ended.json["parameter_hash"] == whole, (server, point)
        assert json.loads((folder / "ps.json").read_text())["servers_lost"] == 1
        assert f"parameter server {server} (rank {WORKERS + server}) is lost" in ended.err
        assert f"parameter server {(server + 1) % SERVERS} (rank {WORKERS + (server + 1) % SERVERS}) took over" in ended.err
        assert "Redundancy is reduced" in ended.err


@pytest.mark.parametrize("rule", RULES)
def test_every_rule_trains_on_when_the_scheduler_is_killed(yoke, tmp_path, rule):
    words = ["--steps", 60, "--ps.policy", rule, "--ps.k", 2, "--ps.max_delay", 1]
    # Each of the 60 updates is acknowledged for each range of the server, whatever the rule and the machine.
    ended = yoke(*training(tmp_path, *words), env=killing(0, "ps.replicated", 60)).json
    counts = json.loads((tmp_path / "ps.json").read_text())
    assert ended["steps"] == counts["version"] == 60 and counts["servers_lost"] == 1
    assert not any(worker["lost"] for worker in counts["workers"])


def test_a_run_without_a_server_is_saved_and_resumed(yoke, tmp_path):
    words = ["--train.momentum", 0.9, "--checkpoint.every_steps", 20]
    whole = yoke(*training(tmp_path / "whole", *words, "--steps", 60, replicas=0)).json["parameter_hash"]
    yoke(*training(tmp_path / "run", *words, "--steps", 40), env=killing(1, "ps.replicate", 40))
    resumed = yoke(*training(tmp_path / "run", *words, "--steps", 60)).json
    assert resumed["resumed_from"] == 40 and resumed["parameter_hash"] == whole


def test_losing_all_copies_ends_the_job_with_the_names(yoke, tmp_path):
    faults = "; ".join(killing(*one)["YOKE_FAULT"] for one in [(0, "ps.replicated", 100), (1, "ps.copy", 2)])
    ended = yoke(*training(tmp_path, "--steps", 100000), env={"YOKE_FAULT": faults}, code=None)
    assert ended.code != 0
    assert "parameter server 0 (rank 2), parameter server 1 (rank 3) are lost" in ended.err
    assert "nobody holds the parameters of server 0" in ended.err


@pytest.mark.parametrize("words,says", [
    (["--ps.replicas", 3], "at most 2 are possible"),
    (["--ps.place", "colocated", "--ps.servers", 2], 'Use ps.place = "dedicated"'),
])
def test_mistakes(yoke, tmp_path, words, says):
    assert says in yoke(*training(tmp_path / "run", *words), code=2).err
    assert not (tmp_path / "run").exists()


# With proximal gradient rows owe penalties of updates that did not touch them, copies as much as the lost server.
@pytest.mark.parametrize("optimizer", [["adagrad"], ["proximal", "--train.l1", 0.0005, "--train.l2", 0.1]], ids=lambda words: words[0])
def test_a_killed_server_loses_no_rows_of_sparse_tables(yoke, tmp_path, optimizer):
    def rows(folder, replicas=1):
        return ["train", ROOT / "configs/sparse_lr.toml", "--nproc", WORKERS, "--parallel.sync", "ps", "--ps.servers", SERVERS, "--ps.replicas", replicas,
                "--ps.sparse", "on", "--train.optimizer", *optimizer, "--train.threads", 1, "--steps", 60, "--out.dir", folder, "--json"]
    whole = yoke(*rows(tmp_path / "whole", replicas=0)).json["parameter_hash"]
    # At the first change a table is opened, some workers have not opened anything yet.
    for server, point, hit in [(0, "ps.replicate", 1), (0, "ps.replicate", 60), (1, "ps.replicated", 60), (2, "ps.replicated", 60)]:
        folder = tmp_path / f"{server}-{hit}"
        ended = yoke(*rows(folder), env=killing(server, point, hit))
        assert ended.json["parameter_hash"] == whole, (server, point)
        assert json.loads((folder / "ps.json").read_text())["servers_lost"] == 1
