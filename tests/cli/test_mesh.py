"""Axes of the mesh together: every layout equals one device, and a checkpoint of one resumes in another."""
import json

import pytest

from conftest import ROOT

GPT = ROOT / "configs/gpt2_tiny.toml"
MLP = ROOT / "configs/mlp_tiny.toml"

LAYOUTS = [
    "tensor=2", "tensor=4", "tensor=2,data=2", "tensor=2,sequence=true", "tensor=2,data=2,sequence=true", "tensor=2,accumulate=2",
    "tensor=2,pipeline=2", "tensor=2,pipeline=2,data=2", "tensor=2,pipeline=2,schedule=gpipe,microbatches=2",
    "tensor=2,pipeline=2,schedule=zb-h1", "data=2,zero=3", "data=4,zero=3", "data=2,zero=3,accumulate=2",
    # ZeRO on the data axis of pipelines and of slices, and all three axes.
    "pipeline=2,data=2,zero=1", "pipeline=2,data=2,zero=2", "pipeline=2,data=4,zero=1,schedule=gpipe,microbatches=2",
    "pipeline=2,data=2,zero=1,schedule=zb-h1", "pipeline=2,data=2,zero=1,schedule=interleaved,chunks=2", "pipeline=2,data=2,zero=2,schedule=naive",
    "pipeline=4,data=2,zero=1", "pipeline=2,data=2,zero=1,accumulate=2", "tensor=2,data=2,zero=1", "tensor=2,data=2,zero=2", "tensor=2,data=2,zero=3",
    "tensor=4,data=2,zero=1", "tensor=2,data=4,zero=2", "tensor=2,data=2,zero=1,sequence=true", "tensor=2,data=2,zero=3,sequence=true",
    "tensor=2,data=2,zero=2,accumulate=2", "tensor=2,data=2,zero=3,accumulate=2", "pipeline=2,data=2,tensor=2,zero=1",
    "pipeline=2,data=2,tensor=2,zero=2,schedule=gpipe", "pipeline=2,data=2,tensor=2,zero=1,sequence=true,schedule=zb-h1",
    "pipeline=2,data=2,zero=3", "pipeline=2,data=4,zero=3,schedule=gpipe,microbatches=2", "pipeline=2,data=2,zero=3,schedule=zb-h1",
    "pipeline=2,data=2,zero=3,schedule=interleaved,chunks=2", "pipeline=2,data=2,zero=3,schedule=naive", "pipeline=4,data=2,zero=3",
    "pipeline=2,data=2,zero=3,accumulate=2", "pipeline=2,data=2,tensor=2,zero=3", "pipeline=2,data=2,tensor=2,zero=3,sequence=true,schedule=zb-h1",
]
# With what else changes the computation.
WITH = [
    (["--train.recompute", "blocks"], ["data=2,zero=3", "tensor=2,data=2", "pipeline=2,data=2,zero=1", "pipeline=2,data=2,tensor=2,zero=1", "tensor=2,data=2,zero=3",
                                       "pipeline=2,data=2,zero=3", "pipeline=2,data=2,tensor=2,zero=3,schedule=interleaved,chunks=2"]),
    (["--parallel.split", "3:1"], ["pipeline=2,data=2", "tensor=2,data=2", "pipeline=2,data=2,zero=1", "pipeline=2,data=2,zero=3", "pipeline=2,data=2,schedule=gpipe,microbatches=2"]),
    (["--train.optimizer", "sgd", "--train.momentum", 0.9], ["pipeline=2,data=2,zero=1", "tensor=2,data=2,zero=2", "pipeline=2,data=2,tensor=2", "pipeline=2,data=2,zero=3"]),
]


def test_axes_together_equal_one_device(yoke):
    result = yoke("verify", GPT, "--layouts", "; ".join(LAYOUTS), "--steps", 2, "--train.clip_norm", 0.5, "--json", "-q").json
    assert [row["layout"] for row in result["layouts"]] == LAYOUTS
    for row in result["layouts"]:
        assert row["ok"] and max(row["max_diff"].values()) < 1e-10, row


@pytest.mark.parametrize("words, layouts", WITH, ids=["recompute", "split", "sgd"])
def test_axes_together_with_other_choices(yoke, words, layouts):
    result = yoke("verify", GPT, "--layouts", "; ".join(layouts), "--steps", 2, *words, "--json", "-q").json
    assert all(row["ok"] for row in result["layouts"]), result


def test_uneven_slices_equal_one_device(yoke):
    words = ["--model.sizes", "784,31,17,10", "--data.batch_size", 12, "--steps", 3, "--json", "-q"]
    result = yoke("verify", MLP, "--layouts", "tensor=2; tensor=3; data=3,zero=3; tensor=3,data=2,zero=1; tensor=2,data=3,zero=3", *words).json
    assert all(row["ok"] for row in result["layouts"]), result


@pytest.mark.parametrize("words", [["--parallel.tensor", 2], ["--parallel.pipeline", 2]], ids=["slices", "stages"])
def test_the_split_follows_the_speed_of_replicas(yoke, tmp_path, words):
    """Shares belong to replicas, whatever the number of their ranks."""
    run = yoke("train", GPT, "--nproc", 4, *words, "--parallel.split", "speed", "--steps", 20, "--no-train.evaluate", "--out.dir", tmp_path / "run", "--json", "-q").json
    assert run["steps"] == 20 and run["mesh"]["data"] == 2


def losses(folder):
    return {row["step"]: row["loss"] for row in map(json.loads, (folder / "metrics.jsonl").read_text().splitlines())}


def test_a_checkpoint_of_one_layout_resumes_in_others(yoke, tmp_path):
    common = ["--train.schedule", "constant", "--train.warmup_steps", 0, "--no-train.evaluate", "--checkpoint.every_steps", 3, "--out.log_every", 1, "-q"]
    yoke("train", GPT, *common, "--steps", 12, "--data.batch_size", 8, "--out.dir", tmp_path / "one")
    for steps, words in [(3, ["--nproc", 2, "--parallel.zero", 3, "--data.batch_size", 4]),
                         (6, ["--nproc", 4, "--parallel.tensor", 2, "--parallel.pipeline", 2, "--data.batch_size", 8]),
                         (7, ["--nproc", 4, "--parallel.tensor", 2, "--parallel.zero", 3, "--data.batch_size", 4]),
                         (8, ["--nproc", 8, "--parallel.tensor", 2, "--parallel.pipeline", 2, "--parallel.zero", 1, "--data.batch_size", 4]),
                         (9, ["--nproc", 2, "--parallel.zero", 1, "--data.batch_size", 4]),
                         (10, ["--nproc", 4, "--parallel.pipeline", 2, "--parallel.zero", 3, "--data.batch_size", 4]),
                         (11, ["--nproc", 8, "--parallel.tensor", 2, "--parallel.pipeline", 2, "--parallel.zero", 3, "--data.batch_size", 4]), (12, ["--data.batch_size", 8])]:
        yoke("train", GPT, *common, "--steps", steps, *words, "--out.dir", tmp_path / "many")
    one, many = losses(tmp_path / "one"), losses(tmp_path / "many")
    assert sorted(many) == sorted(one)
    for step, loss in one.items():
        assert many[step] == pytest.approx(loss, rel=2e-5), step


@pytest.mark.parametrize("words, says", [
    (["--nproc", 3, "--parallel.tensor", 2], "a multiple of 2 is needed"),
    (["--nproc", 2, "--parallel.tensor", 2, "--parallel.zero", 1], "one replica on these ranks"),
    (["--nproc", 4, "--parallel.pipeline", 2, "--parallel.zero", 3, "--pipeline.schedule", "pipedream"], "several versions of the weights"),
    (["--nproc", 4, "--parallel.pipeline", 2, "--parallel.zero", 1, "--pipeline.schedule", "2bw"], "several versions of the weights"),
    (["--nproc", 2, "--parallel.tensor", 2, "--parallel.tensor_plan", "none.toml"], "none.toml"),
    (["--nproc", 2, "--parallel.offload", "all"], "parallel.offload"),
])
def test_what_does_not_fit_is_refused(yoke, words, says):
    assert says in yoke("train", MLP, *words, "--steps", 2, "-q", code=2).err


def test_topo_shows_the_mesh(yoke):
    mesh = yoke("topo", "show", "--mesh", "pipeline=2,data=2,tensor=2", "--json").json["mesh"]
    assert [axis["size"] for axis in mesh["axes"]] == [2, 2, 2] and len(mesh["ranks"]) == 8
    assert mesh["ranks"][5] == {"rank": 5, "coordinates": {"pipeline": 1, "data": 0, "tensor": 1}}
    assert "mesh" in yoke("topo", "show", "--mesh", "rows=2", code=2).err


@pytest.mark.parametrize("backend", ["shm", "tcp"])
@pytest.mark.parametrize("fault, code", [("rank=2,step=5,hit=5,at=comm.collective.begin:kill", 137), ("rank=2,step=5,hit=7,at=comm.collective.begin:error", 3),
                                         ("rank=1,step=5,at=pipeline.send:error", 3)], ids=["killed", "gather fails", "send fails"])
def test_gathering_stages_end_together(yoke, tmp_path, backend, fault, code):
    """A rank fails while its replica and its neighbour in the pipeline wait for it: nobody waits for a deadline."""
    run = yoke("train", GPT, "--nproc", 4, "--parallel.pipeline", 2, "--parallel.zero", 3, "--parallel.backend", backend, "--steps", 20, "--no-train.evaluate",
               "--out.dir", tmp_path, "-q", env={"YOKE_FAULT": fault}, code=code, timeout=60)
    assert fault.split(",")[0].replace("=", " ") in run.err
