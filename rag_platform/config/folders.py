"""Locates configuration (the user's config folder overrides the shipped one file by file) and the
default data root.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from rag_platform.errors import ConfigError

APP = "rag-platform"  # the folder of the user's config and data
PACKAGE = Path(__file__).resolve().parents[1]
SHIPPED = PACKAGE / "defaults"  # the shipped config folder
SAMPLES = PACKAGE / "samples"  # documents that `rag demo` ingests
DEMO = "demo"  # the library of `rag demo`, which the shipped datasets are about
LEDGER = "ledger.sqlite"


def config_dir() -> Path:
    """The user's config folder: `RAG_CONFIG`, else `./config` if it has a settings.yaml, else the
    platform's. It may not exist.
    """
    if explicit := os.environ.get("RAG_CONFIG"):
        return Path(explicit)
    local = Path("config")
    if (local / "settings.yaml").is_file():
        return local
    return _platform_folder("user_config_path")


def config_folders(name: str = "") -> tuple[Path, Path]:
    """The user's folder of that name, whose files take precedence, and the shipped one."""
    return config_dir() / name, SHIPPED / name


def config_file(name: str) -> Path:
    """A file of the config: the user's, else the shipped one, which may not exist."""
    own, shipped = config_folders(name)
    return own if own.is_file() else shipped


def config_files(folder: str) -> Iterator[Path]:
    """The files of a folder of the config: the user's, then the shipped ones of other names."""
    seen: set[str] = set()
    for place in config_folders(folder):
        for path in sorted(place.iterdir()) if place.is_dir() else ():
            if path.is_file() and path.name not in seen:
                seen.add(path.name)
                yield path


def _is_data_root(folder: Path) -> bool:
    """True for a folder with a ledger, or with ingested data whose ledger is elsewhere."""
    return (folder / LEDGER).is_file() or any(folder.glob("configs/scfg_*.json"))


def default_home() -> Path:
    """The default data root: `./data` if it is a data root or empty, else the platform's folder for
    user data.
    """
    local = Path("data")
    if _is_data_root(local) or (local.is_dir() and not any(local.iterdir())):
        return local
    return _platform_folder("user_data_path")


def _platform_folder(kind: str) -> Path:
    import platformdirs

    try:
        found: Path = getattr(platformdirs, kind)(APP, appauthor=False)
    except RuntimeError as error:  # neither HOME nor a user of the system names one
        raise ConfigError("this user has no home folder; set HOME to one") from error
    return found


def environment(home: Path) -> dict[str, str]:
    """The environment variables that point a child process to this data root and config."""
    folder = config_dir().resolve()
    return {"RAG_HOME": str(home), **({"RAG_CONFIG": str(folder)} if folder.is_dir() else {})}
