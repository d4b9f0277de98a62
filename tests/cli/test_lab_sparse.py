"""`yoke lab sparse`: sparse logistic regression over parameter servers, beside a reference solver."""
import json

import numpy as np
import pytest


def write_libsvm(path, examples, features, seed):
    """Sparse rows with a power law, labels from a few weights, as libsvm text and as a dense array."""
    random = np.random.default_rng(seed)
    weights = np.zeros(features)
    weights[:12] = random.normal(size=12) * 2
    rows = np.zeros((examples, features), dtype=np.float64)
    for row in rows:
        picked = np.unique(np.minimum(features - 1, (features ** random.random(10)).astype(int) - 1))
        row[picked] = np.round(random.random(len(picked)) + 0.5, 3)
    labels = np.where(random.random(examples) < 1 / (1 + np.exp(-rows @ weights)), 1, -1)
    lines = [f"{label:+d} " + " ".join(f"{i + 1}:{row[i]:g}" for i in np.flatnonzero(row)) for label, row in zip(labels, rows)]
    path.write_text("\n".join(lines) + "\n")
    return rows, labels


def weights_in(folder, features):
    weights = np.zeros(features)
    for line in (folder / "weights.txt").read_text().splitlines():
        key, value = line.split()
        weights[int(key) - 1] = float(value)
    return weights


def objective(rows, labels, weights, l1):
    return np.logaddexp(0, -labels * (rows @ weights)).sum() + l1 * np.abs(weights).sum()


@pytest.mark.parametrize("delay", [0, 4])
def test_equals_liblinear(yoke, tmp_path, delay):
    linear_model = pytest.importorskip("sklearn.linear_model")
    rows, labels = write_libsvm(tmp_path / "data.txt", 600, 150, seed=4)
    l1 = 4
    found = yoke("lab", "sparse", tmp_path / "data.txt", "--keys", 150, "--blocks", 15, "--l1", l1, "--passes", 150, "--workers", 3, "--max-delay", delay,
                 "-o", tmp_path / "lab", "--json").json
    # liblinear minimises |w|_1 + C sum of losses.
    reference = linear_model.LogisticRegression(l1_ratio=1, solver="liblinear", C=1 / l1, fit_intercept=False, tol=1e-8, max_iter=10000)
    wanted = reference.fit(rows, labels).coef_[0]
    own = weights_in(tmp_path / "lab", 150)
    best = objective(rows, labels, wanted, l1)
    assert found["results"][0]["objective"] == pytest.approx(objective(rows, labels, own, l1), rel=1e-6)  # the file has fp32
    assert found["results"][0]["objective"] == pytest.approx(best, rel=1e-4)
    assert np.mean((own != 0) == (np.abs(wanted) > 1e-6)) >= 0.99


def test_delays_and_filters_are_compared(yoke, tmp_path):
    found = yoke("lab", "sparse", "--examples", 2000, "--keys", 20000, "--blocks", 8, "--passes", 10, "--workers", 2, "--max-delay", "0,2", "-o", tmp_path, "--json").json
    assert [row["max_delay"] for row in found["results"]] == [0, 2]
    for row in found["results"]:
        assert row["objective"] <= found["target_objective"] and row["seconds_to_target"] > 0
        assert len(row["workers"]) == 2 and len(row["curve"]) == 10
    filters = {row["filters"]: row for row in found["filters"]}
    assert list(filters) == ["none", "key cache", "+ zstd", "+ KKT"]
    # Of each pushed key 24 bytes, of each pulled one 16; the lists of keys are the same in each pass.
    plain, cached = filters["none"], filters["key cache"]
    keys = plain["bytes_received"] / 8
    assert plain["bytes_sent"] == keys * (24 + 8)
    assert keys * 16 < cached["bytes_sent"] < keys * 20 and cached["bytes_received"] == plain["bytes_received"]
    assert filters["+ zstd"]["bytes_received"] < plain["bytes_received"] / 5
    assert filters["+ KKT"]["bytes_sent"] < filters["+ zstd"]["bytes_sent"]
    assert found["kkt_left_out"] > 0.5
    page = (tmp_path / "report.html").read_text()
    assert page.count("<svg") == 3 and "Traffic by filter" in page
    assert len((tmp_path / "results.csv").read_text().splitlines()) == 1 + 2 * 10
    assert json.loads((tmp_path / "results.json").read_text())["l1"] == 4


def test_help_is_one_screen(yoke):
    lines = yoke("lab", "sparse", "--help").out.splitlines()
    assert len(lines) <= 28 and all(len(line) <= 110 for line in lines)


@pytest.mark.parametrize(
    "words, message",
    [
        (["--max-delay", "0,x"], "--max-delay x: expected numbers from 0 to 10000"),
        (["--delay", "expo:1ms"], "expo"),
        (["--delay-workers", "9"], "--delay-workers"),
        (["--examples", "2"], "2 examples for 4 workers"),
        (["nowhere.txt"], "nowhere.txt"),
        (["--l1", "-1"], "--l1"),
    ],
)
def test_bad_input_is_named(yoke, tmp_path, words, message):
    failed = yoke("lab", "sparse", *words, "-o", tmp_path, code=2)
    assert message in failed.err
