"""Rows of the reliability scorecard that rest on fault points alone; `make reliability` walks all of them."""
import json
import subprocess

import pytest
from conftest import ROOT, YOKE, script
from launching import clean_environment


# Elastic jobs whose ranks are killed, stopped, out of memory, sent changed frames, or killed while others recover; parameter servers that are killed or stopped; a
# full disk, values that are not finite, strangers, SIGTERM and SIGUSR1, wrong clocks; collaborative runs; ZeRO; wrong requests; a rank that only sums.
@pytest.mark.parametrize("row", [1, 2, 4, 5, 11, 16, 17, 18, 21, 22, 25, 26, 34, 35, 36, 46, 53, 60, 63, 66, 68, 69, 70, 71, 72, 73, 75, 81, 82, 83, 85])
def test_the_row_holds(row):
    words = ["python3", str(ROOT / "tools/reliability"), "--rows", str(row), "--json"]
    run = subprocess.run(words, capture_output=True, text=True, timeout=300, env=clean_environment() | {"YOKE_BIN": str(YOKE)}, cwd=ROOT)
    result = json.loads(run.stdout)
    assert result["row"] == row and result["ok"] is True, run.stdout + run.stderr


def test_every_row_has_a_bound_and_a_verdict():
    rows = script("reliability")
    assert set(rows.ROWS) == set(rows.NAMES) and set(range(1, 31)) <= set(rows.ROWS)
    assert all(rows.BOUNDS[number][0] for number in rows.ROWS)
    verdict = lambda *words: rows.Row(*words).value["verdict"]
    assert verdict(34, "", "", 1.0, "", True) == "pass" and verdict(34, "", "", 2.5, "", True) == "bounded: 2.5 s"
    assert verdict(34, "", "", 1.0, "", True, "half of it") == "bounded: half of it" and verdict(34, "", "", 2.5, "", True, "half of it") == "bounded: 2.5 s; half of it"
    assert verdict(1, "", "", 1.0, "", False) == "veto" and verdict(2, "", "", 1.0, "", False) == "fails" and verdict(28, "", "", None, "", None) == "-"
    made = [rows.Row(1, "", "", 1.0, "", False).value, rows.Row(2, "", "", 9.0, "", True).value, rows.Row(28, "", "", None, "", None).value]
    assert rows.verdicts(made) == "The scorecard (1 to 30): 2 of 3 rows measured, 0 pass, 1 bounded, 1 fail, not measured here: 28. Vetoes: 1."


def test_a_bad_rule_is_told_before_anything_starts():
    run = subprocess.run([str(YOKE), "run", "--nproc", "2", "true"], capture_output=True, text=True, env=clean_environment(YOKE_FAULT="at=frame.sent:kill"), timeout=60)
    assert run.returncode == 2 and "'frame.sent'" in run.stderr and "frame.send" in run.stderr


def test_the_launcher_tells_that_a_rank_could_not_be_started():
    run = subprocess.run([str(YOKE), "run", "--nproc", "2", "sleep", "600"], capture_output=True, text=True, timeout=60,
                         env=clean_environment(YOKE_FAULT="rank=1,at=launcher.spawn:error"))
    assert run.returncode == 1 and "cannot start rank 1" in run.stderr


def test_a_rank_that_is_stopped_after_it_has_left_does_not_keep_the_job():
    # The sixth frame of rank 0 goes out behind its farewell.
    run = subprocess.run([str(YOKE), "run", "--nproc", "2", str(YOKE.parent / "yoke_rank_program"), "shm", "50", "4000"], capture_output=True, text=True, timeout=60,
                         env=clean_environment(YOKE_FAULT="rank=0,at=frame.send,hit=6:stop"))
    assert run.returncode != 0 and "rank 0" in run.stderr
