"""A `TPUStrategy` without a TPU, to test scopes, variables, data and traced functions."""

import collections

import numpy as np
import tensorflow as tf

Device = collections.namedtuple("Device", "name")
Machine = collections.namedtuple("Machine", "num_cores num_hosts num_of_cores_per_host topology devices")


class Resolver:
    """The part of a cluster resolver that `TPUStrategy` needs: one host with two cores."""

    def get_tpu_system_metadata(self):
        cores = [Device(f"/job:localhost/replica:0/task:0/device:TPU:{index}") for index in range(2)]
        return Machine(2, 1, 2, None, cores)

    def cluster_spec(self):
        return tf.train.ClusterSpec({})


def simulated_tpu():
    """TensorFlow's strategy on two logical CPUs instead of cores; functions can be traced, not executed."""
    strategy = tf.distribute.TPUStrategy(Resolver())
    host, *_ = cores = [f"/job:localhost/replica:0/task:0/device:CPU:{index}" for index in range(2)]
    extended = strategy.extended
    extended._tpu_devices = np.array([[core] for core in cores], dtype=object)
    extended._host_device = host
    extended._device_input_worker_devices = collections.OrderedDict({host: cores})
    extended._host_input_worker_devices = collections.OrderedDict({host: [host, host]})
    return strategy
