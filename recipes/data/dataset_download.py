"""Downloads by TensorFlow Datasets: a missing connection is reported at once, not after minutes of retries."""

from contextlib import suppress
from urllib.parse import urlsplit

SECONDS = 10  # to connect: a firewall may drop packets instead of rejecting them


def download_and_prepare(builder, name: str):
    """Downloads and prepares a dataset, unless it is prepared.

    Args:
        builder: Of TensorFlow Datasets.
        name: As in the recipe.

    Raises:
        ConnectionError: The server of its files cannot be reached. The message says what to use instead.
    """
    import requests  # TensorFlow Datasets downloads with it: the check has the same proxies and certificates

    try:
        if url := _first_download(builder):
            with suppress(requests.ReadTimeout), requests.get(url, stream=True, timeout=SECONDS):
                pass  # it answers, or is slow to
        builder.download_and_prepare()
    except requests.ConnectionError as error:
        host = urlsplit(str(error.request.url)).hostname if error.request else "a server"
        kind = type(error).__name__
        reason = "" if kind == "ConnectionError" else f" ({kind})"  # such as ProxyError, SSLError
        raise ConnectionError(
            f"The dataset {name!r} cannot be downloaded: no connection to {host}{reason}. Check the network, or use "
            "the dataset 'folder:/path' with /path/<split>/<class>/<image>, or copy the dataset from a machine where "
            f"it was prepared to {builder.data_dir}."
        ) from error


def _first_download(builder) -> str | None:
    """The address of one of the files to download; None if there is none, or some are there already."""
    if builder.data_path.exists() or builder.MANUAL_DOWNLOAD_INSTRUCTIONS:
        return None
    addresses = [url for url in builder.url_infos or () if url.startswith("http")]
    # Beside each downloaded file is an .INFO file; in manual/ are files that were downloaded by other means.
    downloads = builder.data_dir_root / "downloads"
    patterns = ("*.INFO", f"{builder.name}/*.INFO", "manual/*")
    return None if any(any(downloads.glob(pattern)) for pattern in patterns) else next(iter(addresses), None)
