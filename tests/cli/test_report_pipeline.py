"""yoke report draws the measured timeline of a pipeline beside the simulated one."""
import json

import pytest


def run_folder(tmp_path, pipeline):
    (tmp_path / "config.toml").write_text("[model]\nname = \"mlp\"\n")
    (tmp_path / "pipeline.json").write_text(pipeline if isinstance(pipeline, str) else json.dumps(pipeline))
    return tmp_path


def gpipe(stages, microbatches, forward, backward, slower=1.0, steps=1, transfer=0.0):
    """What a perfect GPipe run would have measured, `slower` times as long between passes."""
    events, start = [], 1000.0
    for _ in range(steps):
        end = {}
        for b in range(microbatches):
            for s in range(stages):
                begin = max(end.get(("F", s, b - 1), start), end.get(("F", s - 1, b), start - transfer) + transfer)
                end["F", s, b] = begin + forward
                events.append({"rank": s, "stage": s, "kind": "F", "microbatch": b, "start": begin, "end": begin + forward})
        for b in range(microbatches):
            for s in reversed(range(stages)):
                begin = max(end["F", s, microbatches - 1], end.get(("B", s, b - 1), start), end.get(("B", s + 1, b), start - transfer) + transfer)
                end["B", s, b] = begin + backward
                events.append({"rank": s, "stage": s, "kind": "B", "microbatch": b, "start": begin, "end": begin + backward})
        start = max(end.values()) + 5
    for event in events:
        event["start"] *= slower
        event["end"] *= slower
    return {"schedule": "gpipe", "stages": stages, "microbatches": microbatches, "events": events}


@pytest.mark.parametrize("steps,transfer", [(1, 0), (3, 0), (2, 0.25)])
def test_a_perfect_run_is_simulated_exactly(yoke, tmp_path, steps, transfer):
    folder = run_folder(tmp_path, gpipe(3, 4, 1, 2, steps=steps, transfer=transfer))
    pipeline = yoke("report", folder, "--json").json["pipeline"]
    assert pipeline["error_percent"] == pytest.approx(0, abs=1e-6)
    assert pipeline["measured_seconds"] == pytest.approx((4 + 3 - 1) * 3 + 4 * transfer)
    html = (folder / "report.html").read_text()
    assert html.count('class="timeline"') == 1 and "measured: " in html and "simulated: " in html
    assert "+0.0 %" in html or "-0.0 %" in html


def test_the_error_is_printed(yoke, tmp_path):
    data = gpipe(2, 2, 1, 1)
    data["events"][-1]["start"] += 3  # somebody waited
    data["events"][-1]["end"] += 3
    out = yoke("report", run_folder(tmp_path, data)).out
    assert "pipeline: measured 9.00 s, simulated 6.00 s (-33.3 %)" in out


@pytest.mark.parametrize("text,says", [("{", "not valid JSON"), ('{"schedule": "1f1b", "stages": 2, "microbatches": 1, "events": []}', "0 events"),
                                       (json.dumps(gpipe(2, 2, 1, 1) | {"schedule": "none"}), "unknown"),
                                       (json.dumps(gpipe(2, 2, 1, 1) | {"microbatches": 9}), "no minibatch")])
def test_what_cannot_be_drawn_is_said_in_the_report(yoke, tmp_path, text, says):
    folder = run_folder(tmp_path, text)
    result = yoke("report", folder, "--json").json
    assert "pipeline" not in result
    html = (folder / "report.html").read_text()
    assert "pipeline.json cannot be drawn" in html and says in html


def test_a_stretch_of_a_stream_is_compared_with_the_same_stretch(yoke, tmp_path):
    """Passes 40 to 43 of `pipedream` on two stages, in the steady state: F and B in turn, the first stage one ahead."""
    events = []
    for i, b in enumerate(range(40, 44)):
        start = 1000 + 3 * i
        events += [{"rank": 1, "stage": 1, "kind": "F", "microbatch": b, "start": start, "end": start + 1},
                   {"rank": 1, "stage": 1, "kind": "B", "microbatch": b, "start": start + 1, "end": start + 3},
                   {"rank": 0, "stage": 0, "kind": "B", "microbatch": b - 1, "start": start, "end": start + 2},
                   {"rank": 0, "stage": 0, "kind": "F", "microbatch": b + 1, "start": start + 2, "end": start + 3}]
    data = {"schedule": "pipedream", "stages": 2, "microbatches": 4, "events": events}
    pipeline = yoke("report", run_folder(tmp_path, data), "--json").json["pipeline"]
    assert pipeline["measured_seconds"] == pytest.approx(12)
    assert pipeline["error_percent"] == pytest.approx(0, abs=1e-6)
    assert pipeline["simulated_bubble_fraction"] == pytest.approx(0, abs=1e-6)
