"""Dask's side of a sweep: a cluster of this host's own, or somebody's, and whether everybody there fits."""

from __future__ import annotations

__all__ = [
    "CONNECT_S",
    "OPEN_S",
    "RESOURCE",
    "check_cluster",
    "connected",
    "local",
    "quiet",
    "said",
]

import asyncio
import contextlib
import logging
import pkgutil
import traceback
import warnings
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import harness
from harness.errors import MeasureError, UsageError
from harness.system.files import scratch_folder

RESOURCE = "GPU"
"""What a worker announces that has a device to give: ``dask worker --resources GPU=1``."""
CONNECT_S = 10.0
OPEN_S = 180.0
"""For every worker to open its device: the slowest takes its own time, and may be busy for somebody else."""
_DEAF = "import signal\nsignal.signal(signal.SIGINT, signal.SIG_IGN)\n"
"""What our own workers run first: Ctrl-C reaches every process of a terminal, and is for the client."""


def _library() -> Any:
    """Dask's package. Raises UsageError where it is not installed."""
    try:
        import distributed
    except ImportError as error:
        raise UsageError(
            f"Sweeps on several devices need Dask, which cannot be imported ({error}). Install this project "
            "with its extra 'dask': pip install -e '.[dask]' in a clone."
        ) from None
    return distributed


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Dask's loggers say what is said here in sentences."""
    _library()  # with it come its loggers
    names = [name for name in logging.root.manager.loggerDict if name.split(".")[0] == "distributed"]
    before = {logger: logger.level for logger in map(logging.getLogger, names)}
    for logger in before:
        logger.setLevel(logging.CRITICAL + 1)
    try:
        yield
    finally:
        for logger, level in before.items():
            logger.setLevel(level)


def local(stack: contextlib.ExitStack, specs: Sequence[str]) -> Any:
    """A client of a cluster of our own, on this host and for this host only."""
    distributed = _library()
    import dask

    if not specs:
        raise UsageError("A sweep on this host needs a device at least, such as cuda:0.")
    # What a worker that was killed leaves behind goes with the folder.
    scratch = stack.enter_context(scratch_folder())
    settings: dict[str, list[str]] = {
        "distributed.scheduler.http.routes": [],
        "distributed.worker.http.routes": [],
    }
    try:
        with dask.config.set(settings):
            cluster = stack.enter_context(
                distributed.LocalCluster(
                    n_workers=len(specs),
                    threads_per_worker=1,
                    processes=True,
                    host="127.0.0.1",
                    # A port of its own for what serves nothing: None would ask for Dask's usual one.
                    dashboard_address="127.0.0.1:0",
                    scheduler_kwargs={"dashboard": False},
                    resources={RESOURCE: 1},
                    memory_limit=None,
                    local_directory=str(scratch),
                    env={"TMPDIR": str(scratch)},
                    preload=[_DEAF],
                    silence_logs=logging.CRITICAL,
                )
            )
            client = stack.enter_context(distributed.Client(cluster, set_as_default=False))
            client.wait_for_workers(len(specs), timeout=OPEN_S)
    except Exception as error:
        raise MeasureError(
            f"Dask could not start {len(specs)} workers on this host: {said(error)}.",
            log=traceback.format_exc(),
        ) from error
    return client


def connected(stack: contextlib.ExitStack, scheduler: str) -> Any:
    """A client of somebody's cluster."""
    distributed = _library()
    try:
        asyncio.run(_knock(scheduler))
        with warnings.catch_warnings():
            # Dask only warns of versions that differ; check_cluster refuses them.
            warnings.simplefilter("ignore")
            return stack.enter_context(distributed.Client(scheduler, timeout=CONNECT_S, set_as_default=False))
    except Exception as error:
        raise MeasureError(
            f"No Dask scheduler answers at {scheduler} within {CONNECT_S:g} s ({said(error)}). Expected the "
            "address that `dask scheduler` says when it starts, such as tcp://host:8786."
        ) from error


async def _knock(scheduler: str) -> None:
    """Raises where nothing answers as Dask does. A client would wait for ever for what only listens."""
    distributed = _library()
    security = distributed.Security().get_connection_args("client")
    comm = await asyncio.wait_for(
        distributed.comm.connect(scheduler, timeout=CONNECT_S, **security), CONNECT_S
    )
    comm.abort()


def check_cluster(client: Any, scheduler: str, announced: Mapping[str, Any]) -> None:
    """Raises MeasureError where nobody has a GPU, UsageError where a worker has several or versions do not
    fit.
    """
    if not announced:
        raise MeasureError(
            f"No worker of {scheduler} announces a GPU. Start one for each: "
            f"CUDA_VISIBLE_DEVICES=0 dask worker {scheduler} --nthreads 1 --resources {RESOURCE}=1."
        )
    if greedy := [worker for worker in announced.values() if worker["resources"][RESOURCE] != 1]:
        told = "; ".join(f"{worker['name']} {worker['resources'][RESOURCE]:g}" for worker in greedy)
        raise UsageError(
            f"Workers of {scheduler} announce another number of GPUs than 1 each ({told}). Start one worker "
            "for each GPU, which sees no other: CUDA_VISIBLE_DEVICES says which."
        )
    told = client.get_versions()
    dask = {"the scheduler": _dask_version(told["scheduler"])}
    dask |= {
        f"worker {worker['name']}": _dask_version(told["workers"].get(address))
        for address, worker in announced.items()
    }
    ours, our_dask = f"harness {harness.__version__}", _dask_version(told["client"])
    different = {who: found for who, found in dask.items() if found != our_dask}
    different |= {who: found for who, found in _harness_versions(client, announced).items() if found != ours}
    if different:
        told = "; ".join(f"{who}: {found}" for who, found in different.items())
        raise UsageError(
            f"Versions at {scheduler} do not fit: {told}. Expected {ours} and {our_dask}, as here: "
            "install the same everywhere."
        )


def _harness_versions(client: Any, announced: Mapping[str, Any]) -> dict[str, str]:
    """What each one has, the scheduler too: it reads all that is sent to workers."""
    # By its name, since whatever is sent of ours is found by importing the harness there.
    asked = (pkgutil.resolve_name, "harness:__version__")
    found: dict[str, Any] = {}
    try:
        found["the scheduler"] = client.run_on_scheduler(*asked)
    except Exception as error:  # noqa: BLE001 - whatever importing it raises there
        found["the scheduler"] = error
    versions = client.run(*asked, workers=list(announced), on_error="return")
    found |= {f"worker {announced[address]['name']}": version for address, version in versions.items()}
    return {
        who: f"no harness ({said(version)})" if isinstance(version, BaseException) else f"harness {version}"
        for who, version in found.items()
    }


def _dask_version(told: Any) -> str:
    """What must be the same for one process to read what another sends."""
    if not told:
        return "an unknown version of Dask"
    python = ".".join(str(told["packages"]["python"]).split(".")[:2])
    return f"distributed {told['packages']['distributed']} on Python {python}"


def said(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}".strip().rstrip(".:")
