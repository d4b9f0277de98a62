"""A program with a model, data and a rule of its own has every command of yoke (examples/own_model.cpp, own_sync.cpp)."""
import json
import subprocess

import pytest
from conftest import ROOT, YOKE

CONFIG = ROOT / "examples/own_model.toml"


def call(program, *words, code=0):
    result = subprocess.run([str(word) for word in [YOKE.parent / program, *words]], capture_output=True, text=True, timeout=200, cwd=ROOT)
    assert result.returncode == code, result.stdout + result.stderr
    return result


def own_model(*words, code=0):
    return call("example_own_model", *words, code=code)


@pytest.mark.parametrize("words", [(), ("--nproc", 2), ("--nproc", 2, "--parallel.pipeline", 2), ("--nproc", 2, "--parallel.zero", 3),
                                   ("--nproc", 2, "--parallel.tensor", 2), ("--nproc", 2, "--parallel.sync", "threads"),
                                   ("--nproc", 2, "--parallel.sync", "ps", "--ps.servers", 1)], ids=lambda words: "_".join(map(str, words)) or "one")
def test_every_strategy_trains_it(words, tmp_path):
    summary = json.loads(own_model("train", CONFIG, "--steps", 150, "--no-train.evaluate", "--out.dir", tmp_path / "run", "--json", *words).stdout)
    assert summary["model"] == "spiral_net" and summary["steps"] == 150
    assert summary["final_loss"] < 1.06  # three classes by chance: ln 3 = 1.0986


def test_verify_profile_bench_and_report_know_it(tmp_path):
    layouts = "data=2; pipeline=2; tensor=2; data=2,zero=3; pipeline=2,data=2; data=2,sync=ps"
    verified = json.loads(own_model("verify", CONFIG, "--layouts", layouts, "--steps", 4, "--json").stdout)
    assert verified["ok"] and len(verified["layouts"]) == 6
    own_model("profile", CONFIG, "-o", tmp_path / "p.json")
    assert len(json.loads((tmp_path / "p.json").read_text())["layers"]) == 5
    assert "spiral_net" in own_model("bench", "step", "--model", "spiral_net", "--batch", 8, "--steps", 3).stdout
    assert "4,547 parameters" in own_model("model", "info", "spiral_net").stdout
    own_model("train", CONFIG, "--steps", 5, "--out.dir", tmp_path / "run", "--nproc", 2)
    assert "report.html" in own_model("report", tmp_path / "run").stdout


def test_it_resumes_on_another_layout(tmp_path):
    words = ["train", CONFIG, "--out.dir", tmp_path / "run", "--checkpoint.every_steps", 20, "--no-train.evaluate", "--data.batch_size"]
    own_model(*words, 30, "--nproc", 2, "--parallel.zero", 3, "--steps", 20)
    resumed = own_model(*words, 60, "--nproc", 2, "--parallel.pipeline", 2, "--steps", 40)
    assert "resum" in resumed.stderr
    straight = own_model("train", CONFIG, "--out.dir", tmp_path / "one", "--no-train.evaluate", "--data.batch_size", 60, "--steps", 40, "--json")
    final = json.loads((tmp_path / "run/summary.json").read_text())["final_loss"]
    assert final == pytest.approx(json.loads(straight.stdout)["final_loss"], rel=1e-4)


def test_what_it_does_not_have_is_refused_before_ranks_start():
    assert "spiral_net does not use it; it uses width" in own_model("train", CONFIG, "--nproc", 2, "--model.heads", 3, code=2).stderr
    assert "did you mean spiral_net?" in own_model("train", CONFIG, "--model.name", "spiralnet", code=2).stderr
    assert "the model has 5 blocks" in own_model("train", CONFIG, "--nproc", 8, "--parallel.pipeline", 8, code=2).stderr
    other = own_model("train", CONFIG, "--model.name", "mlp", "--model.sizes", "4,2", code=2).stderr
    assert "data.name = spirals has vector of 2, 3 classes; the model takes vector of 4, 2 classes" in other
    assert 'data.name = "spirals": expected one of' in call("yoke", "train", CONFIG, code=2).stderr


def test_a_rule_of_its_own_trains_and_is_verified(tmp_path):
    rule = ["--parallel.sync", "one_message"]
    summary = json.loads(call("example_own_sync", "train", "configs/mlp_tiny.toml", "--nproc", 2, *rule, "--steps", 40, "--out.dir", tmp_path / "run",
                              "--json").stdout)
    assert summary["steps"] == 40 and summary["world_size"] == 2
    layouts = json.loads(call("example_own_sync", "verify", "configs/mlp_tiny.toml", "--layouts", "data=2,sync=one_message; data=4,sync=one_message",
                              "--json").stdout)
    assert layouts["ok"]
    assert "one_message" in call("yoke", "train", "configs/mlp_tiny.toml", *rule, code=2).stderr
