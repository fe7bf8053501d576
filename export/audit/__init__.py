"""Which operations of a .tflite file an accelerator does not take."""
