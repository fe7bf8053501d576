"""Words of timm, KerasHub and Hugging Face's libraries, each answered by what to type here."""

import re

import keras
import pytest

import keras_vit
from keras_vit.other_libraries import FUNCTIONS, METHODS


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions(name):
    with pytest.raises(AttributeError, match=re.escape(FUNCTIONS[name])):
        getattr(keras_vit, name)
    with pytest.raises(ImportError):
        exec(f"from keras_vit import {name}")


@pytest.mark.parametrize("name", METHODS)
def test_methods(name, toy):
    for owner in (toy(), keras_vit.BiT):
        with pytest.raises(AttributeError, match=f"has no {name}. Use {re.escape(METHODS[name])}"):
            getattr(owner, name)
        assert not hasattr(owner, name)


def test_what_is_named_exists(toy):
    owners = {"model": toy(), "keras_vit": keras_vit, "keras_vit.weights": keras_vit.weights}
    for use in (*FUNCTIONS.values(), *METHODS.values()):
        for module, name in re.findall(r"\b((?:keras_vit|model)(?:\.weights)?)\.(\w+)", use):
            assert hasattr(owners[module], name)


def test_names_of_timm():
    with pytest.raises(ValueError, match=re.escape("keras_vit.ViT('Ti/16', image_size=224)")):
        keras_vit.ViT("vit_tiny_patch16_224")
    with pytest.raises(ValueError, match="Expected a variant"):
        keras_vit.ViT("vit_medium_patch16_224")


def test_a_lambda_of_the_preprocessing_is_warned_of(toy):
    model, inputs = toy(), keras.Input((40, 30, 3))
    with pytest.warns(UserWarning, match=re.escape("x = model.preprocess(inputs)")):
        keras.layers.Lambda(model.preprocess)(inputs)
    model.preprocess(inputs)
