import inspect
from dataclasses import fields

import tyro

from keras_vit.recipes.prepare import prepare
from keras_vit_cli.commands.prepare import Prepare


def test_options_are_the_parameters_of_prepare():
    parameters = inspect.signature(prepare).parameters
    assert [field.name for field in fields(Prepare)] == list(parameters)
    beam = "--beam-runner FlinkRunner --beam-options parallelism=4 flink_master=local"
    options = tyro.cli(Prepare, args=["a", "--output", "b", *beam.split()])
    assert options.beam_options == ("parallelism=4", "flink_master=local")
    defaults = tyro.cli(Prepare, args=["a", "--output", "b"])
    for name, parameter in list(parameters.items())[2:]:
        assert getattr(defaults, name) == parameter.default
