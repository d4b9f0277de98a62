"""TensorBoard's own reader finds in our event files what metrics.jsonl says."""

import json
import os
import struct
import subprocess
from pathlib import Path

import numpy as np
import pytest
from tensorboard.backend.event_processing import event_accumulator
from tensorboard.backend.event_processing.event_file_loader import RawEventFileLoader
from tensorboard.compat.proto import event_pb2

ROOT = Path(__file__).resolve().parents[2]
YOKE = Path(os.environ.get("YOKE_BIN", ROOT / "build" / "yoke"))
NOT_SCALARS = {"step", "time", "samples", "split"}


def train(folder, *options):
    command = [YOKE, "train", ROOT / "configs" / "mlp_tiny.toml", "--out.dir", folder, "--out.log_every", "2", *options]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr


def records_of(folder):
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


def scalars_of(folder):
    accumulator = event_accumulator.EventAccumulator(str(folder), size_guidance={event_accumulator.SCALARS: 0})
    accumulator.Reload()
    return {tag: [(e.step, e.value) for e in accumulator.Scalars(tag)] for tag in accumulator.Tags()["scalars"]}


def expected_scalars(records):
    expected = {}
    for record in records:
        values = {key: value for key, value in record.items() if key not in NOT_SCALARS}
        values |= {f"seconds/{phase}": seconds for phase, seconds in record.get("split", {}).items()}
        for tag, value in values.items():
            expected.setdefault(tag, []).append((record["step"], np.float32(np.nan if value is None else value)))
    return expected


def assert_same(folder):
    found, expected = scalars_of(folder), expected_scalars(records_of(folder))
    assert found.keys() == expected.keys()
    for tag, points in expected.items():
        assert [step for step, _ in found[tag]] == [step for step, _ in points], tag
        np.testing.assert_array_equal([value for _, value in found[tag]], [value for _, value in points], err_msg=tag)


@pytest.fixture(scope="module")
def run_folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("run")
    train(folder, "--steps", "20")
    return folder


def test_scalars_equal_the_metrics_file(run_folder):
    assert_same(run_folder)


def test_every_event_has_right_checksums_and_the_first_is_the_version(run_folder):
    # The loader checks both checksums of a record and stops where one is wrong; so all bytes must be accounted for.
    (path,) = run_folder.glob("events.out.tfevents.*")
    events = [event_pb2.Event.FromString(data) for data in RawEventFileLoader(str(path)).Load()]
    assert events[0].file_version == "brain.Event:2"
    assert len([event for event in events if event.HasField("summary")]) == len(records_of(run_folder))
    assert sum(12 + event.ByteSize() + 4 for event in events) == path.stat().st_size


def test_a_flipped_bit_is_noticed(run_folder, tmp_path):
    (path,) = run_folder.glob("events.out.tfevents.*")
    content = bytearray(path.read_bytes())
    (length,) = struct.unpack_from("<Q", content)
    content[12 + length // 2] ^= 1
    (tmp_path / path.name).write_bytes(content)
    assert list(RawEventFileLoader(str(tmp_path / path.name)).Load()) == []


def test_a_resumed_run_shows_each_step_once(tmp_path):
    train(tmp_path, "--steps", "12", "--checkpoint.every_steps", "6")
    train(tmp_path, "--steps", "20", "--checkpoint.every_steps", "6")
    assert len(list(tmp_path.glob("events.out.tfevents.*"))) == 2
    steps = [record["step"] for record in records_of(tmp_path)]
    assert steps == sorted(set(steps))
    assert_same(tmp_path)
