"""yoke partition: parts, balance, what crosses, the picture, mistakes."""
import itertools
import json
import random
import xml.dom.minidom

import pytest
from conftest import ROOT

PROFILES = ROOT / "tests/data/pipedream"


def network(path, weights, outputs, edges=None):
    layers = [{"name": f"n{i}", "forward": w / 3, "backward": 2 * w / 3, "activation_bytes": a, "parameter_bytes": 8}
              for i, (w, a) in enumerate(zip(weights, outputs))]
    path.write_text(json.dumps({"layers": layers} | ({"edges": edges} if edges else {})))
    return path


def crossing(part_of, outputs, edges):
    return sum(outputs[source] for source, _ in {(a, part_of[b]) for a, b in edges if part_of[a] != part_of[b]})


def parts_of(answer, count):
    part_of = [None] * count
    for number, part in enumerate(answer["parts"]):
        for node in part["nodes"]:
            assert part_of[node] is None
            part_of[node] = number
    assert None not in part_of
    return part_of


def test_small_graphs_equal_trying_everything(yoke, tmp_path):
    draw = random.Random(4)
    for case in range(12):
        count, parts, balance = 7, draw.choice([2, 3]), draw.choice([1.1, 1.4])
        weights, outputs = [draw.randint(1, 2) for _ in range(count)], [draw.randint(0, 30) for _ in range(count)]
        edges = sorted({(draw.randrange(b), b) for b in range(1, count) for _ in range(2)})
        limit = balance * sum(weights) / parts * (1 + 1e-9)
        best = min((crossing(p, outputs, edges) for p in itertools.product(range(parts), repeat=count)
                    if max(sum(w for w, q in zip(weights, p) if q == k) for k in range(parts)) <= limit), default=None)
        words = ["partition", network(tmp_path / "g.json", weights, outputs, edges), "--parts", parts, "--balance", balance, "--json"]
        if best is None:
            assert "use --balance" in yoke(*words, code=2).err
            continue
        answer = yoke(*words).json
        assert answer["cut_bytes"] == best and answer["optimal"], case
        assert crossing(parts_of(answer, count), outputs, edges) == best
        assert len(answer["parts"]) == parts and max(p["weight"] for p in answer["parts"]) <= limit


def test_a_picture_and_a_table(yoke, tmp_path):
    graph = network(tmp_path / "chain.json", [1] * 6, [9, 9, 1, 9, 9, 0])
    text = yoke("partition", graph, "--parts", 2, "--svg", tmp_path / "g.svg").out
    assert "1 B cross machines" in text and "0-2" in text and "\033" not in text
    svg = xml.dom.minidom.parse(str(tmp_path / "g.svg"))
    assert len(svg.getElementsByTagName("circle")) == 6 and len(svg.getElementsByTagName("line")) == 5


def test_the_seed_decides(yoke, tmp_path):
    draw = random.Random(1)
    count = 150
    edges = sorted({(draw.randrange(max(0, b - 20), b), b) for b in range(1, count) for _ in range(3)})
    graph = network(tmp_path / "g.json", [draw.randint(1, 9) for _ in range(count)], [draw.randint(1, 99) for _ in range(count)], edges)
    words = ["partition", graph, "--parts", 8, "--json", "--seed", 3]
    first = yoke(*words)
    assert first.out == yoke(*words).out
    assert first.json["balance"] <= 1.1 + 1e-6


@pytest.mark.parametrize("name", ["vgg16", "resnet50", "inception_v3", "gnmt"])
def test_published_graphs(yoke, name):
    answer = yoke("partition", PROFILES / f"{name}.json", "--parts", 4, "--balance", 1.2, "--json").json
    assert answer["balance"] <= 1.2 + 1e-6 and len(answer["parts"]) == 4 and answer["cut_bytes"] > 0


MISTAKES = [
    (["--parts", "0"], ["--parts 0"]),
    (["--parts", "-3"], ["--parts"]),
    (["--parts", "2", "--balance", "0.5"], ["--balance 0.5", "at least 1"]),
    (["--parts", "2", "--balance", "nan"], ["--balance"]),
    (["--parts", "2", "--weight", "colour"], ["seconds parameters nodes"]),
    (["--parts", "5"], ["--balance 1.1", "use --balance"]),
    ([], ["--parts"]),
]


@pytest.mark.parametrize("words,says", MISTAKES, ids=[" ".join(words) for words, _ in MISTAKES])
def test_mistakes(yoke, tmp_path, words, says):
    result = yoke("partition", network(tmp_path / "g.json", [1] * 6, [1] * 6), *words, code=2)
    assert result.out == ""
    for text in says:
        assert text in result.err


def test_files_that_are_none(yoke, tmp_path):
    assert "nowhere.json" in yoke("partition", tmp_path / "nowhere.json", "--parts", 2, code=2).err
    bad = tmp_path / "bad.json"
    bad.write_text('{"layers": [{"forward": 1, "backward": 1, "activation_bytes": 1, "parameter_bytes": 1}], "edges": [[0, 0]]}')
    assert "edge [0, 0]" in yoke("partition", bad, "--parts", 2, code=2).err


def test_graphs_that_share_nothing_or_one_thing_are_divided_too(yoke, tmp_path):
    count = 20000
    star = network(tmp_path / "star.json", [1] * count, [5] * count, [[0, i] for i in range(1, count)])
    answer = yoke("partition", star, "--parts", 4, "--json", timeout=120).json
    assert answer["cut_bytes"] == 15 and answer["balance"] <= 1.1
    loose = network(tmp_path / "loose.json", [1] * count, [5] * count, [[0, 1]])
    answer = yoke("partition", loose, "--parts", 4, "--json", timeout=120).json
    assert answer["cut_bytes"] == 0 and answer["balance"] <= 1.1
