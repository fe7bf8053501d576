"""NPU preflight: compiles .tflite files for the NPUs of phones with the vendors' own compilers, without a phone."""

from keras_vit.export.npu.chips import Chip as Chip
from keras_vit.export.npu.chips import NpuReport as NpuReport
from keras_vit.export.npu.chips import default_chips as default_chips
from keras_vit.export.npu.chips import find_chip as find_chip
from keras_vit.export.npu.chips import npu_table as npu_table
from keras_vit.export.npu.compile import compile_for_npu as compile_for_npu
from keras_vit.export.npu.simulate import Simulation as Simulation
from keras_vit.export.npu.simulate import run_on_simulator as run_on_simulator
from keras_vit.export.npu.simulate import simulate as simulate
from keras_vit.export.npu.simulate import simulation_table as simulation_table
