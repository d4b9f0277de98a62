"""Recipes as users type them: groups of parameters, optimizers for large batches, averages of the weights, presets, FLOPs."""
import json

import pytest
from conftest import ROOT

MLP, GPT = ROOT / "configs/mlp_tiny.toml", ROOT / "configs/gpt2_tiny.toml"
GROUPS = '[{match = "*.bias", lr = 2, weight_decay = 0}, {match = "*.weight", lr = 0.5}]'
LAYOUTS = "data=2; data=2,zero=1; data=2,zero=2; data=2,zero=3; pipeline=2; pipeline=2,data=2,zero=1; pipeline=2,data=2,zero=3"


def verify(yoke, recipe, layouts, *words):
    return yoke("verify", recipe, "--layouts", layouts, "--steps", 3, "--json", "-q", *words).json["layouts"]


def train(yoke, folder, *words, recipe=MLP, **options):
    return yoke("train", recipe, "--out.dir", folder, "--no-out.report", "--train.threads", 1, "--json", "-q", *words, **options).json


@pytest.mark.parametrize("optimizer", ["sgd", "adamw", "lars", "lamb", "lion"])
def test_groups_give_the_numbers_of_one_device_in_every_layout(yoke, optimizer):
    words = ["--train.optimizer", optimizer, "--train.groups", GROUPS, "--train.weight_decay", 0.01, "--train.lr", 0.01]
    for layout in verify(yoke, MLP, LAYOUTS, *words):
        assert layout["ok"], layout


@pytest.mark.parametrize("optimizer", ["lars", "lamb"])
def test_norms_of_layers_reach_over_slices(yoke, optimizer):
    words = ["--train.optimizer", optimizer, "--train.weight_decay", 0.01, "--train.lr", 0.01, "--no-train.decay_biases"]
    for layout in verify(yoke, GPT, "tensor=2; tensor=2,data=2,zero=1; tensor=2,data=2,zero=3; tensor=2,pipeline=2", *words):
        assert layout["ok"], layout


def test_frozen_layers_in_every_layout(yoke):
    for layout in verify(yoke, MLP, LAYOUTS, "--train.groups", '[{match = "layers.0.*", freeze = true}]'):
        assert layout["ok"], layout


def test_label_smoothing_in_every_layout(yoke):
    for layout in verify(yoke, MLP, "data=2; data=2,zero=2; pipeline=2", "--train.label_smoothing", 0.1):
        assert layout["ok"], layout


def test_lion_on_servers_equals_one_device(yoke):
    for layout in verify(yoke, MLP, "data=2,sync=ps", "--train.optimizer", "lion", "--train.lr", 0.001):
        assert layout["ok"], layout


@pytest.mark.parametrize("groups, said", [
    ('[{match = "*.wieght"}]', ["fits no parameter", 'Did you mean "*.weight"?']),
    ('[{match = "*", freeze = true}]', ["every parameter is frozen"]),
    ('[{match = "*.bias", lrr = 2}]', ["not `lrr`", "did you mean lr?"]),
    ('[{lr = 2}]', ["a pattern of names"]),
    ('[{match = "*"}', ["a list of tables such as"]),
])
def test_groups_that_cannot_be(yoke, tmp_path, groups, said):
    err = yoke("train", MLP, "--train.groups", groups, "--out.dir", tmp_path, "-q", code=2).err
    for words in ["train.groups", *said]:
        assert words in err


@pytest.mark.parametrize("words, said", [
    (["--train.groups", GROUPS], "train.groups cannot be combined with parallel.sync"),
    (["--train.optimizer", "lars"], "cut through layers"),
    (["--train.ema", 0.9], "does not see every version"),
])
def test_servers_refuse_with_the_reason(yoke, tmp_path, words, said):
    assert said in yoke("train", MLP, "--parallel.sync", "ps", "--nproc", 2, "--out.dir", tmp_path, "-q", *words, code=2).err


STATE = ["--train.ema", 0.9, "--train.groups", GROUPS, "--train.weight_decay", 0.01, "--train.schedule", "cosine_restarts", "--train.restart_epochs",
         0.05, "--train.label_smoothing", 0.1, "--data.batch_size", 16]


@pytest.mark.parametrize("optimizer", ["lars", "lamb", "lion"])
def test_a_resumed_run_is_the_uninterrupted_one(yoke, tmp_path, optimizer):
    words = [*STATE, "--train.optimizer", optimizer, "--train.lr", 0.01, "--checkpoint.every_steps", 4]
    whole = train(yoke, tmp_path / "whole", *words, "--steps", 8)
    train(yoke, tmp_path / "parts", *words, "--steps", 4)
    parts = train(yoke, tmp_path / "parts", *words, "--steps", 8)
    assert parts["resumed_from"] == 4
    assert [parts[key] for key in ("parameter_hash", "eval_loss")] == [whole[key] for key in ("parameter_hash", "eval_loss")]
    for raw in ([], ["--raw"]):
        files = [tmp_path / f"{name}{len(raw)}.safetensors" for name in ("whole", "parts")]
        for name, file in zip(("whole", "parts"), files):
            yoke("ckpt", "export", tmp_path / name, "-o", file, *raw)
        assert files[0].read_bytes() == files[1].read_bytes()


LAYOUT_WORDS = {
    "one device": [],
    "ddp": ["--nproc", 2],
    "zero 1": ["--nproc", 2, "--parallel.zero", 1],
    "zero 2": ["--nproc", 2, "--parallel.zero", 2],
    "zero 3": ["--nproc", 2, "--parallel.zero", 3],
    "pipeline": ["--nproc", 2, "--parallel.pipeline", 2],
    "pipeline x zero 3": ["--nproc", 4, "--parallel.pipeline", 2, "--parallel.zero", 3],
    "threads": ["--nproc", 2, "--parallel.sync", "threads"],
}


@pytest.mark.parametrize("layout", LAYOUT_WORDS)
def test_the_average_is_evaluated_and_exported_whatever_the_layout(yoke, tmp_path, layout):
    """The loss of the exported average on one device is the one that the layout has reported; training goes on with the weights."""
    words = [*LAYOUT_WORDS[layout], "--train.optimizer", "adamw", "--train.lr", 0.01, "--steps", 6, "--data.batch_size", 8]
    plain = train(yoke, tmp_path / "plain", *words)
    averaged = train(yoke, tmp_path / "averaged", *words, "--train.ema", 0.9, "--checkpoint.every_steps", 6)
    assert averaged["parameter_hash"] == plain["parameter_hash"]
    assert averaged["eval_loss"] != plain["eval_loss"]
    for words, expected in ([], averaged), (["--raw"], plain):
        yoke("ckpt", "export", tmp_path / "averaged", "-o", tmp_path / "w.safetensors", *words)
        loss = yoke("eval", MLP, "--init", tmp_path / "w.safetensors", "--json").json["loss"]
        assert loss == pytest.approx(expected["eval_loss"], rel=1e-5)


def test_a_checkpoint_with_an_average_fits_another_layout(yoke, tmp_path):
    words = ["--train.ema", 0.9, "--train.optimizer", "lamb", "--train.lr", 0.01, "--checkpoint.every_steps", 3]
    train(yoke, tmp_path / "r", *words, "--steps", 3, "--nproc", 2, "--parallel.zero", 2, "--data.batch_size", 8)
    resumed = train(yoke, tmp_path / "r", *words, "--steps", 6, "--data.batch_size", 16)
    whole = train(yoke, tmp_path / "one", *words, "--steps", 6, "--data.batch_size", 16)
    assert resumed["resumed_from"] == 3
    assert resumed["eval_loss"] == pytest.approx(whole["eval_loss"], rel=1e-4)


def test_accumulation_by_tokens_fills_a_step_whatever_the_replicas(yoke, tmp_path):
    words = ["--train.accumulate_tokens", 512, "--data.batch_size", 2, "--data.seq_len", 32, "--steps", 2, "--checkpoint.every_steps", 0]
    one = yoke("train", GPT, *words, "--out.dir", tmp_path / "one")
    assert "8 batches of 64 tokens over 1 replica, 512 tokens a step" in one.err
    two = yoke("train", GPT, *words, "--nproc", 2, "--out.dir", tmp_path / "two")
    assert "4 batches of 128 tokens over 2 replicas, 512 tokens a step" in two.err
    both = [json.loads((tmp_path / name / "summary.json").read_text()) for name in ("one", "two")]
    assert both[0]["train_flops"] == both[1]["train_flops"]
    assert both[0]["final_loss"] == pytest.approx(both[1]["final_loss"], rel=1e-4)


@pytest.mark.parametrize("words, said", [
    (["--train.accumulate", 2], "train.accumulate = 2 with train.accumulate_tokens = 512"),
    (["--parallel.sync", "ps", "--nproc", 2], "follows from ps.policy"),
])
def test_accumulation_by_tokens_is_refused_with_the_reason(yoke, tmp_path, words, said):
    assert said in yoke("train", GPT, "--train.accumulate_tokens", 512, "--out.dir", tmp_path, "-q", *words, code=2).err


def test_a_preset_is_shown_and_the_whole_training_estimated(yoke, tmp_path):
    shown = yoke("config", "show", MLP, "--train.preset", "imagenet").out
    assert "# preset imagenet" in shown
    run = yoke("train", ROOT / "configs/recipes/imagenet_tiny.toml", "--steps", 3, "--out.dir", tmp_path)
    summary = json.loads((tmp_path / "summary.json").read_text())
    whole = summary["whole_training"]
    assert whole["epochs"] == 90
    assert whole["flops"] == pytest.approx(summary["train_flops"] * 90 / summary["epochs"])
    assert whole["pflop_days"] == pytest.approx(whole["flops"] / 8.64e19)
    assert summary["train_pflop_days"] == pytest.approx(summary["train_flops"] / 8.64e19)
    assert whole["seconds"] > 0
    assert "90 epochs:" in run.out and "PFLOP-days" in run.out


def test_a_preset_augments_pictures_and_nothing_else(yoke):
    def keys(*words):
        shown = yoke("config", "show", MLP, "--train.preset", "imagenet_tricks", "--json", *words).json["keys"]
        return {key["key"]: (key["value"], key["origin"]) for key in shown}
    pictures = keys("--data.name", "images", "--data.mixup", 0.3)
    assert pictures["data.augment"] == ("imagenet", "preset imagenet_tricks")
    assert pictures["train.label_smoothing"] == (0.1, "preset imagenet_tricks")
    assert pictures["data.mixup"] == (0.3, "--data.mixup")
    assert keys()["data.augment"] == ("none", "built-in") and keys()["train.schedule"][0] == "cosine"
    listed = yoke("config", "keys").out.split("## Presets")[1]
    for name in ("imagenet", "imagenet_linear", "imagenet_tricks"):
        assert f"- `{name}` (" in listed


def test_estimates_a_whole_training(yoke):
    recipe = ROOT / "configs/recipes/imagenet_tiny.toml"
    told = yoke("estimate", recipe, "--steps", 2, "--samples", 1281167, "--replicas", 8, "--devices", "V100,H100", "--json").json
    assert told["epochs"] == 90 and told["steps"] == 90 * (1281167 // (8 * told["batch"]))
    assert told["train_flops"] == pytest.approx(told["flops_per_sample"] * 90 * (1281167 // 32 * 32))
    assert told["train_pflop_days"] == pytest.approx(told["train_flops"] / 8.64e19)
    assert told["here"]["seconds"] == pytest.approx(90 * (1281167 // 32 * 32) / (8 * told["here"]["samples_per_s"]))
    v100, h100 = told["devices"]
    assert v100["seconds"] == pytest.approx(told["train_flops"] / (8 * 0.4 * 125e12)) and h100["seconds"] < v100["seconds"]


def test_an_estimate_without_measuring_reads_the_data_set(yoke):
    text = yoke("estimate", MLP, "--steps", 0, "--utilisation", 0.5, "-q").out
    assert "PFLOP-days" in text and "H200" in text and "50 %" in text and "here," not in text


@pytest.mark.parametrize("words, said", [
    (["--devices", "H1000"], "--devices H1000: unknown"),
    (["--samples", 1], "the training set has 1"),
    (["--utilisation", 2], "--utilisation"),
    (["--steps", 0, "--batch", 4], "--batch has no effect"),
    (["--parallel.zero", 1], "does not use parallel.zero"),
])
def test_estimates_that_cannot_be(yoke, words, said):
    assert said in yoke("estimate", MLP, "-q", *words, code=2).err


@pytest.mark.parametrize("recipe", sorted(path.name for path in (ROOT / "configs/recipes").glob("*.toml")))
def test_recipes_run_at_tiny_size(yoke, tmp_path, recipe):
    train(yoke, tmp_path, "--steps", 2, recipe=ROOT / "configs/recipes" / recipe)
