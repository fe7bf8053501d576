import numpy as np
from goldens import golden_io, write_arrays

import keras_vit
from keras_vit.models.bit import BiT
from keras_vit.weights.sources.bit import BIT_MODELS
from keras_vit.weights.transfer import named_weights


def test_files_of_big_transfer(tmp_path):
    model = BiT(stages=(1, 1), num_classes=4)
    random, arrays = np.random.default_rng(0), {}
    for i, (name, variable) in enumerate(named_weights(model).items()):
        variable.assign(variable + 0.1 * random.standard_normal(variable.shape))
        source_name = BIT_MODELS.naming.resnet.name(name)
        source_name = source_name.replace("a/standardized_conv2d/", f"a/standardized_conv2d_{i}/")
        array = variable.numpy()
        arrays[source_name] = array[None, None] if name == "head/kernel" else array
    file, images = write_arrays(tmp_path / "x.npz", arrays), golden_io("vit_jax_token")["images"]
    np.testing.assert_allclose(keras_vit.load(file)(images), model(images), atol=1e-5)
    new = keras_vit.load(file, num_classes=3)
    assert not np.any(new.head.kernel)
    np.testing.assert_allclose(new.features(images), model.features(images), atol=1e-5)
