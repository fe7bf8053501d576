"""How a source names the weights of a ResNet, in a hybrid and in BiT."""

import re
from dataclasses import dataclass, field


@dataclass(frozen=True)
class ResNetNaming:
    """The names of a source.

    Args:
        layers: Path of our root layer, final normalization or head to the name of the source's.
        unit_layers: Name of a layer in our units to the source's.
        unit: Format of the name of a unit's layer, of {block}, {unit} and {layer}.
        first: Index of the first block and unit.
        leaves: Last part of our weight's path to the source's, where they differ.
        separator: What is between the parts of a name.
    """

    layers: dict[str, str]
    unit_layers: dict[str, str]
    unit: str
    first: int = 1
    leaves: dict[str, str] = field(default_factory=dict)
    separator: str = "/"

    def name(self, path: str) -> str | None:
        """The source's name of a weight; None if it has no such weight.

        Args:
            path: Inside a hybrid or a BiT, such as "backbone/block1/unit2/gn3/gamma"; see
                `keras_vit.weights.transfer.named_weights`.
        """
        part, _, leaf = path.removeprefix("backbone/").rpartition("/")
        unit = re.fullmatch(r"block(\d+)/unit(\d+)/(\w+)", part)
        layer = self.unit_layers.get(unit[3]) if unit else self.layers.get(part)
        if layer is None:
            return None
        if unit:
            block, number = (int(index) - 1 + self.first for index in unit.groups()[:2])
            layer = self.unit.format(block=block, unit=number, layer=layer)
        return f"{layer}{self.separator}{self.leaves.get(leaf, leaf)}"
