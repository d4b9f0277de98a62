"""Parameter servers under replicas that are pipelines, tensor-parallel, or both."""
import json

import pytest
from conftest import ROOT

GPT = ROOT / "configs/gpt2_tiny.toml"
MLP = ROOT / "configs/mlp_tiny.toml"
LAYOUTS = [
    "pipeline=2,data=2,sync=ps", "pipeline=2,data=2,sync=ps,servers=3,schedule=gpipe,microbatches=2", "pipeline=2,data=1,sync=ps",
    "pipeline=2,data=2,sync=ps,schedule=zb-h1", "pipeline=2,data=2,sync=ps,schedule=interleaved,chunks=2", "pipeline=2,data=2,sync=ps,accumulate=2",
    "tensor=2,data=2,sync=ps", "tensor=2,data=2,sync=ps,servers=2,sequence=true", "tensor=4,data=2,sync=ps", "tensor=2,data=2,sync=ps,accumulate=2",
    "pipeline=2,tensor=2,data=2,sync=ps,servers=2", "pipeline=2,tensor=2,data=2,sync=ps,sequence=true,schedule=gpipe",
    "pipeline=2,data=2,sync=ps,policy=bounded_delay", "pipeline=2,data=2,sync=ps,policy=k_sync,k=2",
]
# How the replicas of four ranks of workers are made.
REPLICAS = [["--parallel.pipeline", 2], ["--parallel.tensor", 2]]


def served(*words, config=GPT, workers=4, servers=1):
    return ["train", config, "--nproc", workers, "--parallel.sync", "ps", "--ps.servers", servers, "--train.threads", 1, "--data.batch_size", 8, "--json", "-q", *words]


def records_of(folder):
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


def test_synchronous_rules_equal_one_device(yoke):
    result = yoke("verify", GPT, "--layouts", "; ".join(LAYOUTS), "--steps", 3, "--train.clip_norm", 0.5, "--json", "-q").json
    assert [row["layout"] for row in result["layouts"]] == LAYOUTS
    for row in result["layouts"]:
        assert row["ok"] and max(row["max_diff"].values()) < 1e-10, row


def test_uneven_slices_equal_one_device(yoke):
    words = ["--model.sizes", "784,31,17,10", "--data.batch_size", 12, "--steps", 3, "--json", "-q"]
    result = yoke("verify", MLP, "--layouts", "tensor=3,data=2,sync=ps; tensor=2,pipeline=2,data=3,sync=ps,servers=2; pipeline=1,tensor=2,data=1,sync=ps,policy=async", *words).json
    assert all(row["ok"] for row in result["layouts"]), result


@pytest.mark.parametrize("replicas", REPLICAS, ids=["pipeline", "tensor"])
def test_a_synchronous_run_is_that_of_averaging_replicas_and_repeats_bit_for_bit(yoke, tmp_path, replicas):
    words = [*replicas, "--steps", 10, "--out.log_every", 2]
    runs = [yoke(*served(*words, "--out.dir", tmp_path / name)).json for name in ("one", "two")]
    assert runs[0]["parameter_hash"] == runs[1]["parameter_hash"]
    yoke("train", GPT, "--nproc", 4, "--train.threads", 1, "--data.batch_size", 8, "-q", *words, "--out.dir", tmp_path / "average")
    ours, theirs = records_of(tmp_path / "one"), records_of(tmp_path / "average")
    assert [record["step"] for record in ours] == [record["step"] for record in theirs]
    for one, other in zip(ours, theirs):
        assert one["loss"] == pytest.approx(other["loss"], rel=1e-4)
        assert one["grad_norm"] == pytest.approx(other["grad_norm"], rel=1e-3)
    averaged = json.loads((tmp_path / "average/summary.json").read_text())
    assert runs[0]["eval_loss"] == pytest.approx(averaged["eval_loss"], rel=1e-4)


@pytest.mark.parametrize("words", [["--ps.policy", "async"], ["--ps.policy", "ssp", "--ps.max_delay", 2], ["--ps.policy", "k_async", "--ps.k", 2],
                                   ["--ps.policy", "k_batch_sync", "--ps.k", 1],
                                   ["--ps.policy", "async", "--ps.n_push", 2, "--ps.n_fetch", 4, "--train.optimizer", "adagrad", "--train.lr", 0.02]],
                         ids=["async", "ssp", "k_async", "k_batch_sync", "downpour"])
@pytest.mark.parametrize("replicas", REPLICAS, ids=["pipeline", "tensor"])
def test_rules_train_and_count_updates(yoke, tmp_path, replicas, words):
    summary = yoke(*served(*replicas, *words, "--train.schedule", "constant", "--steps", 60, "--out.dir", tmp_path, servers=2)).json
    assert summary["steps"] == 60 and summary["world_size"] == 4
    counts = json.loads((tmp_path / "ps.json").read_text())
    assert counts["version"] == 60 and len(counts["workers"]) == 2 and not any(worker["lost"] for worker in counts["workers"])
    assert counts["gradients"] == 60 * counts["k"]
    assert summary["eval_loss"] < 5  # 5.6 before the first update


def test_checkpoints_go_from_one_layout_to_another_bit_for_bit(yoke, tmp_path):
    still = ["--train.lr", 0, "--train.schedule", "constant", "--train.warmup_steps", 0, "--no-train.evaluate", "--out.dir", tmp_path]
    first = yoke(*served("--parallel.pipeline", 2, "--steps", 6, "--no-train.evaluate", "--checkpoint.every_steps", 3, "--out.dir", tmp_path, servers=2)).json
    assert yoke("ckpt", "verify", tmp_path, "--json").json
    for steps, words in [(7, ["train", GPT, "--data.batch_size", 16, "--json", "-q"]), (8, served("--parallel.tensor", 2)),
                         (9, served("--parallel.tensor", 2, "--parallel.pipeline", 2, workers=8)), (10, ["train", GPT, "--nproc", 2, "--parallel.zero", 1, "--json", "-q"]),
                         (11, served("--parallel.pipeline", 2))]:
        # Without a learning rate a step leaves the parameters as they are.
        summary = yoke(*words, *still, "--steps", steps).json
        assert summary["resumed_from"] == steps - 1 and summary["parameter_hash"] == first["parameter_hash"], words


def test_a_run_in_changing_layouts_equals_one_on_one_device(yoke, tmp_path):
    common = ["--train.schedule", "constant", "--train.warmup_steps", 0, "--no-train.evaluate", "--checkpoint.every_steps", 3, "--out.log_every", 1]
    yoke("train", GPT, *common, "--steps", 9, "--data.batch_size", 16, "-q", "--out.dir", tmp_path / "one")
    for steps, words in [(3, served("--parallel.pipeline", 2)), (6, served("--parallel.tensor", 2, servers=2)), (9, ["train", GPT, "--data.batch_size", 16, "-q"])]:
        yoke(*words, *common, "--steps", steps, "--out.dir", tmp_path / "many")
    one, many = records_of(tmp_path / "one"), records_of(tmp_path / "many")
    assert [record["step"] for record in many] == list(range(1, 10))
    for ours, theirs in zip(many, one):
        assert ours["loss"] == pytest.approx(theirs["loss"], rel=2e-5)


def test_summary_and_trace(yoke, tmp_path):
    summary = yoke(*served("--parallel.pipeline", 2, "--parallel.tensor", 2, "--steps", 5, "--no-train.evaluate", "--checkpoint.every_steps", 0, "--trace",
                           "--out.dir", tmp_path, workers=8, servers=2)).json
    assert summary["mesh"] == {"pipeline": 2, "data": 2, "tensor": 2} and summary["world_size"] == 8
    assert len(summary["peak_memory_bytes"]) == 8 and min(summary["peak_memory_bytes"]) > 10e6
    # Of the ranks of worker 0. Each pushes its own part once a step: together they push every parameter once.
    sent = summary["communication"]
    assert [len(sent[axis]) for axis in ("pipeline", "data", "tensor")] == [4, 4, 4]
    assert sum(sent["data"]) == 4 * summary["parameters"] and min(sent["data"]) > 0.1 * 4 * summary["parameters"]
    assert {file.name for file in (tmp_path / "trace").iterdir()} == {f"rank-{rank}.json" for rank in range(8)} | {"all.json"}


@pytest.mark.parametrize("words, says", [
    (["--parallel.pipeline", 2, "--ps.place", "colocated"], "lost with a part of a replica"),
    (["--parallel.tensor", 2, "--ps.on_worker_loss", "restart"], "connect to each other once"),
    (["--parallel.pipeline", 2, "--pipeline.schedule", "2bw"], "while micro-batches are in flight"),
    (["--parallel.pipeline", 2, "--pipeline.schedule", "pipedream"], "while micro-batches are in flight"),
    (["--parallel.plan", "auto"], "may replicate single stages"),
    (["--parallel.pipeline", 2, "--parallel.zero", 1], "servers hold the optimizer's state"),
    (["--parallel.pipeline", 2, "--parallel.data", 3], "the mesh has 6"),
    (["--parallel.tensor", 3], "4 ranks were started, but a multiple of 3 is needed"),
    (["--parallel.pipeline", 2, "--ps.policy", "k_async", "--ps.k", 3], "3"),
])
def test_what_does_not_go_together_is_refused(yoke, words, says):
    assert says in yoke(*served(*words, "--steps", 2), code=2).err
