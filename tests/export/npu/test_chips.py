"""Chips by their model."""

import pytest

from keras_vit.export.npu.chips import NAMES, SNAPDRAGONS, VENDORS, find_chip, known_chips


def test_chips():
    chips = known_chips()
    assert {chip.vendor for chip in chips.values()} == set(VENDORS)
    assert set(NAMES) == set(known_chips(["qualcomm"])) >= set(SNAPDRAGONS)
    chip = find_chip("sm8750")
    assert (chip.model, chip.vendor, str(chip)) == ("SM8750", "qualcomm", "SM8750 (Snapdragon 8 Elite)")
    assert find_chip("tensor_g5").vendor == "google_tensor"
    for typed, hint in (("SM8760", " Perhaps you meant SM8750."), ("x", "")):
        with pytest.raises(ValueError, match="SA8255, .*PTL") as error:
            find_chip(typed)
        assert str(error.value).endswith(f"Received: {typed}.{hint}")
