import numpy as np
import pytest

from keras_vit.export import check_parity


def test_table_of_every_artifact(artifacts, classifier, pixels, images):
    rows = {row.name: row for row in check_parity(classifier, artifacts, pixels, images[1])}
    assert set(rows) == set(artifacts)
    for name in ("keras", "saved_model", "onnx", "float32"):
        assert rows[name].accuracy == rows[name].agreement == 1
        assert rows[name].max_difference < 1e-4
    assert rows["dynamic-int8"].max_difference >= rows["dynamic-int8"].mean_difference > rows["float32"].mean_difference
    for name, row in rows.items():
        assert row.median_ms > 0
        files = (
            [artifacts[name]] if artifacts[name].is_file() else [f for f in artifacts[name].rglob("*") if f.is_file()]
        )
        assert row.size_bytes >= sum(file.stat().st_size for file in files)


def test_differences_from_a_changed_model_are_seen(artifacts, classifier, pixels, images):
    labels = images[1]
    changed = classifier.with_head(4)  # zeros: every class alike
    (row,) = check_parity(changed, {"file": artifacts["float32"]}, pixels, labels)
    assert row.accuracy == 1 and row.agreement == pytest.approx(0.25)
    assert row.max_difference > 0.5


def test_what_cannot_be_compared(artifacts, classifier, pixels, images, toy):
    labels = images[1]
    for wrong in (labels[:-1], labels[:, None]):  # a column would be compared with all images
        with pytest.raises(ValueError, match=r"a label an image, \(60,\). Received: \(\d+,"):
            check_parity(classifier, artifacts, pixels, wrong)
    for wrong in (pixels[:0], pixels[:, :8], pixels[0]):
        with pytest.raises(ValueError, match=r"at least 1 images \(n, 16, 16, 3\)"):
            check_parity(classifier, artifacts, wrong, labels[: len(wrong)])
    for wrong in (images[0], 257 * pixels, pixels + np.nan):
        with pytest.raises(ValueError, match=r"pixels in \[0, 255\], before .* Received values between"):
            check_parity(classifier, artifacts, wrong, labels)
    with pytest.raises(ValueError, match="has no head"):
        check_parity(toy(num_classes=0), artifacts, pixels, labels)
    with pytest.raises(ValueError, match="see keras_vit.load. Received: a PosixPath"):
        check_parity(artifacts["keras"], artifacts, pixels, labels)
