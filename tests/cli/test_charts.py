"""--svg and --html of commands that measure or show: the charts of the labs."""
import json
import xml.etree.ElementTree as xml

import pytest



def check(svg, html, *words):
    assert xml.parse(svg).getroot().tag == "{http://www.w3.org/2000/svg}svg"
    page = html.read_text()
    assert "<script" not in page and "prefers-color-scheme: dark" in page and "<table>" in page and "<figure" in page
    assert "nan" not in page.split("</style>")[-1]
    for word in words:
        assert word in page, word


def test_bench_step_draws_speed_and_memory(yoke, tmp_path):
    svg, html = tmp_path / "a.svg", tmp_path / "a.html"
    yoke("bench", "step", "--model", "mlp", "--batch", "4,16", "--steps", 2, "--threads", 1, "--svg", svg, "--html", html)
    check(svg, html, "samples/s", "peak memory", "yoke bench step")


def test_bench_scaling_draws_the_speed_up(yoke, tmp_path):
    svg, html = tmp_path / "a.svg", tmp_path / "a.html"
    yoke("bench", "scaling", "--model", "mlp", "--nproc", "1,2", "--batch", 8, "--steps", 2, "--svg", svg, "--html", html)
    check(svg, html, "speed-up", "ideal", "exposed communication")


def test_bench_collectives_draws_time_and_bandwidth(yoke, tmp_path):
    svg, html = tmp_path / "a.svg", tmp_path / "a.html"
    yoke("bench", "collectives", "--nproc", 2, "--backend", "tcp", "--bytes", "1K,64K", "--algorithm", "ring,tree", "--iterations", 3,
         "--svg", svg, "--html", html)
    check(svg, html, "ring", "tree", "2 ranks over tcp", "yoke bench collectives --nproc 2")


def test_topo_show_draws_devices_and_rings(yoke, tmp_path):
    svg, html = tmp_path / "a.svg", tmp_path / "a.html"
    yoke("topo", "show", "--preset", "dgx1", "--svg", svg, "--html", html, "--json")
    check(svg, html, "Devices and links", "ring", "all_reduce")


def test_partition_draws_the_graph(yoke, tmp_path):
    graph = tmp_path / "graph.json"
    layers = [{"name": f"layer{i}", "forward": 0.01, "backward": 0.02, "activation_bytes": 1000, "parameter_bytes": 4000} for i in range(4)]
    graph.write_text(json.dumps({"device": "test", "batch": 1, "layers": layers}))
    svg, html = tmp_path / "a.svg", tmp_path / "a.html"
    yoke("partition", graph, "--parts", 2, "--svg", svg, "--html", html)
    check(svg, html, "layer3", "in 2 parts")


@pytest.mark.parametrize("words", [
    ["topo", "show", "--preset", "dgx1"],
    ["bench", "step", "--model", "mlp", "--batch", "4"],
    ["bench", "scaling", "--model", "mlp", "--nproc", "1"],
    ["bench", "collectives", "--nproc", "2"],
])
def test_a_missing_folder_is_refused_before_the_work(yoke, tmp_path, words):
    result = yoke(*words, "--svg", tmp_path / "none" / "a.svg", code=2)
    assert "--svg" in result.err and "there is no folder" in result.err


def test_a_mesh_has_no_figure(yoke, tmp_path):
    assert "it has no figure" in yoke("topo", "show", "--mesh", "data=2", "--svg", tmp_path / "a.svg", code=2).err
