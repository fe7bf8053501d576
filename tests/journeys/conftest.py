"""Data, and a teacher, that all journeys share."""

import pytest

from journeys.cells import Cell
from journeys.training import command, write_photos
from keras_vit_cli.main import main


@pytest.fixture(scope="session")
def journey_data(tmp_path_factory):
    """A folder with photos/, several/ and teacher.keras, see `write_photos`."""
    data = tmp_path_factory.mktemp("journeys")
    write_photos(data)
    cell = Cell("supervised", "one", "float32", False, False, None, False)
    assert main(command(cell, data, data / "teacher")) == 0
    (data / "teacher" / "model.keras").rename(data / "teacher.keras")
    return data
