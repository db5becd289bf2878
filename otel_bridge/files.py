"""
Files that are replaced as a whole.

Invariants
* Under its name a reader finds the file as it was or as it is to be, whenever a process ends.
* It belongs to its owner alone. Where root writes it, the owner is that of the folder: the bridge runs as somebody else.
"""

import os
from pathlib import Path

PART = ".part"
"""What follows the name of a file that is not whole yet. One that a crash left behind is overwritten."""


def replace_file(path: Path, data: bytes) -> None:
    """
    Let `path` hold `data`, which are on disk by then; their name is once the folder is, see `sync_folder`.

    Not to be called for one path twice at a time. Raises OSError, and then the file is as it was.
    """
    part = path.with_name(path.name + PART)
    part.unlink(missing_ok=True)
    handle = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)  # never what a link names
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            if os.geteuid() == 0:
                folder = path.parent.stat()
                os.fchown(handle, folder.st_uid, folder.st_gid)  # not by its name, which the folder's owner may give to another
            os.fsync(handle)
        part.replace(path)
    except BaseException:
        part.unlink(missing_ok=True)
        raise


def sync_folder(folder: Path) -> None:
    """Bring to disk which files a folder has, and their names. Raises OSError."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
