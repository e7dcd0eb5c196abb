"""Settings of a project: pyproject.toml or harness.toml, then HARNESS_* variables, then options."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from harness.errors import ConfigError
from harness.system.files import read_regular

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib


ARCHITECTURES = ("sm_75", "sm_80", "sm_86", "sm_89", "sm_90a", "sm_100", "sm_120")
"""Default architectures of 'harness static': Turing to Blackwell."""
RISKS = ("spill", "occupancy", "stack", "narrower", "unroll", "loop", "registers")
"""Differences between two builds that may cost time."""


@dataclass(frozen=True, kw_only=True)
class StaticConfig:
    """Settings of ``[tool.harness.static]``, for 'harness static'."""

    archs: tuple[str, ...] = ARCHITECTURES
    """Architectures to compile for by default."""
    fail_on: tuple[str, ...] = ()
    """Kinds of risk that fail a comparison with a base."""
    max_registers: int | None = None
    """Most registers of a thread. More is a risk of the kind registers."""


@dataclass(frozen=True, kw_only=True)
class Config:
    """Settings, one field per key. An unknown key is an error, so that a misspelt key is noticed."""

    root: Path
    """Folder that paths are relative to: the file's, or the current one without a file."""
    suites: tuple[str, ...] = ("kernels/*",)
    """Globs of folders with a suite.py."""
    scripts: tuple[str, ...] = ()
    """Commands of benchmark scripts that measure a project without suites."""
    timers: tuple[str, ...] = ()
    """The author's own timing functions, ``function`` or ``module:function``."""
    device: str | None = None
    l2: str | None = None
    timeout_s: float = 120.0
    results: str = ".asv/results"
    """Folder of records and asv results, with a folder for each machine."""
    directions: Mapping[str, str] = field(default_factory=dict, hash=False)
    """Better direction, one of DIRECTIONS, by globs of the names of benchmarks outside of suites."""
    static: StaticConfig = StaticConfig()

    @property
    def results_folder(self) -> Path:
        return self.root / self.results


FILES = ("harness.toml", "pyproject.toml")
"""Files of settings. In a folder with both, the first one counts."""
_NO_VARIABLE = ("root", "scripts", "timers", "directions", "static")
_LISTS = {
    "suites": "folders, such as ['kernels/*']",
    "scripts": "commands, such as ['python bench/softmax.py']",
    "timers": "functions, such as ['bench.utils:timeit']",
}
_CHOICES = {"l2": ("cold", "hot")}
DIRECTIONS = ("higher", "lower", "none")
VARIABLES = frozenset(
    {
        *(f"HARNESS_{each.name.upper()}" for each in fields(Config) if each.name not in _NO_VARIABLE),
        "HARNESS_CACHE_DIR",
        "HARNESS_FRESH_PROCESSES",
        "HARNESS_LOCK_DIR",
        "HARNESS_NULL_SCRIPT",
        "HARNESS_SUITE_SOCKET",
        # Passed from a comparison of commands and scripts to their Python processes
        "HARNESS_SIDE_MODULES",
        "HARNESS_CALLS",
        # Passed from a command to the process that opens its device
        "HARNESS_EARLY_DEVICE",
        # Output file of a compared program
        "HARNESS_OUT",
        # Passed from the asv plugin to its own processes
        "HARNESS_ASV",
        # For this project's own tests
        "HARNESS_ASK_INDEX",
        "HARNESS_REQUIRE_BROWSER",
        "HARNESS_REQUIRE_DEVICE",
        "HARNESS_REQUIRE_LINTERS",
        "HARNESS_REQUIRE_VERSIONS",
        "HARNESS_REQUIRE_ACTIONS",
        "HARNESS_SCREENSHOTS",
    }
)
"""Every variable that this project reads. Any other that begins with HARNESS_ is an error."""


def check_environment() -> None:
    """Raise ConfigError for an unknown HARNESS_* variable, so that a misspelt one is noticed."""
    for name in sorted(os.environ):
        if name.startswith("HARNESS_") and name not in VARIABLES:
            import difflib

            # Without the common prefix, which would make everything look similar.
            variables = {variable.removeprefix("HARNESS_"): variable for variable in sorted(VARIABLES)}
            wanted = name.removeprefix("HARNESS_").upper()
            close = difflib.get_close_matches(wanted, variables, n=1, cutoff=0.5)
            hint = "Names that begin with HARNESS_ are the harness's own: unset it, or give it another name."
            hint = f"Did you mean {variables[close[0]]}?" if close else hint
            raise ConfigError(f"{name}: no such variable. {hint}")


def load_config(start: Path | None = None) -> Config:
    """Return the configuration of a folder: the nearest file upwards, then variables. Raises ConfigError."""
    check_environment()
    config = _from_file(start or Path.cwd())
    try:
        str(config.root).encode()
    except UnicodeEncodeError:
        raise ConfigError(
            f"{config.root}: records and workers are told names of folders in UTF-8, and in this locale this "
            "one has none. Rename it, or set the variable LC_ALL to C.UTF-8 where it is written in that."
        ) from None
    for each in fields(Config):
        variable = f"HARNESS_{each.name.upper()}"
        if variable in VARIABLES and (text := os.environ.get(variable)):
            value: Any = tuple(text.split(os.pathsep)) if each.name == "suites" else text
            config = _with(config, each.name, value, variable)
    return config


def has_settings(folder: Path) -> bool:
    """Tell whether a folder has settings of a project. Raises ConfigError."""
    return any(_table(folder / name) is not None for name in FILES)


def _from_file(start: Path) -> Config:
    for path in (folder / name for folder in (start, *start.parents) for name in FILES):
        if (table := _table(path)) is not None:
            config = Config(root=path.parent)
            for key, value in table.items():
                config = _with(config, key, value, f"{path}, key {key!r}")
            return config
    return Config(root=start)


def suites_said(texts: Mapping[str, str]) -> tuple[str, ...]:
    """Return a commit's suite globs, by the texts of its FILES; none if HARNESS_SUITES decides.

    A broken file counts as empty.
    """
    if os.environ.get("HARNESS_SUITES"):
        return ()
    config = Config(root=Path())
    for name in FILES:
        with contextlib.suppress(ConfigError):
            table = _table_in(texts[name], Path(name)) if name in texts else None
            if table is not None:
                return _with(config, "suites", table.get("suites", config.suites), name).suites
    return config.suites


def _table(path: Path) -> Mapping[str, Any] | None:
    """Return the harness's table in a file; None without the file or the table."""
    try:
        return _table_in(read_regular(path).decode(), path)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, ValueError) as error:
        raise ConfigError(f"Cannot read {path}: {error}.") from None


def _table_in(text: str, path: Path) -> Mapping[str, Any] | None:
    try:
        content = tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"Cannot read {path}: {error}.") from None
    if path.name == "harness.toml":
        return content
    tool = content.get("tool", {})
    table = tool.get("harness") if isinstance(tool, dict) else None
    if table is not None and not isinstance(table, dict):
        raise ConfigError(f"{path}: [tool.harness] is {table!r}; expected a table.")
    return table


def _with(config: Config, key: str, value: Any, where: str) -> Config:
    names = {each.name for each in fields(Config)} - {"root"}
    if key not in names:
        import difflib

        near = difflib.get_close_matches(key, names, 1)
        hint = f" Did you mean {near[0]}?" if near else ""
        raise ConfigError(f"{where}: no such setting.{hint} Known settings: {', '.join(sorted(names))}.")
    if key in _LISTS:
        if not isinstance(value, (list, tuple)) or not all(isinstance(item, str) for item in value):
            raise ConfigError(f"{where} is {value!r}; expected a list of {_LISTS[key]}.")
        return replace(config, **{key: tuple(value)})  # type: ignore[arg-type]
    if key == "directions":
        if not isinstance(value, dict) or not all(each in DIRECTIONS for each in value.values()):
            expected = f'a table of names and {", ".join(DIRECTIONS)}, such as {{ track_score = "higher" }}'
            raise ConfigError(f"{where} is {value!r}; expected {expected}.")
        return replace(config, directions=value)
    if key == "timeout_s":
        return replace(config, timeout_s=_seconds(value, where))
    if key == "static":
        return replace(config, static=_static(value, where))
    if not isinstance(value, str) or value not in _CHOICES.get(key, (value,)):
        expected = " or ".join(_CHOICES.get(key, ("a text",)))
        raise ConfigError(f"{where} is {value!r}; expected {expected}.")
    return replace(config, **{key: value})  # type: ignore[arg-type]


def _static(value: Any, where: str) -> StaticConfig:
    if not isinstance(value, dict):
        raise ConfigError(f"{where} is {value!r}; expected a table.")
    names = {field.name for field in fields(StaticConfig)}
    if unknown := sorted(value.keys() - names):
        raise ConfigError(f"{where}: no setting {unknown[0]!r}. Known settings: {', '.join(sorted(names))}.")
    for name in ("archs", "fail_on"):
        listed = value.get(name, [])
        if not isinstance(listed, list) or not all(isinstance(item, str) for item in listed):
            raise ConfigError(f"{where}, {name} is {listed!r}; expected a list of texts.")
    if unknown := [each for each in value.get("fail_on", ()) if each not in RISKS]:
        known_risks = ", ".join(RISKS)
        raise ConfigError(f"{where}, fail_on: there is no risk {unknown[0]!r}. Known risks: {known_risks}.")
    most = value.get("max_registers")
    if most is not None and (isinstance(most, bool) or not isinstance(most, int) or most < 1):
        raise ConfigError(f"{where}, max_registers is {most!r}; expected a whole number above 0.")
    return StaticConfig(
        archs=tuple(value.get("archs", ARCHITECTURES)),
        fail_on=tuple(value.get("fail_on", ())),
        max_registers=most,
    )


def _seconds(value: Any, where: str) -> float:
    try:
        seconds = 0.0 if isinstance(value, bool) else float(value)
    except (TypeError, ValueError, OverflowError):
        seconds = 0.0
    if not 0 < seconds < float("inf"):
        raise ConfigError(f"{where} is {value!r}; expected a number of seconds above 0.")
    return seconds
