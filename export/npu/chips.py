"""The chips that LiteRT's compiler plug-ins know."""

import difflib
import importlib
from dataclasses import dataclass

# Folders of `ai_edge_litert.aot.vendors`, and the class of LiteRT's targets.
VENDORS = ("qualcomm", "mediatek", "google_tensor", "samsung", "intel_openvino")
SNAPDRAGONS = ("SM8450", "SM8550", "SM8650", "SM8750", "SM8850")
# Qualcomm's model numbers, https://www.qualcomm.com/products/mobile/snapdragon. Other vendors' names say it themselves.
NAMES = {
    "SA8255": "Snapdragon Cockpit SA8255P",
    "SA8295": "Snapdragon Cockpit SA8295P",
    "SM8350": "Snapdragon 888",
    "SM8450": "Snapdragon 8 Gen 1",
    "SM8475": "Snapdragon 8+ Gen 1",
    "SM8550": "Snapdragon 8 Gen 2",
    "SM8650": "Snapdragon 8 Gen 3",
    "SM8750": "Snapdragon 8 Elite",
    "SM8845": "Snapdragon 8 Gen 5",
    "SM8850": "Snapdragon 8 Elite Gen 5",
}


@dataclass(frozen=True)
class Chip:
    """A chip with an NPU.

    Args:
        model: The model that LiteRT's compiler knows, such as "SM8750".
        vendor: One of `VENDORS`.
    """

    model: str
    vendor: str

    @property
    def name(self) -> str:
        """Under which it is sold; for other chips than Qualcomm's the vendor."""
        return NAMES.get(self.model, self.vendor)

    def __str__(self):
        return f"{self.model} ({self.name})"


def known_chips(vendors=VENDORS) -> dict[str, Chip]:
    """Model -> chip, in the order of LiteRT's targets.

    Raises:
        ImportError: ai-edge-litert is missing.
    """
    chips: dict[str, Chip] = {}
    for vendor in vendors:
        try:
            target = importlib.import_module(f"ai_edge_litert.aot.vendors.{vendor}.target")
        except ImportError as error:
            raise ImportError(
                f"NPU compilers require LiteRT: pip install 'keras_vit[export,npu]' ({error})."
            ) from error
        chips |= {str(model): Chip(str(model), vendor) for model in target.SocModel if model != "ALL"}
    return chips


def find_chip(model: str) -> Chip:
    """The chip of a model, in upper or lower case.

    Raises:
        ValueError: LiteRT's compilers do not know it.
        ImportError: See `known_chips`.
    """
    chips = {name.lower(): chip for name, chip in known_chips().items()}
    if model.lower() in chips:
        return chips[model.lower()]
    similar = difflib.get_close_matches(model.lower(), chips, 1)
    hint = f" Perhaps you meant {chips[similar[0]].model}." if similar else ""
    names = ", ".join(chip.model for chip in chips.values())
    raise ValueError(f"Expected a chip that LiteRT's compilers know: {names}. Received: {model}.{hint}")
