"""The worker processes of a run: which one writes, and what all of them must agree on."""

import tensorflow as tf

from keras_vit.recipes.distributed.jax_devices import JaxDevices
from keras_vit.recipes.distributed.strategy import Strategy


class Workers:
    """The processes of a strategy: several under `MultiWorkerMirroredStrategy` and with JAX, else only this one.

    All workers must call `any` and `check_equal` at the same points, as these are collective operations.

    Args:
        strategy: The strategy of the run.

    Attributes:
        several: Whether there may be more than one worker.
        chief: Whether this process is the one that writes files.
    """

    def __init__(self, strategy: Strategy):
        self.strategy = strategy
        if isinstance(strategy, JaxDevices):
            self.several, self.chief = strategy.processes > 1, strategy.process == 0
            return
        self.several = isinstance(strategy, tf.distribute.MultiWorkerMirroredStrategy)
        self.chief = not self.several or is_chief(strategy.cluster_resolver)

    def any(self, value: bool) -> bool:
        """Whether the value is true on any worker."""
        return any(self._gather(int(value)))

    def check_equal(self, step: int, folder: str):
        """Raises ValueError if the workers would resume from different steps."""
        steps = self._gather(step)
        if len(set(steps)) > 1:
            raise ValueError(
                f"The workers found checkpoints of different steps in {folder}: {sorted(set(steps))}. All workers need "
                "the same folder: use a shared disk or a bucket."
            )

    def _gather(self, value: int) -> list[int]:
        """The value of each replica of each worker."""
        if isinstance(self.strategy, JaxDevices):
            return self.strategy.gather(value)
        if not self.several:
            return [value]
        local = self.strategy.experimental_distribute_values_from_function(lambda _: tf.constant([value], tf.int64))
        return [int(one) for one in self.strategy.gather(local, axis=0)]


def is_chief(resolver) -> bool:
    """Whether this process is the chief according to a cluster resolver, such as `TFConfigClusterResolver`."""
    jobs = resolver.cluster_spec().jobs
    first = next((job for job in ("chief", "master") if job in jobs), "worker")
    return not jobs or (resolver.task_type == first and not resolver.task_id)
