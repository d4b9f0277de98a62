"""Machines of an elastic job that get SIGTERM: one of them leaves, all of them stop the job."""
import json
import signal
import time

from test_coordinator_returns import free_port, machines  # noqa: F401

SPREAD = 3  # seconds that a rank with a signal trains on, in case the others get it too


def started(machines, **more):  # noqa: F811
    endpoint = ["--rdzv-endpoint", f"127.0.0.1:{free_port()}"]
    for machine in (0, 1):
        machines.start(machine, *endpoint, steps=10**7, **more)
    machines.wait_for_step(20)


def test_signals_that_arrive_seconds_apart_stop_the_whole_job(machines):  # noqa: F811
    started(machines, each=2)
    machines.jobs[1].signal(signal.SIGTERM)
    begin = time.monotonic()
    time.sleep(SPREAD / 3)
    machines.jobs[0].signal(signal.SIGTERM)
    apart = time.monotonic() - begin
    assert [job.wait(60) for job in machines.jobs.values()] == [128 + signal.SIGTERM] * 2, f"{apart:.1f} s apart\n{machines.errors()}"
    summary = json.loads((machines.run / "summary.json").read_text())
    assert summary["world_size"] == 4 and summary["elastic"]["epochs"] == 1
    saved = [int(path.name.split("-")[1]) for path in (machines.run / "checkpoints").glob("step-*[0-9]")]
    assert max(saved) == summary["steps"], machines.errors()
    assert "leaves after step" not in machines.errors() and "have left the job" not in machines.errors()


def test_those_that_are_signalled_together_leave_together(machines):  # noqa: F811
    """Two of three machines; the third trains on."""
    endpoint = ["--rdzv-endpoint", f"127.0.0.1:{free_port()}"]
    for machine in range(3):
        machines.start(machine, *endpoint, machines=3, steps=10**7)
    machines.wait_for_step(20)
    leaving = [machines.jobs.pop(machine) for machine in (1, 2)]
    for job in leaving:
        job.signal(signal.SIGTERM)
    assert [job.wait(60) for job in leaving] == [0, 0], "".join(job.err for job in leaving)
    assert all("the ranks of this machine have left the job. Next: run the same command again" in job.err for job in leaving)
    step = machines.records()[-1]["step"]
    machines.wait_for_step(step + 20)
    machines.jobs[0].signal(signal.SIGTERM)
    assert machines.jobs[0].wait(60) == 128 + signal.SIGTERM
    elastic = json.loads((machines.run / "summary.json").read_text())["elastic"]
    assert elastic["epochs"] == 2 and elastic["losses"] == 0 and elastic["repeated"] == 0
    assert "error" not in machines.errors()


def test_one_machine_alone_stops_at_once(machines):  # noqa: F811
    endpoint = ["--rdzv-endpoint", f"127.0.0.1:{free_port()}"]
    machines.start(0, *endpoint, machines=1, each=2, steps=10**7)
    machines.wait_for_step(20)
    at = machines.records()[-1]["step"]
    machines.jobs[0].signal(signal.SIGTERM)
    assert machines.jobs[0].wait(60) == 128 + signal.SIGTERM
    assert json.loads((machines.run / "summary.json").read_text())["elastic"]["epochs"] == 1 and machines.records()[-1]["step"] >= at
