"""asv's configuration: where it is, and what it says of results, pages, commits and regressions."""

from __future__ import annotations

import json
import os
import shlex
from dataclasses import dataclass, field, replace
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness.config import Config, load_config
from harness.device.machine import describe_host, machine_entry
from harness.errors import ConfigError, GitError, UsageError
from harness.history.asv_limits import AsvLimits, limits_of
from harness.records.imports.asv_configuration import NAMES, conf_in, confs_below, read_plainly
from harness.records.types import DeviceInfo
from harness.system import git
from harness.system.cache import write_file
from harness.system.files import read_regular
from harness.system.git import repository_of

if TYPE_CHECKING:
    pass


@dataclass(frozen=True, slots=True, kw_only=True)
class SiteConf:
    file: Path | None = None
    """Path of asv's configuration file; None where the project has no such file."""
    project: str
    repository: Path
    """The repository that was measured: the project itself, or the clone that asv keeps of another one."""
    results: Path
    html: Path
    branch: str = "HEAD"
    commit_url: str = ""
    """Address of a commit, with {} for the hash; empty where there is no place to link to."""
    limits: AsvLimits = field(default_factory=AsvLimits)
    """The regressions that the configuration tells asv not to report."""


def find_conf(config: Config, named: Path | None = None, results: Path | None = None) -> Path | None:
    """Return the configuration of asv's that a command reads; None where there is none.

    That is the one that the user has `named`; else the one that asv finds in the current folder, or in the
    project's. Where neither folder has one, and the project has no results of its own and none are given, it
    is the only one in a folder below. Raises ConfigError for two files in one folder, UsageError where the
    named file is missing, or where several lie below.
    """
    if named is not None:
        if not named.is_file():
            raise UsageError(f"--config is {named}, which is no file. Name the asv.conf.json that is meant.")
        return named.absolute()
    for folder in dict.fromkeys((Path.cwd(), config.root)):
        if found := conf_in(folder):
            return found
    if results or config.results != Config.results or config.results_folder.exists():
        return None
    below = confs_below(config.root)
    if len(below) > 1:
        raise UsageError(
            f"{config.root} has no {NAMES[0]} of its own, and several below: "
            f"{', '.join(str(file.relative_to(config.root)) for file in below)}. Say which one is meant: "
            f"--config {shlex.quote(os.path.relpath(below[0]))}"
        )
    return below[0] if below else None


def read_conf(root: Path, file: Path | None = None) -> SiteConf:
    """Read where the site of the project at `root` lies, from a configuration of asv's or, without one, from
    the project's settings. Raises ConfigError for a file that asv cannot read.
    """
    file = file or conf_in(root)
    if file:
        return site_conf(loaded_conf(file), file.parent, file)
    results = load_config(root).results_folder
    return SiteConf(project=root.name, repository=root, results=results, html=root / ".asv/html")


def history_of(config: Config, named: Path | None = None, results: Path | None = None) -> SiteConf:
    """Return where a history's results lie, and the repository of its commits.

    `results` is the folder that the user asks for. Else asv's configuration says where they are; for one in
    the project's own folder the project's setting `results` comes first, and so does its default where asv
    has none. Raises what find_conf raises; ConfigError for a repository that is not on this machine.
    """
    file = find_conf(config, named, results)
    conf = read_conf(config.root, file)
    if results:
        return replace(conf, results=results)
    is_chosen = named is not None or (file is not None and file.parent != config.root)
    if not is_chosen and (config.results != Config.results or not conf.results.exists()):
        return replace(conf, results=config.results_folder)
    return conf


def loaded_conf(file: Path) -> Any:
    """Return what a configuration says: asv's own Config, or without asv the same settings.

    Raises ConfigError where the file cannot be read.
    """
    if find_spec("asv") is not None:
        return asvs_conf(file)
    try:
        conf = read_plainly(file)
        conf.branches = _branches(conf)
    except (ValueError, TypeError, OSError) as error:
        raise ConfigError(
            f"{file} cannot be read without asv: {str(error).rstrip('.')}. Mend it, or install asv, whose "
            "reader takes all of JSON5: pip install asv."
        ) from None
    return conf


def asvs_conf(file: Path) -> Any:
    """Return asv's own Config. Raises ConfigError where there is no asv, or it cannot read the file."""
    try:
        from asv.config import Config
        from asv.util import UserError
    except ImportError:
        raise ConfigError(f"{file} cannot be read without asv: install it with pip install asv.") from None
    try:
        conf = Config.load(str(file))
        conf.branches = _branches(conf)
    except (UserError, ValueError, TypeError, OSError) as error:  # asv trips over what is no object or list
        raise ConfigError(f"asv cannot read {file}: {str(error).rstrip('.')}.") from None
    return conf


def _branches(conf: Any) -> list[str]:
    """Return the branches by name; asv's default, which has no name, is left out."""
    return [str(each) for each in conf.branches or [] if each]


def site_conf(conf: Any, root: Path, file: Path) -> SiteConf:
    """Return what a configuration says of the site, its paths relative to a folder.

    Raises ConfigError for a limit of regressions that asv could not use either.
    """
    url, project = str(conf.show_commit_url or ""), str(conf.project or root.name)
    branch = next(iter(_branches(conf)), "")
    return SiteConf(
        file=file,
        project=project,
        repository=_repository(str(conf.repo), root, project),
        results=_below(root, str(conf.results_dir)),
        html=_below(root, str(conf.html_dir)),
        branch=branch or "HEAD",
        # asv's default, "#", is no place.
        commit_url=f"{url}{{}}" if url.startswith(("https://", "http://")) else "",
        limits=limits_of(conf, file.name, branch or _default_branch(root)),
    )


def running_conf(conf: Any) -> SiteConf:
    """Return the same of asv's Config of a command that runs, which works in its configuration's folder."""
    return site_conf(conf, Path.cwd(), Path(NAMES[0]))


def _default_branch(root: Path) -> str:
    """Return the branch that asv takes where the configuration names none."""
    try:
        return git.ask(root, "config", "init.defaultBranch").decode().strip()
    except GitError:
        return "master"


def _below(root: Path, name: str) -> Path:
    return Path(os.path.normpath(root / name))


def _repository(repo: str, root: Path, project: str) -> Path:
    """A folder of this machine; of a repository elsewhere the clone that asv has made, or the project's own
    folder, which is often a clone of it too.
    """
    for folder in (_below(root, repo), _below(root, project)):
        if (folder / ".git").exists() or (folder / "objects").is_dir():
            return folder
    if (root / repo).is_dir() or repository_of(root):
        return root
    raise ConfigError(
        f"There is no clone of {repo}, whose commits were measured. Make the one that asv would make: "
        f"git clone --mirror {shlex.quote(repo)} {shlex.quote(str(root / project))}"
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
