"""parallel.partition: a model that is no chain on several ranks, from a profile to a trained run and its picture."""
import json
import re
import subprocess

import pytest
from conftest import ROOT, YOKE

CONFIG = ROOT / "examples/five_layers.toml"
MLP = ROOT / "configs/mlp_tiny.toml"
INCEPTION = ROOT / "configs/inception_v3_synthetic.toml"
S2VT = [ROOT / "configs/s2vt_synthetic.toml", "--model.width", 8, "--model.vocabulary", 11, "--model.frames", 3, "--model.features", 5,
        "--model.words", 4, "--data.batch_size", 8]
QUIET = ["--train.threads", 1, "--no-train.evaluate"]


def five_layers(*words, code=0):
    command = [YOKE.parent / "example_five_layers", *words]
    result = subprocess.run([str(word) for word in command], capture_output=True, text=True, timeout=200, cwd=ROOT)
    assert result.returncode == code, result.stdout + result.stderr
    return result


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """A profile of the five layers and its partition into four."""
    folder = tmp_path_factory.mktemp("five_layers")
    five_layers("profile", CONFIG, "-o", folder / "profile.json", "--repeats", 2)
    parts = five_layers("partition", folder / "profile.json", "--parts", 4, "--weight", "nodes", "--json").stdout
    (folder / "parts.json").write_text(parts)
    return folder


def test_a_profile_has_the_edges_of_the_graph(files):
    profile = json.loads((files / "profile.json").read_text())
    names = [layer["name"] for layer in profile["layers"]]
    assert len(names) == 41 and names[-1] == "head"
    readers = [names[to] for start, to in profile["edges"] if names[start] == "layer1_tile1"]
    assert readers == ["layer2_tile1", "layer2_tile2"]
    parts = json.loads((files / "parts.json").read_text())
    assert sorted(sum((part["names"] for part in parts["parts"]), [])) == sorted(names)


@pytest.mark.parametrize("layout", ["partition=auto", "partition=auto,pipeline=3", "partition=auto,pipeline=4",
                                    "partition=auto,data=2", "partition=auto,data=2,accumulate=2", "partition=auto,data=2,zero=2"])
def test_verify_equals_one_device(layout):
    result = json.loads(five_layers("verify", CONFIG, "--layouts", layout, "--steps", 2, "--train.clip_norm", 0.5, "--json").stdout)
    assert result["ok"]
    assert max(result["layouts"][0]["max_diff"].values()) < 1e-10


def test_other_models_verify_too(yoke):
    for words in ([MLP, "--model.sizes", "32,16,16,16,10"], S2VT):
        assert yoke("verify", *words, "--layouts", "partition=auto; partition=auto,pipeline=3,data=2", "--steps", 2, "--json").json["ok"]


def test_inception_verifies_in_two_parts(yoke):
    words = ["--model.image_size", 75, "--model.classes", 4, "--data.batch_size", 2]
    assert yoke("verify", INCEPTION, *words, "--layouts", "partition=auto", "--steps", 1, "--json").json["ok"]


def test_profile_partition_train_and_the_bytes_that_were_planned(files, tmp_path):
    run = tmp_path / "run"
    done = json.loads(five_layers("train", CONFIG, "--nproc", 4, "--parallel.partition", files / "parts.json", "--steps", 6, *QUIET,
                                  "--out.dir", run, "--json").stdout)
    assert done["steps"] == 6 and done["world_size"] == 4 and done["mesh"]["pipeline"] == 4
    assert all(sent > 0 for sent in done["communication"]["pipeline"])
    planned = json.loads((files / "parts.json").read_text())["cut_bytes"]
    record = json.loads((run / "partition.json").read_text())
    assert record["parts"] == 4 and len(record["nodes"]) == 41
    assert record["cut_bytes"] == planned == sum(one["bytes"] for one in record["crossings"])
    assert planned == sum(one["gradient_bytes"] for one in record["crossings"])
    assert {event["rank"] for event in record["events"]} == {0, 1, 2, 3}
    five_layers("report", run)
    html = (run / "report.html").read_text()
    assert "<h2>Partition</h2>" in html and "41 nodes in 4 parts" in html
    assert re.search(r"layer1_tile\d to part \d: 4.10 kB forward, 4.10 kB back", html), html[:200]


def test_it_trains_like_one_device_and_resumes_on_one_and_back(tmp_path):
    def losses(folder):
        return [json.loads(line)["loss"] for line in (folder / "metrics.jsonl").read_text().splitlines()]

    common = ["train", CONFIG, *QUIET, "--out.log_every", 1, "--checkpoint.every_steps", 4]
    parts = ["--nproc", 3, "--parallel.partition", "auto"]
    five_layers(*common, "--steps", 12, "--out.dir", tmp_path / "one")
    five_layers(*common, "--steps", 4, "--out.dir", tmp_path / "run", *parts)
    five_layers(*common, "--steps", 8, "--out.dir", tmp_path / "run")
    resumed = five_layers(*common, "--steps", 12, "--out.dir", tmp_path / "run", *parts)
    assert "resum" in resumed.stderr
    ours, expected = losses(tmp_path / "run"), losses(tmp_path / "one")
    assert len(ours) == 12 and max(abs(a - b) for a, b in zip(ours, expected)) < 1e-5


def test_a_checkpoint_of_parts_loads_bit_for_bit_on_one_device(files, tmp_path):
    words = ["train", CONFIG, "--steps", 3, "--checkpoint.every_steps", 3, *QUIET, "--out.dir", tmp_path / "run", "--json"]
    ours = json.loads(five_layers(*words, "--nproc", 4, "--parallel.partition", files / "parts.json").stdout)
    five_layers("ckpt", "export", tmp_path / "run", "-o", tmp_path / "plain.safetensors")
    assert (tmp_path / "plain.safetensors").stat().st_size > 0
    listed = json.loads(five_layers("ckpt", "ls", tmp_path / "run", "--json").stdout)
    assert listed["checkpoints"][-1]["step"] == 3
    again = json.loads(five_layers("train", CONFIG, "--steps", 1, "--out.dir", tmp_path / "again", *QUIET, "--json", "--train.lr", 1e-30,
                                   "--init", tmp_path / "plain.safetensors").stdout)  # moves nothing
    assert again["parameter_hash"] == ours["parameter_hash"]


def test_replicas_evaluate_and_precision(tmp_path):
    done = json.loads(five_layers("train", CONFIG, "--nproc", 4, "--parallel.partition", "auto", "--parallel.data", 2, "--steps", 4,
                                  "--train.precision", "bf16", "--train.recompute", "blocks", "--train.threads", 1, "--out.dir",
                                  tmp_path / "run", "--json").stdout)
    assert done["mesh"] == {"pipeline": 2, "data": 2, "tensor": 1} and done["accuracy"] >= 0


@pytest.mark.parametrize("words, says", [
    (["--nproc", 1], "several ranks"),
    (["--nproc", 4, "--parallel.data", 4], "one part"),
    (["--nproc", 4, "--parallel.data", 3], "parallel.data = 3"),
    (["--nproc", 4, "--parallel.tensor", 2], "parallel.tensor"),
    (["--nproc", 2, "--parallel.sync", "ps", "--ps.servers", 1], "parallel.partition"),
    (["--nproc", 2, "--parallel.plan", "auto"], "parallel.plan"),
    (["--nproc", 2, "--parallel.zero", 3], "parallel.zero"),
    (["--nproc", 2, "--train.recompute", "sqrt"], "train.recompute"),
    (["--nproc", 2, "--pipeline.microbatches", 4], "pipeline.microbatches"),
    (["--nproc", 2, "--train.optimizer", "lbfgs"], "lbfgs"),
    (["--nproc", 2, "--train.deterministic"], "parallel.partition"),
], ids=str)
def test_what_does_not_go_together_is_refused(words, says, tmp_path):
    failed = five_layers("train", CONFIG, "--parallel.partition", "auto", *QUIET, "--out.dir", tmp_path / "run", *words, code=2)
    assert says in failed.stderr


def test_a_partition_of_another_graph_is_refused(yoke, files, tmp_path):
    failed = yoke("train", MLP, "--nproc", 4, "--parallel.partition", files / "parts.json", "--out.dir", tmp_path / "run", code=2)
    assert "another graph" in failed.err and "layer1_tile1" in failed.err
    document = json.loads((files / "parts.json").read_text())
    for part in document["parts"]:
        part["names"] = [name.replace("layer3_tile2", "layer3_tile9") for name in part["names"]]
    (tmp_path / "other.json").write_text(json.dumps(document))
    failed = five_layers("train", CONFIG, "--nproc", 4, "--parallel.partition", tmp_path / "other.json", "--out.dir", tmp_path / "run", code=2)
    assert "'layer3_tile9' there and 'layer3_tile2' in the model" in failed.stderr
    failed = five_layers("train", CONFIG, "--nproc", 3, "--parallel.partition", files / "parts.json", "--out.dir", tmp_path / "run", code=2)
    assert "3 ranks" in failed.stderr
    failed = five_layers("train", CONFIG, "--nproc", 2, "--parallel.partition", tmp_path / "none.json", "--out.dir", tmp_path / "run", code=2)
    assert "none.json" in failed.stderr


def test_model_info_lists_the_graph(yoke):
    info = yoke("model", "info", "inception_v3", "--json").json
    names = [node["name"] for node in info["nodes"]]
    assert len(info["blocks"]) == 18 and "Mixed_5b.branch5x5_2" in names
    pairs = {(names[start], names[to]) for start, to in info["edges"]}
    assert ("Mixed_5b.branch5x5_1", "Mixed_5b.branch5x5_2") in pairs and ("AuxLogits", "fc") in pairs
    assert sum(node["parameters"] for node in info["nodes"]) == info["parameters"]


def test_a_profile_of_blocks_still_makes_plans(yoke, tmp_path):
    words = [INCEPTION, "--model.image_size", 75, "--data.batch_size", 2, "--repeats", 1]
    graph = yoke("profile", *words, "--json").json
    assert "edges" in graph and len(graph["layers"]) > 90
    blocks = yoke("profile", *words, "--blocks", "-o", tmp_path / "blocks.json", "--json").json
    assert "edges" not in blocks and len(blocks["layers"]) == 18
