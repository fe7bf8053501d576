"""Uploads the files of a model, with its card as README.md, to the Hugging Face Hub."""

import re
import shutil
import tempfile
from pathlib import Path

README = "README.md"


def check_push(repository: str):
    """Raises ValueError for a name of another form or without a login, and ImportError without huggingface_hub."""
    if not re.fullmatch(r"[\w.-]+/[\w.-]+", repository):
        raise ValueError(f"--push must be owner/name, a repository of the Hugging Face Hub. Received: {repository!r}")
    try:
        from huggingface_hub import get_token
    except ImportError as error:
        raise ImportError("--push requires huggingface_hub: pip install 'keras_vit[hub]'.") from error
    if get_token() is None:
        raise ValueError("--push requires a login: run `hf auth login` with a token that may write, or set HF_TOKEN.")


def push(files: list[Path], card: Path, repository: str) -> str:
    """Uploads files in one commit and creates the repository if there is none; returns its address.

    Other files of the repository are not changed. The login is that of `hf auth login`, or HF_TOKEN.

    Args:
        files: Of the model.
        card: The one of them that becomes README.md.
        repository: "owner/name".

    Raises:
        ConnectionError: The Hub cannot be reached or refuses, for example without a login. The files are unchanged.
    """
    from huggingface_hub import HfApi

    api = HfApi()
    with tempfile.TemporaryDirectory() as folder:
        for file in files:
            shutil.copy(file, Path(folder) / (README if file == card else file.name))
        try:
            address = api.create_repo(repository, exist_ok=True)
            message = "Upload a model with keras-vit"
            api.upload_folder(repo_id=repository, folder_path=folder, commit_message=message)
        except Exception as error:  # errors of HTTP and the transfer share no class
            reason = " ".join(str(error).split())[:300].rstrip(".")
            raise ConnectionError(
                f"The files could not be uploaded to {repository!r} of the Hugging Face Hub: {reason}. Check the "
                "network and that the token of `hf auth login` or HF_TOKEN may write, or upload them by other means: "
                f"{', '.join(str(file.absolute()) for file in files)}."
            ) from error
    return str(address)
