"""What the processes of one run must agree on: who writes, whether to stop, where to go on from."""

import tensorflow as tf


class Workers:
    """The processes of a strategy; of any but `MultiWorkerMirroredStrategy`, this one alone.

    Every worker must call `any` and `check_equal` at the same places, as for every collective operation.

    Args:
        strategy: The strategy of the run.
    """

    def __init__(self, strategy):
        self.strategy = strategy
        self.several = isinstance(strategy, tf.distribute.MultiWorkerMirroredStrategy)
        self.chief = not self.several or is_chief(strategy.cluster_resolver)

    def any(self, value: bool) -> bool:
        """Whether the value is true on any worker."""
        return any(self._all(int(value)))

    def check_equal(self, step: int, folder: str):
        """Raises ValueError if the workers would go on from different steps."""
        steps = self._all(step)
        if len(set(steps)) > 1:
            raise ValueError(
                f"The workers found checkpoints of different steps in {folder}: {sorted(set(steps))}. All of them must "
                "see the same folder: put it on a shared disk or in a bucket."
            )

    def _all(self, value: int) -> list[int]:
        """The value of each replica of each worker."""
        if not self.several:
            return [value]
        local = self.strategy.experimental_distribute_values_from_function(lambda _: tf.constant([value], tf.int64))
        return [int(one) for one in self.strategy.gather(local, axis=0)]


def is_chief(resolver) -> bool:
    """Whether a cluster resolver, such as `TFConfigClusterResolver`, names this process the one that writes."""
    jobs = resolver.cluster_spec().jobs
    first = next((job for job in ("chief", "master") if job in jobs), "worker")
    return not jobs or (resolver.task_type == first and not resolver.task_id)
