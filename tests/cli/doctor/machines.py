"""Two machines without problems."""

from dataclasses import replace

from keras_vit_cli.doctor.machine import Machine

LAPTOP = Machine(
    versions={"keras_vit": "0.1.0", "keras": "3.15.1", "tensorflow": "2.20.0", "tensorflow-datasets": "4.9.10"},
    free_bytes={"/tmp": 50_000_000_000},
)
TPU_VM = replace(
    LAPTOP,
    versions={**LAPTOP.versions, "tensorflow-tpu": "2.20.0", "libtpu": "0.0.27"},
    environment={"TF_PLUGGABLE_DEVICE_LIBRARY_PATH": __file__},
    tpu_chips=("v5e",) * 4,
)
del TPU_VM.versions["tensorflow"]
