"""`keras-vit prepare` on Apache Beam: lists, decodes and compares images on as many machines as the runner has."""

from etils import epath

from keras_vit.recipes.data.image_folder import list_files
from keras_vit.recipes.prepare.outcomes import STORED, HashIndex, examine, write_skipped
from keras_vit.recipes.prepare.source import SourceFolder

try:
    import apache_beam as beam
    from apache_beam.options.pipeline_options import PipelineOptions
except ModuleNotFoundError as error:
    raise ImportError(
        "--beam-runner requires Apache Beam: pip install 'vit-for-keras[prepare]', or omit --beam-runner to use "
        "threads of this process."
    ) from error


class StoredImages(beam.PTransform):
    """Produces (name, example) of the images to store; writes the reports of the others.

    Only class names are listed beforehand. The hashes of the test images are a side input.
    """

    def __init__(self, source: SourceFolder, split: str, test_images: HashIndex | None, folder: epath.Path):
        super().__init__()
        self._path, self._classes, self._split = source.split_path(split), source.classes[split], split
        self._test_images, self._folder = test_images, folder

    def expand(self, pipeline):
        test_images = beam.pvalue.AsSingleton(pipeline | "Test images" >> beam.Create([self._test_images]))
        outcomes = (
            pipeline
            | "Classes" >> beam.Create(self._classes)
            | "List" >> beam.FlatMap(list_files, self._path)
            | "Spread" >> beam.Reshuffle()  # otherwise one worker reads all images of a class
            | "Examine" >> beam.Map(examine, self._path, test_images)
        )
        _ = (
            outcomes
            | "Skipped" >> beam.Filter(lambda outcome: outcome[0] != STORED)
            | "Gather" >> beam.combiners.ToList()
            | "Report" >> beam.Map(write_skipped, self._split, self._folder)
        )
        stored = outcomes | "Stored" >> beam.Filter(lambda outcome: outcome[0] == STORED)
        return stored | "Examples" >> beam.Map(lambda outcome: (outcome[1], outcome[2]))


def write_reports_with_beam(
    source: SourceFolder, test_images: dict, folder: epath.Path, runner: str, options: PipelineOptions
):
    """Writes the reports of every split, and nothing else."""
    with beam.Pipeline(runner=runner, options=options) as pipeline:
        for split in source.classes:
            _ = pipeline | split >> StoredImages(source, split, test_images.get(split), folder)


def pipeline_options(options: tuple[str, ...]) -> PipelineOptions:
    """Beam's options from "name=value" or "name", with or without leading dashes."""
    return PipelineOptions([f"--{option.lstrip('-')}" for option in options])
