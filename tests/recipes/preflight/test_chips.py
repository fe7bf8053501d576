import pytest

from keras_vit.recipes.preflight.chips import CHIPS, parse_topology


@pytest.mark.parametrize(
    "name,num_chips,replicas",
    [("v3:2x2", 4, 8), ("v5e:2x4", 8, 8), ("v4:2x2x2", 8, 8), ("v5e:1", 1, 1), ("v2:1", 1, 2)],
)
def test_parse_topology(name, num_chips, replicas):
    topology = parse_topology(name)
    assert (topology.name, topology.num_chips, topology.replicas) == (name, num_chips, replicas)


@pytest.mark.parametrize(
    "name", ["v5e", "v5e-8", "v9:2x2", "v5e:2x2x2x2", "v5e:0x2", "v5e:3x3", "v5e:2x2x2", "v4:2x2", "2x2", ""]
)
def test_invalid_topologies(name):
    with pytest.raises(ValueError, match="Received: "):
        parse_topology(name)


def test_example_topologies_are_valid():
    for chip in CHIPS.values():
        assert all(parse_topology(name).chip is chip for name in chip.slices)
