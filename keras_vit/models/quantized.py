"""What Keras's `model.quantize` leaves behind."""


def refuse_quantized(model):
    """Raises a ValueError for a quantized model, whose config would make one that its weights do not fit."""
    if any(getattr(layer, "quantization_mode", None) for layer in model._flatten_layers()):
        raise ValueError(
            f"{model.name} was quantized by Keras, of which a config tells nothing. Change, export or save the model "
            "before. Of a quantized one save the weights, model.save_weights('name.weights.h5'), and load them into a "
            "new model after its quantize()."
        )
