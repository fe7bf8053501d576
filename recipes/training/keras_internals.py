"""What Keras would learn from a batch that it then throws away."""

from contextlib import contextmanager


@contextmanager
def build_from_spec(model, batch_spec):
    """While it lasts, `fit` and `evaluate` draw no batch to learn shapes, as Keras does under a strategy each time.

    The data would be started twice: the shuffle buffer filled again, and in a run that goes on, all skipped again.

    Args:
        model: Compiled, and made under a strategy.
        batch_spec: tf.TensorSpec of what `fit` gets, (inputs, labels) and perhaps weights.
    """
    with model.distribute_strategy.scope():
        model._symbolic_build(data_batch=batch_spec)
    model._maybe_symbolic_build = lambda **_: None
    try:
        yield
    finally:
        del model._maybe_symbolic_build
