import pytest

from keras_vit.recipes.preflight.chips import CHIPS, parse_topology


@pytest.mark.parametrize(
    "name,chips,replicas", [("v3:2x2", 4, 8), ("v5e:2x4", 8, 8), ("v4:2x2x2", 8, 8), ("v5e:1", 1, 1), ("v2:1", 1, 2)]
)
def test_a_topology_has_devices(name, chips, replicas):
    topology = parse_topology(name)
    assert (topology.name, topology.chips, topology.replicas) == (name, chips, replicas)


@pytest.mark.parametrize("name", ["v5e", "v5e-8", "v9:2x2", "v5e:2x2x2x2", "v5e:0x2", "2x2", ""])
def test_other_names_are_told_what_is_expected(name):
    with pytest.raises(ValueError, match="Received"):
        parse_topology(name)


def test_every_example_is_one():
    for chip in CHIPS.values():
        assert all(parse_topology(name).chip is chip for name in chip.slices)
