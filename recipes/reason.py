"""Errors of TensorFlow in a line."""


def reason(error) -> str:
    """The first line of an error of TensorFlow, without the graph around it."""
    return (str(getattr(error, "message", error)).strip() or type(error).__name__).splitlines()[0]
