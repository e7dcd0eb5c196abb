"""Fetch what asv's index.html wants from the npm registry and rewrite harness/integrations/asv/vendor.

For maintainers, when a new asv loads other files:

    python scripts/vendor_assets.py           rewrite the folder
    python scripts/vendor_assets.py --check   compare the folder with a fresh one; status 1 when they differ

It needs npm and that asv, and stops when asv names a file that the table below does not have.
"""

from __future__ import annotations

import argparse
import base64
import filecmp
import hashlib
import shutil
import subprocess
import sys
import tarfile
import tempfile
from dataclasses import dataclass
from importlib.metadata import version
from importlib.resources import files
from pathlib import Path

import msgspec

from harness.integrations.asv.publish import ASSETS, VENDOR, Asset, VendorManifest, find_remote_loads

TARGET = ASSETS / VENDOR

CDNJS = "https://cdnjs.cloudflare.com/ajax/libs"
JSDELIVR = "https://cdn.jsdelivr.net/npm"

READABLE = (
    "asv names a minified copy that the CDN made; npm has only the author's source of the same version, kept "
    "as it is."
)
UGLIFIED = (
    f"{READABLE} Checked once: uglify-js 2.6.1 with mangling and keep_fargs=false turns it into the CDN's "
    "exact bytes."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class File:
    source: str
    """Inside the package."""
    path: str = ""
    """Below the package's folder; the source's last part when empty."""
    url: str | None = None
    note: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Package:
    name: str
    version: str
    licence: str
    licence_file: str | None
    """None where the package ships none: the head of its first file states the licence."""
    files: tuple[File, ...]

    @property
    def folder(self) -> str:
        """With the version, so that a host's long-lived cache never serves an old file under a new page."""
        return f"{self.name}-{self.version}"


PACKAGES = (
    Package(
        name="jquery",
        version="3.3.1",
        licence="MIT",
        licence_file="LICENSE.txt",
        files=(File(source="dist/jquery.min.js", url="https://code.jquery.com/jquery-3.3.1.min.js"),),
    ),
    Package(
        name="flot",
        version="0.8.3",
        licence="MIT",
        licence_file="LICENSE.txt",
        files=(
            File(
                source="jquery.flot.js",
                url=f"{CDNJS}/flot/0.8.3/jquery.flot.min.js",
                note=READABLE,
            ),
            *(
                File(
                    source=f"jquery.flot.{plugin}.js",
                    url=f"{CDNJS}/flot/0.8.3/jquery.flot.{plugin}.min.js",
                    note=UGLIFIED,
                )
                for plugin in ("time", "selection", "categories")
            ),
        ),
    ),
    Package(
        name="flot-orderbars",
        version="1.0.0",
        licence="MIT",
        licence_file=None,
        files=(
            File(
                source="js/jquery.flot.orderBars.js",
                url=f"{JSDELIVR}/flot-orderbars@1.0.0/js/jquery.flot.orderBars.js",
            ),
        ),
    ),
    Package(
        name="stupid-table-plugin",
        version="1.1.3",
        licence="MIT",
        licence_file="LICENSE",
        files=(
            File(
                source="stupidtable.min.js",
                url=f"{CDNJS}/stupidtable/1.0.1/stupidtable.min.js",
                note="asv names 1.0.1; npm has only 1.1.3, which keeps the calls and events that asv uses "
                "and sorts equal rows stably.",
            ),
        ),
    ),
    Package(
        name="blueimp-md5",
        version="2.19.0",
        licence="MIT",
        licence_file="LICENSE.txt",
        files=(
            File(source="js/md5.min.js", url=f"{CDNJS}/blueimp-md5/2.19.0/js/md5.min.js"),
            File(source="js/md5.min.js.map", note="Named by md5.min.js; fetched by developer tools only."),
        ),
    ),
    Package(
        name="bootstrap",
        version="3.1.1",
        licence="MIT",
        licence_file="LICENSE",
        files=(
            File(
                source="dist/js/bootstrap.min.js",
                path="js/bootstrap.min.js",
                url=f"{JSDELIVR}/bootstrap@3.1.1/dist/js/bootstrap.min.js",
            ),
            File(
                source="dist/css/bootstrap.min.css",
                path="css/bootstrap.min.css",
                url=f"{JSDELIVR}/bootstrap@3.1.1/dist/css/bootstrap.min.css",
            ),
            *(
                File(
                    source=f"dist/fonts/glyphicons-halflings-regular.{suffix}",
                    path=f"fonts/glyphicons-halflings-regular.{suffix}",
                    note="Named by bootstrap.min.css; fetched for a glyphicon only, and asv shows none.",
                )
                for suffix in ("eot", "svg", "ttf", "woff")
            ),
        ),
    ),
)

MIT = """\
Permission is hereby granted, free of charge, to any person obtaining a copy of this software and
associated documentation files (the "Software"), to deal in the Software without restriction,
including without limitation the rights to use, copy, modify, merge, publish, distribute,
sublicense, and/or sell copies of the Software, and to permit persons to whom the Software is
furnished to do so, subject to the following conditions:

The above copyright notice and this permission notice shall be included in all copies or substantial
portions of the Software.

THE SOFTWARE IS PROVIDED "AS IS", WITHOUT WARRANTY OF ANY KIND, EXPRESS OR IMPLIED, INCLUDING BUT
NOT LIMITED TO THE WARRANTIES OF MERCHANTABILITY, FITNESS FOR A PARTICULAR PURPOSE AND
NONINFRINGEMENT. IN NO EVENT SHALL THE AUTHORS OR COPYRIGHT HOLDERS BE LIABLE FOR ANY CLAIM, DAMAGES
OR OTHER LIABILITY, WHETHER IN AN ACTION OF CONTRACT, TORT OR OTHERWISE, ARISING FROM, OUT OF OR IN
CONNECTION WITH THE SOFTWARE OR THE USE OR OTHER DEALINGS IN THE SOFTWARE.
"""


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("--check", action="store_true", help="compare instead of writing")
    check = parser.parse_args().check
    with tempfile.TemporaryDirectory() as scratch:
        fresh = Path(scratch) / VENDOR
        build(fresh, Path(scratch))
        if check:
            different = differences(fresh, TARGET)
            print("\n".join(different) or "the vendored files are up to date")
            return int(bool(different))
        if TARGET.exists():
            shutil.rmtree(TARGET)
        shutil.copytree(fresh, TARGET)
    print(f"wrote {TARGET}")
    return 0


def build(vendor: Path, scratch: Path) -> None:
    wanted = asv_loads()
    known = {file.url for package in PACKAGES for file in package.files if file.url}
    if wanted.keys() != known:
        sys.exit(f"asv and the table of packages differ, correct the table: {sorted(wanted.keys() ^ known)}")
    assets, licences = [], []
    for package in PACKAGES:
        content = unpack(package, scratch)
        for file in package.files:
            asset = describe(package, file, content[file.source], wanted)
            target = vendor / asset.path
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(content[file.source])
            assets.append(asset)
        licences.append(licence_text(package, content))
    manifest = VendorManifest(asv=version("asv"), assets=tuple(assets))
    text = msgspec.json.format(msgspec.json.encode(manifest), indent=2)
    (vendor / "manifest.json").write_bytes(text + b"\n")
    (vendor / "LICENSES.txt").write_text("\n".join(licences), encoding="utf-8")


def asv_loads() -> dict[str, str | None]:
    """Each remote URL in asv's index.html with its integrity."""
    html = (files("asv") / "www" / "index.html").read_text(encoding="utf-8")
    return find_remote_loads(html)


def unpack(package: Package, scratch: Path) -> dict[str, bytes]:
    """Every file of a package by its path inside it."""
    # npm itself checks the tarball against the digest that the registry states.
    packed = subprocess.run(
        ["npm", "pack", "--silent", "--pack-destination", scratch, f"{package.name}@{package.version}"],
        check=True,
        stdout=subprocess.PIPE,
        text=True,
    )
    with tarfile.open(scratch / packed.stdout.split()[-1]) as tarball:
        members = {member.name.split("/", 1)[-1]: member for member in tarball if member.isfile()}
        return {path: reader.read() for path, m in members.items() if (reader := tarball.extractfile(m))}


def describe(package: Package, file: File, content: bytes, wanted: dict[str, str | None]) -> Asset:
    integrity = wanted[file.url] if file.url else None
    return Asset(
        path=f"{package.folder}/{file.path or Path(file.source).name}",
        package=package.name,
        version=package.version,
        licence=package.licence,
        sha256=hashlib.sha256(content).hexdigest(),
        url=file.url,
        integrity=integrity,
        matches_upstream_integrity=matches(content, integrity) if integrity else None,
        note=file.note,
    )


def matches(content: bytes, integrity: str) -> bool:
    algorithm, _, digest = integrity.partition("-")
    return base64.b64encode(hashlib.new(algorithm, content).digest()).decode() == digest


def licence_text(package: Package, content: dict[str, bytes]) -> str:
    if package.licence_file is None:
        head = content[package.files[0].source].decode().split("*/")[0]
        text = f"The head of {package.files[0].source} says:\n\n{head}*/\n\nThat licence reads:\n\n{MIT}"
    else:
        text = content[package.licence_file].decode()
    lines = [line.rstrip() for line in text.strip().splitlines()]
    title = f"{package.name} {package.version} ({package.licence})"
    return "\n".join([title, "=" * len(title), "", *lines, ""])


def differences(fresh: Path, current: Path) -> list[str]:
    files_of = (
        path.relative_to(root) for root in (fresh, current) for path in root.rglob("*") if path.is_file()
    )
    _, different, missing = filecmp.cmpfiles(fresh, current, {str(path) for path in files_of}, shallow=False)
    return sorted([*different, *missing])


if __name__ == "__main__":
    sys.exit(main())
