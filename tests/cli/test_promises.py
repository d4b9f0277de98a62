"""The command line's promises: names, JSON fields, streams, speed of what needs no tensors."""
import json
import math
import pathlib
import re
import subprocess
import sys
import time
import tomllib

import pytest
from conftest import ROOT, YOKE

TINY = "configs/mlp_tiny.toml"
COMMANDS = ["train", "eval", "data tokens", "generate", "model info", "model export", "bench step", "bench kernels", "ckpt ls", "ckpt verify", "ckpt export",
            "ckpt import", "config show", "config keys", "report", "doctor", "verify", "bench scaling", "bench collectives",
            "bench messenger", "bench average", "estimate", "collab start", "collab join", "collab watch", "lab averaging", "lab batch", "lab collectives", "lab compare", "lab downpour", "lab memory", "lab pipeline",
            "lab precision", "lab scaling", "lab staleness", "lab stall", "lab stragglers", "lab throughput", "lab topology", "env", "topo show", "topo predict", "why", "ps top", "ps leave", "ps join"]
  # lab sparse: test_lab_sparse.py


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_help_of_one_screen(yoke, command):
    text = yoke(*command.split(), "--help").out
    assert "Example: yoke " + command in text
    assert len(text.splitlines()) <= 24
    assert all(len(line) <= 110 for line in text.splitlines())


def test_help_lists_every_command_and_exits_at_once(yoke):
    text = yoke("--help").out
    for command in COMMANDS:
        assert command.split()[0] in text
    linked = subprocess.run(["ldd", str(YOKE)], capture_output=True, text=True).stdout
    assert "torch" not in linked


def test_train_writes_what_it_promises(yoke, tmp_path):
    run = tmp_path / "run"
    summary = yoke("train", TINY, "--steps", "20", "--out.dir", run, "--out.log_every", "5", "--trace", "--json").json
    for key in ("steps", "epochs", "world_size", "final_loss", "accuracy", "samples_per_s", "step_seconds", "parameters",
                "parameter_hash", "seconds", "peak_memory_bytes"):
        assert key in summary
    assert summary["steps"] == 20 and summary["world_size"] == 1
    assert json.loads((run / "summary.json").read_text()) == summary
    tomllib.loads((run / "config.toml").read_text())
    records = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    assert [r["step"] for r in records] == [5, 10, 15, 20]
    for key in ("step", "time", "loss", "lr", "samples", "samples_per_s"):
        assert all(key in r for r in records)
    assert records[-1]["accuracy"] == summary["accuracy"]
    assert list(run.glob("events.out.tfevents.*"))
    trace = json.loads(next((run / "trace").glob("*.json")).read_text())
    assert {"forward", "backward", "update"} <= {e["name"] for e in trace["traceEvents"]}
    assert "<svg" in (run / "report.html").read_text()
    assert (run / "checkpoints/step-20").is_dir()


def test_piped_output_is_plain(yoke, tmp_path):
    result = yoke("train", TINY, "--steps", "20", "--out.dir", tmp_path / "run")
    for stream in (result.out, result.err):
        assert "\r" not in stream and "\033" not in stream
        assert all(len(line) <= 120 for line in stream.splitlines())
    assert "samples/s" in result.out


def test_quiet_is_quiet(yoke, tmp_path):
    assert yoke("train", TINY, "--steps", "5", "--out.dir", tmp_path / "run", "--quiet").err == ""


def test_config_show_tells_where_values_come_from(yoke):
    keys = {k["key"]: k for k in yoke("config", "show", TINY, "--train.lr", "0.5", "--json", env={"YOKE_DATA__LIMIT": "7"}).json["keys"]}
    assert keys["train.lr"]["origin"] == "--train.lr" and keys["train.lr"]["value"] == 0.5
    assert keys["data.limit"]["origin"] == "YOKE_DATA__LIMIT"
    assert re.fullmatch(r"configs/mlp_tiny.toml:\d+", keys["model.name"]["origin"])
    assert keys["out.tensorboard"]["origin"] == "built-in"


def test_config_keys_is_the_documentation(yoke):
    page = (ROOT / "docs/configuration.md").read_text()
    assert yoke("config", "keys").out in page, "run tools/write_docs"


@pytest.mark.parametrize("recipe", sorted(p.stem for p in (ROOT / "configs").glob("*.toml")))
def test_every_recipe_reads(yoke, recipe):
    text = yoke("config", "show", f"configs/{recipe}.toml").out
    tomllib.loads(text)


# What makes each recipe small enough for a test; the model, data set and optimizer stay the recipe's.
SMALL_IMAGES = ["--model.classes", "10", "--data.samples", "4", "--data.batch_size", "2"]
SMALL = {
    "lenet_fashion": ["--data.limit", "64"],
    "alexnet_synthetic": [*SMALL_IMAGES, "--model.image_size", "64"],
    "vgg16_synthetic": [*SMALL_IMAGES, "--model.image_size", "32"],
    "resnet50_synthetic": [*SMALL_IMAGES, "--model.image_size", "32"],
    "inception_v3_synthetic": [*SMALL_IMAGES, "--model.image_size", "75"],
    "s2vt_synthetic": ["--model.width", "32", "--model.vocabulary", "50", "--data.samples", "4", "--data.batch_size", "2"],
    "gpt2_124m": ["--data.seq_len", "8", "--data.batch_size", "1", "--data.samples", "4"],
    "gpt2_tiny": ["--data.batch_size", "2", "--data.limit", "8"],
    "mlp_tiny": ["--data.limit", "64"],
    "vgg_small": ["--data.name", "synthetic", "--data.samples", "4", "--data.batch_size", "2"],
    "sparse_lr": ["--data.limit", "64"],
    "imagenette_resnet18": ["--model.image_size", "32", "--data.name", "synthetic", "--data.samples", "4", "--data.batch_size", "2"],  # on pictures: test_images.py
}


@pytest.mark.parametrize("recipe", sorted(p.stem for p in (ROOT / "configs").glob("*.toml")))
def test_every_recipe_trains_at_a_tiny_size(yoke, tmp_path, recipe):
    summary = yoke("train", f"configs/{recipe}.toml", *SMALL[recipe], "--steps", "2", "--checkpoint.every_steps", "0",
                   "--out.dir", tmp_path / "run", "--json").json
    assert summary["steps"] == 2 and math.isfinite(summary["final_loss"]) and summary["parameters"] > 0


def test_model_info(yoke):
    info = yoke("model", "info", "lenet", "--json").json
    assert info["parameters"] == 61706
    assert sum(b["parameters"] for b in info["blocks"]) == 61706
    assert all({"name", "shape", "dtype"} <= t.keys() for t in info["tensors"])


def test_bench_step(yoke):
    rows = yoke("bench", "step", "--model", "lenet,mlp", "--batch", "8,16", "--steps", "2", "--threads", "1", "--json").json["results"]
    assert [(r["model"], r["batch"]) for r in rows] == [("lenet", 8), ("lenet", 16), ("mlp", 8), ("mlp", 16)]
    for row in rows:
        for key in ("precision", "device", "recompute", "samples_per_s", "tflops", "peak_fraction", "peak_memory_bytes"):
            assert key in row
        assert row["step_seconds"]["median"] <= row["step_seconds"]["p95"]


def test_bench_kernels(yoke):
    result = yoke("bench", "kernels", "--rows", 16, "--json").json
    assert result["device"] == "cpu" and result["copy_bytes_per_s"] > 0 and len(result["kernels"]) > 10
    for row in result["kernels"]:
        assert row["copy_fraction"] == pytest.approx(row["bytes"] / row["seconds"] / result["copy_bytes_per_s"])
    assert "of a copy" in yoke("bench", "kernels", "--rows", 16).out


def test_doctor_measures_every_line(yoke):
    checks = {c["name"]: c for c in yoke("doctor", "--json").json["checks"]}
    assert {"yoke", "libtorch", "threads", "matrix multiply", "convolution", "cpu", "memory", "huge pages", "shared memory", "open files",
            "locked memory", "clock", "disk", "disk speed", "mpi (Open MPI)", "mpi (MPICH)", "nccl", "fashion_mnist"} <= checks.keys()
    assert any(name.startswith("cuda") for name in checks)
    for backend in ("local", "shm", "tcp"):
        check = checks[f"backend {backend}"]
        assert check["ok"] and "2 ranks summed 1 MB in" in check["value"], check
    assert not re.match("0x|unknown", checks["cpu"]["value"]), checks["cpu"]
    for check in checks.values():
        assert check.keys() <= {"name", "ok", "value", "hint"}
        assert "yet" not in check["value"]
        assert check["ok"] or check.get("hint"), check  # what is wrong comes with what to do


def test_doctor_is_tidy_at_80_columns_and_names_what_is_ill(yoke, tmp_path):
    def few_files():
        import resource
        resource.setrlimit(resource.RLIMIT_NOFILE, (256, 256))

    result = yoke("doctor", preexec_fn=few_files, cwd=tmp_path)
    assert "\033" not in result.out and all(len(line) <= 80 for line in result.out.splitlines())
    assert re.search(r"^BAD  open files +256 .*\n +too few for many ranks: ulimit -n 65536", result.out, re.MULTILINE), result.out
    assert "to fix, marked BAD" in result.out.splitlines()[-1]


def test_train_eval_export_agree(yoke, tmp_path):
    run, weights = tmp_path / "run", tmp_path / "w.safetensors"
    summary = yoke("train", TINY, "--steps", "30", "--out.dir", run, "--json", "-q").json
    yoke("ckpt", "export", run, "-o", weights)
    evaluated = yoke("eval", TINY, "--init", weights, "--json").json
    assert evaluated["accuracy"] == summary["accuracy"]
    imported = tmp_path / "imported"
    yoke("ckpt", "import", weights, "-o", imported)
    resumed = yoke("train", TINY, "--steps", "5", "--out.dir", imported, "--json", "-q").json
    assert resumed["steps"] == 5 and resumed["resumed_from"] == 0
