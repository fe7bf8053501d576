"""Audit of .tflite files: the operations that an accelerator does not support."""

from keras_vit.export.audit.findings import TARGETS as TARGETS
from keras_vit.export.audit.findings import Audit as Audit
from keras_vit.export.audit.findings import Finding as Finding
from keras_vit.export.audit.findings import audit as audit
