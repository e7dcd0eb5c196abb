"""A repository's own files: the cards for its workflows, and the files of `ci init`."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import unquote, urlsplit

import msgspec
from msgspec import Meta, Struct

from harness.ci.forge import quoted
from harness.ci.requirements import DEVICES, compiling, composed, extras_of, read_shipped
from harness.errors import ConfigError, RefusedError, StoreError, UsageError
from harness.system.decoding import convert
from harness.system.files import write_all
from harness.system.git import ask, repository_of

FLEET_FILE = Path(".github/fleet.json")
UNKNOWN_HARNESS = (
    "Nothing names the harness that the workflows are to install: this harness was installed from no single "
    "commit or file. To write them, add --harness REQUIREMENT."
)
"""Note of a dry run."""
LIGHT = ("--quick", "--budget", "60")
"""Options of a light comparison instead of a card's sizes: seconds of device time for each suite."""

_END = r"(?![\s\S])"
"""End of a text, because $ would allow a final line break."""
_LARGEST_BYTES = 2**18

Name = Annotated[str, Meta(pattern=rf"^[a-z0-9][a-z0-9-]{{0,39}}{_END}")]
Label = Annotated[str, Meta(pattern=rf"^[A-Za-z0-9][A-Za-z0-9_.-]{{0,99}}{_END}")]
Spec = Annotated[str, Meta(pattern=rf"^(cuda|opencl|opengl|cpu|null)(:[0-9]{{1,3}})?{_END}")]
# Both become words of a command: they must not begin with a dash or contain shell syntax.
Pattern = Annotated[str, Meta(pattern=rf"^[A-Za-z0-9_*?\[][A-Za-z0-9_.*?\[\]@=,-]{{0,199}}{_END}")]
TestPath = Annotated[str, Meta(pattern=rf"^(?!.*\.\.)[A-Za-z0-9_][A-Za-z0-9_./-]{{0,199}}{_END}")]
Cases = Annotated[tuple[Pattern, ...], Meta(max_length=64)]
_LENGTH = r"([A-Za-z_][A-Za-z0-9_]{0,39}=)?[1-9][0-9]{0,9}"
Sizes = Annotated[str, Meta(pattern=rf"^{_LENGTH}([,x]{_LENGTH}){{0,7}}{_END}")]


class FleetCard(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True, kw_only=True):
    """A card with the cases and sizes for measuring pull requests."""

    name: Name
    """Name of the job and of its artifacts."""
    labels: Annotated[tuple[Label, ...], Meta(min_length=1, max_length=16)]
    """Labels of the job. A runner needs all of them."""
    device: Spec = "cuda:0"
    also: Annotated[tuple[Spec, ...], Meta(max_length=8)] = ()
    """Further devices of the host, which the same job measures afterwards."""
    cases: Cases = ()
    sizes: Annotated[tuple[Sizes, ...], Meta(max_length=16)] = ()
    quick: bool = False

    @property
    def devices(self) -> tuple[str, ...]:
        return (self.device, *self.also)

    @property
    def arguments(self) -> tuple[str, ...]:
        """Return the arguments of `harness ci compare`."""
        sizes = (word for size in self.sizes for word in ("--size", size))
        return (*self.cases, "--device", ",".join(self.devices), *sizes, *(["--quick"] if self.quick else []))


class Fleet(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """All cards. An empty list is allowed, and then nothing is measured."""

    cards: Annotated[tuple[FleetCard, ...], Meta(max_length=64)]
    pytest: Annotated[tuple[TestPath, ...], Meta(max_length=16)] = ()
    """Folders of pytest benchmarks that measure pull requests instead of suites."""
    light: bool = False
    """True if pull requests are measured briefly, at the quick sizes. The result fails no check."""


def read_fleet(path: Path) -> Fleet:
    """Return the cards of a file. Raises ConfigError if it is unreadable or invalid."""
    try:
        content = path.read_bytes()
    except OSError as error:
        raise ConfigError(
            f"Cannot read {path}: {error.strerror or error}. 'harness ci init' writes one to begin with."
        ) from None
    return decode_fleet(content, str(path))


def decode_fleet(content: bytes, where: str) -> Fleet:
    """Return the cards of a document. Raises ConfigError, naming its origin `where`, if it is invalid."""
    if len(content) > _LARGEST_BYTES:
        raise ConfigError(f"{where} has {len(content)} bytes; a file of cards has at most {_LARGEST_BYTES}.")
    try:
        fleet = convert(json.loads(content, object_pairs_hook=_once), Fleet)
    except (ValueError, RecursionError) as error:  # msgspec's errors are ValueErrors too
        raise ConfigError(f"{where} is no file of cards: {error}.") from None
    names = [card.name for card in fleet.cards]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise ConfigError(f"{where} names {', '.join(twice)} more than once: each card has its own name.")
    for card in fleet.cards:
        if twice := sorted({spec for spec in card.devices if card.devices.count(spec) > 1}):
            raise ConfigError(f"{where} gives {card.name} the device {', '.join(twice)} more than once.")
        if fleet.light and fleet.pytest:
            raise ConfigError(f"{where} says light and that pytest's benchmarks are measured: drop one.")
        if card.cases and fleet.pytest:
            raise ConfigError(
                f"{where} gives {card.name} cases, and says that pytest's benchmarks are measured: drop one."
            )
    return fleet


def check_patterns(words: Sequence[str]) -> None:
    """Raise RefusedError unless a file of cards may name them as cases: they become words of a command."""
    try:
        convert(tuple(words), Cases)
    except msgspec.ValidationError:
        raise RefusedError(
            f"'{quoted(' '.join(words))}' names no cases: expected up to 64 such as matmul.naive or "
            "matmul.*tiling*, with spaces between them."
        ) from None


def narrowed(fleet: Fleet, words: Sequence[str]) -> Fleet:
    """Return the fleet with these cases, if any, instead of each card's own and pytest's. Raises
    RefusedError.
    """
    check_patterns(words)
    if not words:
        return fleet
    return Fleet(cards=tuple(msgspec.structs.replace(card, cases=tuple(words)) for card in fleet.cards))


def encode_fleet(fleet: Fleet) -> bytes:
    return msgspec.json.format(msgspec.json.encode(fleet), indent=2) + b"\n"


def matrix_of(fleet: Fleet) -> str:
    """Return a job's matrix as a line of JSON, with spaces between arguments and commas between devices."""
    tests = [word for path in fleet.pytest for word in ("--pytest", path)]
    cards = fleet.cards
    if fleet.light:
        cards = tuple(msgspec.structs.replace(card, sizes=(), quick=False) for card in cards)
    jobs = [
        {
            "name": card.name,
            "labels": card.labels,
            "device": ",".join(card.devices),
            "arguments": " ".join((*card.arguments, *tests, *(LIGHT if fleet.light else ()))),
        }
        for card in cards
    ]
    return msgspec.json.encode({"card": jobs}).decode()


def is_light(path: Path) -> bool:
    """Return whether a file of cards, if there is one, requests light comparisons. Raises ConfigError."""
    return path.exists() and read_fleet(path).light


def _once(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    """Return the pairs as a dict. Raises ValueError for duplicates: people read the first,
    parsers the last.
    """
    found = dict(pairs)
    if len(found) < len(pairs):
        keys = [key for key, _ in pairs]
        raise ValueError(f"it says {next(key for key in keys if keys.count(key) > 1)!r} twice")
    return found


GITLAB_FILE = Path(".gitlab-ci.yml")
COPIED = (
    "workflows/perf-pr.yml",
    "workflows/perf-report.yml",
    "workflows/perf-request.yml",
    "workflows/perf-queue.yml",
    "workflows/perf-history.yml",
    "workflows/pages.yml",
    "requirements/report.txt",
)
"""Files below .github, here as in the repository. The requirements are composed beside them."""
STATIC = ("workflows/perf-static.yml", "workflows/perf-static-report.yml")
"""Optional files: the workflow that compiles every pull request, and the one that posts the changes."""
MEASURE_FILE = "requirements/measure.txt"
STATIC_FILE = "requirements/static.txt"
HARNESS_FILE = "requirements/harness.txt"

_PACKAGE = Path(__file__).resolve().parents[1]
_NAME = "gpu-harness"
_SSH = re.compile(r"(?:ssh://)?git@(?P<host>[A-Za-z0-9.-]+)[:/](?P<path>[^@#\s]+)")
_HEX64 = "[0-9a-f]{64}"
_PINNED = (
    re.compile(rf"{_NAME} ?== ?[0-9][A-Za-z0-9.!+]*( --hash=sha256:{_HEX64})+"),
    re.compile(rf"{_NAME} @ git\+https://[^\s@#]+@[0-9a-f]{{40}}"),
    re.compile(rf"{_NAME} @ https://[^\s#]+\.(whl|tar\.gz)#sha256={_HEX64}"),
)
_ABOUT = """\
# The harness that the workflows install, without what it depends on: that is in the other files, by hash.
# One commit or one file of it, as a job that may write runs it. In its own repository, the default branch's.
"""
_GITLAB_SHIPPED = {"perf.yml": "gitlab/perf.yml", "requirements/report.txt": "github/requirements/report.txt"}
_INCLUDING = b"include:\n  - local: .gitlab/perf.yml\n"
_LABELS = ("self-hosted", "linux", "x64", "gpu-my-card")


@dataclass(frozen=True, slots=True, kw_only=True)
class Scaffolded:
    """The result for each file, by its path in the repository. Kept files are the repository's own."""

    written: tuple[str, ...]
    unchanged: tuple[str, ...]
    kept: tuple[str, ...]
    extras: tuple[str, ...]
    """Extras that measuring jobs install."""
    untested: tuple[str, ...]
    """Test folders that are missing from the existing file of cards."""
    unmeasured: tuple[str, ...]
    """Devices of these extras that no card in the file of cards has."""
    light: bool
    """True if the file of cards requests light comparisons."""


def scaffold(
    folder: Path,
    requirement: str | None,
    *,
    extras: Sequence[str] | None = None,
    tests: Sequence[str] = (),
    light: bool = False,
    static: bool = False,
    force: bool = False,
    gitlab: bool = False,
    dry_run: bool = False,
    package: Path = _PACKAGE,
) -> Scaffolded:
    """Write the workflows and their files below a repository's top folder, or GitLab's pipeline.

    `requirement` is the harness that they install; None, if it is not known, is for `dry_run`. `package` is
    the folder of the source files. `extras` are also installed by measuring jobs; None keeps those of the
    existing files. `tests` are folders of pytest benchmarks. They and `light` go into a new file of cards.
    With `static` each pull request is compiled on GitHub's own machines. `force` overwrites files that
    differ, but never the file of cards or .gitlab-ci.yml. With `dry_run` nothing is written.

    Raises UsageError for a wrong folder or requirement and for files in the way, ConfigError for a broken
    file of cards, and StoreError if a file cannot be written; then none is.
    """
    if requirement is not None or not dry_run:
        check_requirement(requirement or "")
    check_folder(folder)
    top = ".gitlab" if gitlab else ".github"
    if extras is None:
        extras = extras_there(folder, top)
    if tests:
        extras = tuple(sorted({*extras, "pytest"}))
    devices = tuple(DEVICES[extra] for extra in extras if extra in DEVICES)
    names = (*COPIED, *STATIC) if static else COPIED
    shipped = _shipped(package, _GITLAB_SHIPPED if gitlab else {name: f"github/{name}" for name in names})
    files = {f"{top}/{name}": content for name, content in shipped.items()}
    files[f"{top}/{MEASURE_FILE}"] = composed(extras)
    if static:
        files[f"{top}/{STATIC_FILE}"] = composed(compiling(extras))
    if requirement is not None or not (folder / top / HARNESS_FILE).is_file():
        files[f"{top}/{HARNESS_FILE}"] = f"{_ABOUT}{requirement}\n".encode()
    own = (GITLAB_FILE if gitlab else FLEET_FILE).as_posix()
    kept = (own,) if (folder / own).exists() else ()
    cards = Fleet(cards=())
    if gitlab:
        files[own] = _INCLUDING
    else:
        cards = read_fleet(folder / own) if kept else _example(devices, tests, light=light)
        files[own] = encode_fleet(cards)
    if kept:
        del files[own]
    changed = _write_changed(folder, files, force=force, dry_run=dry_run)
    measured = {spec.partition(":")[0] for card in cards.cards for spec in card.devices}
    return Scaffolded(
        written=changed,
        unchanged=tuple(name for name in files if name not in changed),
        kept=kept,
        extras=tuple(extras),
        untested=tuple(path for path in tests if path not in cards.pytest),
        unmeasured=tuple(spec for spec in devices if spec.partition(":")[0] not in measured),
        light=cards.light,
    )


def _write_changed(
    folder: Path, files: Mapping[str, bytes], *, force: bool, dry_run: bool
) -> tuple[str, ...]:
    """Write the files that are missing or differ, all or none, and return their names."""

    def is_there(name: str, content: bytes) -> bool:
        path = folder / name
        return path.is_file() and not path.is_symlink() and path.read_bytes() == content

    try:
        changed = {name: content for name, content in files.items() if not is_there(name, content)}
        if not force and (in_the_way := [name for name in changed if os.path.lexists(folder / name)]):
            raise UsageError(
                f"In {folder} there are already {', '.join(in_the_way)}. Nothing was written; --force "
                "overwrites them."
            )
        if not dry_run:
            write_all({folder / name: content for name, content in changed.items()}, folder)
    except OSError as error:
        raise StoreError(
            f"Cannot write the workflows into {folder}: {error.strerror or error} ({error.filename}). "
            "Nothing was changed there."
        ) from None
    return tuple(changed)


def check_requirement(requirement: str) -> None:
    """Raise UsageError unless it names one commit or file, because a job with a write token installs it."""
    if requirement != "." and not any(form.fullmatch(requirement) for form in _PINNED):
        raise UsageError(
            f"The requirement {requirement!r} may come to mean other code, and a job that may write would "
            "run it. Give one of: "
            f"'{_NAME} @ git+https://HOST/OWNER/REPOSITORY@COMMIT' with all 40 digits, "
            f"'{_NAME}==VERSION --hash=sha256:HASH' with a hash for each of its files that may be used, "
            f"'{_NAME} @ https://HOST/FILE.whl#sha256=HASH'; "
            "or '.' in a repository that is the harness itself."
        )


def own_requirement() -> str | None:
    """Return the single commit or file that this harness was installed from; None otherwise.

    For an editable installation it is the clone's commit, if the clone's remote has it. No package index is
    asked: anybody may own the name gpu-harness there.
    """
    try:
        recorded = distribution(_NAME).read_text("direct_url.json")
        origin = json.loads(recorded or "{}")
        url = origin.get("url", "")
        if commit := origin.get("vcs_info", {}).get("commit_id"):
            found = f"{_NAME} @ git+{url}@{commit}"
        elif origin.get("dir_info", {}).get("editable"):
            found = _of_clone(Path(unquote(urlsplit(url).path)))
        else:
            found = f"{_NAME} @ {url}#sha256={origin['archive_info']['hashes']['sha256']}"
        check_requirement(found)
    except (PackageNotFoundError, AttributeError, LookupError, TypeError, ValueError, UsageError):
        return None
    return found


def _of_clone(folder: Path) -> str:
    """Return the commit of a clone as a requirement. Raises UsageError if its remote lacks it."""
    commit = ask(folder, "rev-parse", "HEAD").decode().strip()
    if not ask(folder, "branch", "--remotes", "--contains", commit).strip():
        raise UsageError(f"No branch of a remote has {commit}, which {folder} has checked out: push it.")
    url = ask(folder, "remote", "get-url", "origin").decode().strip()
    if ssh := _SSH.fullmatch(url):
        url = f"https://{ssh['host']}/{ssh['path']}"
    return f"{_NAME} @ git+{url}@{commit}"


def extras_there(folder: Path, top: str = ".github") -> tuple[str, ...]:
    """Return the extras that the jobs of a repository already install, by its requirements."""
    try:
        return extras_of((folder / top / MEASURE_FILE).read_bytes())
    except OSError:
        return ()


def _example(more: Sequence[str], tests: Sequence[str], *, light: bool) -> Fleet:
    card = FleetCard(name="my-card", labels=_LABELS, also=tuple(more))
    try:
        made = {"cards": [msgspec.to_builtins(card)], "pytest": list(tests), "light": light}
        return convert(made, Fleet)
    except msgspec.ValidationError as error:
        raise UsageError(f"--pytest takes folders of the repository, such as benchmarks: {error}.") from None


def next_steps(forge: str) -> str:
    """Return the remaining manual steps at a forge, ``github`` or ``gitlab``, in order."""
    return read_shipped(Path(__file__).with_name(forge) / "next_steps.txt", "next steps").decode()


def _shipped(package: Path, places: Mapping[str, str]) -> Mapping[str, bytes]:
    """Return this project's files for these places, by their new names."""
    folder = package / "ci"

    def place(name: str) -> Path:
        # An installed package contains copies from its build; a checkout has the originals.
        in_checkout = name.startswith("github/") and not (folder / "github" / "workflows").is_dir()
        return package.parent / f".{name}" if in_checkout else folder / name

    return {name: read_shipped(place(asset), "workflows") for name, asset in places.items()}


def check_folder(folder: Path) -> None:
    """Raise UsageError unless it is the top folder of a git repository."""
    if not folder.is_dir():
        raise UsageError(f"{folder} is no folder. Give the top folder of a git repository.")
    top = repository_of(folder)
    if top is None or top.resolve() != folder.resolve():
        where = f"the top of this one is {top}" if top else "it is in no git repository"
        raise UsageError(f"Workflows are read at the top of a repository, not in {folder}: {where}.")
