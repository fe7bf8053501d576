"""`keras-vit preflight`: recipes on a TPU before one is rented, and .tflite files on NPUs of phones."""

import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated

import tyro

from keras_vit.progress import Elapsed, show_progress
from keras_vit.recipes.recipe.errors import check_all
from keras_vit_cli.inputs import check_weights
from keras_vit_cli.output_folder import create_folder, json_output
from keras_vit_cli.recipe_options import check_architecture, check_fields, parse_fields
from keras_vit_cli.words import Json, OptionalOutput, Recipe


@dataclass(frozen=True)
class Preflight:
    """Compile a recipe for TPUs, or .tflite files for NPUs of phones.

    The TPU's own compiler compiles the steps of training and evaluation, which takes some minutes the first time.
    Prints whether they compile and fit in memory, bounds on their speed and cost, and sizes that waste the chip. Fields
    of the recipe can be overridden, such as --data.batch-size 1024, as for `keras-vit train`; `keras-vit train NAME
    --help` lists them. The exit status is 1 if a step does not compile or fit. With .tflite files, it compiles them for
    the NPUs of phones: `keras-vit preflight --npu --help`.

    Args:
        topology: TPU slice: chip and sides, such as v5e:2x4, or Google's name, such as v5litepod-8; v5e:1 is one chip.
        device_batch_size: Images per device. Defaults to the recipe's batch size divided by the number of devices.
        largest_batch: Also search for the largest per-device batch that fits: up to ten compilations of each step.
        num_classes: Number of classes of the recipe's dataset, if it is unknown.
        num_train_images: Number of training images of the recipe's dataset, if it is unknown: for the total cost.
        list: List chips with memory, peak FLOP/s and bandwidth, and example topologies.
    """

    name: Recipe = ""
    topology: str = "v5e:2x4"
    device_batch_size: int | None = None
    largest_batch: bool = False
    num_classes: int | None = None
    num_train_images: int | None = None
    json: Json = False
    list: bool = False
    changes: tyro.conf.Suppress[tuple[str, ...]] = ()

    def run(self) -> int:
        """Compiles, prints the report, and returns the exit status."""
        if self.list:
            return _print_chips()
        if not self.name:
            raise ValueError(
                "Pass the name of a recipe; keras-vit train lists them. --list lists chips and topologies."
            )
        from keras_vit_cli.commands.train import find_recipe

        named = find_recipe(self.name)
        recipe = parse_fields(named, f"keras-vit train {self.name}", self.changes)
        check_all(
            lambda: check_fields(recipe),
            # The recipe's own weights may be of a run that is still to come.
            lambda: check_weights(recipe.weights if recipe.weights != named.weights else None),
            lambda: check_architecture(recipe, named),
        )
        from keras_vit.recipes.preflight.report import parse_topology

        parse_topology(self.topology)
        from keras_vit.recipes.preflight import preflight

        with json_output(self.json) as show:
            report = preflight(
                recipe,
                self.topology,
                self.device_batch_size,
                num_classes=self.num_classes,
                num_train_images=self.num_train_images,
                find_largest_batch=self.largest_batch,
                log=Elapsed().show,
            )
            show_progress("")
            show(report.as_dict(), lambda: print(report))
        return int(not report.ready)


def _print_chips():
    from keras_vit.recipes.preflight.report import CHIPS, GIB

    print("chip  devices  memory/device  peak bfloat16  bandwidth   example topologies")
    for chip in CHIPS.values():
        print(
            f"{chip.name:5} {chip.devices:>7}  {chip.memory / GIB:>9.0f} GiB  {chip.peak_flops / 1e12:>5.1f} TFLOP/s"
            f"  {chip.bandwidth / 1e9:>4.0f} GB/s  {', '.join(chip.slices)}"
        )
    print("A v2 or v3 chip has two devices. Sources: recipes/preflight/report.py")
    return 0


@dataclass(frozen=True)
class PreflightNpu:
    """Compile .tflite files for the NPUs of phones with the vendors' own compilers, without a phone.

    --output is a folder for the compiled files, MODEL-CHIP.tflite; without it they are not saved. Prints how many
    operations the NPU runs, what is left to the CPU and why, and the memory traffic of an image. The exit status is 1
    if an NPU does not run every operation. docs/npu.md explains the report.

    Args:
        files: Files of `keras-vit export`, or any other .tflite files.
        npu: Chips, such as SM8750. Defaults to five Snapdragon chips, and to those of every other vendor whose package
            for LiteRT is installed.
        simulate: Folder of images. Also run the compiled files on Qualcomm's simulator, some seconds per image, and
            compare them with LiteRT on this CPU; for files of `keras-vit export` that a Snapdragon's NPU runs whole.
    """

    files: Annotated[tuple[Path, ...], tyro.conf.Positional, tyro.conf.arg(metavar="FILES")]
    npu: tuple[str, ...] = ()
    simulate: Annotated[Path | None, tyro.conf.arg(metavar="FOLDER")] = None
    output: OptionalOutput = None
    json: Json = False

    def run(self) -> int:
        """Compiles, prints the reports, and returns the exit status."""
        from keras_vit.export.npu import default_chips, find_chip

        self._check_options()
        chips = list(dict.fromkeys(find_chip(name) for name in self.npu)) or default_chips()
        self._check_files(chips)
        images = self._images()
        if self.output:
            create_folder(self.output)
        with json_output(self.json) as show, tempfile.TemporaryDirectory(prefix="keras-vit-npu-") as temporary:
            results = [
                self._examine(file, chip, Path(temporary), images.get(file))
                for file in dict.fromkeys(self.files)
                for chip in chips
            ]
            show_progress("")
            entries = [report.as_dict() | {"simulation": run and asdict(run)} for report, run in results]
            show(entries, lambda: _print(results, self.simulate is not None))
        return int(not all(report.ready for report, _ in results))

    def _check_options(self):
        """Raises a ValueError for a mistake that is visible in the options."""
        files = dict.fromkeys(self.files)
        if not files:
            raise ValueError("No files. Pass at least one .tflite file, such as exported/model-int8.tflite.")
        if self.output is None:
            return
        if self.output.exists() and not self.output.is_dir():
            raise ValueError(f"--output requires a folder. Received: {self.output}")
        if len({file.stem for file in files}) < len(files):
            raise ValueError("--output requires files of different names. Received: " + " ".join(map(str, files)))

    def _check_files(self, chips):
        """Raises an error for a file or chip that does not compile anywhere, before the first one is compiled."""
        from keras_vit.export.npu.chips import check_machine, check_sdk
        from keras_vit.export.npu.compile import read_compilable

        check_machine()
        for file in dict.fromkeys(self.files):
            read_compilable(file)
        for chip in chips:
            check_sdk(chip.vendor)

    def _images(self) -> dict:
        """File -> the images of --simulate, (n, H, W, 3) uint8, as the file's metadata specify."""
        if self.simulate is None:
            return {}
        from keras_vit import Preprocessing
        from keras_vit.export import read_description
        from keras_vit.export.names import CLASSIFY
        from keras_vit_cli.image_files import list_images, read_images, without_damaged

        paths, images = without_damaged(list_images(self.simulate, "--simulate")), {}
        for file in self.files:
            described = read_description(file)
            fields = described.description.preprocessing
            if "image_size" not in fields or next(iter(described.signatures)) != CLASSIFY:
                raise ValueError(
                    f"--simulate requires files of keras-vit export with the signature {CLASSIFY!r}. Received: {file}"
                )
            images[file] = read_images(Preprocessing.from_config(fields, file), self.simulate, paths).pixels
        return images

    def _examine(self, file, chip, temporary, images):
        """A report, and a simulation or None."""
        from keras_vit.export.npu import compile_for_npu, simulate

        show_progress(f"Compiling {file} for {chip}")
        compiled = (self.output or temporary) / f"{file.stem}-{chip.model}.tflite"
        report = compile_for_npu(file, chip, None if self.output is None and images is None else compiled)
        if images is None or _why_not_simulated(report):
            return report, None
        show_progress(f"Simulating {file} on {chip}")
        return report, simulate(file, compiled, images)


def _why_not_simulated(report) -> str | None:
    if report.chip.vendor != "qualcomm":
        return "the simulator is of Qualcomm's chips"
    if report.error:
        return "it does not compile"
    return None if report.ready and report.num_partitions == 1 else "the NPU does not run it whole"


def _print(results, simulated: bool):
    """Prints a report; of several files and chips a table, and reports where an NPU does not run everything."""
    from keras_vit.export.npu import npu_table, simulation_table

    reports = [report for report, _ in results]
    texts = [npu_table(reports)] if len(reports) > 1 else []
    if simulations := [(report, simulation) for report, simulation in results if simulation]:
        texts.append(simulation_table(simulations))
    if skipped := [report for report, simulation in results if simulated and not simulation]:
        lines = [f"Not simulated: {report.file} on {report.chip}: {_why_not_simulated(report)}." for report in skipped]
        texts.append("\n".join(lines))
    texts += [str(report) for report in reports if len(reports) == 1 or not report.ready]
    print("\n\n".join(texts))
