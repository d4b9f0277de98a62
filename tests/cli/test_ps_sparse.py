"""Sparse logistic regression on parameter servers: workers push and pull only the rows of a minibatch (`ps.sparse`)."""
import json
import shutil

import pytest
from conftest import ROOT

SPARSE = ROOT / "configs/sparse_lr.toml"


def served(*words, workers=2, servers=1):
    return ["train", SPARSE, "--nproc", workers, "--parallel.sync", "ps", "--ps.servers", servers, "--train.threads", 1, "--json", "-q", *words]


@pytest.mark.parametrize("optimizer", [["sgd", "--train.momentum", 0], ["adagrad"], ["ftrl", "--train.l1", 0.002, "--train.l2", 0.01],
                                       ["proximal", "--train.l1", 0.002, "--train.l2", 0.5]], ids=lambda words: words[0])
def test_rows_alone_equal_one_device(yoke, optimizer):
    result = yoke("verify", SPARSE, "--layouts", "data=1,sync=ps; data=2,sync=ps,servers=2; data=4,sync=ps,servers=3,accumulate=2; "
                  "data=2,sync=ps,policy=bounded_delay", "--ps.sparse", "on", "--train.optimizer", *optimizer, "--steps", 5, "--json", "-q").json
    assert result["ok"]
    for row in result["layouts"]:
        assert row["max_diff"]["parameter"] < 1e-10 and row["max_diff"]["loss"] < 1e-10


def libsvm(folder, rows=64, features=1000):
    """Rows of three features each, and the features of each row."""
    lines = []
    for i in range(rows):
        keys = sorted({1 + (7 * i) % features, 1 + (i * i) % features, 1 + (13 * i + 500) % features})
        lines.append((keys, f"{1 if i % 3 == 0 else -1} " + " ".join(f"{key}:{1 + key % 3}" for key in keys)))
    (folder / "train.libsvm").write_text("\n".join(line for _, line in lines) + "\n")
    return [keys for keys, _ in lines]


@pytest.mark.parametrize("cache", [True, False])
def test_bytes_are_those_of_the_keys_of_each_minibatch(yoke, tmp_path, cache):
    keys = libsvm(tmp_path)
    words = ["--data.name", "libsvm", "--data.dir", tmp_path, "--model.features", 1000, "--data.shuffle", "false", "--data.batch_size", 8,
             "--train.epochs", 1, "--ps.key_cache", str(cache).lower(), "--out.dir", tmp_path / "out", "--checkpoint.every_steps", 0]
    summary = yoke(*served(*words, workers=1)).json
    steps = [set(key for row in keys[at:at + 8] for key in row) for at in range(0, 64, 8)]
    touched = sum(len(step) for step in steps)
    # Keys to pull, then keys (unless the server has the list) and values to push; the dense bias besides.
    expected = touched * 8 + touched * (0 if cache else 8) + touched * 4
    moved = json.loads((tmp_path / "out/ps.json").read_text())["sparse"]
    assert moved["bytes_sent"] == expected
    assert moved["key_cache_saved"] == (touched * 8 if cache else 0)
    assert summary["steps"] == len(steps)


def test_every_worker_counts_what_filters_saved(yoke, tmp_path):
    words = ["--ps.random_skip", 0.3, "--ps.fixed_point", "int16", "--train.optimizer", "sgd", "--train.momentum", 0, "--steps", 30]
    yoke(*served(*words, "--out.dir", tmp_path, workers=3, servers=2))
    counted = json.loads((tmp_path / "ps.json").read_text())["sparse"]
    assert [one["worker"] for one in counted["workers"]] == [0, 1, 2]
    for key in counted.keys() - {"workers"}:
        assert counted[key] == sum(one[key] for one in counted["workers"])
    for one in counted["workers"]:
        assert one["rows_skipped"] > 0 and one["fixed_point_saved"] > 0 and one["messages"] > 0
    yoke("report", tmp_path)
    assert f'<td class="num">{counted["rows_skipped"]}</td>' in (tmp_path / "report.html").read_text()


@pytest.mark.parametrize("rule,ahead", [("sync", 29), ("async", 0)])
def test_rows_of_the_next_minibatch_are_asked_for_ahead(yoke, tmp_path, rule, ahead):
    words = ["--steps", 30, "--ps.policy", rule, "--data.workers", 0, "--out.dir", tmp_path / "out"]
    yoke(*served(*words, workers=1, servers=2))
    assert json.loads((tmp_path / "out/ps.json").read_text())["sparse"]["pulled_ahead"] == ahead


def test_fixed_point_pushes_fewer_bytes_and_learns(yoke, tmp_path):
    losses = {}
    for kind, size in [("none", 4), ("int16", 2), ("int8", 1)]:
        out = tmp_path / kind
        summary = yoke(*served("--ps.fixed_point", kind, "--steps", 60, "--out.dir", out)).json
        moved = json.loads((out / "ps.json").read_text())["sparse"]
        assert (moved["fixed_point_saved"] > 0) == (kind != "none")
        losses[kind] = summary["eval_loss"]
    assert losses["int16"] == pytest.approx(losses["none"], rel=0.02)
    assert losses["int8"] == pytest.approx(losses["none"], rel=0.1)


def test_compression_changes_the_bytes_and_not_the_result(yoke, tmp_path):
    runs = {}
    for name, words in {"plain": [], "packed": ["--ps.compress", "true"]}.items():
        out = tmp_path / name
        summary = yoke(*served("--ps.fixed_point", "int8", *words, "--steps", 20, "--out.dir", out)).json
        runs[name] = summary["final_loss"], json.loads((out / "ps.json").read_text())["sparse"]
    assert runs["plain"][0] == runs["packed"][0]
    assert runs["plain"][1]["compress_saved"] == 0 < runs["packed"][1]["compress_saved"]
    both = {name: moved["bytes_sent"] + moved["bytes_received"] for name, (_, moved) in runs.items()}
    assert both["packed"] + runs["packed"][1]["compress_saved"] == both["plain"]


@pytest.mark.parametrize("filters, counted", [(["--ps.significant", 0.0005], "rows_held_back"), (["--ps.random_skip", 0.5], "rows_skipped"),
                                              (["--ps.significant", 0.0005, "--ps.random_skip", 0.3, "--ps.fixed_point", "int16"], "rows_skipped")])
def test_filters_push_fewer_rows_and_learn(yoke, tmp_path, filters, counted):
    words = ["--steps", 120, "--train.optimizer", "sgd", "--train.momentum", 0, "--train.lr", 1]
    plain = yoke(*served(*words, "--out.dir", tmp_path / "plain")).json
    filtered = yoke(*served(*words, *filters, "--out.dir", tmp_path / "filtered")).json
    moved = [json.loads((tmp_path / name / "ps.json").read_text())["sparse"] for name in ("plain", "filtered")]
    assert moved[0][counted] == 0 < moved[1][counted]
    start = 0.693  # all weights are zero
    assert start - filtered["eval_loss"] > 0.7 * (start - plain["eval_loss"]) > 0


def test_kkt_leaves_out_what_would_stay_zero(yoke, tmp_path):
    words = ["--train.optimizer", "proximal", "--train.l1", 0.001, "--train.lr", 2, "--ps.key_cache", "false", "--steps", 120]
    runs = {}
    for workers in (1, 2):
        for kkt in ("false", "true"):
            out = tmp_path / f"{workers}-{kkt}"
            summary = yoke(*served(*words, "--ps.kkt", kkt, "--out.dir", out, workers=workers)).json
            runs[workers, kkt] = summary, json.loads((out / "ps.json").read_text())["sparse"]
        (plain, all_rows), (filtered, moved) = runs[workers, "false"], runs[workers, "true"]
        assert all_rows["rows_kept_zero"] == 0 < moved["rows_kept_zero"]
        assert moved["bytes_sent"] < all_rows["bytes_sent"]
        if workers == 1:
            assert (filtered["final_loss"], filtered["eval_loss"]) == (plain["final_loss"], plain["eval_loss"])
        assert filtered["eval_loss"] == pytest.approx(plain["eval_loss"], rel=0.02) and plain["eval_loss"] < 0.69
    refused = yoke(*served("--train.optimizer", "proximal", "--ps.kkt", "true", "--steps", 2, "--out.dir", tmp_path / "none"), code=2).err
    assert "ps.kkt" in refused and "train.l1" in refused


@pytest.mark.parametrize("rule", ["sync", "k_sync", "k_batch_sync", "async", "k_async", "k_batch_async", "bounded_delay", "ssp"])
def test_every_rule_trains_in_tables(yoke, tmp_path, rule):
    summary = yoke(*served("--ps.policy", rule, "--ps.k", 2, "--ps.max_delay", 1, "--steps", 60, "--out.dir", tmp_path, workers=3, servers=2)).json
    assert summary["steps"] == 60 and summary["eval_loss"] < 0.69
    assert json.loads((tmp_path / "ps.json").read_text())["sparse"]["messages"] > 0


@pytest.mark.parametrize("optimizer", [[], ["--train.optimizer", "ftrl", "--train.l1", 0.002], ["--train.optimizer", "proximal", "--train.l1", 0.002, "--train.l2", 0.1]],
                         ids=["adagrad", "ftrl", "proximal"])
def test_a_run_resumes_with_tables_and_without(yoke, tmp_path, optimizer):
    whole = yoke(*served("--steps", 20, "--out.dir", tmp_path / "whole", *optimizer, servers=2)).json
    yoke(*served("--steps", 10, "--out.dir", tmp_path / "half", "--checkpoint.every_steps", 10, *optimizer, servers=2))
    resumed = {}
    for name, words in {"tables": [], "dense": ["--ps.sparse", "off"]}.items():
        out = tmp_path / name
        shutil.copytree(tmp_path / "half", out)
        resumed[name] = yoke(*served("--steps", 20, "--out.dir", out, *words, *optimizer, servers=2)).json
        assert resumed[name]["resumed_from"] == 10
    if "proximal" in optimizer:  # a checkpoint takes the penalties off all rows, which rounds
        assert resumed["tables"]["eval_loss"] == pytest.approx(whole["eval_loss"], rel=1e-6)
    else:
        assert resumed["tables"]["parameter_hash"] == whole["parameter_hash"]
    assert resumed["dense"]["eval_loss"] == pytest.approx(whole["eval_loss"], rel=1e-5)
    yoke("ckpt", "export", tmp_path / "tables", "-o", tmp_path / "weights.safetensors")
    assert (tmp_path / "weights.safetensors").stat().st_size > 4096 * 4


@pytest.mark.parametrize("words, key", [(["--train.optimizer", "sgd"], "train.momentum"), (["--train.optimizer", "lion"], "lion"), (["--train.weight_decay", 0.1], "train.weight_decay"),
                                        (["--train.clip_norm", 1], "train.clip_norm"), (["--ps.n_push", 2, "--ps.policy", "async"], "ps.n_push")])
def test_what_needs_all_rows_is_refused(yoke, tmp_path, words, key):
    error = yoke(*served("--ps.sparse", "on", "--steps", 2, "--out.dir", tmp_path, *words), code=2).err
    assert "ps.sparse" in error and key in error


def test_automatic_is_dense_where_other_rows_move(yoke, tmp_path):
    yoke(*served("--train.optimizer", "sgd", "--steps", 2, "--out.dir", tmp_path))
    assert "sparse" not in json.loads((tmp_path / "ps.json").read_text())


def test_servers_inside_workers_end_with_the_same_parameters(yoke, tmp_path):
    hashes = {yoke(*served("--ps.sparse", "on", "--ps.place", place, "--steps", 20, "--out.dir", tmp_path / place, servers=2)).json["parameter_hash"]
              for place in ("dedicated", "colocated")}
    assert len(hashes) == 1
