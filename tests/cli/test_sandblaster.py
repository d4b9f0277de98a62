"""L-BFGS on parameter servers, as users type it."""
import json

import pytest
from conftest import ROOT

MLP = ROOT / "configs/mlp_tiny.toml"
LBFGS = ["--train.optimizer", "lbfgs", "--train.lr", 0.5, "--train.history", 4, "--train.inner_steps", 4]


def served(*words, workers=2, servers=1):
    return ["train", MLP, "--nproc", workers, "--parallel.sync", "ps", "--ps.servers", servers, *LBFGS, "--train.threads", 1, "--json", "-q", *words]


@pytest.mark.parametrize("search", ["none", "strong_wolfe"])
def test_it_equals_one_device_for_any_number_of_servers(yoke, search):
    result = yoke("verify", MLP, "--layouts", "data=2,sync=ps,servers=1; data=2,sync=ps,servers=2; data=2,sync=ps,servers=7; data=2,sync=ps,servers=2,accumulate=2",
                  "--steps", 4, *LBFGS, "--train.line_search", search, "--ps.range_bytes", "1KB", "--json", "-q").json
    assert result["ok"] and len(result["layouts"]) == 4
    for row in result["layouts"]:
        assert row["max_diff"]["parameter"] < 1e-10 and row["max_diff"]["loss"] < 1e-10 and row["max_diff"]["gradient"] < 1e-10


def test_it_trains_and_counts(yoke, tmp_path):
    summary = yoke(*served("--steps", 6, "--out.dir", tmp_path, workers=3, servers=2)).json
    assert summary["steps"] == 6 and summary["world_size"] == 3
    assert summary["eval_loss"] < 1  # 2.3 before the first step
    counts = json.loads((tmp_path / "sandblaster.json").read_text())
    assert counts["evaluations"] >= 6 and len(counts["by_worker"]) == 3
    assert counts["portions"] == 24 * counts["evaluations"] == sum(counts["by_worker"])
    records = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    assert records[-1]["step"] == 6 and records[-1]["grad_norm"] > 0


def test_a_run_goes_on_from_its_checkpoint_with_its_history(yoke, tmp_path):
    words = ["--checkpoint.every_steps", 2, "--out.log_every", 1]
    whole = yoke(*served(*words, "--steps", 6, "--out.dir", tmp_path / "whole", servers=2)).json
    yoke(*served(*words, "--steps", 4, "--out.dir", tmp_path / "parts", servers=2))
    more = yoke(*served(*words, "--steps", 6, "--out.dir", tmp_path / "parts", servers=1)).json
    assert more["resumed_from"] == 4
    # Another number of servers adds numbers in another order.
    assert more["final_loss"] == pytest.approx(whole["final_loss"], rel=1e-2)
    # And replicas without servers go on from there.
    alone = yoke("train", MLP, "--nproc", 2, *LBFGS, "--steps", 7, "--json", "-q", "--out.dir", tmp_path / "parts").json
    assert alone["resumed_from"] == 6


def test_a_history_of_one_device_goes_on_there(yoke, tmp_path):
    words = [*LBFGS, "--train.threads", 1, "--checkpoint.every_steps", 2, "--json", "-q", "--out.dir"]
    whole = yoke("train", MLP, *words, tmp_path / "whole", "--steps", 4).json
    yoke("train", MLP, *words, tmp_path / "parts", "--steps", 2)
    assert yoke("train", MLP, *words, tmp_path / "parts", "--steps", 4).json["parameter_hash"] == whole["parameter_hash"]


def test_resuming_on_the_same_servers_gives_the_same_bits(yoke, tmp_path):
    words = ["--checkpoint.every_steps", 2]
    whole = yoke(*served(*words, "--steps", 4, "--out.dir", tmp_path / "whole", servers=2)).json
    yoke(*served(*words, "--steps", 2, "--out.dir", tmp_path / "parts", servers=2))
    assert yoke(*served(*words, "--steps", 4, "--out.dir", tmp_path / "parts", servers=2)).json["parameter_hash"] == whole["parameter_hash"]


def test_servers_inside_the_workers(yoke, tmp_path):
    assert yoke(*served("--steps", 3, "--ps.place", "colocated", "--out.dir", tmp_path, servers=2)).json["steps"] == 3


def test_a_slow_worker_computes_fewer_portions(yoke, tmp_path):
    yoke(*served("--steps", 3, "--slowdown.law", "const:10x", "--slowdown.workers", 2, "--out.dir", tmp_path, workers=3))
    counts = json.loads((tmp_path / "sandblaster.json").read_text())
    assert counts["by_worker"][2] < min(counts["by_worker"][:2])


def test_it_goes_on_without_a_worker_that_is_killed(yoke, tmp_path):
    result = yoke(*served("--steps", 6, "--out.dir", tmp_path, workers=3, servers=2), env={"YOKE_FAULT": "rank=2,step=2,at=ps.push:kill"})
    assert result.json["steps"] == 6 and result.json["eval_loss"] < 1


MISTAKES = [
    (["--ps.policy", "async"], "ps.policy"),
    (["--train.clip_norm", 1], "train.clip_norm"),
    (["--ps.on_worker_loss", "restart"], "ps.on_worker_loss"),
    (["--parallel.tensor", 2], "lbfgs"),
    (["--sandblaster.portions", -1], "sandblaster.portions"),
    (["--train.line_search", "wolfe"], "strong_wolfe"),
]


@pytest.mark.parametrize("words,says", MISTAKES, ids=[" ".join(map(str, words)) for words, _ in MISTAKES])
def test_mistakes(yoke, tmp_path, words, says):
    failed = yoke(*served(*words, "--out.dir", tmp_path / "run"), code=2)
    assert says in failed.err
    assert not (tmp_path / "run").exists()


def test_sparse_samples_are_refused(yoke, tmp_path):
    failed = yoke("train", ROOT / "configs/sparse_lr.toml", "--nproc", 2, "--parallel.sync", "ps", *LBFGS, "--out.dir", tmp_path, "-q", code=2)
    assert "sparse samples cannot be cut into portions" in failed.err


def test_the_lab_tells_who_reaches_the_accuracy_first(yoke, tmp_path):
    result = yoke("lab", "downpour", MLP, "--workers", 2, "--epochs", 1, "--train.inner_steps", 4, "--train.threads", 1, "-o", tmp_path, "--json", "-q").json
    assert [row["method"] for row in result["results"]] == ["sgd", "downpour", "downpour_adagrad", "sandblaster"]
    for row in result["results"]:
        assert 0 < row["accuracy"] <= 1 and row["curve"] and row["seconds_to_target"] > 0
    assert "Accuracy over time" in (tmp_path / "report.html").read_text()
    assert json.loads((tmp_path / "results.json").read_text())["target_accuracy"] == result["target_accuracy"]


def test_the_lab_refuses_what_it_does_not_know(yoke, tmp_path):
    assert "there is no 'adam'" in yoke("lab", "downpour", MLP, "--methods", "sgd,adam", "-o", tmp_path, code=2).err
    assert "train.optimizer" in yoke("lab", "downpour", MLP, "--train.optimizer", "adamw", "-o", tmp_path, code=2).err
    assert "--epochs" in yoke("lab", "downpour", MLP, "--epochs", -1, "-o", tmp_path, code=2).err
