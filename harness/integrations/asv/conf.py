"""asv's configuration: its location, and its settings of results, pages, commits and regressions."""

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
    """Path of asv's configuration file; None if the project has none."""
    project: str
    repository: Path
    """The measured repository: the project itself, or asv's clone of another one."""
    results: Path
    html: Path
    branch: str = "HEAD"
    commit_url: str = ""
    """Address of a commit, with {} for the hash; empty if there is none."""
    limits: AsvLimits = field(default_factory=AsvLimits)
    """Regressions that the configuration hides."""


def find_conf(config: Config, named: Path | None = None, results: Path | None = None) -> Path | None:
    """Return the asv configuration for a command; None if there is none.

    It is the one that the user has `named`; else the one that asv finds in the current folder, or in the
    project's. If neither folder has one, and the project has no results and none are given, it is the only
    one in a folder below. Raises ConfigError for two files in one folder, UsageError if the named file is
    missing, or if several are below.
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
    """Return the site of the project at `root` from an asv configuration, or else from the project's
    settings.

    Raises ConfigError for a file that asv cannot read.
    """
    file = file or conf_in(root)
    if file:
        return site_conf(loaded_conf(file), file.parent, file)
    results = load_config(root).results_folder
    return SiteConf(project=root.name, repository=root, results=results, html=root / ".asv/html")


def history_of(config: Config, named: Path | None = None, results: Path | None = None) -> SiteConf:
    """Return the folder of a history's results, and the repository of its commits.

    `results` is the user's folder. Otherwise asv's configuration names it. For a configuration in the
    project's own folder, the project's setting `results` has priority, and its default applies if asv has
    none. Raises the errors of find_conf; ConfigError for a repository that is not on this machine.
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
    """Return the settings in a configuration: asv's own Config, or the same settings without asv.

    Raises ConfigError if the file cannot be read.
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
    """Return asv's own Config. Raises ConfigError without asv, or if asv cannot read the file."""
    try:
        from asv.config import Config
        from asv.util import UserError
    except ImportError:
        raise ConfigError(f"{file} cannot be read without asv: install it with pip install asv.") from None
    try:
        conf = Config.load(str(file))
        conf.branches = _branches(conf)
    # asv fails on values that are no object or list
    except (UserError, ValueError, TypeError, OSError) as error:
        raise ConfigError(f"asv cannot read {file}: {str(error).rstrip('.')}.") from None
    return conf


def _branches(conf: Any) -> list[str]:
    """Return the branches by name, without asv's default, which has no name."""
    return [str(each) for each in conf.branches or [] if each]


def site_conf(conf: Any, root: Path, file: Path) -> SiteConf:
    """Return a configuration's settings of the site, with paths relative to a folder.

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
        # asv's default, "#", is no address.
        commit_url=f"{url}{{}}" if url.startswith(("https://", "http://")) else "",
        limits=limits_of(conf, file.name, branch or _default_branch(root)),
    )


def running_conf(conf: Any) -> SiteConf:
    """Return the same settings from the Config of a running command, whose folder is the configuration's."""
    return site_conf(conf, Path.cwd(), Path(NAMES[0]))


def _default_branch(root: Path) -> str:
    """Return asv's branch if the configuration names none."""
    try:
        return git.ask(root, "config", "init.defaultBranch").decode().strip()
    except GitError:
        return "master"


def _below(root: Path, name: str) -> Path:
    return Path(os.path.normpath(root / name))


def _repository(repo: str, root: Path, project: str) -> Path:
    """Return a repository's folder on this machine.

    For a remote repository it is asv's clone, or the project's own folder, which is often a clone too.
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
    """Add the device to asv's machine file, without changing other machines; without `write`, only return the
    entry.

    Raises ConfigError for an invalid machine file, StoreError if it cannot be written.
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
