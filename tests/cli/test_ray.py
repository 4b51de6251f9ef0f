"""``--executor=ray`` on a real Ray cluster of this machine, with a node that is lost on the way."""

import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cli.command import TOYS, begun, records, run_into, runner, statuses
from tests.factories import Patch

pytest.importorskip("ray", reason="ray is not installed: pip install 'torchduet[ray]'")
pytestmark = [
    pytest.mark.long,
    # Ray's own code and the processes it leaves to themselves
    pytest.mark.filterwarnings("ignore"),
]

SMALL: dict[str, Any] = {"object_store_memory": 100 << 20}
EVERYTHING = {(name, "eager"): "pass" for name in ("linear", "norm", "deep")}
RUN = ("--training", f"--suites={TOYS}", "--compilers=eager", "-n4", "--executor=ray")
PATIENCE_S = 600.0  # of a test that would otherwise hang; on a busy machine Ray is slow


@pytest.fixture
def cluster(monkeypatch: Patch) -> Iterator[Any]:
    """A head without cores, and no node yet that could run a job."""
    monkeypatch.setenv("RAY_USAGE_STATS_ENABLED", "0")
    from ray.cluster_utils import Cluster

    head = {"num_cpus": 0, "include_dashboard": False, **SMALL}
    ray_cluster = Cluster(initialize_head=True, head_node_args=head)
    try:
        yield ray_cluster
    finally:
        ray_cluster.shutdown()


def begin(cluster: Any, folder: Path, *words: str) -> subprocess.Popen[str]:
    return begun(*RUN, *words, f"--ray-address={cluster.address}", f"--output-dir={folder}")


def jobs_begun(folder: Path) -> int:
    return sum("# on " in log.read_text() for log in folder.glob("cases/*/output.log"))


def wait_for(what: str, process: subprocess.Popen[str], seen: Any) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not seen():
        assert process.poll() is None, f"ended before {what}: {process.communicate()}"
        assert time.monotonic() < deadline, f"no {what}"
        time.sleep(0.2)


def test_a_node_is_lost_and_every_record_is_there_once(cluster: Any, tmp_path: Path) -> None:
    nodes = [cluster.add_node(num_cpus=1, **SMALL) for _ in range(2)]
    folder = tmp_path / "run"
    with begin(cluster, folder, "-dcpu") as process:
        try:
            wait_for("job on each node", process, lambda: jobs_begun(folder) == 2)
            cluster.remove_node(nodes[0], allow_graceful=False)
            printed, errors = process.communicate(timeout=PATIENCE_S)
        finally:
            process.kill()
    assert process.returncode == 0, errors
    assert statuses(folder) == EVERYTHING
    assert "was lost" in errors
    run_records = records(folder)
    again = [record for record in run_records if any("measured again" in note for note in record["notes"])]
    assert len(again) == 1
    assert {record["environment"]["node"].split()[-1] for record in run_records} <= {
        node.node_id[:8] for node in nodes
    }
    assert "Geometric mean speedup" in printed


def test_each_job_has_a_gpu_of_its_own(cluster: Any, tmp_path: Path) -> None:
    """Pretended ones: the jobs fail, but where they were is in their records."""
    cluster.add_node(num_cpus=2, num_gpus=2, **SMALL)
    folder = tmp_path / "run"
    words = (*RUN, "-dcuda", f"--ray-address={cluster.address}")
    run_into(folder, *words, timeout=PATIENCE_S, code=1)
    run_records = records(folder)
    assert set(statuses(folder)) == set(EVERYTHING)
    assert {record["environment"]["env.CUDA_VISIBLE_DEVICES"] for record in run_records} == {"0", "1"}
    assert {record["environment"]["job_cpus"] for record in run_records} == {1.0}
    assert all(record["failure"]["log"].endswith("output.log") for record in run_records)


def test_interrupting_twice_ends_at_once_and_resuming_finishes(cluster: Any, tmp_path: Path) -> None:
    cluster.add_node(num_cpus=1, **SMALL)
    folder = tmp_path / "run"
    with begin(cluster, folder, "-dcpu") as process:
        try:
            wait_for("first record", process, lambda: (folder / "records.jsonl").exists() and records(folder))
            process.send_signal(signal.SIGINT)
            time.sleep(0.5)
            process.send_signal(signal.SIGINT)
            process.communicate(timeout=60)
        finally:
            process.kill()
    before = (folder / "records.jsonl").read_bytes()
    assert before
    done = runner(
        *(f"--resume={folder}", "--executor=ray", f"--ray-address={cluster.address}"), timeout=PATIENCE_S
    )
    assert done.returncode == 0, done.stderr
    assert statuses(folder) == EVERYTHING
    assert (folder / "records.jsonl").read_bytes().startswith(before)
