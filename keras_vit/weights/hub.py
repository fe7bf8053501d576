"""Checkpoints of the Hugging Face Hub by name: "hf:google/vit-base-patch16-224", "hf:owner/name@revision"."""

import re
from pathlib import Path

# Descriptions and plain tensors. Pickled weights (.bin, .pt) run code when they are opened and are never fetched.
PATTERNS = ("config.json", "preprocessor_config.json", "*.safetensors", "*.safetensors.index.json")


def download_hf(name: str) -> Path:
    """Downloads config.json, preprocessor_config.json and *.safetensors of a repository, unless they are cached.

    The cache is that of huggingface_hub (HF_HOME); a repository that is there needs no network.

    Args:
        name: "hf:owner/name", or "hf:owner/name@revision" with a branch, a tag, a commit or "refs/pr/1".

    Returns:
        The local folder that holds the files.

    Raises:
        ValueError: The name is not of that form, or the repository has no .safetensors file.
        ModuleNotFoundError: huggingface_hub is not installed.
        ConnectionError: The repository cannot be had: no network, no such repository or revision, or not for you.
    """
    match = re.fullmatch(r"hf:([\w.-]+/[\w.-]+)(?:@([\w./-]+))?", str(name))
    if not match:
        raise ValueError(
            f'A checkpoint of the Hugging Face Hub is named "hf:owner/name" or "hf:owner/name@revision", such as '
            f'"hf:google/vit-base-patch16-224". Received: {name!r}.'
        )
    repository, revision = match.groups()
    try:
        from huggingface_hub import snapshot_download
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(f"{name!r} needs huggingface_hub: pip install huggingface_hub") from error
    address = f"https://huggingface.co/{repository}"
    try:
        folder = snapshot_download(repository, revision=revision, allow_patterns=list(PATTERNS))
    except Exception as error:  # its errors share no class: of HTTP, of the cache, of the transfer
        raise ConnectionError(
            f"{name!r} cannot be had from {address}: {error} Check the name and the network; a private or gated "
            "repository also wants `hf auth login`. Or put its config.json and .safetensors files into a folder "
            "yourself and give that folder."
        ) from error
    if not any(Path(folder).glob("*.safetensors")):
        raise ValueError(
            f"{name!r} ({address}) has no .safetensors file. Pickled weights (pytorch_model.bin) can run code and are "
            "never opened. Choose a repository or revision with .safetensors, or convert this one: "
            "https://huggingface.co/docs/safetensors/convert-weights."
        )
    return Path(folder)
