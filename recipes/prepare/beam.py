"""`keras-vit prepare` on Apache Beam: lists, decodes and compares images on as many machines as the runner has."""

from etils import epath

from keras_vit.recipes.data.folders import files
from keras_vit.recipes.prepare.duplicates import KnownImages
from keras_vit.recipes.prepare.image_files import KEPT, examine
from keras_vit.recipes.prepare.image_tree import ImageTree
from keras_vit.recipes.prepare.skipped import write_left_out

try:
    import apache_beam as beam
    from apache_beam.options.pipeline_options import PipelineOptions
except ModuleNotFoundError as error:
    raise ImportError(
        "A Beam runner is named, but Apache Beam is missing: pip install 'keras_vit[prepare]', or leave --beam-runner "
        "out to work in this process."
    ) from error


class KeptImages(beam.PTransform):
    """From nothing to (name, example) of the images that are kept; writes the reports of the others.

    Only names of classes are listed beforehand. The hashes of the test images are a side input.
    """

    def __init__(self, tree: ImageTree, split: str, known: KnownImages | None, folder: epath.Path):
        super().__init__()
        self._path, self._classes, self._split = tree.split_path(split), tree.classes[split], split
        self._known, self._folder = known, folder

    def expand(self, pipeline):
        known = beam.pvalue.AsSingleton(pipeline | "Known" >> beam.Create([self._known]))
        examined = (
            pipeline
            | "Classes" >> beam.Create(self._classes)
            | "List" >> beam.FlatMap(files, self._path)
            | "Spread" >> beam.Reshuffle()  # else one worker would read all images of a class
            | "Examine" >> beam.Map(examine, self._path, known)
        )
        _ = (
            examined
            | "Left out" >> beam.Filter(lambda found: found[0] != KEPT)
            | "Gather" >> beam.combiners.ToList()
            | "Report" >> beam.Map(write_left_out, self._split, self._folder)
        )
        kept = examined | "Kept" >> beam.Filter(lambda found: found[0] == KEPT)
        return kept | "Examples" >> beam.Map(lambda found: (found[1], found[2]))


def report_with_beam(tree: ImageTree, known: dict, folder: epath.Path, runner: str, options: PipelineOptions):
    """Writes the reports of every split, and nothing else."""
    with beam.Pipeline(runner=runner, options=options) as pipeline:
        for split in tree.classes:
            _ = pipeline | split >> KeptImages(tree, split, known.get(split), folder)


def pipeline_options(options: tuple[str, ...]) -> PipelineOptions:
    """Beam's options from "name=value" or "name", with or without the dashes in front."""
    return PipelineOptions([f"--{option.lstrip('-')}" for option in options])
