import pytest
import tensorflow as tf

from keras_vit.recipes.strategy import choose_strategy


def test_auto_takes_the_processor_where_there_is_nothing_else(monkeypatch):
    monkeypatch.delenv("TPU_NAME", raising=False)
    assert choose_strategy("auto") is tf.distribute.get_strategy()
    assert choose_strategy("one-device").num_replicas_in_sync == 1


def test_mirrored_uses_all_logical_cpus_without_a_gpu():
    strategy = choose_strategy("mirrored")
    assert isinstance(strategy, tf.distribute.MirroredStrategy) and strategy.num_replicas_in_sync == 2


@pytest.mark.parametrize(
    "name,message",
    [("tpu", "TensorFlow sees no TPU.*strategy='auto'"), ("multi-worker", "TF_CONFIG"), ("gpu", "Received: 'gpu'")],
)
def test_what_is_not_there_is_said(name, message, monkeypatch):
    monkeypatch.delenv("TPU_NAME", raising=False)
    monkeypatch.delenv("TF_CONFIG", raising=False)
    with pytest.raises(ValueError, match=message):
        choose_strategy(name)
