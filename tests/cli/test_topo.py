"""yoke topo: presets, files, this machine, rings, predictions, mistakes."""
import json
import subprocess

import pytest
from conftest import ROOT, YOKE

PRESETS = {"pcie4": 4, "pcie8": 8, "dgx1": 8, "p2.16xlarge": 16, "dgx2": 16, "h100": 8}
OPS = ["all_reduce", "reduce", "reduce_scatter", "all_gather", "all_to_all", "broadcast", "gather", "scatter", "barrier"]


def seconds(document):
    return {(p["op"], p["algorithm"], p["bytes"]): p["seconds"] for p in document["predictions"]}


@pytest.mark.parametrize("command", ["topo show", "topo predict"])
def test_help_has_an_example(yoke, command):
    text = yoke(*command.split(), "--help").out
    assert "Example: yoke " + command in text
    assert len(text.splitlines()) <= 24


@pytest.mark.parametrize("preset,devices", PRESETS.items())
def test_presets(yoke, preset, devices):
    document = yoke("topo", "show", "--preset", preset, "--json").json
    assert document["devices"] == devices
    names = [n["name"] for n in document["nodes"] if n["kind"] == "gpu"]
    assert len(names) == devices
    for link in document["links"]:
        assert link["kind"] in ("nvlink", "pcie", "qpi", "network", "memory")
        assert link["bandwidth"] > 0 and link["latency"] >= 0
    assert document["rings"]
    for ring in document["rings"]:
        assert sorted(ring) == sorted(names)
    assert {p["op"] for p in document["predictions"]} == set(OPS)


def test_rings_of_the_cube_mesh_use_each_nvlink_once(yoke):
    document = yoke("topo", "show", "--preset", "dgx1", "--json").json
    lanes = {}
    for link in document["links"]:
        if link["kind"] == "nvlink":
            lanes[frozenset((link["a"], link["b"]))] = link["width"]
    assert len(document["rings"]) == 3
    for ring in document["rings"]:
        for a, b in zip(ring, ring[1:] + ring[:1]):
            lanes[frozenset((a, b))] -= 1
    assert set(lanes.values()) == {0}
    assert document["rings_both_ways"] and document["ring_bandwidth"] == pytest.approx(150e9)


def test_predictions_follow_sizes_and_algorithms(yoke):
    document = yoke("topo", "predict", "--op", "all_reduce,broadcast", "--bytes", "1K,1GB", "--preset", "dgx1", "--json").json
    by = seconds(document)
    assert by["all_reduce", "ring", 10**9] == pytest.approx(2 * 7 / 8 * 1e9 / 150e9, rel=0.01)
    assert by["all_reduce", "ring", 10**9] < by["all_reduce", "star", 10**9]
    assert by["all_reduce", "direct", 1024] < by["all_reduce", "ring", 1024]
    assert {size for _, _, size in by} == {1024, 10**9}
    assert ("broadcast", "tree", 1024) in by


def test_clusters_of_boxes(yoke):
    words = ["topo", "predict", "--op", "all_reduce", "--bytes", "256MB", "--preset", "pcie8", "--machines", "4", "--json"]
    slow = seconds(yoke(*words, "--network", "10gbit").json)
    fast = seconds(yoke(*words, "--network", "100gbit").json)
    key = ("all_reduce", "hierarchical", 256_000_000)
    assert slow[key] > fast[key]
    document = yoke(*words).json
    assert document["devices"] == 32 and all(len(ring) == 32 for ring in document["rings"])


@pytest.mark.parametrize("file", sorted((ROOT / "examples/clusters").glob("*.toml")), ids=lambda f: f.name)
def test_examples_are_read(yoke, file):
    document = yoke("topo", "show", file, "--json").json
    assert document["devices"] > 1 and document["rings"] and document["predictions"]


def test_this_machine(yoke):
    document = yoke("topo", "show", "--json").json
    assert document["devices"] >= 1
    assert yoke("topo", "show").out


def test_tables_fit_a_terminal(yoke):
    for words in (["show", "--preset", "dgx1", "--machines", "2"], ["show", "--preset", "dgx2"],
                  ["predict", "--op", ",".join(OPS), "--bytes", "64K,1GB", "--preset", "h100", "--machines", "4"]):
        out = yoke("topo", *words).out
        assert out and all(len(line) <= 80 for line in out.splitlines()), out
        assert "\033" not in out and "\r" not in out


def test_starts_without_libtorch():
    linked = subprocess.run(["ldd", str(YOKE)], capture_output=True, text=True).stdout
    assert "torch" not in linked


MISTAKES = [
    (["show", "--preset", "dgx9"], ["preset `dgx9` is unknown. Accepted: pcie4 pcie8 dgx1 p2.16xlarge dgx2 h100"]),
    (["predict", "--op", "allreduce", "--bytes", "1M", "--preset", "dgx1"], ["operation 'allreduce' is unknown", "all_reduce"]),
    (["predict", "--op", "all_reduce", "--bytes", "1M", "--algorithm", "bush", "--preset", "dgx1"],
     ["algorithm 'bush' is unknown", "ring tree halving_doubling star direct hierarchical"]),
    (["predict", "--op", "all_to_all", "--bytes", "1M", "--algorithm", "ring", "--preset", "dgx1"],
     ["all_to_all has no ring form. Accepted: direct"]),
    (["predict", "--op", "all_reduce", "--bytes", "much", "--preset", "dgx1"], ["--bytes much"]),
    (["predict", "--bytes", "1M", "--preset", "dgx1"], ["--op is required"]),
    (["show", "no_such.toml"], ["no_such.toml"]),
    (["show", "examples/clusters/dgx1_x4.toml", "--preset", "dgx1"], ["use one of them"]),
    (["show", "--machines", "3"], ["need --preset"]),
    (["show", "--preset", "dgx1", "--machines", "0"], ["--machines 0"]),
    (["show", "--preset", "h100", "--machines", "1000"], ["at most 512"]),
    (["show", "--preset", "dgx1", "--machines", "2", "--network", "fast"], ["--network fast"]),
    (["show", "--preset", "dgx1", "--train.lr", "1"], ["takes no configuration keys"]),
]


@pytest.mark.parametrize("words,says", MISTAKES, ids=[" ".join(words) for words, _ in MISTAKES])
def test_mistakes(yoke, words, says):
    result = yoke("topo", *words, code=2)
    assert result.out == ""
    for text in says:
        assert text in result.err
    failed = yoke("topo", *words, "--json", code=2)
    assert json.loads(failed.out)["exit_code"] == 2 if failed.out else True


FILES = [
    ("[[device]\n", ["c.toml:1", "not valid TOML"]),
    ("[cluster]\nprest = \"dgx1\"\n", ["c.toml:2", "Did you mean `preset`?"]),
    ("[[device]]\nname = \"a\"\nkind = \"tpu\"\n", ["c.toml:3", "gpu cpu switch nic"]),
    ("[[device]]\nname = \"a\"\n[[device]]\nname = \"b\"\n", ["no route from a to b"]),
]


@pytest.mark.parametrize("text,says", FILES, ids=[repr(text) for text, _ in FILES])
def test_mistakes_in_the_file(yoke, tmp_path, text, says):
    path = tmp_path / "c.toml"
    path.write_text(text)
    result = yoke("topo", "show", path, code=2)
    for part in says:
        assert part in result.err
