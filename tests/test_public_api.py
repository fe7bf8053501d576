"""The public names with their parameters: public_api.txt is the list, and changing it is changing the API.

After a change that is meant: python tests/test_public_api.py > tests/public_api.txt, and a line in CHANGELOG.md. A name
that goes stays for a minor version with a DeprecationWarning (CONTRIBUTING.md).
"""

import importlib
import inspect
from pathlib import Path

LIST = Path(__file__).with_name("public_api.txt")
MODULES = """
keras_vit keras_vit.images keras_vit.inspect keras_vit.class_names keras_vit.layers keras_vit.model_card
keras_vit.variants keras_vit.weights keras_vit.recipes.configs keras_vit.recipes.evaluation.classification
keras_vit.recipes.evaluation.classification_metrics keras_vit.recipes.evaluation.features
keras_vit.recipes.evaluation.few_shot keras_vit.recipes.fit keras_vit.recipes.masked_autoencoder
keras_vit.recipes.masked_patch keras_vit.recipes.evaluation.probe keras_vit.recipes.evaluation.vtab
keras_vit.recipes.recipe keras_vit.recipes.run_recipe keras_vit.recipes.preflight keras_vit.export
keras_vit.export.audit keras_vit.export.benchmark keras_vit.export.npu
""".split()
OF_KERAS = {"build", "call", "compute_output_shape", "compute_output_spec", "get_config", "from_config"}
OF_KERAS |= {"train_step", "test_step"}


def public_api():
    """Yields a line for each public function, class and method of a class."""
    for module in map(importlib.import_module, MODULES):
        yield module.__name__
        package = hasattr(module, "__all__") or hasattr(module, "__path__")  # they re-export what others define
        for name in sorted(getattr(module, "__all__", None) or dir(module)):
            thing = getattr(module, name)
            own = getattr(thing, "__module__", None) or ("keras_vit" if name.isupper() else "")
            if name.startswith("_") or not (own.startswith("keras_vit") if package else own == module.__name__):
                continue
            yield f"  {name}{_parameters(thing)}"
            if inspect.isclass(thing):
                yield from (f"    .{method}" for method in _methods(thing))


def _parameters(thing):
    if not callable(thing):
        return ""
    signature = inspect.signature(thing)
    parameters = [_bare(parameter) for parameter in signature.parameters.values()]
    return str(signature.replace(parameters=parameters, return_annotation=signature.empty))


def _bare(parameter):
    parameter = parameter.replace(annotation=parameter.empty)
    # Factories of dataclasses, and ranges, have no text of their own.
    return (
        parameter.replace(default=...)
        if "<" in repr(parameter.default) and parameter.default is not parameter.empty
        else parameter
    )


def _methods(cls):
    bases = [base for base in reversed(cls.__mro__) if base.__module__.startswith("keras_vit")]
    for name, value in sorted({name: value for base in bases for name, value in vars(base).items()}.items()):
        if name.startswith("_") or name in OF_KERAS:
            continue
        if inspect.isfunction(value):
            yield f"{name}{_parameters(value)}"
        elif isinstance(value, property):
            yield name


def test_the_public_api_is_the_list():
    found, listed = list(public_api()), LIST.read_text().splitlines()
    gone, new = [[line for line in a if line not in b] for a, b in ((listed, found), (found, listed))]
    assert found == listed, f"No longer there: {gone}. Not in the list: {new}. {__doc__.splitlines()[2]}"


if __name__ == "__main__":
    print("\n".join(public_api()))
