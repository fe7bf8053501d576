"""Chips by their model."""

import pytest

from keras_vit.export.npu.chips import NAMES, SNAPDRAGONS, VENDORS, find_chip, known_chips


def test_chips_of_litert():
    chips = known_chips()
    assert {chip.vendor for chip in chips.values()} == set(VENDORS)
    assert set(NAMES) == set(known_chips(["qualcomm"])) >= set(SNAPDRAGONS)


def test_find_chip_ignores_case():
    chip = find_chip("sm8750")
    assert (chip.model, chip.vendor, str(chip)) == ("SM8750", "qualcomm", "SM8750 (Snapdragon 8 Elite)")
    assert find_chip("tensor_g5").vendor == "google_tensor"


@pytest.mark.parametrize("typed,hint", [("SM8760", "Perhaps you meant SM8750."), ("x", "")])
def test_unknown_chip(typed, hint):
    with pytest.raises(ValueError, match="Expected a chip that LiteRT's compilers know: SA8255, .*PTL") as error:
        find_chip(typed)
    assert str(error.value).endswith(f"Received: {typed}.{' ' * bool(hint)}{hint}")
