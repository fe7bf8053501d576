"""Runs of two and three processes that differ, wait, fail or die: all of them end, soon and with the cause.

Expected are the seconds of a person who waits for a command: LIMIT, on a busy machine with the start of TensorFlow.
"""

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import keras
import numpy as np
import pytest
from PIL import Image
from processes import script

LIMIT = 30  # seconds from a failure to the end of the last process
START = 240  # seconds for a start on a busy machine
SMALL = (
    "--architecture.depth 1 --architecture.width 12 --architecture.mlp-dim 24 --architecture.num-heads 3 "
    "--data.batch-size 12 --run.steps-per-execution 1 --run.epoch-steps 5 --run.checkpoint-steps 5 --run.precision "
    "float32 --optimizer.warmup-steps 2 --run.strategy multi-worker --run.folder"
).split()
BACKENDS = [pytest.param("tensorflow", marks=pytest.mark.extended), pytest.param("jax", marks=pytest.mark.extended)]
both = pytest.mark.parametrize("backend", BACKENDS)
pytestmark = pytest.mark.slow


class Processes:
    """The processes of one run, which a server with all imports forks."""

    def __init__(self, server, backend, folder, count=2):
        self.server, self.folder, self.count = server, folder, count
        sockets = [socket.create_server(("localhost", 0)) for _ in range(count)]
        self.ports = [free.getsockname()[1] for free in sockets]
        for free in sockets:
            free.close()
        addresses = [f"127.0.0.1:{port}" for port in self.ports]
        if backend == "jax":
            first = {"KERAS_DISTRIBUTION_JOB_ADDRESSES": addresses[0], "KERAS_DISTRIBUTION_NUM_PROCESSES": str(count)}
            self.environments = [{**first, "KERAS_DISTRIBUTION_PROCESS_ID": str(index)} for index in range(count)]
        else:
            tasks = [{"type": "worker", "index": index} for index in range(count)]
            configs = [{"cluster": {"worker": addresses}, "task": task} for task in tasks]
            self.environments = [{"TF_CONFIG": json.dumps(config)} for config in configs]
        self.started = []

    def start(self, index, *more, recipe="digits-masked-patch", command=None, before=""):
        own = self.folder / str(index)
        own.mkdir(exist_ok=True)
        small = SMALL if recipe == "digits-masked-patch" else SMALL[8:]  # weights determine the architecture
        arguments = command or ["train", recipe, *small, str(self.folder / "run"), *more]
        line = {"log": str(self.log(index)), "environment": self.environments[index], "folder": str(own)}
        self.server.stdin.write(json.dumps({**line, "arguments": arguments, "before": before}) + "\n")
        self.server.stdin.flush()
        self.started.append(index)

    def log(self, index) -> Path:
        return self.folder / f"{index}.log"

    def text(self, index) -> str:
        return self.log(index).read_text(errors="replace") if self.log(index).exists() else ""

    def status(self, index):
        file = Path(f"{self.log(index)}.status")
        return int(file.read_text()) if file.exists() else None

    def until(self, index, words):
        """Waits until a process has printed some words."""
        end = time.monotonic() + START
        while words not in self.text(index):
            assert self.status(index) is None and time.monotonic() < end, self.text(index)[-3000:]
            time.sleep(0.1)

    def send(self, index, number):
        os.kill(int(Path(f"{self.log(index)}.pid").read_text()), number)

    def ends(self, seconds=LIMIT) -> tuple[list, float]:
        """The statuses of all, and the seconds until the last one has ended; kills those that have not."""
        begun = time.monotonic()
        while any(self.status(index) is None for index in self.started) and time.monotonic() < begun + seconds:
            time.sleep(0.1)
        statuses, taken = [self.status(index) for index in self.started], time.monotonic() - begun
        for index in self.started:
            if self.status(index) is None:
                self.send(index, signal.SIGKILL)
        print(f"{statuses} after {taken:.1f} s")
        return statuses, taken


@pytest.fixture(scope="module")
def servers():
    running = {}

    def server(backend):
        if backend not in running:
            environment = {**os.environ, "KERAS_BACKEND": backend, "JAX_PLATFORMS": "cpu", "CUDA_VISIBLE_DEVICES": ""}
            environment.pop("XLA_FLAGS", None)
            command = script(Path(__file__).parents[1] / "fork_server.py")
            pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
            running[backend] = subprocess.Popen(command, env=environment, **pipes)
            assert running[backend].stdout.readline() == "ready\n"
        return running[backend]

    yield server
    for process in running.values():
        process.stdin.close()
        process.stdout.close()
        process.wait()


@pytest.fixture
def processes(servers, tmp_path):
    groups = []

    def create(backend, count=2):
        groups.append(Processes(servers(backend), backend, tmp_path, count))
        return groups[-1]

    yield create
    for group in groups:
        for index in group.started:
            if group.status(index) is None:
                group.send(index, signal.SIGKILL)


def message(text) -> str:
    """The line of the command's error."""
    found = re.findall(r"^keras-vit: (.*)$", text, re.M)
    assert len(found) == 1, text[-3000:]
    return found[0]


@pytest.mark.parametrize("backend", [BACKENDS[0], "jax"])
def test_another_learning_rate_ends_all_before_the_first_step(backend, processes):
    group = processes(backend)
    group.start(0, "--total-steps", "10")
    group.start(1, "--total-steps", "12", "--optimizer.learning-rate", "0.01")
    assert group.ends(START)[0] == [1, 1]
    for index in range(2):
        text = message(group.text(index))
        assert "total_steps: 10 in process 0, 12 in process 1" in text
        assert "optimizer.learning_rate: 0.001 in process 0, 0.01 in process 1" in text
    assert not list((group.folder / "run").glob("*"))


def write_images(folder, count):
    """Images of two classes in folders of their names."""
    random = np.random.default_rng(0)
    for number in range(count):
        file = folder / "photos" / ("cat" if number % 2 else "dog") / f"{number}.png"
        file.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(random.integers(0, 256, (8, 8, 3), "uint8")).save(file)


@both
@pytest.mark.parametrize("case", ["image", "version", "weights"])
def test_other_data_versions_or_weights_end_all(backend, case, processes, toy):
    group = processes(backend)
    more, before, expected = ["--total-steps", "10"], ["", ""], ""
    if case == "image":
        for index, count in enumerate((40, 39)):
            write_images(group.folder / str(index), count)
        more += ["--data.dataset", "folder:photos", "--data.train-split", "train", "--data.batch-size", "4"]
        expected = "the images of each split: {'train': 31} in process 0, {'train': 30} in process 1"  # by hashes
    elif case == "version":
        before[1] = "import keras_vit.recipes.runs.agreement as a; a.__version__ = '0.0'"
        expected = "'0.0' in process 1"
    else:
        for index in range(2):
            keras.utils.set_random_seed(index)
            (group.folder / str(index)).mkdir()
            toy().save(group.folder / str(index) / "model.keras")
        more = ["--weights", "model.keras", "--total-steps", "10"]
        expected = "the file of the weights (SHA-256): "
    recipe = "digits-finetune" if case == "weights" else "digits-masked-patch"
    for index in range(2):
        group.start(index, *more, recipe=recipe, before=before[index])
    assert group.ends(START)[0] == [1, 1]
    assert all(expected in message(group.text(index)) for index in range(2))


@both
def test_a_missing_process_is_named_and_the_wait_ends(backend, processes):
    group = processes(backend)
    group.start(0, "--total-steps", "10", "--run.join-seconds", "12")
    name = f"worker 1 at 127.0.0.1:{group.ports[1]}" if backend == "tensorflow" else f"127.0.0.1:{group.ports[0]}"
    group.until(0, "is waiting for")
    assert re.search(f"(?i)(worker|process) 0.* is waiting for .*{name}", group.text(0))
    statuses, _ = group.ends()
    assert statuses == [1] and "run.join_seconds" in group.text(0)


@both
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_the_wait_for_a_missing_process(backend, number, processes):
    group = processes(backend)
    group.start(1)
    group.until(1, "is waiting for")
    group.send(1, number)
    statuses, seconds = group.ends()
    assert statuses in ([-number], [128 + number]) and seconds < LIMIT


@both
def test_a_port_that_is_in_use_is_named(backend, processes):
    group = processes(backend)
    with socket.create_server(("", group.ports[0])):
        group.start(0)
        statuses, _ = group.ends(START)
    assert statuses == [1] and f"port {group.ports[0]} " in message(group.text(0))


EARLY = """import keras_vit.recipes.runs.run_data as m
def fail(*_): raise OSError('no such disk')
m.open_dataset = fail"""
FULL = """import keras_vit.recipes.runs.checkpoints as m
def fail(*_): raise OSError(28, 'No space left on device')
m.Checkpoints._remove_old = fail"""


@both
@pytest.mark.parametrize("count,failing,before,words", [(2, 1, EARLY, "no such disk"), (3, 0, FULL, "No space left")])
def test_the_error_of_one_process_ends_the_others_with_it(backend, count, failing, before, words, processes):
    group = processes(backend, count)
    for index in range(count):
        group.start(index, "--total-steps", "5000", before=before if index == failing else "")
    group.until(failing, "keras-vit:")
    statuses, seconds = group.ends()
    assert statuses == [1] * count and seconds < LIMIT
    for index in range(count):
        text = group.text(index)
        assert words in text and (index == failing or re.search(f"(?i)(worker|process) {failing}.* ended with", text))


@both
@pytest.mark.parametrize("count,killed", [(2, 0), (2, 1), (3, 2)])
def test_a_killed_process_ends_the_others_with_its_name(backend, count, killed, processes):
    group = processes(backend, count)
    for index in range(count):
        group.start(index, "--total-steps", "5000")
    group.until(0, "5/5")
    group.send(killed, signal.SIGKILL)
    statuses, seconds = group.ends()
    assert statuses == [-9 if index == killed else 1 for index in range(count)] and seconds < LIMIT
    for index in set(range(count)) - {killed}:
        text = group.text(index)
        assert "ended without a message" in text and "run.resume=True" in text
        assert count > 2 or re.search(f"(?i)(worker|process) {killed}.* ended without", text)


@both
def test_sigterm_to_one_process_saves_and_ends_all(backend, processes):
    group = processes(backend, 3)
    for index in range(3):
        group.start(index, "--total-steps", "5000")
    group.until(0, "5/5")
    group.send(1, signal.SIGTERM)
    statuses, seconds = group.ends()
    assert statuses == [75] * 3 and seconds < LIMIT
    assert "Saved step" in group.text(0)


HANGS = """import time
import keras_vit.recipes.runs.checkpoints as m
m.Checkpoints.on_train_batch_end = lambda *_, **__: time.sleep(1000)"""


@both
def test_a_process_that_hangs_is_named_and_the_second_ctrl_c_ends_the_wait(backend, processes):
    group = processes(backend)
    group.start(0, "--total-steps", "5000")
    group.start(1, "--total-steps", "5000", before=HANGS)
    group.until(0, "has waited for")
    assert re.search("(?i)(worker|process) 0.* has waited for (worker|process) 1.* for 3. s", group.text(0))
    for _ in range(2):
        group.send(0, signal.SIGINT)
        time.sleep(1)
    end = time.monotonic() + LIMIT
    while group.status(0) is None and time.monotonic() < end:
        time.sleep(0.1)
    assert group.status(0) == 130
    assert group.ends()[0] == [130, 1]


SERVICE = """import sys
from tensorflow.data.experimental import service as s
d = s.DispatchServer(s.DispatcherConfig(port=0))
address = d.target.partition("://")[2]
w = s.WorkerServer(s.WorkerConfig(dispatcher_address=address, heartbeat_interval_ms=100))
print(d.target, flush=True)
sys.stdin.read()"""


@pytest.mark.extended
@pytest.mark.parametrize("number,status", [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_a_data_service_that_is_gone_is_named_and_signals_end_the_wait(number, status, processes):
    group = processes("tensorflow")
    group.environments[0] = {}
    service = subprocess.Popen([sys.executable, "-c", SERVICE], stdin=-1, stdout=-1, stderr=-3, text=True)
    address = service.stdout.readline().strip()
    soon = "import keras_vit.recipes.runs.stop_signals as s; s.GRACE = 5.0"
    strategy = ["--run.strategy", "one-device", "--data.service", address]
    group.start(0, "--total-steps", "50000", *strategy, before=soon)
    group.until(0, "5/5")
    service.kill()
    service.communicate()
    group.until(0, f"tf.data service {address}")
    for _ in range(2):
        group.send(0, number)
        time.sleep(1)
    statuses, seconds = group.ends()
    assert statuses == [status] and seconds < 20


@pytest.mark.extended
def test_a_run_ends_soon_after_its_data_service(processes):
    group = processes("tensorflow")
    group.environments[0] = {}
    service = subprocess.Popen([sys.executable, "-c", SERVICE], stdin=-1, stdout=-1, stderr=-3, text=True)
    address = service.stdout.readline().strip()
    group.start(0, "--total-steps", "50000", "--run.strategy", "one-device", "--data.service", address)
    group.until(0, "5/5")
    service.kill()
    service.communicate()
    statuses, seconds = group.ends(120)
    assert statuses == [1] and seconds < 120
    assert f"tf.data service {address} cannot be reached" in message(group.text(0))


def test_finetune_is_for_one_process(processes):
    group = processes("jax")
    group.start(0, command=["finetune", "."])
    assert group.ends(START)[0] == [1]
    assert "KERAS_DISTRIBUTION_NUM_PROCESSES. Unset it" in message(group.text(0))
