"""Private and undocumented parts of Keras and TensorFlow that the core uses. No other file of the core does.

Tested with Keras 3.15.1 and TensorFlow 2.20.0. When a newer version moves one of them, tests/test_keras_internals.py
names it.
"""

import functools
import inspect
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

import keras

_lowering_for_tpu = ContextVar("lowering_for_tpu", default=False)


@contextmanager
def lowering_for_tpu() -> Iterator[None]:
    """In this context JAX traces for TPUs that the process does not have."""
    token = _lowering_for_tpu.set(True)
    try:
        yield
    finally:
        _lowering_for_tpu.reset(token)


def compiled_by_xla() -> bool:
    """Whether to compute in the forms that XLA compiles best.

    On TensorFlow: in a graph within `jit_compile=True` or under `TPUStrategy`. On JAX, which always compiles: on TPUs.
    """
    if keras.backend.backend() == "jax":
        return _lowering_for_tpu.get() or keras.distribution.list_devices()[0].startswith("tpu")
    if keras.backend.backend() != "tensorflow":
        return False
    import tensorflow as tf
    from tensorflow.python.ops import control_flow_util

    return not tf.executing_eagerly() and control_flow_util.GraphOrParentsInXlaContext(tf.compat.v1.get_default_graph())


def xla_optimization_barrier(tensors: list) -> list:
    """The tensors behind a barrier across which XLA neither merges nor moves operations; only where XLA compiles."""
    if keras.backend.backend() == "jax":
        import jax

        return jax.lax.optimization_barrier(tensors)
    import tensorflow as tf
    from tensorflow.compiler.tf2xla.ops import gen_xla_ops

    @tf.custom_gradient  # TensorFlow registers none, which second derivatives need
    def barrier(*tensors):
        return gen_xla_ops.xla_optimization_barrier(input=tensors), lambda *upstream: upstream

    return barrier(*tensors)


def of_size(images, size):
    """Images (B, H, W, C); TensorFlow's graphs raise an error if they have not the size (H, W) when they run.

    SavedModels take images of other sizes than their signatures state: a reshape to patches then makes more images.
    """
    if keras.backend.backend() != "tensorflow" or keras.backend.is_keras_tensor(images):
        return images
    import tensorflow as tf

    return images if tf.executing_eagerly() else tf.ensure_shape(images, (None, *size, images.shape[-1]))


def release_gradients():
    """Removes TensorFlow's gradient functions of graphs whose variables are gone, which can never run again.

    A registry keeps the `tf.custom_gradient`s of layers, and of each training step of Keras one of its optimizer; and
    through them graphs, weights and moments, until the process ends. The next garbage collection frees them.
    """
    if keras.backend.backend() != "tensorflow":
        return
    from tensorflow.python.framework import ops as framework_ops

    registry = framework_ops.gradient_registry._registry
    for name in [name for name in registry.keys() if name.startswith("CustomGradient-")]:
        traced = inspect.getclosurevars(registry[name]["type"]).nonlocals.get("tape_grad_fn")  # None of a SavedModel
        if traced is None:
            continue
        graph = keras.tree.flatten(inspect.getclosurevars(traced).nonlocals["result"])[0].graph
        if any(variable() is None for variable in graph._weak_variables):
            del registry[name]


@contextmanager
def fixed_seeds(generators, seeds) -> Iterator[None]:
    """In this context each `keras.random.SeedGenerator` returns its seed instead of the next one; contexts nest.

    `keras.random` draws by `generator.next()`, so an attribute of the instance replaces the method.
    """
    before = [vars(generator).get("next") for generator in generators]
    for generator, seed in zip(generators, seeds):
        generator.next = lambda ordered=True, seed=seed: seed
    try:
        yield
    finally:
        for generator, previous in zip(generators, before):
            if previous is None:
                del generator.next
            else:
                generator.next = previous


def seed_generators(layers) -> list:
    """The seed generators of dropout layers; none of a layer whose rate is 0, which draws nothing."""
    generators = [getattr(layer, "seed_generator", None) for layer in layers]
    return [generator for generator in generators if generator is not None]


def inside_lambda() -> bool:
    """Whether a `keras.layers.Lambda` is called, on its own or while a functional model is made."""
    from keras.src.backend.common.global_state import get_global_attribute

    context = get_global_attribute("current_call_ctx")
    return isinstance(getattr(context, "entry_layer", None), keras.layers.Lambda)


def numbered_name(name: str) -> str:
    """The name with the next number of those that Keras gives to layers without a name."""
    number = keras.backend.get_uid(name)  # the next number, or 1 for a name that Keras has not given itself
    return f"{name}_{number - 1 if number > 1 else keras.backend.get_uid(name) - 1}"


def is_quantized(layer) -> bool:
    """Whether Keras's `quantize` replaced the kernel of this layer."""
    return getattr(layer, "quantization_mode", None) is not None


def has_lora(layer) -> bool:
    """Whether Keras's `enable_lora` froze the kernel of this layer and adds a product of two small ones to it."""
    return getattr(layer, "lora_enabled", False)


def all_layers(model) -> list:
    """A model or layer and all layers inside it, at any depth."""
    return list(model._flatten_layers())


def after_build(layer, function):
    """Calls `function()` once, when the layer was built."""
    build = layer.build

    @functools.wraps(build)
    def build_first(*args, **kwargs):
        build(*args, **kwargs)
        layer.build = build
        function()

    layer.build = build_first


_OF_WEIGHTS = ("_regularizer", "_constraint")


def layer_settings(layer, whole) -> dict:
    """What the configuration of a layer states of `quantize`, `enable_lora` and a dtype policy other than the whole's.

    Returns:
        Those of "dtype", "quantization_config", "lora_rank", "lora_alpha" and regularizers and constraints such as
        "kernel_regularizer" that apply, serialized; see `restore_settings`.
    """
    settings, policy = {}, _policy(layer)
    if policy != _policy(whole):
        settings["dtype"] = keras.dtype_policies.serialize(policy)
    if is_quantized(layer):
        settings["quantization_config"] = keras.saving.serialize_keras_object(layer.quantization_config)
    if has_lora(layer):
        settings |= {"lora_rank": layer.lora_rank, "lora_alpha": layer.lora_alpha}
    for name, value in vars(layer).items():
        if name.endswith(_OF_WEIGHTS) and value is not None:
            settings[name] = keras.saving.serialize_keras_object(value)
    return settings


def restore_settings(layer, settings: dict):
    """Gives a built layer the `layer_settings` of another one; its weights are to be loaded afterwards."""
    for name in settings.keys() & {name for name in vars(layer) if name.endswith(_OF_WEIGHTS)}:
        value = keras.saving.deserialize_keras_object(settings[name])
        setattr(layer, name, value)
        weight, _, kind = name.rpartition("_")
        if weight != "activity":
            setattr(getattr(layer, weight), kind, value)
    if "dtype" in settings:
        layer._dtype_policy = keras.dtype_policies.get(settings["dtype"])
    mode = layer.quantization_mode
    config = keras.saving.deserialize_keras_object(settings.get("quantization_config"))
    if config is None and (size := getattr(layer.dtype_policy, "block_size", None)):  # of int4
        config = keras.quantizers.Int4QuantizationConfig(block_size=size)
    if mode or config:
        layer.quantize(mode, config=config, type_check=False)
    if "lora_rank" in settings:
        layer.enable_lora(settings["lora_rank"], lora_alpha=settings["lora_alpha"])


def _policy(layer):
    """The dtype policy of a layer, which may be an entry of a map of all layers of a model."""
    policy = layer.dtype_policy
    return policy[layer.path] if isinstance(policy, keras.dtype_policies.DTypePolicyMap) else policy


def set_trainable(model, value: bool):
    """Sets `trainable` of a model and all layers inside it, and thereby of all weights but the kernels under LoRA.

    Keras on TensorFlow ignores `model.trainable = True` where it is True, whatever is frozen inside.
    """
    for layer in all_layers(model):
        layer.trainable = not value
        layer.trainable = value
        if has_lora(layer):
            layer._kernel.trainable = False


def call_of(model, layer) -> tuple:
    """The one call of a layer in a Sequential or functional model of one input and output.

    Returns:
        The functional model of the graph, and the Keras tensors that the layer receives and returns there.

    Raises:
        ValueError: The model is of another kind, was not built, or calls the layer several times.
    """
    graph = getattr(model, "_functional", model)
    depths = getattr(graph, "_nodes_by_depth", {}).values()
    nodes = [node for nodes in depths for node in nodes if node.operation is layer]
    if len(nodes) != 1 or len(graph.inputs) != 1 or len(graph.outputs) != 1 or len(nodes[0].input_tensors) != 1:
        raise ValueError(
            f"Expected a built Sequential or functional model with one input and one output that calls {layer.name} "
            f"once. Received: {model.name}."
        )
    return graph, nodes[0].input_tensors[0], nodes[0].output_tensors[0]


def operations_of(model) -> list:
    """The layers and operations of `keras.ops` of a functional model or a Sequential, also of those inside it."""
    graph = getattr(model, "_functional", None) or model
    inner = getattr(graph, "operations", None)
    return [model] if inner is None else [operation for each in inner for operation in operations_of(each)]
