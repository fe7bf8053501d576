"""TFLite export: graph rewrite, conversion, quantization and metadata; and reading .tflite files."""
