"""Latency, memory and per-operation times of .tflite files on this machine's CPU."""

from keras_vit.export.benchmark.latency import Benchmark as Benchmark
from keras_vit.export.benchmark.latency import as_json as as_json
from keras_vit.export.benchmark.latency import benchmark as benchmark
from keras_vit.export.benchmark.latency import compare as compare
from keras_vit.export.benchmark.latency import table as table
