"""Removes folders of tables that nobody needs any more."""

import contextlib
import json
import re
from pathlib import Path
from typing import Final

import structlog

from onager.exchange_layout import SUCCESS, has_scheme, is_staged_name, local_path
from onager.executor.exchange import description
from onager.executor.exchange.directory import remove_tree
from onager.private_paths import PrivatePaths, steps_back

log = structlog.get_logger(__name__)

REPLACED: Final = "_replaced"
"""The list of the files that rows replace, in their folder."""
_MARKS: Final = frozenset({SUCCESS, description.NAME})
_OWN: Final = re.compile(r".+-[0-9a-f]{16}")


def remove_table_folder(folder: str, private: PrivatePaths) -> None:
    """Remove the folder of a managed table, or what a list names, and the list; harmless to repeat.

    A folder that is not named as such folders are, or is where Onager keeps files of its own, stays.
    """
    path = Path(local_path(folder))
    is_list = path.name == REPLACED
    own = path.parent.name if is_list else path.name
    if has_scheme(folder) or steps_back(folder) or not _OWN.fullmatch(own) or private.meets(folder):
        log.warning("table_folder_stays", folder=folder, why="its name is not one that Onager gives")
    elif is_list:
        _remove_listed(path)
    else:
        remove_tree(path)
        log.info("table_folder_removed", folder=folder)


def _remove_listed(listed: Path) -> None:
    """Remove the files that *listed* names, then itself: files below the table's folder, whatever it says."""
    home = listed.parent.parent
    try:
        files = json.loads(listed.read_bytes())
    except FileNotFoundError:
        return
    except ValueError as error:
        log.warning("replaced_files_stay", list=str(listed), error=str(error))
        return
    named = [file for file in files if isinstance(file, str) and is_staged_name(file)]
    folders = set[Path]()
    for file in named:
        path = home / file
        path.unlink(missing_ok=True)
        folders |= {parent for parent in path.parents if parent.is_relative_to(home) and parent != home}
    for folder in sorted(folders, reverse=True):
        _remove_empty(folder)
    listed.unlink(missing_ok=True)
    _remove_empty(listed.parent)
    log.info("replaced_files_removed", list=str(listed), files=len(named), others=len(files) - len(named))


def _remove_empty(folder: Path) -> None:
    """Remove a folder in which there is nothing but what every dataset has; rows may come to it at the same time."""
    with contextlib.suppress(OSError):  # it is gone, or not empty
        if {path.name for path in folder.iterdir()} <= _MARKS:
            for mark in _MARKS:
                (folder / mark).unlink(missing_ok=True)
            folder.rmdir()
