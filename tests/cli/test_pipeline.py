"""Pipelines as users type them: `yoke train --parallel.pipeline`, `yoke verify`, `yoke profile`, plans."""
import json

import pytest
from conftest import ROOT

GPT = ROOT / "configs/gpt2_tiny.toml"
FLUSHING = ["naive", "gpipe", "1f1b", "interleaved", "zb-h1"]
QUICK = ["--train.threads", 1, "--json", "-q"]


def losses(folder):
    return [json.loads(line)["loss"] for line in (folder / "metrics.jsonl").read_text().splitlines()]


def test_verify_shows_every_schedule_beside_one_device(yoke):
    layouts = "; ".join([f"pipeline=2,schedule={name},microbatches=4" for name in FLUSHING] +
                        ["pipeline=2,data=2", "pipeline=4,schedule=pipedream", "pipeline=2,schedule=2bw",
                         "pipeline=2,schedule=pipedream,vertical_sync=1", "pipeline=2,schedule=interleaved,chunks=2"])
    result = yoke("verify", GPT, "--layouts", layouts, "--steps", 3, *QUICK).json
    assert result["ok"]
    for row in result["layouts"]:
        assert row["ok"] and len(row["loss"]) == 3, row
        assert max(row["max_diff"].values()) < 1e-10


@pytest.mark.parametrize("layouts, says", [("pipeline=9", "the model has 4 blocks"), ("pipeline=2,schedule=nothing", "1f1b"),
                                           ("pipeline=2,microbatches=5", "equal parts"), ("pipelines=2", "invalid"),
                                           ("pipeline=2,schedule=pipedream,data=2", "data=1")])
def test_a_layout_that_cannot_be_is_refused(yoke, layouts, says):
    failed = yoke("verify", GPT, "--layouts", layouts, "--steps", 1, code=2)
    assert says in failed.err


@pytest.mark.parametrize("schedule", ["gpipe", "1f1b", "zb-h1"])
def test_a_pipeline_trains_as_one_device_does(yoke, tmp_path, schedule):
    common = [GPT, "--steps", 8, "--out.log_every", 1, *QUICK]
    one = yoke("train", *common, "--train.accumulate", 1, "--out.dir", tmp_path / "one").json
    two = yoke("train", *common, "--nproc", 2, "--parallel.pipeline", 2, "--pipeline.schedule", schedule,
               "--pipeline.microbatches", 4, "--out.dir", tmp_path / "two").json
    assert two["world_size"] == 2 and len(two["peak_memory_bytes"]) == 2
    assert two["parameters"] == one["parameters"]
    ours, expected = losses(tmp_path / "two"), losses(tmp_path / "one")
    assert len(ours) == 8 and max(abs(a - b) for a, b in zip(ours, expected)) < 1e-4
    timeline = json.loads((tmp_path / "two/pipeline.json").read_text())
    assert timeline["schedule"] == schedule and timeline["stages"] == 2 and timeline["microbatches"] == 4
    for rank in (0, 1):
        kinds = [e["kind"] for e in timeline["events"] if e["rank"] == rank]
        assert kinds.count("F") == 4 and kinds.count("B") == 4
    assert all(e["end"] >= e["start"] for e in timeline["events"])


@pytest.mark.parametrize("schedule", ["pipedream", "2bw", "interleaved"])
def test_other_schedules_train_on_stages_and_copies(yoke, tmp_path, schedule):
    done = yoke("train", GPT, "--steps", 6, "--nproc", 4, "--parallel.pipeline", 2, "--parallel.data", 2, "--pipeline.schedule",
                schedule, "--out.log_every", 1, "--out.dir", tmp_path / "run", *QUICK).json
    assert done["steps"] == 6 and done["world_size"] == 4
    assert len(losses(tmp_path / "run")) == 6


MODELS = {
    "lenet_fashion": ["--data.name", "synthetic", "--data.samples", 32, "--data.batch_size", 8],
    "mlp_tiny": ["--data.batch_size", 8],
    "vgg_small": ["--data.name", "synthetic", "--data.samples", 16, "--data.batch_size", 4],
    "alexnet_synthetic": ["--data.samples", 8, "--data.batch_size", 4, "--model.image_size", 64],
    "vgg16_synthetic": ["--data.samples", 4, "--data.batch_size", 2, "--model.image_size", 32],
    "resnet50_synthetic": ["--data.samples", 8, "--data.batch_size", 4, "--model.image_size", 32],
    "inception_v3_synthetic": ["--data.samples", 8, "--data.batch_size", 4, "--model.image_size", 75],
    "s2vt_synthetic": ["--data.samples", 8, "--data.batch_size", 4],
}


@pytest.mark.parametrize("recipe", MODELS)
def test_every_model_runs_as_a_pipeline(yoke, tmp_path, recipe):
    words = [ROOT / f"configs/{recipe}.toml", *MODELS[recipe], "--steps", 2, "--nproc", 2, "--parallel.pipeline", 2,
             "--pipeline.microbatches", 2, "--out.dir", tmp_path / "run", *QUICK]
    done = yoke("train", *words).json
    assert done["steps"] == 2 and done["final_loss"] == done["final_loss"]


def test_a_checkpoint_of_a_pipeline_goes_on_under_any_layout(yoke, tmp_path):
    common = [GPT, "--out.dir", tmp_path / "run", "--checkpoint.every_steps", 5, *QUICK]
    yoke("train", *common, "--steps", 5, "--nproc", 2, "--parallel.pipeline", 2)
    four = yoke("train", *common, "--steps", 10, "--nproc", 4, "--parallel.pipeline", 4).json
    assert four["resumed_from"] == 5
    alone = yoke("train", *common, "--steps", 15).json
    assert alone["resumed_from"] == 10 and alone["world_size"] == 1
    mixed = yoke("train", *common, "--steps", 20, "--nproc", 4, "--parallel.pipeline", 2, "--parallel.data", 2).json
    assert mixed["resumed_from"] == 15
    assert yoke("ckpt", "verify", tmp_path / "run", "--json").json["ok"]


def test_stages_between_first_and_last_go_without_samples(yoke, tmp_path):
    common = [GPT, "--out.log_every", 1, "--train.evaluate", "true", "--train.schedule", "constant", "--checkpoint.every_steps", 3, *QUICK]
    four = [*common, "--nproc", 4, "--parallel.pipeline", 4, "--pipeline.microbatches", 4]
    one = yoke("train", *common, "--steps", 6, "--out.dir", tmp_path / "one").json
    whole = yoke("train", *four, "--steps", 6, "--out.dir", tmp_path / "whole").json
    assert max(abs(a - b) for a, b in zip(losses(tmp_path / "whole"), losses(tmp_path / "one"))) < 1e-4
    assert abs(whole["eval_loss"] - one["eval_loss"]) < 1e-4
    yoke("train", *four, "--steps", 3, "--out.dir", tmp_path / "halves")
    halves = yoke("train", *four, "--steps", 6, "--out.dir", tmp_path / "halves").json
    assert halves["resumed_from"] == 3 and halves["parameter_hash"] == whole["parameter_hash"]


def test_one_device_and_stages_save_the_same_tensors(yoke, tmp_path):
    common = [GPT, "--steps", 3, "--checkpoint.every_steps", 3, *QUICK]
    yoke("train", *common, "--out.dir", tmp_path / "one")
    yoke("train", *common, "--nproc", 2, "--parallel.pipeline", 2, "--out.dir", tmp_path / "two")

    def header(path):
        data = path.read_bytes()
        length = int.from_bytes(data[:8], "little")
        return {k: (v["dtype"], v["shape"]) for k, v in json.loads(data[8:8 + length]).items() if k != "__metadata__"}

    saved = tmp_path / "two/checkpoints/step-3"
    for kind in ("model", "optimizer"):
        parts = [header(path) for path in sorted(saved.glob(f"{kind}-*.safetensors"))]
        assert len(parts) == 2 and all(parts), "each stage writes its own"
        assert sum(len(part) for part in parts) == len(parts[0] | parts[1]), "no tensor twice, tied ones included"
        assert parts[0] | parts[1] == header(tmp_path / f"one/checkpoints/step-3/{kind}.safetensors")
    index = json.loads((saved / "model.safetensors.index.json").read_text())["weight_map"]
    assert {name: file for i in (1, 2) for file in [f"model-0000{i}-of-00002.safetensors"] for name in header(saved / file)} == index

    listed = yoke("ckpt", "ls", tmp_path / "two", "--json").json["checkpoints"][-1]
    assert {f["name"]: f["stage"] for f in listed["files"]} == {
        f"{kind}-0000{stage + 1}-of-00002.safetensors": stage for kind in ("model", "optimizer") for stage in (0, 1)}
    assert all(sorted(header(saved / f["name"])) == sorted(f["tensors"]) for f in listed["files"])
    assert [s["stage"] for s in listed["stages"]] == [0, 1]
    text = yoke("ckpt", "ls", tmp_path / "two").out
    assert "model-00002-of-00002.safetensors (stage 1): " in text
    assert "stages" not in yoke("ckpt", "ls", tmp_path / "one", "--json").json["checkpoints"][-1]
    exported = yoke("ckpt", "export", tmp_path / "two", "-o", tmp_path / "all.safetensors", "--json").json
    assert exported["tensors"] == len(index)


def test_copies_and_replicas_of_a_stage_share_its_part(yoke, tmp_path):
    common = [GPT, "--checkpoint.every_steps", 2, *QUICK]
    before = yoke("train", *common, "--out.dir", tmp_path / "run", "--steps", 2, "--nproc", 4, "--parallel.pipeline", 2, "--parallel.data", 2).json
    files = yoke("ckpt", "ls", tmp_path / "run", "--json").json["checkpoints"][-1]["files"]
    assert [f["stage"] for f in files if f["name"].startswith("model")] == [0, 0, 1, 1]
    names = [name for f in files if f["name"].startswith("model") for name in f["tensors"]]
    assert len(names) == len(set(names))
    alone = yoke("train", *common, "--steps", 2, "--resume", tmp_path / "run", "--out.dir", tmp_path / "alone").json
    assert alone["resumed_from"] == 2 and alone["parameter_hash"] == before["parameter_hash"]


@pytest.mark.parametrize("words, says", [
    (["--nproc", 2, "--parallel.pipeline", 3], "parallel.pipeline = 3"),
    (["--nproc", 2, "--parallel.pipeline", 2, "--pipeline.stages", "0-2,4"], "block 3 should come next"),
    (["--nproc", 2, "--parallel.pipeline", 2, "--pipeline.microbatches", 99], "micro-batch needs a sample"),
    (["--nproc", 2, "--parallel.pipeline", 2, "--train.optimizer", "lbfgs", "--train.clip_norm", 0], "lbfgs"),
    (["--nproc", 2, "--parallel.pipeline", 2, "--pipeline.schedule", "1f2b"], "1f1b"),
])
def test_a_pipeline_that_cannot_be_is_refused(yoke, tmp_path, words, says):
    failed = yoke("train", GPT, *words, "--out.dir", tmp_path / "run", code=2)
    assert says in failed.err


def test_a_profile_is_what_the_planner_reads(yoke, tmp_path):
    profile = yoke("profile", GPT, "-o", tmp_path / "p.json", *QUICK).json
    assert profile["batch"] == 16 and profile["device"]
    assert [layer["name"] for layer in profile["layers"]] == ["embedding", "h.0", "h.1", "head"]
    for layer in profile["layers"]:
        assert layer["forward"] > 0 and layer["backward"] > 0 and layer["activation_bytes"] > 0 and layer["parameter_bytes"] > 0
    assert json.loads((tmp_path / "p.json").read_text()) == profile
    plan = yoke("plan", "--profile", tmp_path / "p.json", "--devices", 2, "--bandwidth", "1GB/s", "--straight", "--json").json
    assert len(plan["stages"]) == 2
    (tmp_path / "plan.json").write_text(json.dumps(plan))
    done = yoke("train", GPT, "--steps", 2, "--nproc", 2, "--parallel.plan", tmp_path / "plan.json", "--out.dir",
                tmp_path / "run", *QUICK).json
    assert done["steps"] == 2
    assert json.loads((tmp_path / "run/pipeline.json").read_text())["stages"] == 2


def test_replicas_of_a_stage_take_turns(yoke, tmp_path):
    stage = {"compute_seconds": 1.0, "sync_seconds": 0.0, "memory_bytes": 0, "versions": 1}
    plan = {"cost_model": "ring", "config": "2-1", "bottleneck_seconds": 1.0, "noam": 2,
            "stages": [{"first": 0, "last": 2, "replicas": 2, **stage}, {"first": 3, "last": 3, "replicas": 1, **stage}]}
    (tmp_path / "plan.json").write_text(json.dumps(plan))
    common = [GPT, "--steps", 5, "--out.log_every", 1, *QUICK]
    yoke("train", *common, "--out.dir", tmp_path / "one")
    done = yoke("train", *common, "--nproc", 3, "--parallel.plan", tmp_path / "plan.json", "--out.dir", tmp_path / "three").json
    assert done["world_size"] == 3
    assert max(abs(a - b) for a, b in zip(losses(tmp_path / "three"), losses(tmp_path / "one"))) < 1e-4


def test_a_plan_made_on_the_spot(yoke, tmp_path):
    done = yoke("train", GPT, "--steps", 2, "--nproc", 2, "--parallel.plan", "auto", "--out.dir", tmp_path / "run", *QUICK)
    assert done.json["steps"] == 2 and done.json["world_size"] == 2
