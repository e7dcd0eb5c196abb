"""What asv.conf.json says of the site: where results and pages lie, and how commits are linked."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness.config import Config, load_config
from harness.device.machine import describe_host, machine_entry
from harness.errors import ConfigError, MeasureError, StoreError
from harness.system.cache import write_atomically
from harness.system.files import read_regular

if TYPE_CHECKING:
    from harness.records import DeviceInfo
    from harness.site.publishing import Published
    from harness.spec.suite import Suite


@dataclass(frozen=True, slots=True, kw_only=True)
class SiteConf:
    file: Path | None
    """None where the project has no asv.conf.json."""
    project: str
    results: Path
    html: Path
    branch: str
    commit_url: str
    """With {} for the hash; empty where there is no place to link to."""


def read_conf(root: Path) -> SiteConf:
    """Raises ConfigError for a file that asv cannot read."""
    file = root / "asv.conf.json"
    if file.exists():
        return site_conf(loaded_conf(file), root, file)
    results, html = load_config(root).results_folder, root / ".asv/html"
    return SiteConf(file=None, project=root.name, results=results, html=html, branch="HEAD", commit_url="")


def results_of(config: Config) -> Path:
    """Where a history lies: in asv.conf.json's `results_dir`, if an asv is there to read it and so is that
    folder, unless the project has set another. Raises ConfigError for a file that asv cannot read.
    """
    said = config.results != Config.results
    if said or not (config.root / "asv.conf.json").exists() or find_spec("asv") is None:
        return config.results_folder
    folder = read_conf(config.root).results
    return folder if folder.exists() else config.results_folder


def loaded_conf(file: Path) -> Any:
    """The Config of asv itself. Raises ConfigError where there is no asv, or it cannot read the file."""
    try:
        from asv.config import Config
        from asv.util import UserError
    except ImportError:
        raise ConfigError(
            f"{file} cannot be read without asv: install it with pip install asv==0.6.6."
        ) from None
    try:
        conf = Config.load(str(file))
        conf.branches = [str(each) for each in conf.branches or [] if each]
    except (UserError, ValueError, TypeError, OSError) as error:  # asv trips over what is no object or list
        raise ConfigError(f"asv cannot read {file}: {str(error).rstrip('.')}.") from None
    return conf


def site_conf(conf: Any, root: Path, file: Path) -> SiteConf:
    """What asv's Config says of the site, its paths relative to a folder."""
    url = str(conf.show_commit_url or "")
    return SiteConf(
        file=file,
        project=str(conf.project or root.name),
        results=root / str(conf.results_dir),
        html=root / str(conf.html_dir),
        branch=conf.branches[0] if conf.branches else "HEAD",
        # asv's default, "#", is no place.
        commit_url=f"{url}{{}}" if url.startswith(("https://", "http://")) else "",
    )


def write_pages(
    conf: SiteConf,
    root: Path,
    *,
    results: Path | None = None,
    html: Path | None = None,
    suites: Sequence[Suite] = (),
    tell: Callable[[str], None] = lambda _: None,
) -> Published:
    """Write our pages beside asv's, and let asv's lead to them. Raises what publish_pages raises."""
    from harness.site.publishing import publish_pages

    site = html or conf.html
    published = publish_pages(
        results or conf.results,
        root,
        site,
        project=conf.project,
        revision=conf.branch,
        commit_url=conf.commit_url,
        suites=suites,
        directions=load_config(root).directions,
        tell=tell,
    )
    if conf.file and (site / "asv.js").exists():  # a page of somebody else's is left alone
        from harness.integrations.asv.publish import link_pages

        link_pages(site)
    return published


def run_publish(conf: SiteConf) -> None:
    """Let asv publish its own pages, its words on standard error. Raises MeasureError where it fails."""
    assert conf.file
    command = [sys.executable, "-m", "asv", "publish", "--config", str(conf.file)]
    done = subprocess.run(command, cwd=conf.file.parent, stdout=sys.stderr, check=False)
    if done.returncode:
        raise MeasureError(
            f"asv publish failed with status {done.returncode}; its own words are above. "
            "'harness publish --without-asv' writes the other pages."
        )


@dataclass(frozen=True, slots=True)
class Registration:
    file: Path
    entry: dict[str, str]
    device: DeviceInfo


def register(spec: str | None, *, write: bool = True) -> Registration:
    """Put the device into asv's machine file, leaving every other machine alone; without `write`, tell only
    what would be put there.

    Raises ConfigError for a file that is no machine file, StoreError where it cannot be written.
    """
    from harness.run.device_session import find_device

    device = find_device(spec)
    entry = machine_entry(device, describe_host())
    path = Path("~/.asv-machine.json").expanduser()
    machines = _read(path)
    if write and machines.get(entry["machine"]) != entry:
        machines[entry["machine"]] = entry
        try:
            write_atomically(path, json.dumps(machines, indent=4, sort_keys=True).encode())
        except OSError as error:
            raise StoreError(
                f"Cannot write {path}: {error.strerror or error}. asv reads its machines from there."
            ) from None
    return Registration(path, entry, device)


def _read(path: Path) -> dict[str, object]:
    try:
        machines = json.loads(read_regular(path))
    except FileNotFoundError:
        return {"version": 1}
    except (OSError, ValueError) as error:
        problem = str(error)
    else:
        if isinstance(machines, dict):
            return machines
        problem = "it holds no JSON object"
    raise ConfigError(f"{path} is no machine file of asv's: {problem}. Mend it, or move it away.")
