"""Vendor the scripts of the inspector's pages from npm packages: `python -m tools.vendor_pages [--check]`

The lock file names each package, its version, the integrity of its archive (as npm's own lock files do), and for each
file its path in the package and the SHA-256 of what is committed. `--check` compares the committed files with the lock
file, and needs no network. Without it, npm downloads the archives, and the files are written again. A new version:
change it in PACKAGES, run this, and commit the files with the lock file.

The changes to a file: an import of "preact" becomes one of "./preact.js", because browsers do not know package names,
and uPlot's minified script, which sets a global name, becomes a module.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).resolve().parents[1] / "src/rillet/inspector/static/vendor"
LOCK = FOLDER / "vendor.lock.json"
# package: (version, licence, {path in the package: name here})
PACKAGES: dict[str, tuple[str, str, dict[str, str]]] = {
    "preact": ("11.2.0", "MIT", {
        "dist/preact.mjs": "preact.js", "hooks/dist/hooks.mjs": "hooks.js", "LICENSE": "preact.LICENSE"}),
    "htm": ("3.1.1", "Apache-2.0", {"dist/htm.module.js": "htm.js", "LICENSE": "htm.LICENSE"}),
    "uplot": ("1.6.32", "MIT", {
        "dist/uPlot.iife.min.js": "uplot.js", "dist/uPlot.min.css": "uplot.css", "LICENSE": "uplot.LICENSE"}),
}  # fmt: skip


def fetched(package: str, version: str, folder: Path) -> tuple[Path, str]:
    """Return the archive of a package, and its integrity."""
    made = subprocess.run(
        ["npm", "pack", f"{package}@{version}", "--silent", "--pack-destination", str(folder)],
        check=True, capture_output=True, text=True, cwd=folder,
    )  # fmt: skip
    archive = folder / made.stdout.strip().splitlines()[-1]
    digest = base64.b64encode(hashlib.sha512(archive.read_bytes()).digest()).decode()
    return archive, f"sha512-{digest}"


def adapted(data: bytes, name: str) -> bytes:
    """Return a file as a browser loads it: without names of packages, and without the address of a source map."""
    if not name.endswith(".js"):
        return data
    text = re.sub(r"""from\s*(["'])preact\1""", 'from"./preact.js"', data.decode())
    text = re.sub(r"\n?//# sourceMappingURL=.*\s*$", "", text)
    if name == "uplot.js":
        text += "\nexport default uPlot;"
    return text.rstrip().encode() + b"\n"


def vendor() -> None:
    """Download the packages, and write the files and the lock file."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    old = json.loads(LOCK.read_text())["packages"] if LOCK.exists() else {}
    lock: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as temporary:
        for package, (version, licence, paths) in PACKAGES.items():
            archive, integrity = fetched(package, version, Path(temporary))
            known = old.get(package, {})
            if known.get("version") == version and known["integrity"] != integrity:
                raise SystemExit(f"{package} {version}: the archive is not the one of the lock file")
            files = {}
            with tarfile.open(archive) as contents:
                for path, name in paths.items():
                    member = contents.extractfile(f"package/{path}")
                    assert member is not None
                    data = adapted(member.read(), name)
                    (FOLDER / name).write_bytes(data)
                    files[name] = {"path": path, "sha256": hashlib.sha256(data).hexdigest()}
            lock[package] = {"version": version, "license": licence, "integrity": integrity, "files": files}
    LOCK.write_text(json.dumps({"packages": lock}, indent=2) + "\n")


def problems() -> list[str]:
    """Return what differs between the committed files and the lock file."""
    found = []
    packages = json.loads(LOCK.read_text())["packages"]
    names = {LOCK.name}
    for package, about in packages.items():
        if PACKAGES.get(package, ("",))[0] != about["version"]:
            found.append(f"{package}: the lock file has version {about['version']}")
        if not any(name.endswith("LICENSE") for name in about["files"]):
            found.append(f"{package}: the licence is missing")
        for name, file in about["files"].items():
            names.add(name)
            path = FOLDER / name
            if not path.exists() or hashlib.sha256(path.read_bytes()).hexdigest() != file["sha256"]:
                found.append(f"{name}: differs from the lock file")
    found += [f"{path.name}: not in the lock file" for path in FOLDER.iterdir() if path.name not in names]
    return found


def main(arguments: list[str]) -> int:
    """Vendor, or check; return the exit status."""
    if "--check" not in arguments:
        vendor()
    found = problems()
    print("\n".join(found) or f"rillet: {len(PACKAGES)} vendored packages match their lock file")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
