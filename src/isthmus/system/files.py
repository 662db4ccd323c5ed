"""Files that are written whole or not at all."""

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO


@contextmanager
def overwrite(path: Path, *, sync: bool = False) -> Iterator[BinaryIO]:
    """Opens a file to write anew; it takes the place of what was there when all is written.

    Who reads meanwhile finds the old file whole, or none where there was none; so does everybody if
    the writing fails, or the process dies, which may leave a draft that ends in ".part". Drafts
    have names of their own, so several processes and threads may write one file: the last one
    stays, whole. With `sync` the bytes are on the disk before the name is theirs. What is there and
    no regular file, such as /dev/null or a pipe, is written into and stays what it is.
    """
    if path.exists() and not path.is_file():
        with path.open("wb") as file:
            yield file
        return
    draft = path.with_name(f"{path.name}.{secrets.token_hex(4)}.part")
    try:
        with draft.open("xb") as file:
            yield file
            if sync:
                file.flush()
                os.fsync(file.fileno())
        draft.replace(path)
    except BaseException:
        draft.unlink(missing_ok=True)
        raise


def write_bytes(path: Path, data: bytes, *, sync: bool = False) -> None:
    """Writes a file as `overwrite` does."""
    with overwrite(path, sync=sync) as file:
        file.write(data)


def write_text(path: Path, text: str, *, sync: bool = False) -> None:
    """Writes a file of text as `overwrite` does, in UTF-8, with its line ends as they are."""
    write_bytes(path, text.encode("utf-8"), sync=sync)
