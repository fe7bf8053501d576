"""One file over HTTP to disk: with a time-out, resumed where an earlier one ended, compared with its checksum."""

import base64
import errno
import hashlib
import http.client
import os
import re
import shutil
import time
import urllib.request
import uuid
from pathlib import Path
from urllib.error import HTTPError

# A server that sends nothing for this long is given up.
TIMEOUT_S = 60
# Connections per call; each continues where the previous one ended.
ATTEMPTS = 5
# A live download writes more often than this. A partial file that is older belongs to a killed process.
STALE_SECONDS = 10 * TIMEOUT_S
CHUNK_BYTES = 1 << 20


def fetch(address: str, path: Path, check) -> None:
    """Downloads a file; it appears at `path` when it is complete.

    Several processes may fetch the same file at once: each writes a file of its own, and all are equal. What a failed
    download received remains beside `path` in a hidden file, which the next call continues.

    Args:
        address: An http or https address.
        path: The file; its folder must exist.
        check: Function of the downloaded file: whether it is intact.

    Raises:
        HTTPError: The server refuses.
        ConnectionError: The transfer failed, or the file is not intact or not what the server's MD5 says; a file that
            is complete but wrong is removed.
        OSError: The file cannot be written, or the disk has too little space for it.
    """
    part = _claim_part(path)
    try:
        resumed = part.stat().st_size > 0 if part.exists() else False
        digest = _receive(address, part)
        if resumed and not (_matches(part, digest) and check(part)):  # the file on the server changed in between
            part.unlink()
            digest = _receive(address, part)
        if not _matches(part, digest):
            part.unlink()
            raise ConnectionError("the MD5 of what arrived is not the one that the server states")
        if not check(part):
            part.unlink()
            raise ConnectionError("what arrived is damaged or incomplete")
        os.replace(part, path)
        _free_part(path).unlink(missing_ok=True)
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
            part.unlink(missing_ok=True)
        raise
    finally:
        if part.exists():  # free for the next call
            os.replace(part, _free_part(path))


def _free_part(path) -> Path:
    return path.with_name(f".{path.name}.part")


def _claim_part(path) -> Path:
    """A file that only this process writes: what an earlier download left, or a new one."""
    mine = path.with_name(f".{path.name}-{uuid.uuid4().hex}.part")
    stale = [part for part in path.parent.glob(f".{_escaped(path.name)}-*.part") if _age_seconds(part) > STALE_SECONDS]
    for part in (_free_part(path), *stale):
        try:
            os.utime(part)  # before it is renamed, so that nobody finds it stale under its new name
            os.rename(part, mine)  # of several processes, one succeeds
        except FileNotFoundError:
            continue
    return mine


def _escaped(name):
    return re.sub(r"([*?[])", r"[\1]", name)


def _age_seconds(file) -> float:
    try:
        return time.time() - file.stat().st_mtime
    except FileNotFoundError:  # another process renamed it
        return 0.0


def _receive(address, part) -> bytes | None:
    """Appends to a partial file until it is complete; returns the MD5 of the whole file, if the server states it."""
    for attempt in range(ATTEMPTS):
        start = part.stat().st_size if part.exists() else 0
        try:
            return _receive_once(address, part, start)
        except HTTPError as error:
            if error.code != 416 or not start:
                raise
            error.close()
            part.unlink()  # longer than the file on the server
        except (TimeoutError, http.client.HTTPException, ConnectionError) as error:
            received = part.stat().st_size if part.exists() else 0
            if received <= start or attempt == ATTEMPTS - 1:
                reason = f"the server sent nothing for {TIMEOUT_S} s" if isinstance(error, TimeoutError) else error
                raise ConnectionError(f"{reason}; {received:,} bytes are kept for the next try") from error
    raise ConnectionError("the server refuses to continue the download")


def _receive_once(address, part, start) -> bytes | None:
    request = urllib.request.Request(address, headers={"Range": f"bytes={start}-"} if start else {})
    with urllib.request.urlopen(request, timeout=TIMEOUT_S) as response:
        begin, total = _extent(response)
        if begin != start:
            start = 0  # the whole file, from a server that cannot continue
        if total is not None and total - start > (free := shutil.disk_usage(part.parent).free):
            raise OSError(f"{part.parent} has {free:,} bytes free, but the file has {total:,}: free some space")
        import keras

        bar = keras.utils.Progbar(total)
        with open(part, "ab" if start else "wb") as file:
            received = start
            while chunk := response.read1(CHUNK_BYTES):
                file.write(chunk)
                received += len(chunk)
                bar.update(received if total is None else min(received, total))
        if total is not None and received != total:
            raise ConnectionError(f"received {received:,} of {total:,} bytes")
        return _md5(response.headers)


def _extent(response) -> tuple[int, int | None]:
    """The first byte of a response and the size of the whole file, None if unknown."""
    if response.status == 206:
        match = re.fullmatch(r"bytes (\d+)-\d+/(\d+)", response.headers.get("Content-Range", ""))
        if not match:
            raise ConnectionError("the server sent a part without saying which")
        return int(match[1]), int(match[2])
    return 0, response.length


def _md5(headers) -> bytes | None:
    """The MD5 that Google Cloud Storage states of a file; composite objects have none."""
    values = ",".join(headers.get_all("x-goog-hash", []))
    match = re.search(r"\bmd5=([\w+/]{22}==)", values)
    return base64.b64decode(match[1]) if match else None


def _matches(part, digest) -> bool:
    if digest is None:
        return True
    with open(part, "rb") as file:
        return hashlib.file_digest(file, lambda: hashlib.md5(usedforsecurity=False)).digest() == digest
