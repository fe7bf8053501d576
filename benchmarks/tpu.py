"""Cost of a ViT training step on a TPU core: keras_vit compared with KerasHub, Flax and tf-models-official.

Requires vit-for-keras[tensorflow,recipes,preflight] and the other libraries: pip install keras-hub flax optax, and a
checkout of github.com/google-research/vision_transformer in PYTHONPATH. Libraries that are not installed are skipped.
Command: python benchmarks/tpu.py            the first two rows, about 10 minutes on two cores
         python benchmarks/tpu.py --rows all
         python benchmarks/tpu.py --libraries keras_vit patch_dropout   # with half of the patches, see `patch_dropout`
A step is forward pass, backward pass, clipping of all gradients together at a norm of 1, as in the paper's code, and
AdamW, in mixed bfloat16 without dropout, compiled by the TPU's own compiler; no TPU is needed. keras_vit also skips
steps whose gradients are not finite. Temporaries are the memory of a step besides weights and optimizer state. Bytes
accessed and operations are as counted by the compiler. For Flax, the parameters are cast to bfloat16 and the blocks
compute in it.
"""

import argparse
import functools
import importlib.util
import json
import re
import subprocess
import sys

CLASSES = 1000
SHAPES = {"B": (12, 768, 12, 3072), "L": (24, 1024, 16, 4096), "H": (32, 1280, 16, 5120)}  # depth, width, heads, MLP
ROWS = {  # variant, image size, batch, topology
    "B/16 224 v5e": ("B/16", 224, 128, "v5e:1"),
    "B/16 224 v3": ("B/16", 224, 128, "v3:1"),
    "B/16 384 v5e": ("B/16", 384, 32, "v5e:1"),
    "L/16 224 v5e": ("L/16", 224, 64, "v5e:1"),
    "L/16 512 v5e": ("L/16", 512, 8, "v5e:1"),
    "H/14 224 v5e": ("H/14", 224, 32, "v5e:1"),
    "H/14 518 v5e": ("H/14", 518, 4, "v5e:1"),
}
DEFAULT = tuple(ROWS)[:2]
# keras_vit with other arguments; only if requested.
VARIANTS = {"patch_dropout": {"patch_dropout": 0.5}, "exact_gelu": {"gelu": "erf"}}
REQUIRES = {
    "keras_vit": (),
    "KerasHub": ("keras_hub",),
    "Flax": ("flax", "optax", "vit_jax"),
    "official": ("official",),
    **dict.fromkeys(VARIANTS, ()),
}


def keras_program(build, shape, patch, size, batch):
    """HLO of a training step of a Keras model with the recipes' AdamW."""
    import keras
    import tensorflow as tf

    from keras_vit.recipes.preflight.lowering import lower_step
    from keras_vit.recipes.recipe import Optimizer
    from keras_vit.recipes.training.optimizers import build_optimizer

    keras.config.set_dtype_policy("mixed_bfloat16")
    model = build(shape, patch, size)
    optimizer = build_optimizer(Optimizer(name="adamw", learning_rate=1e-3, weight_decay=0.1), 1000)
    model.compile(optimizer, keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    optimizer.build(model.trainable_variables)
    specs = tf.TensorSpec((batch, size, size, 3)), tf.TensorSpec((batch,), tf.int32)
    program = lower_step(model, "training", specs)
    if program.problems:
        raise RuntimeError("; ".join(program.problems))
    return program.hlo


def our_model(shape, patch, size, **more):
    import keras_vit

    depth, width, heads, mlp_dim = shape
    options = {"depth": depth, "width": width, "num_heads": heads, "mlp_dim": mlp_dim, "num_classes": CLASSES}
    return keras_vit.VisionTransformer(image_size=size, patch_size=patch, **options, **more)


def hub_model(shape, patch, size):
    import keras
    from keras_hub.models import ViTBackbone

    depth, width, heads, mlp_dim = shape
    options = {"num_layers": depth, "num_heads": heads, "hidden_dim": width, "mlp_dim": mlp_dim}
    backbone = ViTBackbone((size, size, 3), patch, **options)
    return keras.Model(backbone.input, keras.layers.Dense(CLASSES, dtype="float32")(backbone.output[:, 0]))


def flax_program(shape, patch, size, batch):
    """HLO of a training step of google-research/vision_transformer with optax's clipping and AdamW."""
    import jax
    import jax.numpy as jnp
    import optax
    from vit_jax import models_vit

    depth, width, heads, mlp_dim = shape
    models_vit.Encoder1DBlock = functools.partial(models_vit.Encoder1DBlock, dtype=jnp.bfloat16)
    transformer = {"num_layers": depth, "num_heads": heads, "mlp_dim": mlp_dim, "dropout_rate": 0.0}
    model = models_vit.VisionTransformer(
        num_classes=CLASSES,
        patches=argparse.Namespace(size=(patch, patch)),
        transformer={**transformer, "attention_dropout_rate": 0.0},
        hidden_size=width,
    )
    optimizer = optax.chain(optax.clip_by_global_norm(1.0), optax.adamw(1e-3, weight_decay=0.1))

    def loss(params, images, labels):
        params = jax.tree.map(lambda x: x.astype(jnp.bfloat16), params)
        logits = model.apply({"params": params}, images.astype(jnp.bfloat16), train=False).astype(jnp.float32)
        return optax.softmax_cross_entropy_with_integer_labels(logits, labels).mean()

    def step(params, state, images, labels):
        value, gradients = jax.value_and_grad(loss)(params, images, labels)
        updates, state = optimizer.update(gradients, state, params)
        return optax.apply_updates(params, updates), state, value

    images, labels = jnp.zeros((1, size, size, 3)), jax.ShapeDtypeStruct((batch,), jnp.int32)
    params = jax.eval_shape(lambda: model.init(jax.random.PRNGKey(0), images, train=False)["params"])
    images = jax.ShapeDtypeStruct((batch, size, size, 3), jnp.float32)
    state = jax.eval_shape(optimizer.init, params)
    lowered = jax.jit(step, donate_argnums=(0, 1)).lower(params, state, images, labels)
    return lowered.compiler_ir("hlo").as_serialized_hlo_module_proto()


def official_program(shape, patch, size, batch):
    """HLO of a training step of tf-models-official's backbone with tf_keras's AdamW."""
    import tensorflow as tf
    import tf_keras
    from official.vision.modeling.backbones.vit import VisionTransformer

    from keras_vit.recipes.preflight.lowering import lower_to_hlo

    tf_keras.mixed_precision.set_global_policy("mixed_bfloat16")
    depth, width, heads, mlp_dim = shape
    backbone = VisionTransformer(
        mlp_dim=mlp_dim,
        num_heads=heads,
        num_layers=depth,
        dropout_rate=0.0,
        input_specs=tf_keras.layers.InputSpec(shape=(batch, size, size, 3)),
        patch_size=patch,
        hidden_size=width,
        output_encoded_tokens=False,
    )
    pooled = tf_keras.layers.Flatten()(backbone.output["pre_logits"])
    logits = tf_keras.layers.Dense(CLASSES, dtype="float32")(pooled)
    model = tf_keras.Model(backbone.input, logits)
    optimizer = tf_keras.optimizers.AdamW(1e-3, weight_decay=0.1, global_clipnorm=1.0, jit_compile=False)
    optimizer.build(model.trainable_variables)

    def step(images, labels):
        with tf.GradientTape() as tape:
            logits = model(images, training=True)
            loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits))
        optimizer.apply_gradients(zip(tape.gradient(loss, model.trainable_variables), model.trainable_variables))
        return loss

    program = lower_to_hlo(step, (tf.TensorSpec((batch, size, size, 3)), tf.TensorSpec((batch,), tf.int32)))
    if program.problems:
        raise RuntimeError("; ".join(program.problems))
    return program.hlo


PROGRAMS = {
    "keras_vit": functools.partial(keras_program, our_model),
    "KerasHub": functools.partial(keras_program, hub_model),
    "Flax": flax_program,
    "official": official_program,
    **{n: functools.partial(keras_program, functools.partial(our_model, **more)) for n, more in VARIANTS.items()},
}


def measure(library, row):
    """Prints one result as JSON. Runs in a separate process."""
    from keras_vit.recipes.preflight.compile_steps import compile_in_subprocess

    variant, size, batch, topology = ROWS[row]
    hlo = PROGRAMS[library](SHAPES[variant[0]], int(variant[2:]), size, batch)
    result = compile_in_subprocess(hlo, topology, 1)
    if "error" in result:
        required = re.search(r"HLO temporaries \(([\d.]+)G\)|Used ([\d.]+)G of", result["error"])
        temp = float(required[1] or required[2]) * 2**30 if required else None
        print(json.dumps({"temp": temp, "error": result["error"]}))
    else:
        print(json.dumps({"temp": result["memory"]["temp"], "bytes": result["bytes"], "flops": result["flops"]}))


def measure_in_subprocess(library, row):
    command = [sys.executable, __file__, "--one", library, row]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"{library}, {row}: {done.stderr[-2000:]}")
    return json.loads(done.stdout.splitlines()[-1])


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rows", nargs="+", default=DEFAULT, choices=("all", *ROWS))
    libraries = [name for name in REQUIRES if name not in VARIANTS]
    parser.add_argument("--libraries", nargs="+", default=libraries, choices=REQUIRES)
    parser.add_argument("--one", nargs=2, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.one:
        return measure(*arguments.one)
    rows = ROWS if arguments.rows == ["all"] else arguments.rows
    # keras_vit first: the others are compared with it.
    libraries = [n for n in REQUIRES if n in arguments.libraries and all(map(importlib.util.find_spec, REQUIRES[n]))]
    for name in set(arguments.libraries).difference(libraries):
        print(f"Skipped, not installed: {name}", file=sys.stderr)
    if not libraries:
        raise SystemExit("None of these libraries is installed.")
    print("| job | batch | library | temporary memory, GB | traffic, GB | TFLOP | memory / ours | traffic / ours |")
    print("|---" * 8 + "|")
    for row in rows:
        ours = None
        for library in libraries:
            found = measure_in_subprocess(library, row)
            if library == "keras_vit":
                ours = found
            print("| " + " | ".join([row, str(ROWS[row][2]), library, *cells(found, ours or {})]) + " |", flush=True)


def cells(found, ours):
    """Cells of the table; "-" for unknown figures of a step that does not fit."""
    for key, unit, digits in (("temp", 1e9, 2), ("bytes", 1e9, 1), ("flops", 1e12, 2)):
        yield f"{found[key] / unit:.{digits}f}" if found.get(key) else "-"
    for key in ("temp", "bytes"):
        yield f"{found[key] / ours[key]:.2f}" if found.get(key) and ours.get(key) else "-"


if __name__ == "__main__":
    main()
