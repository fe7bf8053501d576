"""The weights of commands that were given none: published ones, or without a network those of the package."""

import sys
from collections.abc import Callable

# Fine-tuned on ImageNet: 83.7 % of its validation images, 22 million weights, 0.09 GB.
DEFAULT = "augreg/S_16-i21k-300ep-lr_0.001-aug_light1-wd_0.03-do_0.0-sd_0.0--imagenet2012-steps_20k-lr_0.03-res_224"
# In the package, for machines without a network.
OFFLINE = "cifar10/R6_Ti_4"


def load_default(load: Callable, note: Callable):
    """The name of the default weights and the model that `load` returns for it.

    Args:
        load: `keras_vit.load` with options.
        note: From the model of the package to what the user should know of it, printed where no download is possible.
    """
    try:
        return DEFAULT, load(DEFAULT)
    except ConnectionError as error:
        model = load(OFFLINE)
        print(f"The default weights cannot be downloaded: {error.__cause__ or error}.\n{note(model)}", file=sys.stderr)
        return OFFLINE, model
