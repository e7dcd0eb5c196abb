"""What asv.conf.json says of the site: where results and pages lie, and how commits are linked."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness.config import Config, load_config
from harness.device.machine import describe_host, machine_entry
from harness.errors import ConfigError, MeasureError
from harness.records import DeviceInfo
from harness.spec.suite import Suite
from harness.system.cache import write_file
from harness.system.files import read_regular
from harness.system.git import repository_of

if TYPE_CHECKING:
    from harness.site.publishing import Published


@dataclass(frozen=True, slots=True, kw_only=True)
class SiteConf:
    file: Path | None = None
    """None where the project has no asv.conf.json."""
    project: str
    repository: Path
    """The repository that was measured: the project itself, or the clone that asv keeps of another one."""
    results: Path
    html: Path
    branch: str = "HEAD"
    commit_url: str = ""
    """Address of a commit, with {} for the hash; empty where there is no place to link to."""


def read_conf(root: Path) -> SiteConf:
    """Where the site of the project at `root` lies. Raises ConfigError for a file that asv cannot read."""
    file = root / "asv.conf.json"
    if file.exists():
        return site_conf(loaded_conf(file), root, file)
    results = load_config(root).results_folder
    return SiteConf(project=root.name, repository=root, results=results, html=root / ".asv/html")


def history_of(config: Config) -> tuple[Path, Path]:
    """Where a history's results lie, and the repository of its commits: as asv.conf.json says, if an asv is
    there to read it, but for results that do not exist or whose folder the project has set.

    Raises ConfigError for a file that asv cannot read, or a repository that is not on this machine.
    """
    if not (config.root / "asv.conf.json").exists() or find_spec("asv") is None:
        return config.results_folder, config.root
    conf = read_conf(config.root)
    said = config.results != Config.results or not conf.results.exists()
    return config.results_folder if said else conf.results, conf.repository


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
    url, project = str(conf.show_commit_url or ""), str(conf.project or root.name)
    return SiteConf(
        file=file,
        project=project,
        repository=_repository(str(conf.repo), root, project),
        results=root / str(conf.results_dir),
        html=root / str(conf.html_dir),
        branch=conf.branches[0] if conf.branches else "HEAD",
        # asv's default, "#", is no place.
        commit_url=f"{url}{{}}" if url.startswith(("https://", "http://")) else "",
    )


def _repository(repo: str, root: Path, project: str) -> Path:
    """A folder of this machine; of a repository elsewhere the clone that asv has made, or the project's own
    folder, which is often a clone of it too.
    """
    for folder in (root / repo, root / project):
        if (folder / ".git").exists() or (folder / "objects").is_dir():
            return folder
    if (root / repo).is_dir() or repository_of(root):
        return root
    raise ConfigError(
        f"There is no clone of {repo}, whose commits were measured. Make the one that asv would make: "
        f"git clone --mirror {shlex.quote(repo)} {shlex.quote(str(root / project))}"
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
        repository=conf.repository,
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
        content = json.dumps(machines, indent=4, sort_keys=True).encode()
        write_file(path, content, "asv reads its machines from there.")
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
